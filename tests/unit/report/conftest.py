"""Results of a small study, as the stages before the report write them, and a reader of the page."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from pipeline_src.base.files import read_json, write_json
from pipeline_src.report import comparison, figures
from pipeline_src.report.columns import GLUE_AVERAGE

Attributes = list[tuple[str, str | None]]
SVG = figures.svg
# Results of a study of BERT-base's size in two phases, and of what its model learnt (one layer, two heads).
STUDY = Path(__file__).with_name("study")
VALIDATION = read_json(STUDY / "pretrain/phase1.json")["validation"]
LOG = {
    **{"flops": 100, "seconds": 3753.0, "training_seconds": 59.0, "tokens_per_second": 12_345.6, "mfu": 0.4123},
    **{"peak_memory": 812e6, "processes": 2, "peak_flops": 1.978e15, "peak_source": "datasheet, 2024"},
}
RUN = {"seconds": 12.5, "cpu_seconds": 11.0, "max_rss_mb": 812.4, "started": "2026-01-01T00:00:00+00:00"}


def score_row(task: str, metric: str, *values: float, main: bool = True, **changes: Any) -> dict:
    """Return a row of ``scores.json``."""
    return {
        **{"task": task, "eval_set": task, "title": task.upper(), "file": "dev.tsv", "metric": metric, "main": main},
        **{"examples": 500, "values": list(values), "mean": fmean(values), "best": max(values)},
        **{"deviation": stdev(values) if len(values) > 1 else None, "majority_baseline": 50.0, "random_weights": 61.5},
        **changes,
    }


GAIN = {"difference": 15.0, "interval": [10.0, 20.0], "p": 0.001, "significant": True, "examples_needed": None}
LOSS = GAIN | {"difference": -15.0, "interval": [-20.0, -10.0]}
NOISE = {"difference": 1.0, "interval": [-1.0, 3.0], "p": 0.4, "significant": False, "examples_needed": 1287}


def baselines(vs_baseline: dict) -> dict:
    return {name: {"score": 44.4, "vs_baseline": vs_baseline} for name in ("random_weights", "bag_of_words")}


def task_details(task: str) -> dict:
    """Return ``results/tasks/<task>.json``, as far as the report reads it."""
    error = {"text": f"A text of {task} <b>with</b> 1,234 marks.", "gold": "0", "predicted": "1", "confidence": 0.987}
    errors = {
        "confusion": None if task == "squad1" else {"labels": ["0", "1"], "counts": [[40, 3], [2, 55]]},
        "classes": [
            {"label": "0", "support": 43, "precision": 95.24, "recall": 93.02, "f1": 94.12},
            {"label": "1", "support": 57, "precision": None, "recall": 96.49, "f1": 95.65},
        ],
        "lengths": [
            {"from": 3, "to": 9, "examples": 60, "right": 0.95},
            {"from": 10, "to": 10, "examples": 40, "right": 0.9},
        ],
        "wrong": 5,
        "worst": [error, error | {"confidence": None}],
    }
    kind = "span" if task == "squad1" else "classification"
    return {"kind": kind, "counts": {"train.tsv": {"broken_rows": 12}}, "errors": {task: errors}}


def write_scores(folder: Path, rows: list[dict], rules: Sequence[str] = (), **kinds: Any) -> None:
    """Write ``scores.json`` and a file for each task; those of ``rules`` are synthetic."""
    write_json(folder / "scores.json", {"rules": dict.fromkeys(rules, "A <rule>."), "rows": rows, **kinds})
    for task in {row["task"] for row in rows}:
        write_json(folder / "tasks" / f"{task}.json", task_details(task))


def update_json(path: Path, **changes: Any) -> None:
    """Change values of a JSON file."""
    write_json(path, read_json(path) | changes)


def glue_rows(*values: float, **changes: Any) -> list[dict]:
    """Return a row for each score that is part of the GLUE average."""
    return [score_row(name, metric, *values, **changes) for name, metric in GLUE_AVERAGE.items()]


ROWS = [
    score_row("rte", "accuracy", 80.0),
    score_row("mrpc", "accuracy", 70.0),
    score_row("mrpc", "f1", 90.0, main=False),
    score_row("wnli", "accuracy", 10.0),
    score_row("squad1", "f1", 49.1, 50.9, file="dev-v1.1.json"),
    score_row("squad1", "em", 40.0, main=False, file="dev-v1.1.json"),
    score_row("swag", "accuracy", 30.0, random_weights=None, file="val.csv"),
]


def sketch(axes: Any, name: str, description: str) -> str:
    """Replace a plot, which takes a second, by its texts."""
    texts = [axes.get_title(), axes.get_xlabel(), *(label.get_text() for label in axes.get_yticklabels())]
    return f'<svg role="img" aria-label="{description}">{"".join(f"<text>{text}</text>" for text in texts)}</svg>'


@pytest.fixture
def pictures(results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same results with real plots."""
    for module in (figures, comparison):
        monkeypatch.setattr(module, "svg", SVG)
    return results


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of synthetic tasks, of BERT-base's size, without real plots."""
    monkeypatch.chdir(tmp_path)
    for module in (figures, comparison):
        monkeypatch.setattr(module, "svg", sketch)
    return write_results(tmp_path / "results")


def write_results(folder: Path) -> Path:
    """Write the files that a report reads."""
    shutil.copytree(STUDY, folder, ignore=shutil.ignore_patterns("interpretation"))
    write_scores(folder, ROWS, sorted({row["task"] for row in ROWS}))
    return folder


def write_costs(results: Path, **changes: Any) -> None:
    """Write the computation of both phases, and a log of each."""
    cost = {"steps": 10, "tokens": 4000, "flops": 100, "normalised_computation": 6.4e9}
    for phase in ("phase1", "phase2"):
        update_json(results / f"pretrain/{phase}.json", cost=cost)
        write_json(results.parent / f"logs/pretrain/{phase}.cost.json", LOG | changes)
        write_json(results.parent / f"logs/pretrain/{phase}.run.json", RUN)


class Page(HTMLParser):
    """The addresses that a browser would fetch, elements that are not closed, and the text."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).replace("\xa0", " ").split())

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        self.fetched += [
            value
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and tag != "a" and value and not value.startswith("#")
        ]
        if tag in ("td", "th", "tr", "br", "dd", "li"):
            self.texts.append(" ")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Attributes) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
