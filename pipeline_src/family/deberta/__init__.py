"""DeBERTa (He et al. 2021): disentangled attention over relative positions, and the enhanced mask decoder."""

from pipeline_src.base.registry import ArchitectureSpec
from pipeline_src.family import NO_CAUSAL_MODEL

ARCHITECTURES = {
    "deberta": ArchitectureSpec(
        pads_sequences=True,
        refused_objectives={
            **NO_CAUSAL_MODEL,
            "tinybert": "its attention logits include relative positions, and a student's do not",
        },
        refused_pairs="its mask decoder reads another last layer than the label of a pair would",
    )
}
