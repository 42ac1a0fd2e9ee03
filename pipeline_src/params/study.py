"""The whole of params.yaml, checked at once, before any stage does any work."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pipeline_src.common.catalogue import SOURCES, TASK_SPECS, entry_names
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.members import stated
from pipeline_src.params.base import NO_TEACHER, Block
from pipeline_src.params.books import BooksParams
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.examples import ExamplesParams
from pipeline_src.params.finetune import FinetuneParams
from pipeline_src.params.interpretation import InterpretationParams
from pipeline_src.params.model import ModelParams
from pipeline_src.params.names import ListedOnce
from pipeline_src.params.objectives import ObjectivesParams
from pipeline_src.params.pretrain import PretrainParams
from pipeline_src.params.reading import check_block, read_yaml
from pipeline_src.params.vocabulary import VocabularyParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.params.word_vectors import WordVectorsParams
from pipeline_src.tasks.files.spec import load_spec, task_names

TAUGHT = ("classification",)  # kinds of tasks that have a teacher's answers; a regression's are its labels


class Study(Block):
    """One study: every parameter that decides a byte of its results.

    ``mask_prob`` (share of tokens chosen for prediction, 0.15 in the paper, section 3.1) and ``seed`` stand at the
    top because people type ``dvc exp run -S mask_prob=0.2``.
    """

    seed: int = Field(ge=0, lt=2**31)
    mask_prob: float = Field(gt=0, lt=1)
    wikipedia: WikipediaParams
    books: BooksParams
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
            raise ValueError(f"no task is called {unknown[0]!r}; there are {', '.join(task_names())}")
        of_task: dict[str, str] = {}
        for task in tasks:
            for name in load_spec(task).scores:  # an entry of one's own may be anything
                if of_task.setdefault(name, task) != task:
                    raise ValueError(
                        f"{of_task[name]} and {task} both call a row of their `scores` {name!r}, by which results are "
                        f"known; rename one in pipeline_src/{TASK_SPECS}"
                    )
        return tasks

    @model_validator(mode="after")
    def _sources_are_there(self) -> Study:
        for key, name in (("wikipedia.dump", self.wikipedia.dump), ("books.source", self.books.source)):
            if name not in (known := entry_names(SOURCES)):
                raise ValueError(
                    f"{key} names no file of pipeline_src/{SOURCES}: {name!r}; there are {', '.join(known)}"
                )
        return self

    @model_validator(mode="after")
    def _blocks_fit_together(self) -> Study:
        lengths = self.examples.lengths
        if lengths.short > lengths.long:
            raise ValueError(f"examples.lengths.short ({lengths.short}) must not exceed long ({lengths.long})")
        for name, length in [("examples.lengths.long", lengths.long), *self._finetune_lengths()]:
            if length > self.model.positions:
                raise ValueError(f"{name} ({length}) exceeds model.positions ({self.model.positions})")
        name, objective = self.model.architecture, self.pretrain.objective
        against_pairs = stated("objectives", objective, "REFUSES_PAIRS", "")
        if against_pairs and self.examples.pairs != "none":
            raise ValueError(
                f"pretrain.objective: {objective} goes without sentence pairs, since {against_pairs}; "
                "set examples.pairs: none"
            )
        fitting = stated("objectives", objective, "ONLY_ARCHITECTURES", (name,))
        if name not in fitting:
            raise ValueError(
                f"model.architecture: {name} does not learn pretrain.objective: {objective}; "
                f"set model.architecture to {' or '.join(fitting)}, or another objective"
            )
        refused = stated("architectures", name, "REFUSED_OBJECTIVES", {})
        if self.examples.pairs != "none" and (reason := stated("architectures", name, "REFUSED_PAIRS", "")):
            raise ValueError(
                f"model.architecture: {name} goes without sentence pairs, since {reason}; set examples.pairs: none"
            )
        if objective in refused:
            raise ValueError(
                f"model.architecture: {name} does not learn pretrain.objective: {objective}, "
                f"since {refused[objective]}; set one of the two otherwise"
            )
        if stated("objectives", objective, "NEEDS_TEACHER", False) != (self.pretrain.teacher != NO_TEACHER):
            raise ValueError(
                f"pretrain.teacher ({self.pretrain.teacher}): "
                + (
                    f"pretrain.objective: {objective} needs the folder of a pretrained model"
                    if self.pretrain.teacher == NO_TEACHER
                    else f"pretrain.objective: {objective} has no teacher; set it to {NO_TEACHER}"
                )
            )
        if not stated("architectures", name, "OWN_EMBEDDING_WIDTH", False):
            if self.model.embedding not in (None, self.model.hidden):
                raise ValueError(
                    f"model.embedding ({self.model.embedding}): the embeddings of model.architecture: {name} are as "
                    f"wide as the encoder ({self.model.hidden}); set it to null, or take another architecture"
                )
            replaced = self.objectives.replaced
            if objective == "replaced" and replaced.embeddings != "separate" and replaced.generator != 1:
                raise ValueError(
                    "objectives.replaced.embeddings: a narrower generator cannot share those of model.architecture: "
                    f"{name}, which are as wide as the encoder; set it to separate, objectives.replaced.generator to "
                    "1, or model.architecture to one with embeddings of their own width, such as electra"
                )
        cap = self.pretrain.masking.max_predictions
        if cap is not None and cap < self.mask_prob * lengths.long:
            raise ValueError(
                f"pretrain.masking.max_predictions ({cap}) would cut the masking rate below mask_prob "
                f"({self.mask_prob:g}) at length {lengths.long}; allowed: null, or at least "
                f"{math.ceil(self.mask_prob * lengths.long)}"
            )
        return self

    @model_validator(mode="after")
    def _every_task_has_a_line_of_its_own(self) -> Study:
        """DVC asks for the parameter that a stage names, so that another task's recipe makes this task's no older."""
        for task in self.tasks:
            if task not in self.finetune.tasks:
                raise ValueError(
                    f"finetune.tasks: no recipe for {task}; add `{task}: {{}}` for that of finetune.default, or say "
                    "what differs"
                )
        return self

    @model_validator(mode="after")
    def _tasks_are_learnt_from_the_teacher(self) -> Study:
        if self.finetune.teacher == NO_TEACHER:
            return self
        recipes = (self.finetune.default, *self.finetune.tasks.values())
        reason = stated("architectures", self.model.architecture, "REFUSED_OBJECTIVES", {}).get("layers")
        if reason and any(recipe.layer_epochs for recipe in recipes):
            raise ValueError(
                f"finetune.teacher: model.architecture: {self.model.architecture} imitates no layers, since {reason}; "
                "set layer_epochs: 0 in finetune.default and finetune.tasks, or another architecture"
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
            (f"finetune.tasks.{task}.max_length", recipe.max_length)
            for task, recipe in self.finetune.tasks.items()
            if "max_length" in recipe.model_fields_set
        ]
        return [("finetune.default.max_length", self.finetune.default.max_length), *named]


def load_study(path: str | Path = "params.yaml") -> Study:
    """Read and check a study.

    Raises:
        PipelineError: the file is missing, is not YAML, lacks a key, or holds an unknown key, a wrong type or a value
            out of range; key, value and what is allowed are named.
    """
    return check_study(read_yaml(path), path)


def check_unchanged(ran: Study, blocks: Iterable[str]) -> None:
    """Fail if params.yaml no longer holds what a stage ran with: DVC records what it reads there at the end.

    Args:
        ran: what was read at the start.
        blocks: those that the stage depends on.

    Raises:
        PipelineError: one of them is another now, or params.yaml cannot be read.
    """
    before, now = (study.model_dump(exclude_unset=True) for study in (ran, load_study()))
    changed = [block for block in blocks if before[block] != now[block]]
    if changed:
        raise PipelineError(
            "params.yaml changed while the stage ran; what it made is not recorded", ", ".join(changed),
            where="params.yaml", remedy="put the params right (`git diff params.yaml`) and start again",
        )  # fmt: skip


def check_study(raw: dict[str, Any], path: str | Path = "params.yaml") -> Study:
    """Turn plain values into a :class:`Study`; errors as in :func:`load_study`."""
    return check_block(Study, raw, path, complete=True)
