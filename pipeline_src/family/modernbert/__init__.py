"""ModernBERT (Warner et al. 2024): pre-norm without biases, gated feed-forward, rotary positions, local attention."""

from pipeline_src.base.registry import ArchitectureSpec
from pipeline_src.family import NO_CAUSAL_MODEL

ARCHITECTURES = {
    "modernbert": ArchitectureSpec(
        # The head size must be even, since rotary positions rotate pairs of numbers.
        even="head",
        rotary=True,
        refused_objectives={
            **NO_CAUSAL_MODEL,
            "tinybert": "its queries and keys are one projection, rotation by their positions",
        },
    )
}
