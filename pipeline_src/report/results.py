"""Results of a study, read from results/, and the figures computed from them by named formulas."""

from __future__ import annotations

import csv
import json
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import misfit, read_json
from pipeline_src.common.names import shown
from pipeline_src.common.paths import RESULTS
from pipeline_src.report.traced import JsonRef, TracedValue, computed

COUNTED = {"documents": int, "sentences": int, "tokens": int}
ROW = {
    **dict.fromkeys(("task", "eval_set", "title", "file", "metric"), str),
    **{"main": bool, "values": [float], "mean": float, "majority_baseline": float},
}
PHASE = {"length": int, "pairs": str, "train": {"examples": int}, "validation": {"examples": int}}
ERRORS = {"lengths": [{"from": int, "to": int, "examples": int, "right": float}], "wrong": int, "worst": [dict]}
# file, or its folder and a slash -> schema
SHAPES: dict[str, Any] = {
    "scores.json": {"synthetic": bool, "rules": {str: str}, "rows": [ROW]},
    "summary.json": {str: object},
    "corpus.json": {
        "parts": {str: {"documents": int, "words": int, "bytes": int, "train": COUNTED, "validation": COUNTED}},
        "vocabulary": {"entries": int},
        "examples": {"phase1": PHASE, "phase2": PHASE},
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
    """An object of a file; indexing a missing key raises an error that names both."""

    def __init__(self, content: dict[str, Any], file: str, place: str) -> None:
        super().__init__(content)
        self.file, self.place = file, place

    def __missing__(self, key: object) -> Any:
        raise _misfit(self.file, f"{self.place or 'the file'} lacks {key}")


def read_result(folder: Path, name: str) -> Any:
    """Read a file of a study's results by its name, such as ``tasks/rte.json``."""
    return of_shape(read_json(folder / name), name, (folder / name).as_posix())


def parse_result(text: str, name: str, file: str) -> Any:
    """Parse the text of a results file; errors as in :func:`read_result`.

    Args:
        text: content of the file.
        name: its name in ``results/``.
        file: its name in errors.
    """
    try:
        return of_shape(json.loads(text), name, file)
    except (ValueError, RecursionError) as error:
        raise _misfit(file, f"not JSON: {error}") from None


def of_shape(value: Any, name: str, file: str) -> Any:
    """Check the shape of a parsed value; arguments and errors as in :func:`parse_result`."""
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
    """Context for code that makes a page or a table of results.

    Args:
        what: name of the output.
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
            hint="make them again (`dvc repro --force evaluate interpret`); if this comes again, that code is wrong",
        ) from error  # fmt: skip


def _misfit(file: str, wrong: str) -> PipelineError:
    hint = "it was cut, edited or written by another version: delete it and run its stage again, or `dvc pull` it"
    return PipelineError("not what its stage writes", wrong, where=file, hint=hint)


PHASES = ("phase1", "phase2")
# scores in the average of the paper's table 1: MNLI-m and -mm separately, without WNLI; F1 for QQP and MRPC, Spearman
# for STS-B (section 4.1)
GLUE_AVERAGE = dict.fromkeys(("mnli", "mnli_mm", "qnli", "sst2", "rte"), "accuracy")
GLUE_AVERAGE |= {"qqp": "f1", "cola": "matthews", "stsb": "spearman", "mrpc": "f1"}
IN_SUMMARY = {("squad1", "f1"), ("squad2", "f1"), ("swag", "accuracy")}
SUMMARY = {  # figure of the summary -> label and format
    "mlm_loss": ("validation MLM loss (nats)", "three"),
    "mlm_gap": ("nats better than unigram counts at [MASK]", "three"),
    "nsp_accuracy": ("validation NSP accuracy", "percent"),
    "rtd_auc": ("validation AUC of replaced tokens", "three"),
    "from_corpus": ("average of the tasks made from this corpus", "one"),
    "from_corpus_error": ("half its interval", "one"),
    "glue": ("GLUE average", "one"),
    "glue_error": ("half its interval", "one"),
    "squad1": ("SQuAD, all answerable: F1", "one"),
    "squad2": ("SQuAD with unanswerable: F1", "one"),
    "swag": ("SWAG accuracy", "one"),
}
METRICS = {
    "em": "EM",
    "f1": "F1",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "entity_f1": "entity F1",
}
Curve = dict[str, list[float | None]]


@dataclass(frozen=True)
class Results:
    """Inputs of a report.

    Attributes:
        documents: JSON documents by path, such as ``results/scores.json``.
        curves: columns of ``results/pretrain/<phase>.tsv`` by phase; None for an empty cell.
    """

    documents: dict[str, Any]
    curves: dict[str, Curve]

    def ref(self, name: str) -> JsonRef:
        """Return a document of ``results/`` by name, such as ``scores.json``, as a :class:`JsonRef`."""
        return JsonRef(self.documents[f"results/{name}"], f"results/{name}")

    @property
    def scores(self) -> dict[str, Any]:
        """``results/scores.json``: one row per evaluation set and metric."""
        return self.documents["results/scores.json"]

    @property
    def corpus(self) -> dict[str, Any]:
        """``results/corpus.json``."""
        return self.documents["results/corpus.json"]

    @property
    def pretrain(self) -> dict[str, dict[str, Any]]:
        """``results/pretrain/<phase>.json`` by phase.

        ``fill_mask`` in it holds what ``pretraining.fill_mask_samples.FillMaskSamples.fill`` returned each time.
        """
        return {phase: self.documents[f"results/pretrain/{phase}.json"] for phase in PHASES}

    @property
    def filled_masks(self) -> Sequence[JsonRef]:
        """The model's predictions for the texts of ``interpretation.masks``; empty without the stage's files."""
        file = "interpretation/completion.json"
        if "filled masks" not in self.documents.get(f"results/{file}", {}):
            return []
        return list(self.ref(file)["filled masks"])

    @property
    def tasks(self) -> dict[str, JsonRef]:
        """``results/tasks/<task>.json`` by task, in the order of the scores; missing files are left out."""
        names = dict.fromkeys(row["task"] for row in self.scores["rows"])
        return {
            name: self.ref(f"tasks/{name}.json") for name in names if f"results/tasks/{name}.json" in self.documents
        }

    @property
    def synthetic(self) -> bool:
        """True if any of the task scores are synthetic."""
        return bool(self.scores["synthetic"])


def read_results(folder: Path = RESULTS) -> Results:
    """Read a study's results."""
    names = ["scores.json", "corpus.json", *(f"pretrain/{phase}.json" for phase in PHASES)]
    for part in ("tasks", "interpretation"):
        names += [f"{part}/{path.name}" for path in sorted((folder / part).glob("*.json"))]
    return Results(
        documents={f"results/{name}": read_result(folder, name) for name in names},
        curves={phase: read_curve(folder / "pretrain" / f"{phase}.tsv") for phase in PHASES},
    )


def read_curve(path: Path) -> Curve:
    """Read columns of numbers from a TSV file; an empty cell is None."""
    if not path.exists():
        raise PipelineError("no loss curve", path, hint="run the study, or `dvc pull` its results")
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    try:
        return {
            name: [float(row[place]) if row[place] else None for row in rows[1:]] for place, name in enumerate(rows[0])
        }
    except (ValueError, IndexError) as error:
        raise PipelineError("not a table of numbers", error, where=path, hint="run its stage again") from None


def is_synthetic(scores: dict[str, Any], task: str) -> bool:
    """Return whether the task was generated by a rule of this project."""
    return task in scores["rules"]


def is_of_best_epoch(scores: dict[str, Any], task: str) -> bool:
    """Return whether a task's scores are of its best epoch on the development set."""
    return task in scores.get("best_epoch", ())


def is_from_corpus(scores: dict[str, Any], task: str) -> bool:
    """Return whether the task was made from the study's held-out text."""
    return task in scores.get("from_corpus", {})  # older studies have none


def further_tasks(scores: dict[str, Any]) -> set[str]:
    """Return the real tasks that have no synthetic form: NER, those of your own (``own`` in older results)."""
    made = scores["rules"].keys() | scores.get("from_corpus", {}).keys()
    found = {row["task"] for row in scores["rows"]} - made if scores["synthetic"] else set()
    return set(scores.get("further", scores.get("own", found)))


def further_rows(scores: JsonRef) -> dict[str, JsonRef]:
    """Return the main row of each evaluation set of :func:`further_tasks`, by its name in the summary.

    The name is ``own_<set>`` if another figure has the set's name.
    """
    rows: dict[str, JsonRef] = {}
    own = further_tasks(scores.value)
    for row in scores["rows"]:
        if row.value["main"] and row.value["task"] in own:
            name = row.value["eval_set"]
            while name in rows or name.removeprefix("synthetic_") in SUMMARY:
                name = f"own_{name}"
            rows[name] = row
    return rows


def from_corpus(scores: JsonRef) -> list[JsonRef]:
    """Return the main row of each task made from the corpus."""
    return [row for row in scores["rows"] if row.value["main"] and is_from_corpus(scores.value, row.value["task"])]


def against(row: dict[str, Any], baseline: str) -> dict[str, Any] | None:
    """Return the comparison of a row's score with a baseline on the same examples; None without such a baseline."""
    known = row.get("baselines", {}).get(baseline)
    return known["against"] if known else None


def in_average(scores: JsonRef) -> list[JsonRef]:
    """Return the rows of ``scores.json`` in the GLUE average that the study has."""
    return [row for row in scores["rows"] if GLUE_AVERAGE.get(row.value["eval_set"]) == row.value["metric"]]


def glue_average(scores: JsonRef, formula: str = "mean over restarts") -> TracedValue | None:
    """Return mean, deviation or best of the restarts' averages over :func:`in_average`; None without any such score."""
    rows = in_average(scores)
    return computed(formula, *(row["values"] for row in rows)) if rows else None


MOST = 8  # figures of the summary besides those of further tasks, which fit in a terminal's width


def summarise(results: Results) -> dict[str, float]:
    """Return the figures by which experiments are compared (``dvc exp show``, ``dvc metrics diff``).

    These are at most ``MOST`` figures, and the main score of each evaluation set of :func:`further_tasks`. Losses are
    of the validation set after the last phase; task scores are in percent, and named synthetic if they are.
    ``from_corpus`` is the average over the tasks made from this corpus; an ``_error`` is half of a 95 % interval.
    Values have the digits of the report's tables, so that rounding again changes nothing.
    """
    validation, scores = results.pretrain["phase2"]["validation"], results.scores
    shown = {"mlm_loss": "mlm_loss", "mlm_gap": "gap", "nsp_accuracy": "nsp_accuracy", "rtd_auc": "rtd_auc"}
    summary = {name: round(validation[figure], 3) for name, figure in shown.items() if figure in validation}
    ref = results.ref("scores.json")
    if made := from_corpus(ref):
        summary |= _with_error("from_corpus", computed("average", *(row["mean"] for row in made)), made)
    average = glue_average(ref)
    if average is not None:
        synthetic = any(is_synthetic(scores, row.value["task"]) for row in in_average(ref))
        summary |= _with_error("synthetic_glue" if synthetic else "glue", average, in_average(ref))
    for row in scores["rows"]:
        if (row["eval_set"], row["metric"]) in IN_SUMMARY and row["task"] not in further_tasks(scores):
            prefix = "synthetic_" if is_synthetic(scores, row["task"]) else ""
            summary[f"{prefix}{row['eval_set']}"] = round(row["mean"], 1)
    own = {name: round(row.value["mean"], 1) for name, row in further_rows(ref).items()}
    return dict(list(summary.items())[:MOST]) | own


def error_of(rows: Sequence[JsonRef]) -> TracedValue | None:
    """Return half the 95 % interval of the average of some rows' scores; None if one has no interval."""
    if not all(row.value.get("interval") for row in rows):
        return None
    return computed("error of the average", *(row["interval"] for row in rows))


def _with_error(name: str, average: TracedValue, rows: Sequence[JsonRef]) -> dict[str, float]:
    error = error_of(rows)
    found = {name: round(average.value, 1)}
    return found if error is None else found | {f"{name}_error": round(error.value, 1)}
