"""ModernBERT (Warner et al. 2024): pre-norm without biases, gated feed-forward, rotary positions, local attention."""

from pipeline_src.base.registry import ArchitectureSpec

ARCHITECTURES = {
    "modernbert": ArchitectureSpec(
        # Rotary positions rotate pairs of numbers.
        even="head",
        rotary=True,
        refused_objectives={
            "clm": "it reads both directions, and transformers has no class for one",
            "tinybert": "its queries and keys are one projection, rotation by their positions",
        },
    )
}
