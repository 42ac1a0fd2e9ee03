"""File with the texts of the evaluation sets, which are kept out of the training corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json_lines, write_json_lines

FILE = "texts.jsonl"
RECORD = {"task": str, "text": str}


def write_texts(folder: Path, texts: Iterable[tuple[str, str]]) -> int:
    records = [{"task": task, "text": text} for task, text in texts]
    write_json_lines(folder / FILE, records)
    return len(records)


def read_texts(folder: Path) -> Iterator[tuple[str, str]]:
    path, hint = folder / FILE, "run the stage download_tasks again"
    if not path.exists():
        raise PipelineError("the texts of the evaluation sets are missing", path, hint=hint)
    for record in read_json_lines(path, RECORD, "invalid text of an evaluation set", hint):
        yield record["task"], record["text"]
