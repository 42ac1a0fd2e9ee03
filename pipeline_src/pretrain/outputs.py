"""Write the outputs of a pretraining phase: model folders with cards, the training curve, and the results."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from tokenizers import Tokenizer

from pipeline_src.base.files import atomic_directory, atomic_file, read_json, write_json
from pipeline_src.base.paths import PRETRAIN_LOGS, PRETRAIN_RESULTS, PRETRAINED, TOKENS, VOCABULARY
from pipeline_src.model.bert import BertConfig
from pipeline_src.model.hub import save_model
from pipeline_src.model.model_card import pretrained_card, read_mix, read_sources
from pipeline_src.pretrain.data import PretrainingExamples, shown_examples
from pipeline_src.pretrain.objective import PretrainingObjective
from pipeline_src.pretrain.phases import Phase
from pipeline_src.pretrain.validation import Validator
from pipeline_src.training.checkpoint import (
    STEPS,
    Checkpointer,
    gathered_weights,
    save_state,
    saved_files,
    stored_tensors,
)
from pipeline_src.training.optimizers import MOMENTS
from pipeline_src.training.trainer import Callback, Trainer

TRAINING_STATE = "training_state"
CARD_COSTS = ("steps", "sequences", "tokens", "flops")


class KeptModels(Callback):
    """Save the model after each of ``pretrain.keep_checkpoint_steps``."""

    def __init__(self, phase: Phase, checkpointer: Checkpointer) -> None:
        self.steps = [step for step in phase.pretrain.keep_checkpoint_steps if phase.first < step <= phase.last]
        super().__init__(at=self.steps)
        self.phase = phase
        self.checkpointer = checkpointer

    def after_step(self, trainer: Trainer[Any]) -> None:
        save_models(self.checkpointer.kept_model(trainer.state.step), self.phase, trainer)
        trainer.distributed.wait_for_all()

    def copy_to(self, folder: Path) -> dict[int, Path]:
        sources = {step: self.checkpointer.kept_model(step) for step in self.steps}
        return {step: Path(shutil.copytree(source, folder / STEPS / str(step))) for step, source in sources.items()}


def save_models(
    folder: Path, phase: Phase, trainer: Trainer[Any], kept_models: KeptModels | None = None
) -> dict[str, dict[str, Any]]:
    """Write the objective's models with tokenizer, card and training state. All processes must call this.

    Returns:
        Step -> path -> size in bytes and sha256, for all files of the model and of ``kept_models``. On processes other
        than the main one, {}.
    """
    objective = trainer.objective
    is_main = trainer.distributed.is_main
    models = objective.saved_models()
    weights = {name: gathered_weights(saved.module, is_main) for name, saved in models.items()}
    moments = stored_tensors(objective.checkpoint_parameters(), trainer.optimizer, MOMENTS, keep=is_main)
    if not is_main:
        return {}
    with atomic_directory(folder) as unfinished:
        for name, (module, config, huggingface_class) in models.items():
            (unfinished / name).mkdir(exist_ok=True)
            parameters = sum(parameter.numel() for parameter in module.parameters())
            card = make_card(phase, trainer, config, parameters, huggingface_class)
            save_model(unfinished / name, weights[name], config, huggingface_class, VOCABULARY, card)
        save_state(unfinished / TRAINING_STATE, moments, trainer.state.step)
        files = {str(trainer.state.step): saved_files(unfinished)}
        if kept_models is not None:
            for step, copy in kept_models.copy_to(unfinished).items():
                files[str(step)] = saved_files(copy)
    return files


def make_card(phase: Phase, trainer: Trainer[Any], config: BertConfig, parameters: int, huggingface_class: str) -> str:
    if trainer.compute_tracker is None:
        return ""
    costs = trainer.compute_tracker.deterministic()
    manifest = read_json(TOKENS / "manifest.json", dict)
    shares = phase.examples_manifest[phase.name].get("sources")
    return pretrained_card(
        config,
        parameters,
        trainer.objective.learns,
        huggingface_class,
        read_sources(manifest),
        {
            **{"seed": phase.seed, "mask_prob": phase.mask_prob, "step": trainer.state.step},
            **phase.pretrain.model_dump(exclude=None if phase.pretrain.continued else {"init_from"}),
            **phase.objective_params.model_dump(),
        },
        {"training text": last_losses(trainer), "validation text": trainer.metrics},
        {name: costs[name] for name in CARD_COSTS},
        read_mix(manifest, shares),
        phase.pretrain.continued,
    )


def last_losses(trainer: Trainer[Any]) -> dict[str, float]:
    last = trainer.state.curve[-1] if trainer.state.curve else {}
    return {name: last[name] for name in trainer.objective.columns() if name in last}


def write_outputs(
    phase: Phase,
    trainer: Trainer[Any],
    validator: Validator,
    kept_models: KeptModels,
    examples: PretrainingExamples,
    tokenizer: Tokenizer,
    loss_status: Mapping[str, str | None] | None,
    positions: Mapping[str, float],
) -> None:
    # ``trainer.metrics`` and ``positions`` (losses by position) must have been measured with the final model.
    assert trainer.compute_tracker is not None
    files = save_models(PRETRAINED / phase.name, phase, trainer, kept_models)
    if not trainer.distributed.is_main:
        return
    objective = trainer.objective
    state = trainer.state
    checkpointer = kept_models.checkpointer
    by_source = validator.validation.by_source
    write_curve(PRETRAIN_RESULTS / f"{phase.name}.tsv", state.curve, objective, by_source)
    results: dict[str, Any] = {
        "phase": phase.name,
        "objective": phase.pretrain.objective,
        "steps": phase.last - phase.first,
        "steps_before": phase.first,
        "batch": phase.pretrain.train_batch_size,
        "mask_prob": phase.mask_prob,
        "parameters": trainer.compute_tracker.parameters,
        "config": objective.config.as_dict(),
        "pairs": examples.pairs,
        "cost": trainer.compute_tracker.deterministic(),
        "train": last_losses(trainer),
        "validation": trainer.metrics,
        "shown_examples": shown_examples(examples, tokenizer, phase.seed),
        "ledger": {
            # Leave out the fingerprint of the code, which dvc.lock has. An edit that does not change the computation
            # then gives the same bytes.
            "identity": {key: value for key, value in checkpointer.identity.items() if key != "code"},
            "machine": {**checkpointer.machine, "mixed": checkpointer.mixed},
            "files": files,
        },
    }
    if loss_status is not None:
        results["diagnosis"] = loss_status
    if positions:
        results["by_position"] = positions
    if state.samples:
        results["fill_mask"] = state.samples
    if by_source:
        final = [{"step": phase.last, **validator.row(trainer.metrics)}] if phase.last > phase.first else []
        losses = source_losses([*state.curve, *final], by_source)
        results["source_losses" if phase.pretrain.continued else "by_source"] = losses
    write_json(PRETRAIN_RESULTS / f"{phase.name}.json", results)
    settings = phase.machine_settings(trainer.distributed.device.type)
    write_json(PRETRAIN_LOGS / f"{phase.name}.cost.json", trainer.compute_tracker.measured() | {"machine": settings})


def source_losses(curve: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, list[dict[str, float]]]:
    losses: dict[str, list[dict[str, float]]] = {}
    for name in names:
        column = f"validation_{name}"
        rows = []
        for point in curve:
            if column in point:
                rows.append({"step": point["step"], "mlm_loss": point[column]})
        losses[name.removeprefix("mlm_loss_")] = rows
    return losses


def write_curve(
    path: Path, curve: Sequence[Mapping[str, float]], objective: PretrainingObjective[Any], by_source: Sequence[str]
) -> None:
    # A column without values, for example that of a loss term with weight 0, is written empty.
    metrics = [*objective.spec.validation_columns, *by_source]
    columns = ["step", *objective.columns(), "grad_norm", "learning_rate"]
    columns += [f"validation_{name}" for name in metrics]
    table = pd.DataFrame(curve).reindex(columns=columns)
    with atomic_file(path) as file:
        table.to_csv(file, sep="\t", index=False, float_format="%.6g", lineterminator="\n")
