"""ALBERT (Lan et al. 2020): factorized embeddings, and one block shared by all layers."""

from pipeline_src.base.registry import ArchitectureSpec

ARCHITECTURES = {
    "albert": ArchitectureSpec(
        factorized_embeddings=True,
        blocks="shared",
        refused_objectives={"clm": "it reads both directions, and transformers has no class for one"},
    )
}
