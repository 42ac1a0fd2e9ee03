"""All of params.yaml, checked at once before any stage starts."""

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
from pipeline_src.base.yaml_files import MODELS, SOURCES, TASK_SPECS, entry_names
from pipeline_src.study.data import CorpusParams, ExamplesParams, VocabularyParams, WordVectorsParams
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import ObjectivesParams, PretrainParams
from pipeline_src.study.reading import check_block, read_yaml
from pipeline_src.study.schema import HUB, HUB_MODEL, NO_TEACHER, ListedOnce, Section
from pipeline_src.study.task_spec import load_spec, task_names

OWN_ENTRIES = "In an experiment or clone, one of your own is there only after `git add`"
# Folders of models that stages write.
MADE_HERE = tuple(("models", name) for name in ("pretrained", "finetuned", "word_vectors"))
# Kinds of tasks that learn a teacher's logits.
TAUGHT = ("classification",)


class Study(Section):
    """One study: all parameters that its results depend on. ``cross_checks`` has rules on several parameters.

    ``mask_prob`` (fraction of tokens chosen for prediction, 0.15 in the paper, section 3.1) and ``seed`` are at the top
    because people type ``dvc exp run -S mask_prob=0.2``.
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


# A condition that must not hold, a dotted key, and what to do about the key's value.
Check = tuple[object, str, str]


def cross_checks(study: Study) -> Iterator[Check]:
    """Yield checks of values against each other: the condition is true if they do not fit.

    The caller stops at the first true condition, so a check may rely on all checks before it.
    """
    yield from _entry_checks(study)
    yield from _model_checks(study)
    yield from _start_model_checks(study)
    yield from _finetune_checks(study)


def _entry_checks(study: Study) -> Iterator[Check]:
    sources = study.corpus.sources
    known = entry_names(SOURCES)
    for name, source in sources.items():
        message = f"no file of {SOURCES} has this name; there are {', '.join(known)}. {OWN_ENTRIES}"
        yield source.entry not in known, f"corpus.sources.{name}.from", message
    weights = study.examples.weights
    unmatched = "" if weights is None else ", ".join(sorted(weights.keys() ^ sources.keys()))
    message = f"give every source of corpus.sources a weight, 0 to leave it out, or null; not in both: {unmatched}"
    yield unmatched, "examples.weights", message
    of_task: dict[str, str] = {}
    for task in study.tasks:
        message = f"no task is called {task!r}; there are {', '.join(task_names())}. {OWN_ENTRIES}"
        yield task not in task_names(), "tasks", message
        # Entries of users may have any name, but each row of the results needs its own.
        for row in load_spec(task).scores:
            other = of_task.setdefault(row, task)
            message = f"{other} and {task} both call a row of their `scores` {row!r}; rename one in {TASK_SPECS}"
            yield other != task, "tasks", message
        message = f"no recipe for {task}; add `{task}: {{}}` for that of finetune.defaults, or say what differs"
        yield task not in study.finetune.per_task, "finetune.per_task", message


def _model_checks(study: Study) -> Iterator[Check]:
    yield from _phase_checks(study)
    yield from _objective_checks(study)
    yield from _embedding_checks(study)
    cap = study.pretrain.masking.max_predictions
    longest = study.examples.max_seq_length.longest
    wanted = study.mask_prob * longest
    message = f"masks less than mask_prob at length {longest}; set it to null, or at least {math.ceil(wanted)}"
    yield cap is not None and cap < wanted, "pretrain.masking.max_predictions", message


def _phase_checks(study: Study) -> Iterator[Check]:
    model, pretrain = study.model, study.pretrain
    phases = dict(study.examples.max_seq_length)
    later = pretrain.later_phases
    too_long = f"at most model.max_position_embeddings ({model.max_position_embeddings})"
    for key, names in (("steps", pretrain.steps.names), ("later_phases", ["phase1", "phase2", *later])):
        message = f"give it the phases of examples.max_seq_length: {', '.join(phases)}"
        yield names != list(phases), f"pretrain.{key}", message
    yield from _schedule_checks(pretrain)
    for before, phase in pairwise(phases):
        key = "examples.max_seq_length"
        yield phases[before] > phases[phase], f"{key}.{before}", f"at most {phase} ({phases[phase]})"
        after = later[phase].after if phase in later else before
        yield after != before, f"pretrain.later_phases.{phase}.after", f"set it to {before}, the phase before"
        yield phases[phase] > model.max_position_embeddings, f"{key}.{phase}", too_long
    for phase in study.examples.full_length_share:
        yield phase not in phases, f"examples.full_length_share.{phase}", f"there are {', '.join(phases)}"
    thetas = {"model": model.global_rope_theta}
    for phase, values in later.items():
        thetas[f"pretrain.later_phases.{phase}"] = values.global_rope_theta
    is_rotary = architecture_spec(model.architecture).rotary
    for section, theta in thetas.items():
        message = f"{model.architecture} has no rotary positions; leave it out"
        yield theta and not is_rotary, f"{section}.global_rope_theta", message
    for key, recipe in _recipes(study.finetune):
        yield recipe.max_length > model.max_position_embeddings, f"{key}.max_length", too_long


def _objective_checks(study: Study) -> Iterator[Check]:
    name, objective = study.model.architecture, study.pretrain.objective
    architecture, rules = architecture_spec(name), objective_spec(objective)
    has_pairs = study.examples.pair_objective != "none"
    for subject, reason in ((objective, rules.refused_pairs), (name, architecture.refused_pairs)):
        message = f"{subject} goes without sentence pairs, since {reason}; set it to none"
        yield has_pairs and reason, "examples.pair_objective", message
    allowed = rules.only_architectures
    message = f"{name} does not learn {objective}; set it to {' or '.join(allowed)}, or take another objective"
    yield allowed and name not in allowed, "model.architecture", message
    reason = architecture.refused_objectives.get(objective, "")
    yield reason, "pretrain.objective", f"{name} does not learn {objective}, since {reason}; change one of the two"
    has_teacher = study.pretrain.teacher != NO_TEACHER
    message = f"objective: {objective} needs the folder of a pretrained model"
    yield rules.needs_teacher and not has_teacher, "pretrain.teacher", message
    message = f"objective: {objective} has no teacher; set it to {NO_TEACHER}"
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
        f"a narrower generator cannot share those of {model.architecture}, which are as wide as the encoder; set it to "
        "separate, objectives.electra.generator_width to 1, or model.architecture to electra"
    )
    yield study.pretrain.objective == "electra" and is_shared, "objectives.electra.embeddings", message


def _schedule_checks(pretrain: PretrainParams) -> Iterator[Check]:
    # The learning rate runs once over all phases. In fewer steps it would never reach its peak, or jump down from it.
    total = pretrain.steps.total
    warmup = pretrain.warmup_steps
    decay = pretrain.decay_steps or 0
    message = f"the warm-up is longer than the training, whose phases have {total} steps in all; set it to at most that"
    yield warmup > total, "pretrain.warmup_steps", message
    message = f"the decay does not fit the {total} steps of all phases after {warmup} of warm-up"
    if warmup < total:
        message += f"; set it to {total - warmup} or less"
    yield warmup + decay > total, "pretrain.decay_steps", message


def _start_model_checks(study: Study) -> Iterator[Check]:
    # without torch; the stage `start_model` checks the sizes
    source, key, given = study.pretrain.init_from, "pretrain.init_from", study.vocabulary.kind == "given"
    message = "given is the vocabulary of pretrain.init_from; name a model there"
    yield given and not study.pretrain.continued, "vocabulary.kind", message
    message = "a model goes on with its own vocabulary; set vocabulary.kind: given"
    yield study.pretrain.continued and not given, key, message
    for path, its_key in ((source, key), (study.finetune.model, "finetune.model")):
        message = "a model of Hugging Face's hub is hub:OWNER/NAME@REVISION, with a branch, a tag or a commit"
        yield path.startswith(HUB) and not HUB_MODEL.fullmatch(path), its_key, message
    folder, entries = Path(source), [f"{MODELS}/{entry}.yaml" for entry in entry_names(MODELS)]
    objective = study.pretrain.objective
    if not given:
        return
    message = f"pretrain.objective: {objective} starts from random weights; set it to mlm"
    yield not objective_spec(objective).can_continue, key, message
    if source in entries or source.startswith(HUB):
        return
    yield folder.parts[:2] in MADE_HERE, key, f"the study itself makes it; copy it: cp -r {source} models/start"
    outside = folder.is_absolute() or folder.parts[:1] in (("models",), ("..",))
    yield not outside, key, "DVC reads no model there; put it below models/, or outside of the project"
    there = any((folder / name).is_file() for name in ("config.json", "bert_config.json"))
    message = (
        "no model is there; give a folder with config.json or bert_config.json, hub:OWNER/NAME@REVISION, or one of "
        f"{', '.join(entries)}"
    )
    yield not there, key, message
    if (folder / "config.json").is_file():
        kind = str(read_json(folder / "config.json", dict).get("model_type", "bert")).replace("-", "_")
        message = f"the model is of another architecture than the study's; set model.architecture: {kind}"
        yield kind in member_names("models") and kind != study.model.architecture, key, message


def _finetune_checks(study: Study) -> Iterator[Check]:
    finetune, name = study.finetune, study.model.architecture
    architecture, muon = architecture_spec(name), study.finetune.optimizer == "muon"
    frozen = any(recipe.feature_layers for recipe in finetune.recipes)
    message = f"muon updates the matrices of blocks, and {name} has none; set it to adamw"
    yield muon and architecture.blocks == "none", "finetune.optimizer", message
    message = "muon has no matrices to update in an encoder frozen by feature_layers; set it to adamw"
    yield muon and frozen, "finetune.optimizer", message
    made_here = finetune.model.startswith("models/pretrained/") and not study.pretrain.continued
    for key, recipe in _recipes(finetune):
        message = f"{name} has no last layers to re-initialize: all layers are shared, or there are none; set it to 0"
        yield recipe.reinit_layers and architecture.blocks != "own", f"{key}.reinit_layers", message
        message = f"at most model.num_hidden_layers ({study.model.num_hidden_layers})"
        too_many = made_here and recipe.reinit_layers > study.model.num_hidden_layers
        yield too_many, f"{key}.reinit_layers", message
        message = "an encoder frozen by feature_layers takes no random blocks; set one of the two to 0 or null"
        yield recipe.reinit_layers and recipe.feature_layers, f"{key}.reinit_layers", message

    taught = finetune.teacher != NO_TEACHER
    message = (
        f"goes with no LSTM, feature_layers or teacher; set it to cross_encoder, or these to false, null, {NO_TEACHER}"
    )
    alone = not (finetune.bilstm or frozen or taught)
    yield finetune.pair_head == "bi_encoder" and not alone, "finetune.pair_head", message
    for task in study.tasks:
        message = f"{task} is of kind retrieval, which takes no LSTM: set bilstm: false and feature_layers: null"
        lstm = finetune.bilstm or finetune.recipe(task).feature_layers
        yield lstm and load_spec(task).kind == "retrieval", "tasks", message
    if not taught:
        return
    yield frozen, "finetune.teacher", "a frozen encoder learns nothing from it; set feature_layers: null"
    yield muon, "finetune.optimizer", "the layers of a teacher are learnt by one of the others; set it to adamw"
    reason = architecture.refused_objectives.get("tinybert")
    message = f"{name} imitates no layers, since {reason}; set layer_epochs: 0"
    yield reason and any(recipe.layer_epochs for recipe in finetune.recipes), "finetune.teacher", message
    for task in study.tasks:
        message = f"{task} is of kind {load_spec(task).kind}, which has no teacher; leave it out of tasks"
        yield load_spec(task).kind not in TAUGHT, "finetune.teacher", message


def _recipes(finetune: FinetuneParams) -> list[tuple[str, TaskHyperparameters]]:
    per_task = [(f"finetune.per_task.{task}", finetune.recipe(task)) for task in finetune.per_task]
    return [("finetune.defaults", finetune.defaults), *per_task]


def load_study(path: str | Path = "params.yaml") -> Study:
    return check_study(read_yaml(path), path)


def check_unchanged(started: Study, blocks: Iterable[str]) -> None:
    """Raise an error if ``blocks`` of params.yaml changed since the stage started.

    DVC records their values only when the stage has ended, and so would record the changed ones.
    """
    before, now = (study.model_dump(exclude_unset=True) for study in (started, load_study()))
    changed = [block for block in blocks if before[block] != now[block]]
    if changed:
        raise PipelineError(
            "params.yaml changed while the stage ran; what it made is not recorded",
            ", ".join(changed),
            where="params.yaml",
            hint="put the params right (`git diff params.yaml`) and start again",
        )


def check_study(raw: dict[str, Any], path: str | Path = "params.yaml") -> Study:
    study = check_block(Study, raw, path, complete=True)
    for broken, key, hint in cross_checks(study):
        if broken:
            value: Any = raw
            for step in key.split("."):
                value = value.get(step)
            # A recipe may leave a key to the defaults.
            given = "" if value is None else f" = {shown(value)}"
            raise PipelineError("value does not fit the others", f"{key}{given}", where=path, hint=hint)
    return study
