"""What the measures read of a study: its model, the control, its text, its tags and trees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipeline_src.interpretation.chosen import of_one_language
from pipeline_src.interpretation.material import TAGGED, Tagged, Texts, read_tagged, read_texts, tagging_files
from pipeline_src.interpretation.senses import InContext, two_contexts
from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.trees import Tree, read_trees
from pipeline_src.params.interpretation import InterpretationParams
from pipeline_src.tasks.files.spec import load_spec


@dataclass
class Study:
    """What the measures read; each part is read or made once, when it is first asked for."""

    seed: int
    params: InterpretationParams
    parts: tuple[str, ...]
    validation: float
    tasks: tuple[str, ...]
    folder: Path
    positions_start: str

    @cached_property
    def model(self) -> StudiedModel:
        """The model that is looked into."""
        return StudiedModel.open(self.folder)

    @cached_property
    def control(self) -> StudiedModel:
        """Its architecture with random weights."""
        return self.model.with_random_weights(self.seed, positions_start=self.positions_start)

    @cached_property
    def texts(self) -> tuple[Texts, Texts]:
        """Sentences of training documents, and of validation documents.

        Raises:
            Skipped: none are wanted, or there are none.
        """
        if not self.params.words:
            raise Skipped("interpretation.words is 0")
        train, test = read_texts(self.parts, self.params.words, self.seed, self.validation)
        if not train.sentences or not test.sentences:
            raise Skipped("the text has no training documents, or no validation documents")
        return train, test

    @property
    def contexts(self) -> InContext:
        """The project's words in two senses.

        Raises:
            Skipped: the text is of another language.
        """
        given = two_contexts()
        if self.params.words and not of_one_language(given.sentences, self.texts[0].sentences):
            raise Skipped("the text is of another language than the sentences of this project")
        return given

    @cached_property
    def tagged(self) -> dict[str, tuple[tuple[str, ...], Tagged, Tagged]]:
        """Of each tagging task: its tags, and sentences to train probes on and to test them on."""
        found = {}
        for task in self.params.tags:
            if task in self.tasks and load_spec(task).kind == "tagging":
                spec, train, test = tagging_files(task)
                files = (read_tagged(spec, path, TAGGED[key]) for key, path in (("train", train), ("test", test)))
                found[task] = (spec.labels, *files)
        return found

    @property
    def untagged(self) -> dict[str, str]:
        """Tasks of the study whose tags are wanted and that have none -> what is said of each."""
        wanted = [task for task in self.params.tags if task in self.tasks]
        return {task: f"{task} is no tagging task" for task in wanted if load_spec(task).kind != "tagging"}

    @cached_property
    def trees(self) -> list[Tree]:
        """Of the first tagging task that has any, in the file that it is scored on.

        Raises:
            Skipped: none has.
        """
        for task in self.tagged:
            spec, _, path = tagging_files(task)
            if trees := read_trees(spec, path):
                return trees
        raise Skipped("no tagging task of the study has dependency trees")
