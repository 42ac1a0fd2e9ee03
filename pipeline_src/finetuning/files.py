"""A task's data files as a model is fed with them: read, tokenised once, and known by their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pipeline_src.common.files import hash_file
from pipeline_src.common.fingerprint import fingerprint
from pipeline_src.common.paths import TASKS
from pipeline_src.tasks.feature_cache import cached
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.handlers import HANDLERS
from pipeline_src.tokenizer.load import load_tokenizer

AUGMENTATION = "pipeline_src.finetuning.augmentation"  # the module that ``TaskFiles.augmented`` is made with


@dataclass(frozen=True)
class EvalSet:
    """One file to predict: its score row, its examples and what the model is fed for them."""

    row: str
    examples: Sequence[Any]
    features: Features


class TaskFiles:
    """The files of one task, for the tokenizer of one encoder and one length.

    Args:
        spec: the task.
        encoder: folder with the tokenizer.
        max_length: tokens of a sequence at most.

    Attributes:
        handler: of the task's kind.
        counts: what was dropped or cut, by file and reason, of the files used so far.
    """

    def __init__(self, spec: TaskSpec, encoder: Path, max_length: int) -> None:
        self.spec, self.handler, self.encoder, self.max_length = spec, HANDLERS[spec.kind], encoder, max_length
        self.folder = TASKS / spec.name
        self.counts: dict[str, dict[str, int]] = {}
        self._sums: dict[str, str] = {}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The encoder's."""
        return load_tokenizer(self.encoder)

    def training(self) -> Features:
        """Features of the training file."""
        return self._features(self.spec.train, None, False)

    def augmented(self, make: Callable[[Features], Features], decides: Mapping[str, Any]) -> Features:
        """What ``make`` makes of the training file's features, from the cache where it lies there.

        ``decides`` are JSON values that decide it beside them; the code of augmentation counts besides.
        """
        more = {**self._decides(self.spec.train, None, False), **decides, "code": fingerprint(AUGMENTATION)}
        return cached(self.spec.name, more, lambda dropped: make(self.training()))

    def eval_set(self, row: str, test: bool = False) -> EvalSet:
        """The file of a score row, or its test file."""
        score = self.spec.scores[row]
        file = score.test.file if test and score.test else score.file
        dropped: Counter[str] = Counter()
        examples = self._read(file, row, test, dropped)
        return EvalSet(row, examples, self._features(file, row, test, (examples, dropped)))

    def tests(self) -> list[str]:
        """Score rows whose test file is there."""
        return [
            row for row, score in self.spec.scores.items() if score.test and (self.folder / score.test.file).exists()
        ]

    def sums(self) -> dict[str, str]:
        """Sums of the files that training and the choice of the best run read, by name."""
        files = dict.fromkeys([self.spec.train, *(score.file for score in self.spec.scores.values())])
        return {file: self._sum(file)[:16] for file in files}

    def _sum(self, file: str) -> str:
        if file not in self._sums:
            self._sums[file] = hash_file(self.folder / file)
        return self._sums[file]

    def _read(self, file: str, row: str | None, test: bool, dropped: Counter[str]) -> Sequence[Any]:
        return self.handler.read(self.spec, self.folder / file, row, test, dropped)

    def _features(
        self, file: str, row: str | None, test: bool, already_read: tuple[Sequence[Any], Counter[str]] | None = None
    ) -> Features:
        """From the cache, else of the file's examples and of what was dropped, which are read here unless given."""

        def make(dropped: Counter[str]) -> Features:
            if already_read:
                examples = already_read[0]
                dropped.update(already_read[1])
            else:
                examples = self._read(file, row, test, dropped)
            return self.handler.features(self.spec, examples, self.tokenizer, self.max_length)

        features = cached(self.spec.name, self._decides(file, row, test), make)
        self.counts[file] = dict(features.counts)
        return features

    def _decides(self, file: str, row: str | None, test: bool) -> dict[str, Any]:
        """By what the features of a file are known."""
        return {
            "task": self.spec.model_dump(mode="json"),
            "row": row,
            "test": test,
            "file": self._sum(file),
            "tokenizer": hash_file(self.encoder / "tokenizer.json"),
            "max_length": self.max_length,
        }
