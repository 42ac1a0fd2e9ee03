"""All of params.yaml, checked at once before any stage starts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.registry import architecture_spec, member_names, objective_spec
from pipeline_src.common.yaml_files import MODELS, SOURCES, TASK_SPECS, entry_names
from pipeline_src.config.data import (
    CorpusParams,
    ExamplesParams,
    VocabularyParams,
    WordVectorsParams,
)
from pipeline_src.config.finetune import FinetuneParams
from pipeline_src.config.interpretation import InterpretationParams
from pipeline_src.config.model import ModelParams
from pipeline_src.config.pretrain import ObjectivesParams, PretrainParams
from pipeline_src.config.reading import check_block, read_yaml
from pipeline_src.config.schema import NO_TEACHER, ListedOnce, Section
from pipeline_src.tasks.spec import load_spec, task_names

OWN_ENTRIES = "In an experiment or clone, one of your own is there only after `git add`"
MADE_HERE = tuple(("models", name) for name in ("pretrained", "finetuned", "word_vectors"))  # outputs of stages
TAUGHT = ("classification",)  # kinds of tasks with a teacher's logits; a regression has only labels


class Study(Section):
    """One study: every parameter that decides a byte of its results.

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

    @field_validator("tasks")
    @classmethod
    def _known_tasks(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [task for task in tasks if task not in task_names()]
        if unknown:
            raise ValueError(f"no task is called {unknown[0]!r}; there are {', '.join(task_names())}. {OWN_ENTRIES}")
        of_task: dict[str, str] = {}
        for task in tasks:
            for name in load_spec(task).scores:  # an entry of one's own may be anything
                if of_task.setdefault(name, task) != task:
                    raise ValueError(
                        f"{of_task[name]} and {task} both call a row of their `scores` {name!r}, by which results are "
                        f"known; rename one in {TASK_SPECS}"
                    )
        return tasks

    @model_validator(mode="after")
    def _sources_are_there(self) -> Study:
        for name, source in self.corpus.sources.items():
            if source.entry not in (known := entry_names(SOURCES)):
                raise ValueError(
                    f"corpus.sources.{name}.from names no file of {SOURCES}: {source.entry!r}; there are "
                    f"{', '.join(known)}. {OWN_ENTRIES}"
                )
        return self

    @model_validator(mode="after")
    def _every_source_has_a_weight(self) -> Study:
        weights, sources = self.examples.weights, self.corpus.sources
        if weights is not None and weights.keys() != sources.keys():
            odd = ", ".join(sorted(weights.keys() ^ sources.keys()))
            raise ValueError(
                f"examples.weights ({', '.join(weights)}): give each source of corpus.sources a weight "
                f"({', '.join(sources)}), 0 to leave it out, or none at all; not in both: {odd}"
            )
        return self

    @model_validator(mode="after")
    def _blocks_fit_together(self) -> Study:
        lengths = self.examples.max_seq_length
        if lengths.phase1 > lengths.phase2:
            raise ValueError(
                f"examples.max_seq_length.phase1 ({lengths.phase1}) must not exceed phase2 ({lengths.phase2})"
            )
        for name, length in [("examples.max_seq_length.phase2", lengths.phase2), *self._finetune_lengths()]:
            if length > self.model.max_position_embeddings:
                raise ValueError(
                    f"{name} ({length}) exceeds model.max_position_embeddings ({self.model.max_position_embeddings})"
                )
        name, objective = self.model.architecture, self.pretrain.objective
        against_pairs = objective_spec(objective).refused_pairs
        if against_pairs and self.examples.pair_objective != "none":
            raise ValueError(
                f"pretrain.objective: {objective} goes without sentence pairs, since {against_pairs}; "
                "set examples.pair_objective: none"
            )
        fitting = objective_spec(objective).only_architectures
        if fitting and name not in fitting:
            raise ValueError(
                f"model.architecture: {name} does not learn pretrain.objective: {objective}; "
                f"set model.architecture to {' or '.join(fitting)}, or another objective"
            )
        refused = architecture_spec(name).refused_objectives
        if self.examples.pair_objective != "none" and (reason := architecture_spec(name).refused_pairs):
            raise ValueError(
                f"model.architecture: {name} goes without sentence pairs, since {reason}; set "
                f"examples.pair_objective: none"
            )
        if objective in refused:
            raise ValueError(
                f"model.architecture: {name} does not learn pretrain.objective: {objective}, "
                f"since {refused[objective]}; set one of the two otherwise"
            )
        if objective_spec(objective).needs_teacher != (self.pretrain.teacher != NO_TEACHER):
            raise ValueError(
                f"pretrain.teacher ({self.pretrain.teacher}): "
                + (
                    f"pretrain.objective: {objective} needs the folder of a pretrained model"
                    if self.pretrain.teacher == NO_TEACHER
                    else f"pretrain.objective: {objective} has no teacher; set it to {NO_TEACHER}"
                )
            )
        if not architecture_spec(name).factorized_embeddings:
            if self.model.embedding_size not in (None, self.model.hidden_size):
                raise ValueError(
                    f"model.embedding_size ({self.model.embedding_size}): the embeddings of model.architecture: "
                    f"{name} are as wide as the encoder ({self.model.hidden_size}); set it to null, or "
                    "take another architecture"
                )
        if refusal := self.objectives.of(objective).refusal(name, architecture_spec(name).factorized_embeddings):
            raise ValueError(refusal)
        cap = self.pretrain.masking.max_predictions
        if cap is not None and cap < self.mask_prob * lengths.phase2:
            raise ValueError(
                f"pretrain.masking.max_predictions ({cap}) would cut the masking rate below mask_prob "
                f"({self.mask_prob:g}) at length {lengths.phase2}; allowed: null, or at least "
                f"{math.ceil(self.mask_prob * lengths.phase2)}"
            )
        return self

    @model_validator(mode="after")
    def _there_is_a_model_to_go_on_from(self) -> Study:
        """Check what needs no torch; the stage ``start_model`` checks the rest."""
        source, given = self.pretrain.init_from, self.vocabulary.kind == "given"
        if given and not self.pretrain.goes_on:
            raise ValueError("vocabulary.kind: given is the vocabulary of pretrain.init_from; name a model there")
        if not given and self.pretrain.goes_on:
            raise ValueError(
                f"pretrain.init_from ({source}): a model goes on with its own vocabulary; set vocabulary.kind: given"
            )
        if not given:
            return self
        if not objective_spec(self.pretrain.objective).goes_on:
            raise ValueError(
                f"pretrain.init_from ({source}): pretrain.objective: {self.pretrain.objective} starts from random "
                "weights; set it to mlm"
            )
        folder, entries = Path(source), [f"{MODELS}/{entry}.yaml" for entry in entry_names(MODELS)]
        if source in entries:
            return self
        if folder.parts[:2] in MADE_HERE:
            raise ValueError(
                f"pretrain.init_from: {source} is made by the study itself; copy it: cp -r {source} models/start"
            )
        if not folder.is_absolute() and folder.parts[:1] not in (("models",), ("..",)):
            raise ValueError(
                f"pretrain.init_from: DVC reads no model in {source}; put it below models/, or outside of the project"
            )
        if not any((folder / name).is_file() for name in ("config.json", "bert_config.json")):
            raise ValueError(
                f"pretrain.init_from: no model here: {source}; give a folder with config.json or bert_config.json, or "
                f"an entry of the catalogue: {', '.join(entries)}"
            )
        if (folder / "config.json").is_file():
            found = str(read_json(folder / "config.json", dict).get("model_type", "bert")).replace("-", "_")
            if found in member_names("models") and found != self.model.architecture:
                raise ValueError(
                    f"pretrain.init_from: the model in {source} is of another architecture than the study's; set "
                    f"model.architecture: {found}"
                )
        return self

    @model_validator(mode="after")
    def _every_task_has_a_line_of_its_own(self) -> Study:
        """A stage depends on its own task's parameter, so that another task's does not make it stale."""
        for task in self.tasks:
            if task not in self.finetune.per_task:
                raise ValueError(
                    f"finetune.per_task: no recipe for {task}; add `{task}: {{}}` for that of finetune.defaults, or "
                    "say what differs"
                )
        return self

    @model_validator(mode="after")
    def _encoder_has_the_blocks_that_finetuning_changes(self) -> Study:
        architecture, finetune = self.model.architecture, self.finetune
        blocks = architecture_spec(architecture).blocks
        if finetune.optimizer == "muon" and blocks == "none":
            raise ValueError(
                f"finetune.optimizer: muon updates the matrices of blocks, and model.architecture: {architecture} has "
                "none; set it to adamw"
            )
        named = [
            ("defaults", finetune.defaults),
            *((f"per_task.{task}", own) for task, own in finetune.per_task.items()),
        ]
        for name, recipe in named:
            if recipe.reinit_layers and blocks != "own":
                raise ValueError(
                    f"finetune.{name}.reinit_layers ({recipe.reinit_layers}): model.architecture: {architecture} has "
                    "no blocks of their own from the top; set it to 0"
                )
            made_here = finetune.model.startswith("models/pretrained/") and not self.pretrain.goes_on
            if made_here and recipe.reinit_layers > self.model.num_hidden_layers:
                raise ValueError(
                    f"finetune.{name}.reinit_layers ({recipe.reinit_layers}) exceeds model.num_hidden_layers "
                    f"({self.model.num_hidden_layers})"
                )
        return self

    @model_validator(mode="after")
    def _tasks_are_learnt_from_the_teacher(self) -> Study:
        if self.finetune.teacher == NO_TEACHER:
            return self
        reason = architecture_spec(self.model.architecture).refused_objectives.get("tinybert")
        if reason and any(recipe.layer_epochs for recipe in self.finetune.recipes):
            raise ValueError(
                f"finetune.teacher: model.architecture: {self.model.architecture} imitates no layers, since {reason}; "
                "set layer_epochs: 0 in finetune.defaults and finetune.per_task, or another architecture"
            )
        for task in self.tasks:
            if (kind := load_spec(task).kind) not in TAUGHT:
                raise ValueError(
                    f"finetune.teacher: {task} is a task of kind {kind}, which is not learnt from a teacher; leave it "
                    f"out of tasks, or set finetune.teacher to {NO_TEACHER}"
                )
        return self

    def _finetune_lengths(self) -> list[tuple[str, int]]:
        named = [
            (f"finetune.per_task.{task}.max_length", recipe.max_length)
            for task, recipe in self.finetune.per_task.items()
            if "max_length" in recipe.model_fields_set
        ]
        return [("finetune.defaults.max_length", self.finetune.defaults.max_length), *named]


def load_study(path: str | Path = "params.yaml") -> Study:
    """Read and check a study."""
    return check_study(read_yaml(path), path)


def check_unchanged(ran: Study, blocks: Iterable[str]) -> None:
    """Raise an error if params.yaml changed while a stage ran: DVC records what it reads there at the end.

    Args:
        ran: the study read at the start.
        blocks: the sections that the stage depends on.
    """
    before, now = (study.model_dump(exclude_unset=True) for study in (ran, load_study()))
    changed = [block for block in blocks if before[block] != now[block]]
    if changed:
        raise PipelineError(
            "params.yaml changed while the stage ran; what it made is not recorded", ", ".join(changed),
            where="params.yaml", hint="put the params right (`git diff params.yaml`) and start again",
        )  # fmt: skip


def check_study(raw: dict[str, Any], path: str | Path = "params.yaml") -> Study:
    """Turn plain values into a :class:`Study`; errors as in :func:`load_study`."""
    return check_block(Study, raw, path, complete=True)
