"""A study's model counted by its own classes, on the device ``meta``; BERT's sizes alone are counted without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pipeline_src.common.members import stated
from pipeline_src.params.study import Study

PREDICTED = {"left_to_right": 1.0, "unmasked": 0.0}  # share of tokens by an objective's CORRUPTION; else mask_prob


class Counted(NamedTuple):
    """A model and what it learns by, without memory.

    Attributes:
        objective: a ``PretrainingObjective``: all models that pretraining runs.
        parameters, encoder_parameters: of all that is trained, and of the encoder that fine-tuning takes.
    """

    objective: Any
    parameters: int
    encoder_parameters: int

    @classmethod
    def of(cls, study: Study) -> Counted | None:
        """None where the formulas for BERT's sizes hold: of members that state ``BY_FORMULA``.

        Raises:
            PipelineError: no such member, or a teacher that does not fit.
        """
        members = {"architectures": study.model.architecture, "objectives": study.pretrain.objective}
        if all(stated(folder, name, "BY_FORMULA", False) for folder, name in members.items()):
            return None
        from pipeline_src.models.architecture import load_architecture

        objective = make_objective(study)
        whole = sum(parameter.numel() for parameter in objective.parameters())
        return cls(objective, whole, load_architecture(study.model.architecture).parameters(objective.config))

    def pretraining_flops(self, work: Any) -> float:
        """Of every model that runs; of a teacher that is not there yet, nothing."""
        unknown = self.objective.teacher is None and needs_teacher(self.objective.__module__.rpartition(".")[2])
        return float((self.objective.config if unknown else self.objective).training_flops(work))


def needs_teacher(objective: str) -> bool:
    """Whether it learns from another model."""
    return bool(stated("objectives", objective, "NEEDS_TEACHER", False))


def predicted_share(study: Study) -> float:
    """Of the tokens, those that pretraining predicts."""
    corruption = stated("objectives", study.pretrain.objective, "CORRUPTION", "masked")
    return PREDICTED.get(corruption, study.mask_prob)


def make_objective(study: Study, teacher: Study | None = None) -> Any:
    """What a study learns by, on the device ``meta``; with its teacher, where one is needed and known.

    Args:
        study: what is counted.
        teacher: whose model the teacher is, where the folder that the study names is not there.

    Raises:
        PipelineError: no such architecture or objective, or a teacher that does not fit.
    """
    from pipeline_src.models.architecture import load_architecture
    from pipeline_src.models.hub import load_config
    from pipeline_src.models.undrawn import undrawn
    from pipeline_src.training.objective import load_objective

    name, folder = study.pretrain.objective, Path(study.pretrain.teacher or "")
    kind = load_objective(name)

    def config_of(one: Study) -> Any:
        config = load_architecture(one.model.architecture).config
        return config.from_params(one.model, one.vocabulary.entries, kind.causal)

    with undrawn():
        objective = kind(config_of(study), study.examples.pairs, study.objectives.of(name))
        if needs_teacher(name) and (folder / "config.json").exists():
            objective.learn_from(kind.make_teacher(load_config(folder)))
        elif needs_teacher(name) and teacher is not None:
            objective.learn_from(kind.make_teacher(config_of(teacher)))
    return objective
