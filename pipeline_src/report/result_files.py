"""Reading the JSON files of ``results/``: one that was cut, edited or written by an older version is one clear error.

What every file must hold stands in ``SHAPES``; a key that something asks for beyond that, and that is missing, is named
with its file too. What is left, values that fit no page together, :func:`fitting_results` turns into an error.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.names import shown
from pipeline_src.common.paths import RESULTS
from pipeline_src.common.shapes import misfit

COUNTED = {"documents": int, "sentences": int, "tokens": int}
ROW = {
    **dict.fromkeys(("task", "eval_set", "title", "file", "metric"), str),
    **{"main": bool, "values": [float], "mean": float, "majority_baseline": float},
}
PHASE = {"length": int, "pairs": str, "train": {"examples": int}, "validation": {"examples": int}}
ERRORS = {"lengths": [{"from": int, "to": int, "examples": int, "right": float}], "wrong": int, "worst": [dict]}
# file, or its folder and a slash -> what it holds
SHAPES: dict[str, Any] = {
    "scores.json": {"synthetic": bool, "rules": {str: str}, "rows": [ROW]},
    "summary.json": {str: object},
    "corpus.json": {
        "parts": {str: {"documents": int, "words": int, "bytes": int, "train": COUNTED, "validation": COUNTED}},
        "vocabulary": {"entries": int},
        "examples": {"short": PHASE, "long": PHASE},
    },
    "pretrain/": {
        **{"steps": int, "steps_before": int, "parameters": int, "mask_prob": float},
        **{"config": dict, "validation": dict, "shown_examples": [dict]},
    },
    "tasks/": {"task": str, "synthetic": bool, "counts": {str: {str: int}}, "errors": {str: ERRORS}},
    "interpretation/contents.json": {"skipped": {str: str}},
    "interpretation/": dict,
}


class _Object(dict[str, Any]):
    """An object of a file; a key that it lacks is an error that names both."""

    def __init__(self, content: dict[str, Any], file: str, place: str) -> None:
        super().__init__(content)
        self.file, self.place = file, place

    def __missing__(self, key: object) -> Any:
        raise _misfit(self.file, f"{self.place or 'the file'} lacks {key}")


def read_result(folder: Path, name: str) -> Any:
    """A file of a study's results by its name there, such as ``tasks/rte.json``.

    Raises:
        PipelineError: it is missing, no JSON, or not what its stage writes; so does asking it for a key that it lacks.
    """
    return of_shape(read_json(folder / name), name, (folder / name).as_posix())


def parse_result(text: str, name: str, file: str) -> Any:
    """The same of a text that is at hand.

    Args:
        text: of the file.
        name: of the file in ``results/``.
        file: as errors call it.
    """
    try:
        return of_shape(json.loads(text), name, file)
    except (ValueError, RecursionError) as error:
        raise _misfit(file, f"not JSON: {error}") from None


def of_shape(value: Any, name: str, file: str) -> Any:
    """A value that a file held, with errors for what it lacks; arguments and errors as :func:`parse_result`."""
    shape = SHAPES.get(name, SHAPES.get(f"{name.partition('/')[0]}/", object))
    if wrong := misfit(value, shape):
        raise _misfit(file, wrong)
    return _named(value, file, "")


def _named(value: Any, file: str, place: str) -> Any:
    if isinstance(value, dict):
        inner = {key: _named(each, file, f"{place}.{key}".lstrip(".")) for key, each in value.items()}
        return _Object(inner, file, place)
    if isinstance(value, list):
        return [_named(each, file, f"{place}[{number}]") for number, each in enumerate(value)]
    return value


@contextmanager
def fitting_results(what: str) -> Iterator[None]:
    """What makes a page or a table of results.

    Args:
        what: that is made.

    Raises:
        PipelineError: it stumbled over what it read; the error names the place in the code, in case that is to blame.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, TemplateError) as error:
        stumbled = traceback.extract_tb(error.__traceback__)
        last = next((frame for frame in reversed(stumbled) if "pipeline_src" in frame.filename), stumbled[-1])
        place = f"{Path(last.filename).name}, line {last.lineno}, {last.name}"
        raise PipelineError(
            f"no {what} can be made of the results", f"{type(error).__name__}: {shown(str(error))}",
            where=f"{RESULTS}, read by {place}",
            remedy="make them anew (`dvc repro --force evaluate interpret`); if this comes again, that code is wrong",
        ) from error  # fmt: skip


def _misfit(file: str, wrong: str) -> PipelineError:
    remedy = "it was cut, edited or written by another version: delete it and run its stage again, or `dvc pull` it"
    return PipelineError("not what its stage writes", wrong, where=file, remedy=remedy)
