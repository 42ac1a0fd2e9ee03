"""Texts of evaluation sets: their file between two stages, and the documents that share a passage with one of them.

``download_tasks`` writes them and ``tokenize`` drops those documents if ``corpus.decontaminate`` is ``remove``.
Otherwise the file is empty, so that another list of tasks makes no token stale.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json_lines
from pipeline_src.corpus.contamination import Words

FILE = "texts.jsonl"
RECORD = {"task": str, "text": str}


def write_texts(folder: Path, texts: Iterable[tuple[str, str]]) -> int:
    """Write pairs of task and text; return their number."""
    lines = [json.dumps({"task": task, "text": text}, ensure_ascii=False) + "\n" for task, text in texts]
    with open(folder / FILE, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)
    return len(lines)


def read_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield pairs of task and text."""
    path, hint = folder / FILE, "run the stage download_tasks again"
    if not path.exists():
        raise PipelineError("the texts of the evaluation sets are missing", path, hint=hint)
    for record in read_json_lines(path, RECORD, "not a text of an evaluation set", hint):
        yield record["task"], record["text"]


@dataclass(frozen=True)
class EvaluationRuns:
    """The runs of evaluation texts.

    Attributes:
        hashes: ascending and unique, uint64 [runs].
        texts: index of a text of each, int64 [runs].
    """

    hashes: np.ndarray
    texts: np.ndarray

    @classmethod
    def of(cls, words: Words, ids: np.ndarray, starts: np.ndarray) -> EvaluationRuns:
        """Return the runs of texts; for the arguments see ``Words.runs``."""
        runs, texts = words.runs(ids, starts)
        hashes, first = np.unique(runs, return_index=True)
        return cls(hashes, texts[first])

    def shared_text(self, words: Words, ids: np.ndarray) -> int | None:
        """Return the index of the evaluation text with the document's first shared run, or None."""
        if not len(self.hashes):
            return None
        runs, _ = words.runs(ids, np.zeros(1, np.int64))
        index = np.minimum(np.searchsorted(self.hashes, runs), len(self.hashes) - 1)
        shared = index[self.hashes[index] == runs]
        return int(self.texts[shared[0]]) if len(shared) else None
