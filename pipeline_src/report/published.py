"""Published figures (paper.yaml), and when a score may be compared with one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.report.traced import Figure, Node, Shown, computed

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
        row, metric: as tasks.yaml names them.
        split: ``dev``, ``test``, ``test server``, or the name of a file that is none of these.
        synthetic: whether the data were made up.
        figure: its value.
        source: where it was published; None for a study's own.
    """

    row: str
    metric: str
    split: str
    synthetic: bool
    figure: Shown
    source: Node | None = None


class NotComparable(ValueError):
    """Two scores of different tasks, metrics, splits or data."""


def read_paper() -> Node:
    """The committed file of published figures."""
    with open(PAPER, encoding="utf-8") as file:
        return Node(yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), DOCUMENT)


def split_of(file: str) -> str:
    """The split that a task's file is: by the words of its name, or the name itself where they do not tell."""
    words = re.findall(r"[a-z_]+", file.lower().rsplit(".", 1)[0])
    return next((SPLITS[word] for word in words if word in SPLITS), file)


def difference(ours: Score, published: Score) -> Figure:
    """Ours less the published one.

    Raises:
        NotComparable: they are not of the same row, metric and split, or either is of synthetic data.
    """
    for name in ("row", "metric", "split"):
        if getattr(ours, name) != getattr(published, name):
            raise NotComparable(f"{name} {getattr(ours, name)!r} beside {getattr(published, name)!r}")
    if ours.synthetic or published.synthetic:
        raise NotComparable(f"{ours.row} is of synthetic data")
    return computed("difference", ours.figure, published.figure)


def model_of(paper: Node, config: dict[str, Any]) -> Node | None:
    """The published model of these sizes, None where there is none."""
    sizes = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads"}
    for model in paper["models"]:
        if all(model.value[name] == config.get(key, model.value[name]) for name, key in sizes.items()):
            return model
    return None


def published_scores(paper: Node, model: str | None) -> dict[tuple[str, str, str], Score]:
    """(row, metric, split) -> what was published of this model; of several reports the first."""
    found: dict[tuple[str, str, str], Score] = {}
    for report in paper["reports"]:
        if report.value["model"] != model:
            continue
        for name, figure in report["scores"].named():
            row, metric = name.split(" ")
            split = report.value["split"]
            found.setdefault((row, metric, split), Score(row, metric, split, False, figure, report["source"]))
    return found
