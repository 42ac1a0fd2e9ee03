"""Published scores (paper.yaml), and when a score may be compared with one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.report.traced import JsonRef, Traced, TracedValue, computed

PAPER = Path(__file__).with_name("paper.yaml")
DOCUMENT = "pipeline_src/report/paper.yaml"
TEST_SERVER = "test server"
SPLITS = {
    "dev": "dev",
    "val": "dev",
    "valid": "dev",
    "dev_matched": "dev",
    "dev_mismatched": "dev",
    "test": "test",
    "diagnostic": "diagnostic",
}


@dataclass(frozen=True)
class Score:
    """A score with what must agree before two of them are compared.

    Attributes:
        eval_set, metric: as catalogue/tasks names them.
        split: ``dev``, ``test``, ``test server``, or the name of a file that is none of these.
        synthetic: whether the data were made up.
        value: the score itself.
        source: where it was published; None for a study's own.
    """

    eval_set: str
    metric: str
    split: str
    synthetic: bool
    value: Traced
    source: JsonRef | None = None


class NotComparable(ValueError):
    """Two scores of different tasks, metrics, splits or data."""


def read_paper() -> JsonRef:
    """The committed file of published figures."""
    with open(PAPER, encoding="utf-8") as file:
        return JsonRef(yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), DOCUMENT)


def split_of(file: str) -> str:
    """The split that a task's file is: by the words of its name, or the name itself where they do not tell."""
    words = re.findall(r"[a-z_]+", file.lower().rsplit(".", 1)[0])
    return next((SPLITS[word] for word in words if word in SPLITS), file)


def difference(ours: Score, published: Score) -> TracedValue:
    """Ours less the published one.

    Raises:
        NotComparable: they are not of the same evaluation set, metric and split, or either is of synthetic data.
    """
    for name in ("eval_set", "metric", "split"):
        if getattr(ours, name) != getattr(published, name):
            raise NotComparable(f"{name} {getattr(ours, name)!r} beside {getattr(published, name)!r}")
    if ours.synthetic or published.synthetic:
        raise NotComparable(f"{ours.eval_set} is of synthetic data")
    return computed("difference", ours.value, published.value)


def model_of(paper: JsonRef, config: dict[str, Any]) -> JsonRef | None:
    """The published model of these sizes, None where there is none."""
    sizes = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads"}
    for model in paper["models"]:
        if all(model.value[name] == config.get(key, model.value[name]) for name, key in sizes.items()):
            return model
    return None


def published_scores(paper: JsonRef, model: str | None) -> dict[tuple[str, str, str], Score]:
    """(evaluation set, metric, split) -> what was published of this model; of several reports the first."""
    scores: dict[tuple[str, str, str], Score] = {}
    for report in paper["reports"]:
        if report.value["model"] != model:
            continue
        for name, value in report["scores"].items():
            eval_set, metric = name.split(" ")
            split = report.value["split"]
            scores.setdefault((eval_set, metric, split), Score(eval_set, metric, split, False, value, report["source"]))
    return scores
