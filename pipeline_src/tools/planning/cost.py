"""Parameters and FLOPs of a study's model: by BERT's formulas, or from the architecture's modules without memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_src.common.paths import START_MODEL
from pipeline_src.common.registry import architecture_spec, objective_spec
from pipeline_src.config.study import Study
from pipeline_src.models.flops import Workload, training_flops

FORWARD = 1 / 3  # of a training step's FLOPs
PREDICTED = {"clm": 1.0, "unmasked": 0.0}  # share of tokens by an objective's `corruption`; otherwise mask_prob


@dataclass(frozen=True)
class ModelCost:
    """Sizes of a model, named as :func:`training_flops` reads them.

    Attributes:
        objective: a ``PretrainingObjective`` on the device ``meta``, if BERT's formulas do not hold.
    """

    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    vocab_size: int
    positions: int
    architecture: str = "bert"
    objective: Any = None

    @classmethod
    def of(cls, study: Study) -> ModelCost:
        """Count the study's own model, even if it fine-tunes another."""
        model = study.model
        specs = architecture_spec(model.architecture), objective_spec(study.pretrain.objective)
        by_formula = all(spec.flops_by_formula for spec in specs)
        inner = model.intermediate_size or 4 * model.hidden_size
        objective = None if by_formula else make_objective(study)
        if objective is None and (start := start_config(study)) is not None:
            inner = start.intermediate_size
            sizes = start.hidden_size, start.num_hidden_layers, inner, start.vocab_size, start.max_position_embeddings
            return cls(*sizes, model.architecture)
        sizes = (
            model.hidden_size,
            model.num_hidden_layers,
            inner,
            study.vocabulary.vocab_size,
            model.max_position_embeddings,
        )
        return cls(*sizes, model.architecture, objective)

    @property
    def embedding_width(self) -> int:
        return self.hidden_size

    @property
    def encoder_parameters(self) -> int:
        """Parameters of embeddings, blocks and pooler."""
        if self.objective is not None:
            from pipeline_src.models.bert import load_architecture

            return load_architecture(self.architecture).parameters(self.objective.config)
        h, inner = self.hidden_size, self.intermediate_size
        embeddings = (self.vocab_size + self.positions + 2) * h + 2 * h
        block = 4 * (h * h + h) + 2 * h * inner + inner + h + 4 * h
        return embeddings + self.num_hidden_layers * block + h * h + h

    @property
    def parameters(self) -> int:
        """All parameters that pretraining trains, both heads included; the MLM head is tied to the embeddings."""
        if self.objective is not None:
            return sum(parameter.numel() for parameter in self.objective.parameters())
        h = self.hidden_size
        return self.encoder_parameters + (h * h + h) + 2 * h + self.vocab_size + 2 * h + 2

    def flops(self, work: Workload) -> float:
        if self.objective is not None:
            return float(self.objective.config.training_flops(work))
        return float(training_flops(self, work))

    def pretraining_flops(self, work: Workload) -> float:
        """FLOPs of every model that pretraining runs; a teacher whose folder does not exist yet is not counted."""
        if self.objective is None:
            return self.flops(work)
        unknown = self.objective.teacher is None and needs_teacher(self.objective.__module__.rpartition(".")[2])
        return float((self.objective.config if unknown else self.objective).training_flops(work))


def workload(tokens: float, length: float, predictions: float = 0.0, rows: float | None = None) -> Workload:
    """Return the work of ``tokens`` in sequences of ``length``; the last block computes all ``rows`` unless given."""
    rows = tokens if rows is None else rows
    counts = (tokens / length, tokens, tokens * length, predictions, rows, rows * length)
    return Workload(*(round(count) for count in counts))


def needs_teacher(objective: str) -> bool:
    """Return whether an objective learns from another model."""
    return objective_spec(objective).needs_teacher


def predicted_share(study: Study) -> float:
    """Return the share of tokens that pretraining predicts."""
    corruption = objective_spec(study.pretrain.objective).corruption
    return PREDICTED.get(corruption, study.mask_prob)


def start_config(study: Study) -> Any | None:
    """Return the config of the model that the study goes on from; None if there is none, or it is not fetched yet."""
    if not study.pretrain.goes_on:
        return None
    from pipeline_src.models.hub import load_config

    folders = (Path(study.pretrain.init_from), START_MODEL)
    return next((load_config(folder) for folder in folders if (folder / "config.json").exists()), None)


def make_objective(study: Study, teacher: Study | None = None) -> Any:
    """Return a study's pretraining objective on the device ``meta``, with its teacher if it needs one that is known.

    Args:
        study: what is counted.
        teacher: the study of the teacher, if the folder that ``study`` names does not exist.
    """
    from pipeline_src.models.bert import load_architecture, uninitialised
    from pipeline_src.models.hub import load_config
    from pipeline_src.training.objective import load_objective

    name, folder = study.pretrain.objective, Path(study.pretrain.teacher or "")
    kind = load_objective(name)

    def config_of(one: Study) -> Any:
        if (start := start_config(one)) is not None:
            return start
        config = load_architecture(one.model.architecture).config
        return config.from_params(one.model, one.vocabulary.vocab_size, kind.spec.causal)

    with uninitialised():
        objective = kind(config_of(study), study.examples.pair_objective, study.objectives.of(name))
        if needs_teacher(name) and (folder / "config.json").exists():
            objective.set_teacher(kind.build_teacher(load_config(folder)))
        elif needs_teacher(name) and teacher is not None:
            objective.set_teacher(kind.build_teacher(config_of(teacher)))
    return objective
