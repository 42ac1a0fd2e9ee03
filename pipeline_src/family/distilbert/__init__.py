"""DistilBERT's encoder (Sanh et al. 2019): BERT without token types, with half the layers."""

from pipeline_src.base.registry import ArchitectureSpec, ObjectiveSpec
from pipeline_src.family import NO_CAUSAL_MODEL

ARCHITECTURES = {
    "distilbert": ArchitectureSpec(refused_objectives=NO_CAUSAL_MODEL),
}
OBJECTIVES = {
    "distilbert": ObjectiveSpec(
        terms={"kl": 5.0, "mlm": 2.0, "cosine": 1.0},
        validation_columns=("mlm_loss", "mlm_accuracy", "kl_loss", "cosine_loss"),
        needs_teacher=True,
    )
}
