"""Word vectors without context, averaged over a sequence (the CBoW baseline of GLUE)."""

from pipeline_src.base.registry import ArchitectureSpec

ARCHITECTURES = {
    "word_vectors": ArchitectureSpec(
        blocks="none",
        refused_objectives={
            "clm": "the mean of a sequence holds what is to be predicted",
            "electra": "a vector without context cannot tell what was replaced",
            "distilbert": "a vector without context has no layer to distil",
            "tinybert": "it has no attention to imitate",
        },
    )
}
