"""TinyBERT's general distillation (Jiao et al. 2020, section 3.1): a student imitates its teacher's layers."""

from pipeline_src.base.registry import ObjectiveSpec

OBJECTIVES = {
    "tinybert": ObjectiveSpec(
        # The weights of both terms are those of the paper.
        terms={"scores": 1.0, "states": 1.0},
        validation_columns=("scores_loss", "states_loss"),
        collator="none",
        needs_teacher=True,
    )
}
