"""The complete params.yaml, validated as a whole before any stage starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.base.names import shown
from pipeline_src.base.registry import architecture_spec, member_names, objective_spec
from pipeline_src.base.yaml_files import MODELS, SOURCES, TASK_SOURCES, TASK_SPECS, entry_names
from pipeline_src.study.data import CorpusParams, ExamplesParams, VocabularyParams, WordVectorsParams
from pipeline_src.study.finetune import MIN_LAYERS, SPECIAL_TOKENS, FinetuneParams, TaskHyperparameters
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import ObjectivesParams, PretrainParams
from pipeline_src.study.reading import check_block, read_yaml
from pipeline_src.study.schema import HUB, HUB_MODEL, NO_TEACHER, ListedOnce, Section
from pipeline_src.study.task_spec import load_spec, task_names

OWN_ENTRIES = "DVC experiments and clones have your own entries only after `git add`"
# Folders of models that this study's stages write.
MADE_HERE = tuple(("models", name) for name in ("pretrained", "finetuned", "word_vectors"))
UNTRACKED = "DVC cannot track a model there; move it below models/, or outside the project"
# Kinds of tasks that support a teacher.
TAUGHT = ("classification",)


class Study(Section):
    """All settings that the results of a study depend on.

    Rules that involve several settings are in ``cross_checks``.

    Attributes:
        seed: main random seed. Each fine-tuning also has a seed of its own (``finetune.seeds``).
        mask_prob: fraction of tokens chosen for prediction; 0.15 in the paper (section 3.1). It is at the top level,
            so that ``dvc exp run -S mask_prob=0.2`` is short.
        task_source: ``synthetic``: generated tasks. ``official``: the published task files.
        tasks: names of entries of ``catalogue/tasks``.
    """

    seed: int = Field(ge=0, lt=2**31)
    mask_prob: float = Field(gt=0, lt=1)
    corpus: CorpusParams
    vocabulary: VocabularyParams
    examples: ExamplesParams
    word_vectors: WordVectorsParams
    model: ModelParams
    pretrain: PretrainParams
    objectives: ObjectivesParams
    task_source: Literal["synthetic", "official"]
    tasks: Annotated[tuple[str, ...], ListedOnce] = Field(min_length=1)
    finetune: FinetuneParams
    interpretation: InterpretationParams


# (condition that is true if the study is invalid, dotted key of the value at fault, hint)
Check = tuple[object, str, str]


def cross_checks(study: Study) -> Iterator[Check]:
    """Yield checks that involve several settings.

    The caller stops at the first check whose condition is true, so a check may assume that all earlier ones passed.
    """
    yield from _entry_checks(study)
    yield from _model_checks(study)
    yield from _start_model_checks(study)
    yield from _finetune_checks(study)


def _entry_checks(study: Study) -> Iterator[Check]:
    sources = study.corpus.sources
    known = entry_names(SOURCES)
    for name, source in sources.items():
        message = f"{SOURCES} has no file of this name; use one of {', '.join(known)}. {OWN_ENTRIES}"
        yield source.entry not in known, f"corpus.sources.{name}.from", message
    weights = study.examples.weights
    unmatched = "" if weights is None else ", ".join(sorted(weights.keys() ^ sources.keys()))
    message = f"list each source of corpus.sources here (weight 0 excludes it), or set null; only in one: {unmatched}"
    yield unmatched, "examples.weights", message
    message = "it would change the shares that weights or temperature set; remove this key, or set both to null"
    with_shares = weights is not None or study.examples.temperature is not None
    yield study.examples.full_length_share and with_shares, "examples.full_length_share", message
    known_tasks = task_names()
    for key, names in (("tasks", study.tasks), ("interpretation.tags", study.interpretation.tags)):
        for name in names:
            message = f"unknown task {name!r}; use one of {', '.join(known_tasks)}. {OWN_ENTRIES}"
            yield name not in known_tasks, key, message
    of_task: dict[str, str] = {}
    for task in study.tasks:
        # Each row of the results table needs a name of its own, but users may give their tasks' rows any name.
        for row in load_spec(task).scores:
            other = of_task.setdefault(row, task)
            message = f"{other} and {task} both have {row!r} in their `scores`; rename it in one file of {TASK_SPECS}"
            yield other != task, "tasks", message
        message = f"{task} is missing; add `{task}: {{}}` to use finetune.defaults, or list what differs"
        yield task not in study.finetune.per_task, "finetune.per_task", message
    known_sets = entry_names(TASK_SOURCES)
    for name in study.interpretation.pair_sets:
        message = f"{TASK_SOURCES} has no file {name}.yaml. {OWN_ENTRIES}"
        yield name not in known_sets, "interpretation.minimal_pairs", message


def _model_checks(study: Study) -> Iterator[Check]:
    yield from _phase_checks(study)
    yield from _objective_checks(study)
    yield from _embedding_checks(study)
    cap = study.pretrain.masking.max_predictions
    shortest = min(dict(study.examples.max_seq_length).values())
    wanted = study.mask_prob * shortest
    message = f"too low for mask_prob at length {shortest}; set it to null, or to {math.ceil(wanted)} or more"
    yield cap is not None and cap < wanted, "pretrain.masking.max_predictions", message


def _phase_checks(study: Study) -> Iterator[Check]:
    model, pretrain = study.model, study.pretrain
    phases = dict(study.examples.max_seq_length)
    later = pretrain.later_phases
    too_long = f"set it to at most model.max_position_embeddings ({model.max_position_embeddings})"
    for key, names in (("steps", pretrain.steps.names), ("later_phases", ["phase1", "phase2", *later])):
        message = f"use the same phases as examples.max_seq_length: {', '.join(phases)}"
        yield names != list(phases), f"pretrain.{key}", message
    yield from _schedule_checks(pretrain)
    for before, phase in pairwise(phases):
        key = "examples.max_seq_length"
        yield phases[before] > phases[phase], f"{key}.{before}", f"set it to at most {phase} ({phases[phase]})"
        after = later[phase].after if phase in later else before
        yield after != before, f"pretrain.later_phases.{phase}.after", f"set it to {before}, the previous phase"
        yield phases[phase] > model.max_position_embeddings, f"{key}.{phase}", too_long
    for phase in study.examples.full_length_share:
        yield phase not in phases, f"examples.full_length_share.{phase}", f"use one of {', '.join(phases)}"
    thetas = {"model": model.global_rope_theta}
    for phase, values in later.items():
        thetas[f"pretrain.later_phases.{phase}"] = values.global_rope_theta
    is_rotary = architecture_spec(model.architecture).rotary
    for section, theta in thetas.items():
        message = f"{model.architecture} has no rotary positions; remove this key"
        yield theta and not is_rotary, f"{section}.global_rope_theta", message
    for key, recipe in _recipes(study.finetune):
        yield recipe.max_length > model.max_position_embeddings, f"{key}.max_length", too_long


def _objective_checks(study: Study) -> Iterator[Check]:
    name, objective = study.model.architecture, study.pretrain.objective
    architecture, rules = architecture_spec(name), objective_spec(objective)
    has_pairs = study.examples.pair_objective != "none"
    for subject, reason in ((objective, rules.refused_pairs), (name, architecture.refused_pairs)):
        message = f"{subject} does not support sentence pairs, since {reason}; set it to none"
        yield has_pairs and reason, "examples.pair_objective", message
    allowed = rules.only_architectures
    message = f"{name} does not support {objective}; set it to {' or '.join(allowed)}, or use another objective"
    yield allowed and name not in allowed, "model.architecture", message
    message = f"muon updates the matrices of Transformer blocks, and {name} has no blocks; set it to adamw"
    yield study.pretrain.optimizer == "muon" and architecture.blocks == "none", "pretrain.optimizer", message
    reason = architecture.refused_objectives.get(objective, "")
    message = f"{name} does not support {objective}, since {reason}; use another objective or architecture"
    yield reason, "pretrain.objective", message
    has_teacher = study.pretrain.teacher != NO_TEACHER
    message = f"objective: {objective} needs a teacher; set it to the folder of a pretrained model"
    yield rules.needs_teacher and not has_teacher, "pretrain.teacher", message
    message = f"objective: {objective} uses no teacher; set it to {NO_TEACHER}"
    yield has_teacher and not rules.needs_teacher, "pretrain.teacher", message


def _embedding_checks(study: Study) -> Iterator[Check]:
    model = study.model
    if architecture_spec(model.architecture).factorized_embeddings:
        return
    own_width = (None, model.hidden_size)
    message = f"the embeddings of {model.architecture} are as wide as the encoder ({model.hidden_size}); set it to null"
    yield model.embedding_size not in own_width, "model.embedding_size", message
    electra = study.objectives.electra
    is_shared = electra.embeddings != "separate" and electra.generator_width != 1
    message = (
        f"a narrower generator cannot share {model.architecture}'s embeddings, which are as wide as the encoder; set "
        "it to separate, objectives.electra.generator_width to 1, or model.architecture to electra"
    )
    yield study.pretrain.objective == "electra" and is_shared, "objectives.electra.embeddings", message


def _schedule_checks(pretrain: PretrainParams) -> Iterator[Check]:
    # The learning rate has one schedule over all phases. If the phases had fewer steps than warm-up plus decay, the
    # rate would never reach its peak, or would drop suddenly.
    total = pretrain.steps.total
    warmup = pretrain.warmup_steps
    decay = pretrain.decay_steps or 0
    message = f"the warm-up is longer than all phases together; set it to at most {total}"
    yield warmup > total, "pretrain.warmup_steps", message
    message = f"{warmup} steps of warm-up plus the decay exceed the {total} steps of all phases"
    if warmup < total:
        message += f"; set it to {total - warmup} or less"
    yield warmup + decay > total, "pretrain.decay_steps", message


def _start_model_checks(study: Study) -> Iterator[Check]:
    # Checks that need no torch. The model's sizes are checked by the stage `start_model`.
    source, key, given = study.pretrain.init_from, "pretrain.init_from", study.vocabulary.kind == "given"
    message = "`given` means the vocabulary of pretrain.init_from; set pretrain.init_from to a model"
    yield given and not study.pretrain.continued, "vocabulary.kind", message
    message = "a pretrained model needs its own vocabulary; set vocabulary.kind: given"
    yield study.pretrain.continued and not given, key, message
    for path, its_key in ((source, key), (study.finetune.model, "finetune.model")):
        message = "write a hub model as hub:OWNER/NAME@REVISION; the revision is a branch, a tag or a commit"
        yield path.startswith(HUB) and not HUB_MODEL.fullmatch(path), its_key, message
    yield from _folder_checks(study)
    folder, entries = Path(source), [f"{MODELS}/{entry}.yaml" for entry in entry_names(MODELS)]
    objective = study.pretrain.objective
    if not given:
        return
    message = f"pretrain.objective: {objective} starts from random weights; set it to mlm"
    yield not objective_spec(objective).can_continue, key, message
    if source in entries or source.startswith(HUB):
        return
    yield folder.suffix == ".yaml", key, f"there is no such entry; use one of {', '.join(entries)}"
    message = f"this study's own stages write this folder; use a copy: cp -r {source} models/start"
    yield folder.parts[:2] in MADE_HERE, key, message
    message = f"{UNTRACKED}; or use hub:OWNER/NAME@REVISION, or one of {', '.join(entries)}"
    yield not _can_be_tracked(folder), key, message
    there = (folder / "config.json").is_file()
    message = f"no model found; use a folder with config.json, hub:OWNER/NAME@REVISION, or one of {', '.join(entries)}"
    yield not there, key, message
    if there:
        kind = str(read_json(folder / "config.json", dict).get("model_type", "bert")).replace("-", "_")
        message = f"the model has another architecture than the study; set model.architecture: {kind}"
        yield kind in member_names("models") and kind != study.model.architecture, key, message


def _folder_checks(study: Study) -> Iterator[Check]:
    # The stage `code` checks that the folders exist.
    for section in ("pretrain", "finetune"):
        key, teacher = f"{section}.teacher", getattr(study, section).teacher
        if teacher == NO_TEACHER:
            continue
        folder = Path(teacher)
        message = "a teacher is a folder; import the model into one: `python -m pipeline_src import`"
        yield teacher.startswith(HUB) or folder.suffix == ".yaml", key, message
        message = "this study's own stages write there; use a copy, such as models/teacher"
        yield folder == Path("models") or folder.parts[:2] in MADE_HERE, key, message
        yield not _can_be_tracked(folder), key, UNTRACKED

    key, folder = "finetune.model", Path(study.finetune.model)
    if study.finetune.model.startswith(HUB):
        return
    message = "use a folder or hub:OWNER/NAME@REVISION; entries of the catalogue are for pretrain.init_from"
    yield folder.suffix == ".yaml", key, message
    yield not _can_be_tracked(folder), key, UNTRACKED
    phases = study.pretrain.steps.names
    message = f"no phase has this name; use one of {', '.join(phases)}"
    yield folder.parts[:2] == MADE_HERE[0] and folder.parts[2:3] not in [(phase,) for phase in phases], key, message


def _can_be_tracked(folder: Path) -> bool:
    return folder.is_absolute() or folder.parts[:1] in (("models",), ("..",))


def _finetune_checks(study: Study) -> Iterator[Check]:
    finetune, name = study.finetune, study.model.architecture
    architecture, muon = architecture_spec(name), study.finetune.optimizer == "muon"
    frozen = any(recipe.feature_layers for recipe in finetune.recipes)
    message = f"muon updates the matrices of Transformer blocks, and {name} has no blocks; set it to adamw"
    yield muon and architecture.blocks == "none", "finetune.optimizer", message
    message = "muon has no matrices to update in an encoder frozen by feature_layers; set it to adamw"
    yield muon and frozen, "finetune.optimizer", message
    made_here = finetune.model.startswith("models/pretrained/") and not study.pretrain.continued
    for key, recipe in _recipes(finetune):
        message = f"{name} has no last layers to re-initialize: all layers are shared, or there are none; set it to 0"
        yield recipe.reinit_layers and architecture.blocks != "own", f"{key}.reinit_layers", message
        message = f"set it to at most model.num_hidden_layers ({study.model.num_hidden_layers})"
        too_many = made_here and recipe.reinit_layers > study.model.num_hidden_layers
        yield too_many, f"{key}.reinit_layers", message
        layers = MIN_LAYERS.get(recipe.feature_layers or "", 1)
        message = f"it combines {layers} layers, and model.num_hidden_layers is {study.model.num_hidden_layers}"
        too_few = made_here and architecture.blocks != "none" and layers > study.model.num_hidden_layers
        yield too_few, f"{key}.feature_layers", f"{message}; use last, for instance"
        message = "an encoder frozen by feature_layers cannot be re-initialized; set this to 0, or feature_layers: null"
        yield recipe.reinit_layers and recipe.feature_layers, f"{key}.reinit_layers", message
        message = f"no block of {name} is trained, so there is one learning rate; set this to null"
        no_blocks = recipe.feature_layers or architecture.blocks == "none"
        yield recipe.head_learning_rate and no_blocks, f"{key}.head_learning_rate", message
        message = "only select: best scores the epochs on the development set; set that, or this to null"
        yield recipe.patience and recipe.select != "best", f"{key}.patience", message
        room = recipe.max_length - SPECIAL_TOKENS
        message = (
            f"a window of max_length {recipe.max_length} has {room} tokens of the text; set this to at most {room}, so "
            "that no token is left out"
        )
        yield recipe.window_stride and recipe.window_stride > room, f"{key}.window_stride", message

    taught = finetune.teacher != NO_TEACHER
    message = (
        "bi_encoder supports no LSTM, frozen encoder or teacher; set it to cross_encoder, or set bilstm: false, "
        f"feature_layers: null, teacher: {NO_TEACHER}"
    )
    alone = not (finetune.bilstm or frozen or taught)
    yield finetune.pair_head == "bi_encoder" and not alone, "finetune.pair_head", message
    for task in study.tasks:
        message = f"{task} is a retrieval task, which supports no LSTM; set bilstm: false and feature_layers: null"
        lstm = finetune.bilstm or finetune.recipe(task).feature_layers
        yield lstm and load_spec(task).kind == "retrieval", "tasks", message
        message = "class weights are for tasks with one label a text; set this to null"
        weighted = finetune.recipe(task).class_weights and load_spec(task).kind == "multilabel"
        yield weighted, f"finetune.per_task.{task}.class_weights", message
    if not taught:
        return
    yield frozen, "finetune.teacher", "a frozen encoder cannot learn from a teacher; set feature_layers: null"
    yield muon, "finetune.optimizer", "muon does not support a teacher; set it to adamw"
    reason = architecture.refused_objectives.get("tinybert")
    message = f"{name} cannot imitate a teacher's layers, since {reason}; set layer_epochs: 0"
    yield reason and any(recipe.layer_epochs for recipe in finetune.recipes), "finetune.teacher", message
    for task in study.tasks:
        message = f"{task} is a {load_spec(task).kind} task, which supports no teacher; remove it from tasks"
        yield load_spec(task).kind not in TAUGHT, "finetune.teacher", message


def _recipes(finetune: FinetuneParams) -> list[tuple[str, TaskHyperparameters]]:
    per_task = [(f"finetune.per_task.{task}", finetune.recipe(task)) for task in finetune.per_task]
    return [("finetune.defaults", finetune.defaults), *per_task]


def load_study(path: str | Path = "params.yaml") -> Study:
    return check_study(read_yaml(path), path)


def check_unchanged(started: Study, blocks: Iterable[str]) -> None:
    """Raise an error if sections (``blocks``) of params.yaml were edited since the stage started.

    DVC reads the values only after the stage has ended, so it would record values that the stage did not use.
    """
    before, now = (study.model_dump(exclude_unset=True) for study in (started, load_study()))
    changed = [block for block in blocks if before[block] != now[block]]
    if changed:
        raise PipelineError(
            "params.yaml changed while the stage ran; the outputs are not recorded",
            ", ".join(changed),
            where="params.yaml",
            hint="check the edit (`git diff params.yaml`) and start again: the stage uses the new values",
        )


def check_study(raw: dict[str, Any], path: str | Path = "params.yaml") -> Study:
    study = check_block(Study, raw, path, complete=True)
    for broken, key, hint in cross_checks(study):
        if broken:
            value: Any = raw
            for step in key.split("."):
                value = value.get(step)
            # The key may be absent from the recipe of a task, which then has the default.
            given = "" if value is None else f" = {shown(value)}"
            raise PipelineError("value does not fit the other settings", f"{key}{given}", where=path, hint=hint)
    return study
