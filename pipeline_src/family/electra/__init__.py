"""ELECTRA's encoder (Clark et al. 2020): BERT with embeddings that may be narrower than the hidden size."""

from pipeline_src.base.registry import ArchitectureSpec, ObjectiveSpec

# Embeddings have their own width, so that a narrower generator can share them.
ARCHITECTURES = {"electra": ArchitectureSpec(factorized_embeddings=True)}
OBJECTIVES = {
    "electra": ObjectiveSpec(
        terms={"mlm": 1.0, "rtd": 50.0, "words": 50.0},
        validation_columns=(
            "mlm_loss",
            "mlm_accuracy",
            "rtd_loss",
            "rtd_recall",
            "rtd_specificity",
            "rtd_auc",
            "words_loss",
            "words_accuracy",
            "replaced",
        ),
        fixed_capacity=True,
    )
}
