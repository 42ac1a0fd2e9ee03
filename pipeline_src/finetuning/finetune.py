"""Stage ``finetune``: train one task from an encoder over its recipe's grid, keep the best run, write its predictions.

Scores in ``run.json`` choose between the points of the grid; the published ones are computed by the stage ``evaluate``
from the prediction files alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.files import atomic_directory, atomic_file, read_json, write_json
from pipeline_src.common.paths import BASELINES, finetuned_model, task_predictions
from pipeline_src.common.progress import log
from pipeline_src.finetuning.augmentation import augment
from pipeline_src.finetuning.distillation import file_sums, load_taught, taught_folder
from pipeline_src.finetuning.files import EvalSet, TaskFiles
from pipeline_src.finetuning.grid import BaselineGrid, Grid, write_lines
from pipeline_src.finetuning.identity import begun_with, checkpoint_identity
from pipeline_src.finetuning.recipes import grid_points, recipe_of
from pipeline_src.finetuning.substitutes import load_substitutes
from pipeline_src.finetuning.task_heads import BertForTask
from pipeline_src.finetuning.trainer import WEIGHTS, TaskTrainer
from pipeline_src.models.architecture import check_architecture
from pipeline_src.models.card import Source, write_card
from pipeline_src.models.card_kinds import finetuned_card
from pipeline_src.models.hub import load_config, load_weights, save_model
from pipeline_src.params.base import NO_TEACHER
from pipeline_src.params.finetune import FinetuneParams
from pipeline_src.params.machine import USUAL, Machine
from pipeline_src.params.model import ModelParams
from pipeline_src.tasks.files.spec import TaskSpec, load_spec
from pipeline_src.training.checkpoint import Checkpoints
from pipeline_src.training.checkpoint_settings import ROOT, check_settings
from pipeline_src.training.identity import environment, fingerprint
from pipeline_src.training.stop_request import StopRequest, catch_stop_requests

PHASE = "finetune"  # below the folder of checkpoints


def run(
    *, seed: int, model: ModelParams, finetune: FinetuneParams, task: str, restart: str, machine: Machine = USUAL
) -> None:
    """Read the encoder's folder and ``data/tasks/<task>``; write the best model and every prediction file.

    ``results/predictions/<task>/<restart>/predicted/`` holds ``pretrained/<row>.jsonl``, where the row has a test file
    ``pretrained/<row>.test.jsonl``, with ``finetune.random_baseline`` also ``random/<row>.jsonl``; and ``run.json``
    with every run's score and what was cut or dropped, by file. A stage that was stopped goes on where it was.

    Raises:
        PipelineError: an input is missing or malformed, the encoder is not of the study's architecture, or training
            diverges.
        Interrupted: a signal requested a stop; where training was is saved.
    """
    check_settings()
    torch.set_num_threads(machine.finetune.threads)
    recipe, encoder = recipe_of(finetune, task), Path(finetune.model)
    files = TaskFiles(load_spec(task), encoder, recipe.max_length)
    stream = derive_seed(seed, task, restart) >> 1
    config = replace(load_config(encoder), positions_start=model.positions_start)  # random weights begin as it did
    check_architecture(config, model.architecture, encoder)
    if recipe.dropout is not None:
        config = replace(config, hidden_dropout_prob=recipe.dropout, attention_probs_dropout_prob=recipe.dropout)
    trainer = TaskTrainer(files.spec, recipe, finetune, config, encoder, files.training(), stream, machine)
    identity = checkpoint_identity(
        seed=seed,
        restart=restart,
        recipe=recipe,
        finetune=finetune,
        task=files.spec,
        encoder=encoder,
        model=model,
        data=files.sums(),
        teacher={} if finetune.teacher == NO_TEACHER else teach(trainer, files, seed),
    )
    eval_sets, grids = [files.eval_set(row) for row in files.spec.scores], []
    with catch_stop_requests() as stop_request:
        for weights in WEIGHTS if finetune.random_baseline else ("pretrained",):
            of_weights = begun_with(weights, identity)
            grids.append(open_grid(of_weights))
            run_grid(grids[-1], trainer, files, eval_sets, of_weights, stop_request)

    kept, best = grids[0].best_folder, trainer.model()
    load_weights(best, kept / "model")
    with atomic_directory(task_predictions(task, restart)) as output:
        for grid in grids:
            shutil.copytree(grid.best_folder / "predictions", output / grid.weights)
        for row in files.tests():
            lines = trainer.predict(best.to(trainer.distributed.device), files.eval_set(row, test=True))
            write_lines(output / "pretrained" / f"{row}.test.jsonl", lines)
        counts = {file: reasons for file, reasons in files.counts.items() if reasons}
        runs = [run for grid in grids for run in grid.runs]
        summary = {"task": task, "restart": restart, "recipe": recipe.model_dump(), "runs": runs, "counts": counts}
        write_json(output / "run.json", summary)
    with atomic_directory(finetuned_model(task, restart)) as output:
        shutil.copytree(kept / "model", output, dirs_exist_ok=True)
    for grid in grids:
        grid.finish()


def open_grid(identity: Mapping[str, Any]) -> Grid:
    """The runs of one kind of weights, as an earlier start of the stage left them."""
    weights, folder = identity["weights"], Path(identity["task"]["name"], identity["restart"], fingerprint(identity))
    if weights == "random":
        return BaselineGrid(BASELINES / folder, weights)
    return Grid(ROOT / PHASE / folder, weights)


def run_grid(
    grid: Grid,
    trainer: TaskTrainer,
    files: TaskFiles,
    eval_sets: Sequence[EvalSet],
    identity: Mapping[str, Any],
    stop_request: StopRequest,
) -> None:
    """Train every point of the recipe's grid that ``grid`` does not hold yet, and predict ``eval_sets`` with each.

    Args:
        eval_sets: those of the task's score rows; the first decides between the points.
        identity: what decides the result, by which checkpoints are known.
        stop_request: whether someone requested a stop.

    Raises:
        PipelineError, Interrupted: as :func:`run`.
    """
    first, score = eval_sets[0], files.spec.eval_set(None)
    for point in grid_points(trainer.recipe):
        named = (
            f"{grid.weights} weights, learning rate {point.learning_rate:g}, epochs {point.epochs}, batch {point.batch}"
        )
        if grid.has(point):
            log.info("%s: trained before, kept in %s", named, grid.folder)
            continue
        checkpoints = checkpoints_of(trainer, {**identity, **point._asdict()})
        start = imitated(grid, trainer, identity, stop_request)
        model, loss = trainer.train(grid.weights, point, checkpoints, stop_request, start)
        predictions = {each.row: trainer.predict(model, each) for each in eval_sets}
        scores = files.handler.score(files.spec, first.row, first.examples, predictions[first.row])
        log.info("%s: %s", named, ", ".join(f"{metric} {scores[metric]:.1f}" for metric in score.metrics))
        about = {"seed": identity["seed"], "restart": identity["restart"], **point._asdict()}
        save = partial(save_finetuned, model=model, trainer=trainer, files=files, about=about, scores=scores)
        saved = save if grid.weights == "pretrained" else None  # of the random baseline only the predictions count
        grid.keep(point, loss, scores, score.metrics[0], predictions, saved)
        checkpoints.finish()


def checkpoints_of(trainer: TaskTrainer, identity: Mapping[str, Any]) -> Checkpoints:
    """Those of one run, known by what decides it."""
    phase = f"{PHASE}/{identity['task']['name']}/{identity['restart']}"
    settings = trainer.machine.settings("finetune")
    return Checkpoints(phase, identity, environment(trainer.distributed, settings), trainer.distributed)


def imitated(grid: Grid, trainer: TaskTrainer, identity: Mapping[str, Any], stop_request: StopRequest) -> Path | None:
    """The file of a student that has learnt of its teacher's layers, once for all points of a grid; None without.

    Raises:
        PipelineError, Interrupted: as :func:`run`.
    """
    if trainer.teacher is None or not trainer.recipe.layer_epochs:
        return None
    path = grid.folder / "imitated.safetensors"
    if not path.exists():
        checkpoints = checkpoints_of(trainer, {**identity, "learns": "layers"})
        model = trainer.imitate(grid.weights, checkpoints, stop_request)
        with atomic_file(path, "wb") as file:
            file.write(save({name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}))
        checkpoints.finish()
    return path


def teach(trainer: TaskTrainer, files: TaskFiles, seed: int) -> dict[str, int]:
    """Give a trainer its task's teacher, and the texts with other words that it learns from besides.

    Returns:
        Sums of the files that decide the result by this.

    Raises:
        PipelineError: a model that is needed is missing, or does not fit.
    """
    recipe, study, device = trainer.recipe, Path(trainer.params.teacher), trainer.distributed.device
    folder, head, outputs = taught_folder(study, files.spec.name), files.handler.head, files.handler.outputs(files.spec)
    trainer.teacher = load_taught(
        folder, head, outputs, trainer.config, files.tokenizer, device, layers=bool(recipe.layer_epochs)
    )
    read = [folder]
    if recipe.augmented:
        words = load_substitutes(study, trainer.config, files.tokenizer, device)
        copies, stream = recipe.augmented, derive_seed(seed, files.spec.name)
        make = partial(augment, copies=copies, seed=stream, words=words)
        how = {"copies": copies, "seed": stream, **file_sums(study, words.folders)}
        trainer.training = files.augmented(make, how)
        log.info("%s: %d sequences with their texts in other words", files.spec.name, trainer.training.items)
        read += words.folders
    return file_sums(study, read)


def save_finetuned(
    folder: Path,
    model: BertForTask,
    trainer: TaskTrainer,
    files: TaskFiles,
    about: Mapping[str, Any],
    scores: Mapping[str, float],
) -> None:
    """Fill an empty folder with a model and its card; ``about`` says how it was trained, ``scores`` how it does."""
    score, huggingface_class = files.spec.eval_set(None), trainer.config.names.classes[files.handler.head]
    recipe = {"max_length": trainer.recipe.max_length, "frozen": trainer.recipe.frozen}
    card = finetuned_card(
        trainer.config,
        files.spec.name,
        huggingface_class,
        read_source(files.folder),
        {**about, **recipe},
        [(score.title, score.file, metric, scores[metric]) for metric in score.metrics],
    )
    save_model(folder, model, trainer.config, huggingface_class, files.encoder, write_card(card))
    write_json(folder / "config.json", read_json(folder / "config.json", dict) | label_names(files.spec))


def label_names(spec: TaskSpec) -> dict[str, Any]:
    """What Hugging Face's config says of a model's outputs; nothing where they are not labels."""
    if spec.range is not None:
        return {"id2label": {"0": spec.name}, "label2id": {spec.name: 0}, "problem_type": "regression"}
    numbered = dict(enumerate(spec.labels))
    names = {
        "id2label": {str(number): label for number, label in numbered.items()},
        "label2id": {label: number for number, label in numbered.items()},
    }
    return names if numbered else {}


def read_source(folder: Path) -> Source | None:
    """Where a task's data came from, as its download wrote it down; None for data put there by hand."""
    if not (folder / "source.json").exists():
        return None
    about = read_json(folder / "source.json", dict.fromkeys(("name", "description", "licence", "citation"), str))
    return Source(about["name"], about["description"], about["licence"], about["citation"])
