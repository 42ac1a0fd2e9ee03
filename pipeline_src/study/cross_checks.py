"""Rules of params.yaml that involve several settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_src.base.files import read_json
from pipeline_src.base.paths import FINETUNED, PRETRAINED, WORD_VECTORS
from pipeline_src.base.registry import architecture_spec, member_names, objective_spec
from pipeline_src.base.yaml_files import MODELS, SOURCES, TASK_SOURCES, TASK_SPECS, entry_names
from pipeline_src.study.finetune import MIN_LAYERS, SPECIAL_TOKENS, FinetuneParams, TaskHyperparameters
from pipeline_src.study.pretrain import PretrainParams
from pipeline_src.study.schema import HUB, HUB_MODEL, NO_TEACHER
from pipeline_src.study.task_spec import load_spec, task_names

if TYPE_CHECKING:
    from pipeline_src.study.study import Study

OWN_ENTRIES = "DVC experiments and clones have your own entries only after `git add`"
UNTRACKED = "DVC cannot track a model there; move it below models/, or outside the project"
# Kinds of tasks that support a teacher.
TAUGHT = ("classification",)

# Dotted key of a value that does not fit the other settings, and a hint.
Mismatch = tuple[str, str]


def cross_checks(study: Study) -> Iterator[Mismatch]:
    """Yield each value that does not fit the other settings.

    The caller stops at the first one, so a rule may assume that all earlier rules hold.
    """
    yield from _sources(study)
    yield from _tasks(study)
    yield from _phases(study)
    yield from _schedule(study.pretrain)
    yield from _lengths(study)
    yield from _rotary_positions(study)
    yield from _objective(study)
    yield from _teacher(study)
    yield from _muon(study)
    yield from _embeddings(study)
    yield from _predictions_per_example(study)
    yield from _vocabulary_of_start_model(study)
    yield from _folders(study)
    if study.pretrain.continued:
        yield from _start_model(study)
    for key, recipe in _recipes(study.finetune):
        yield from _recipe_and_encoder(study, key, recipe)
        yield from _recipe(key, recipe)
    yield from _pair_head(study)
    yield from _kinds_of_tasks(study)
    if study.finetune.teacher != NO_TEACHER:
        yield from _taught_finetuning(study)


def _sources(study: Study) -> Iterator[Mismatch]:
    sources, examples = study.corpus.sources, study.examples
    known = entry_names(SOURCES)
    for name, source in sources.items():
        if source.entry not in known:
            hint = f"{SOURCES} has no file of this name; use one of {', '.join(known)}. {OWN_ENTRIES}"
            yield f"corpus.sources.{name}.from", hint
    if examples.weights is not None and examples.weights.keys() != sources.keys():
        unmatched = ", ".join(sorted(examples.weights.keys() ^ sources.keys()))
        hint = f"list each source of corpus.sources here (weight 0 excludes it), or set null; only in one: {unmatched}"
        yield "examples.weights", hint
    has_shares = examples.weights is not None or examples.temperature is not None
    if examples.full_length_share and has_shares:
        hint = "it would change the shares that weights or temperature set; remove this key, or set both to null"
        yield "examples.full_length_share", hint


def _tasks(study: Study) -> Iterator[Mismatch]:
    known = task_names()
    for key, names in (("tasks", study.tasks), ("interpretation.tags", study.interpretation.tags)):
        for name in names:
            if name not in known:
                yield key, f"unknown task {name!r}; use one of {', '.join(known)}. {OWN_ENTRIES}"
    task_of_row: dict[str, str] = {}
    for task in study.tasks:
        # Each row of the results table needs a name of its own, but users may give their tasks' rows any name.
        for row in load_spec(task).scores:
            other = task_of_row.setdefault(row, task)
            if other != task:
                hint = f"{other} and {task} both have {row!r} in their `scores`; rename it in one file of {TASK_SPECS}"
                yield "tasks", hint
        if task not in study.finetune.per_task:
            hint = f"{task} is missing; add `{task}: {{}}` to use finetune.defaults, or list what differs"
            yield "finetune.per_task", hint
    known_sets = entry_names(TASK_SOURCES)
    for name in study.interpretation.pair_sets:
        if name not in known_sets:
            yield "interpretation.minimal_pairs", f"{TASK_SOURCES} has no file {name}.yaml. {OWN_ENTRIES}"


def _phases(study: Study) -> Iterator[Mismatch]:
    phases = list(study.examples.max_seq_length.names)
    later = study.pretrain.later_phases
    hint = f"use the same phases as examples.max_seq_length: {', '.join(phases)}"
    if study.pretrain.steps.names != phases:
        yield "pretrain.steps", hint
    if ["phase1", "phase2", *later] != phases:
        yield "pretrain.later_phases", hint
    for before, phase in pairwise(phases):
        if phase in later and later[phase].after != before:
            yield f"pretrain.later_phases.{phase}.after", f"set it to {before}, the previous phase"
    for phase in study.examples.full_length_share:
        if phase not in phases:
            yield f"examples.full_length_share.{phase}", f"use one of {', '.join(phases)}"


def _schedule(pretrain: PretrainParams) -> Iterator[Mismatch]:
    # The learning rate has one schedule over all phases. If the phases had fewer steps than warm-up plus decay, the
    # rate would never reach its peak, or would drop suddenly.
    total = pretrain.steps.total
    warmup = pretrain.warmup_steps
    decay = pretrain.decay_steps or 0
    if warmup > total:
        hint = f"the warm-up is longer than all phases together; set it to at most {total}"
        yield "pretrain.warmup_steps", hint
    if warmup + decay > total:
        hint = f"{warmup} steps of warm-up plus the decay exceed the {total} steps of all phases"
        if warmup < total:
            hint += f"; set it to {total - warmup} or less"
        yield "pretrain.decay_steps", hint


def _lengths(study: Study) -> Iterator[Mismatch]:
    longest = study.model.max_position_embeddings
    too_long = f"set it to at most model.max_position_embeddings ({longest})"
    lengths = dict(study.examples.max_seq_length)
    for before, phase in pairwise(lengths):
        if lengths[before] > lengths[phase]:
            yield f"examples.max_seq_length.{before}", f"set it to at most {phase} ({lengths[phase]})"
        if lengths[phase] > longest:
            yield f"examples.max_seq_length.{phase}", too_long
    for key, recipe in _recipes(study.finetune):
        if recipe.max_length > longest:
            yield f"{key}.max_length", too_long


def _rotary_positions(study: Study) -> Iterator[Mismatch]:
    name = study.model.architecture
    if architecture_spec(name).rotary:
        return
    hint = f"{name} has no rotary positions; remove this key"
    if study.model.global_rope_theta:
        yield "model.global_rope_theta", hint
    for phase, values in study.pretrain.later_phases.items():
        if values.global_rope_theta:
            yield f"pretrain.later_phases.{phase}.global_rope_theta", hint


def _objective(study: Study) -> Iterator[Mismatch]:
    name, objective = study.model.architecture, study.pretrain.objective
    architecture, rules = architecture_spec(name), objective_spec(objective)
    if study.examples.pair_objective != "none":
        for subject, reason in ((objective, rules.refused_pairs), (name, architecture.refused_pairs)):
            if reason:
                hint = f"{subject} does not support sentence pairs, since {reason}; set it to none"
                yield "examples.pair_objective", hint
    supported = rules.only_architectures
    if supported and name not in supported:
        hint = f"{name} does not support {objective}; set it to {' or '.join(supported)}, or use another objective"
        yield "model.architecture", hint
    if objective in architecture.refused_objectives:
        reason = architecture.refused_objectives[objective]
        hint = f"{name} does not support {objective}, since {reason}; use another objective or architecture"
        yield "pretrain.objective", hint


def _teacher(study: Study) -> Iterator[Mismatch]:
    objective = study.pretrain.objective
    needs_teacher = objective_spec(objective).needs_teacher
    has_teacher = study.pretrain.teacher != NO_TEACHER
    if needs_teacher and not has_teacher:
        hint = f"objective: {objective} needs a teacher; set it to the folder of a pretrained model"
        yield "pretrain.teacher", hint
    if has_teacher and not needs_teacher:
        yield "pretrain.teacher", f"objective: {objective} uses no teacher; set it to {NO_TEACHER}"


def _muon(study: Study) -> Iterator[Mismatch]:
    name, finetune = study.model.architecture, study.finetune
    has_blocks = architecture_spec(name).blocks != "none"
    for key, optimizer in (
        ("pretrain.optimizer", study.pretrain.optimizer),
        ("finetune.optimizer", finetune.optimizer),
    ):
        if optimizer == "muon" and not has_blocks:
            yield key, f"muon updates the matrices of Transformer blocks, and {name} has no blocks; set it to adamw"
    if finetune.optimizer == "muon" and _is_frozen(finetune):
        hint = "muon has no matrices to update in an encoder frozen by feature_layers; set it to adamw"
        yield "finetune.optimizer", hint


def _embeddings(study: Study) -> Iterator[Mismatch]:
    model, electra = study.model, study.objectives.electra
    if architecture_spec(model.architecture).factorized_embeddings:
        return
    if model.embedding_size not in (None, model.hidden_size):
        width = f"the embeddings of {model.architecture} are as wide as the encoder ({model.hidden_size})"
        yield "model.embedding_size", f"{width}; set it to null"
    is_shared = electra.embeddings != "separate" and electra.generator_width != 1
    if study.pretrain.objective == "electra" and is_shared:
        hint = (
            f"a narrower generator cannot share {model.architecture}'s embeddings, which are as wide as the encoder; "
            "set it to separate, objectives.electra.generator_width to 1, or model.architecture to electra"
        )
        yield "objectives.electra.embeddings", hint


def _predictions_per_example(study: Study) -> Iterator[Mismatch]:
    limit = study.pretrain.masking.max_predictions
    shortest = min(dict(study.examples.max_seq_length).values())
    wanted = study.mask_prob * shortest
    if limit is not None and limit < wanted:
        hint = f"too low for mask_prob at length {shortest}; set it to null, or to {math.ceil(wanted)} or more"
        yield "pretrain.masking.max_predictions", hint


def _vocabulary_of_start_model(study: Study) -> Iterator[Mismatch]:
    is_given = study.vocabulary.kind == "given"
    if is_given and not study.pretrain.continued:
        hint = "`given` means the vocabulary of pretrain.init_from; set pretrain.init_from to a model"
        yield "vocabulary.kind", hint
    if study.pretrain.continued and not is_given:
        yield "pretrain.init_from", "a pretrained model needs its own vocabulary; set vocabulary.kind: given"


def _folders(study: Study) -> Iterator[Mismatch]:
    # The stage `code` checks that the folders exist.
    for key, model in (("pretrain.init_from", study.pretrain.init_from), ("finetune.model", study.finetune.model)):
        if model.startswith(HUB) and not HUB_MODEL.fullmatch(model):
            hint = "write a hub model as hub:OWNER/NAME@REVISION; the revision is a branch, a tag or a commit"
            yield key, hint
    for key, teacher in (("pretrain.teacher", study.pretrain.teacher), ("finetune.teacher", study.finetune.teacher)):
        if teacher != NO_TEACHER:
            yield from _folder_of_teacher(key, teacher)
    if not study.finetune.model.startswith(HUB):
        yield from _folder_to_finetune(study)


def _folder_of_teacher(key: str, teacher: str) -> Iterator[Mismatch]:
    folder = Path(teacher)
    if teacher.startswith(HUB) or folder.suffix == ".yaml":
        yield key, "a teacher is a folder; import the model into one: `python -m pipeline_src import`"
    if folder == Path("models") or is_made_here(folder):
        yield key, "this study's own stages write there; use a copy, such as models/teacher"
    if not _can_be_tracked(folder):
        yield key, UNTRACKED


def _folder_to_finetune(study: Study) -> Iterator[Mismatch]:
    key = "finetune.model"
    folder = Path(study.finetune.model)
    if folder.suffix == ".yaml":
        yield key, "use a folder or hub:OWNER/NAME@REVISION; entries of the catalogue are for pretrain.init_from"
    if folder == Path("models") or folder.is_relative_to(FINETUNED):
        yield key, "the stage `finetune` writes there; use a copy, such as models/start"
    if folder.is_relative_to(WORD_VECTORS) and study.model.architecture != "word_vectors":
        yield key, "these are word vectors; set model.architecture: word_vectors"
    if not _can_be_tracked(folder):
        yield key, UNTRACKED
    phases = study.pretrain.steps.names
    if folder.is_relative_to(PRETRAINED) and folder.parts[2:3] not in [(phase,) for phase in phases]:
        yield key, f"no phase has this name; use one of {', '.join(phases)}"


def is_made_here(folder: Path) -> bool:
    # Return whether a stage of this study writes the folder.
    return any(folder.is_relative_to(made) for made in (PRETRAINED, FINETUNED, WORD_VECTORS))


def _can_be_tracked(folder: Path) -> bool:
    return folder.is_absolute() or folder.parts[:1] in (("models",), ("..",))


def _start_model(study: Study) -> Iterator[Mismatch]:
    # Checks that need no torch. The model's sizes are checked by the stage `start_model`.
    key, model = "pretrain.init_from", study.pretrain.init_from
    folder = Path(model)
    objective = study.pretrain.objective
    if not objective_spec(objective).can_continue:
        yield key, f"pretrain.objective: {objective} starts from random weights; set it to mlm"
    entries = [f"{MODELS}/{name}.yaml" for name in entry_names(MODELS)]
    if model in entries or model.startswith(HUB):
        return
    one_of = f"one of {', '.join(entries)}"
    if folder.suffix == ".yaml":
        yield key, f"there is no such entry; use {one_of}"
    if is_made_here(folder):
        yield key, f"this study's own stages write this folder; use a copy: cp -r {model} models/start"
    if not _can_be_tracked(folder):
        yield key, f"{UNTRACKED}; or use hub:OWNER/NAME@REVISION, or {one_of}"
    config = folder / "config.json"
    if not config.is_file():
        yield key, f"no model found; use a folder with config.json, hub:OWNER/NAME@REVISION, or {one_of}"
    architecture = str(read_json(config, dict).get("model_type", "bert")).replace("-", "_")
    if architecture in member_names("models") and architecture != study.model.architecture:
        yield key, f"the model has another architecture than the study; set model.architecture: {architecture}"


def _recipe_and_encoder(study: Study, key: str, recipe: TaskHyperparameters) -> Iterator[Mismatch]:
    name, blocks = study.model.architecture, architecture_spec(study.model.architecture).blocks
    if recipe.reinit_layers and blocks != "own":
        hint = f"{name} has no last layers to re-initialize: all layers are shared, or there are none; set it to 0"
        yield f"{key}.reinit_layers", hint
    if recipe.head_learning_rate and (recipe.feature_layers or blocks == "none"):
        hint = f"no block of {name} is trained, so there is one learning rate; set this to null"
        yield f"{key}.head_learning_rate", hint
    combined = MIN_LAYERS.get(recipe.feature_layers or "", 1)
    if name == "word_vectors" and combined > 1:
        yield f"{key}.feature_layers", f"it combines {combined} layers, and word vectors have one; use last"
    # Another model than the study's own may have another depth.
    is_own_model = study.finetune.model.startswith("models/pretrained/") and not study.pretrain.continued
    if not is_own_model:
        return
    depth = study.model.num_hidden_layers
    if recipe.reinit_layers > depth:
        yield f"{key}.reinit_layers", f"set it to at most model.num_hidden_layers ({depth})"
    if blocks != "none" and combined > depth:
        hint = f"it combines {combined} layers, and model.num_hidden_layers is {depth}; use last, for instance"
        yield f"{key}.feature_layers", hint


def _recipe(key: str, recipe: TaskHyperparameters) -> Iterator[Mismatch]:
    if recipe.reinit_layers and recipe.feature_layers:
        hint = "an encoder frozen by feature_layers cannot be re-initialized; set this to 0, or feature_layers: null"
        yield f"{key}.reinit_layers", hint
    if recipe.patience and recipe.select != "best":
        hint = "only select: best scores the epochs on the development set; set that, or this to null"
        yield f"{key}.patience", hint
    room = recipe.max_length - SPECIAL_TOKENS
    if recipe.window_stride and recipe.window_stride > room:
        hint = (
            f"a window of max_length {recipe.max_length} has {room} tokens of the text; set this to at most {room}, so "
            "that no token is left out"
        )
        yield f"{key}.window_stride", hint


def _pair_head(study: Study) -> Iterator[Mismatch]:
    finetune = study.finetune
    is_taught = finetune.teacher != NO_TEACHER
    if finetune.pair_head == "bi_encoder" and (finetune.bilstm or _is_frozen(finetune) or is_taught):
        hint = (
            "bi_encoder supports no LSTM, frozen encoder or teacher; set it to cross_encoder, or set bilstm: false, "
            f"feature_layers: null, teacher: {NO_TEACHER}"
        )
        yield "finetune.pair_head", hint


def _kinds_of_tasks(study: Study) -> Iterator[Mismatch]:
    for task in study.tasks:
        kind, recipe = load_spec(task).kind, study.finetune.recipe(task)
        if kind == "retrieval" and (study.finetune.bilstm or recipe.feature_layers):
            hint = f"{task} is a retrieval task, which supports no LSTM; set bilstm: false and feature_layers: null"
            yield "tasks", hint
        if kind == "multilabel" and recipe.class_weights:
            hint = "class weights are for tasks with one label a text; set this to null"
            yield f"finetune.per_task.{task}.class_weights", hint


def _taught_finetuning(study: Study) -> Iterator[Mismatch]:
    finetune, name = study.finetune, study.model.architecture
    if _is_frozen(finetune):
        yield "finetune.teacher", "a frozen encoder cannot learn from a teacher; set feature_layers: null"
    if finetune.optimizer == "muon":
        yield "finetune.optimizer", "muon does not support a teacher; set it to adamw"
    reason = architecture_spec(name).refused_objectives.get("tinybert")
    if reason and any(recipe.layer_epochs for recipe in finetune.recipes):
        hint = f"{name} cannot imitate a teacher's layers, since {reason}; set layer_epochs: 0"
        yield "finetune.teacher", hint
    for task in study.tasks:
        kind = load_spec(task).kind
        if kind not in TAUGHT:
            hint = f"{task} is a {kind} task, which supports no teacher; remove it from tasks"
            yield "finetune.teacher", hint


def _is_frozen(finetune: FinetuneParams) -> bool:
    return any(recipe.feature_layers for recipe in finetune.recipes)


def _recipes(finetune: FinetuneParams) -> list[tuple[str, TaskHyperparameters]]:
    per_task = [(f"finetune.per_task.{task}", finetune.recipe(task)) for task in finetune.per_task]
    return [("finetune.defaults", finetune.defaults), *per_task]
