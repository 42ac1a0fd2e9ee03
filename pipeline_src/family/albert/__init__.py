"""ALBERT (Lan et al. 2020): factorized embeddings, and one block shared by all layers."""

from pipeline_src.base.registry import ArchitectureSpec
from pipeline_src.family import NO_CAUSAL_MODEL

ARCHITECTURES = {
    "albert": ArchitectureSpec(
        factorized_embeddings=True,
        blocks="shared",
        refused_objectives=NO_CAUSAL_MODEL,
    )
}
