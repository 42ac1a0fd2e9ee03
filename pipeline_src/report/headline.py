"""The headline table: every score of the study next to the published scores of a model of its size."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from pipeline_src.report.results import (
    GLUE_AVERAGE,
    METRICS,
    Results,
    against,
    glue_average,
    in_average,
    is_from_corpus,
    is_of_best_epoch,
    is_synthetic,
)
from pipeline_src.report.traced import JsonRef, Traced, TracedValue, computed, load_yaml

PAPER = Path(__file__).with_name("paper.yaml")
DOCUMENT = "pipeline_src/report/paper.yaml"
TEST_SERVER = "test server"
SPLITS = dict.fromkeys(("dev", "val", "valid", "dev_matched", "dev_mismatched"), "dev")
SPLITS |= {"test": "test", "diagnostic": "diagnostic"}


@dataclass(frozen=True)
class Score:
    """A score with the attributes that must agree for a comparison.

    Attributes:
        eval_set, metric: names of catalogue/tasks.
        split: ``dev``, ``test``, ``test server``, or the name of another file.
        synthetic: whether the data are synthetic.
        value: the score.
        source: source of a published score; None for the study's own.
    """

    eval_set: str
    metric: str
    split: str
    synthetic: bool
    value: Traced
    source: JsonRef | None = None


def read_paper() -> JsonRef:
    """Return the committed file of published figures."""
    return JsonRef(load_yaml(PAPER), DOCUMENT)


def split_of(file: str) -> str:
    """Return the split that a file's name indicates, or the name itself."""
    words = re.findall(r"[a-z_]+", file.lower().rsplit(".", 1)[0])
    return next((SPLITS[word] for word in words if word in SPLITS), file)


def difference(ours: Score, published: Score | None) -> TracedValue | None:
    """Return ours minus published, or None unless evaluation set, metric and split agree and the data are real."""
    if published is None or ours.synthetic or published.synthetic:
        return None
    same = all(getattr(ours, name) == getattr(published, name) for name in ("eval_set", "metric", "split"))
    return computed("difference", ours.value, published.value) if same else None


def model_of(paper: JsonRef, config: dict[str, Any]) -> JsonRef | None:
    """Return the published model of these sizes."""
    sizes = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads"}
    for model in paper["models"]:
        if all(model.value[name] == config.get(key, model.value[name]) for name, key in sizes.items()):
            return model
    return None


def published_scores(paper: JsonRef, model: str | None) -> dict[tuple[str, str, str], Score]:
    """Return a model's published scores by (evaluation set, metric, split); the first of several reports counts."""
    scores: dict[tuple[str, str, str], Score] = {}
    for report in paper["reports"]:
        if report.value["model"] != model:
            continue
        for name, value in report["scores"].items():
            eval_set, metric = name.split(" ")
            split = report.value["split"]
            scores.setdefault((eval_set, metric, split), Score(eval_set, metric, split, False, value, report["source"]))
    return scores


@dataclass(frozen=True)
class Line:
    """One row of the table; an average has no examples, file, interval or baselines.

    Attributes:
        title, metric, split: texts for people.
        synthetic, from_corpus: whether the data were generated, and whether from the study's own text.
        mean, deviation, best: over restarts.
        published: published score on the same split, with its source.
        difference: ours minus published.
        test_server: published score on hidden labels.
        against_random: the difference from random weights and its significance (evaluation/significance.py).
    """

    title: Traced | str
    metric: str
    split: str
    synthetic: bool
    mean: Traced
    deviation: Traced
    best: Traced
    majority_baseline: Traced | None = None
    random_weights: Traced | None = None
    examples: Traced | None = None
    file: Traced | None = None
    published: Score | None = None
    difference: TracedValue | None = None
    test_server: Score | None = None
    interval: Traced | None = None
    bag_of_words: Traced | None = None
    against_random: JsonRef | None = None
    from_corpus: bool = False


@dataclass(frozen=True)
class Headline:
    """The table, the published model, and its sources by letter."""

    lines: list[Line]
    model: JsonRef | None
    average: Line | None
    averaged: list[JsonRef] = field(default_factory=list)

    @property
    def sources(self) -> list[tuple[str, JsonRef]]:
        """Assign a letter to each source, in the order in which the table names them."""
        scores = [score for line in self._all for score in (line.published, line.test_server) if score and score.source]
        refs = {score.source.value: score.source for score in scores if score.source}
        return list(zip(ascii_lowercase, refs.values(), strict=False))

    def letter(self, score: Score) -> str:
        return next(letter for letter, source in self.sources if score.source and source.value == score.source.value)

    @property
    def real(self) -> list[Line]:
        """Lines of real data, with their average."""
        return [line for line in self._all if not line.synthetic]

    @property
    def synthetic(self) -> list[Line]:
        """Lines of synthetic data, with their average."""
        return [line for line in self._all if line.synthetic]

    @property
    def _all(self) -> list[Line]:
        return [*self.lines, *([self.average] if self.average else [])]

    @property
    def published(self) -> bool:
        """True if any line has a published score."""
        return any(line.published or line.test_server for line in self.lines)

    @property
    def whole(self) -> bool:
        """True if the average is over all scores that the paper averages."""
        return len(self.averaged) == len(GLUE_AVERAGE)


def headline(results: Results) -> Headline:
    """Return every row of ``scores.json``, and the GLUE average of the paper's tasks."""
    scores, paper = results.ref("scores.json"), read_paper()
    model = model_of(paper, results.pretrain["phase2"]["config"])
    published = published_scores(paper, model.value["name"] if model else None)
    lines = [_line(row, scores.value, published) for row in scores["rows"]]
    rows = in_average(scores)
    return Headline(lines, model, _average(scores, rows, published), rows)


def _line(row: JsonRef, scores: dict[str, Any], published: dict[tuple[str, str, str], Score]) -> Line:
    values = row.value
    synthetic = is_synthetic(scores, values["task"])
    split = split_of(values["file"])
    epoch = ", best epoch" if is_of_best_epoch(scores, values["task"]) else ""
    ours = Score(values["eval_set"], values["metric"], split, synthetic, row["mean"])
    same_split = published.get((ours.eval_set, ours.metric, ours.split))
    return Line(
        title=row["title"],
        metric=METRICS.get(values["metric"], values["metric"]) + epoch,
        split=split,
        synthetic=synthetic,
        mean=row["mean"],
        deviation=row["deviation"],
        best=row["best"],
        majority_baseline=row["majority_baseline"],
        random_weights=row["random_weights"],
        examples=row["examples"],
        file=row["file"],
        published=same_split,
        difference=difference(ours, same_split),
        test_server=published.get((ours.eval_set, ours.metric, TEST_SERVER)),
        interval=row["interval"] if values.get("interval") else None,
        bag_of_words=row["baselines"]["bag_of_words"]["score"] if against(values, "bag_of_words") else None,
        against_random=row["baselines"]["random_weights"]["against"] if against(values, "random_weights") else None,
        from_corpus=is_from_corpus(scores, values["task"]),
    )


def _average(scores: JsonRef, rows: list[JsonRef], published: dict[tuple[str, str, str], Score]) -> Line | None:
    formulas = ("mean over restarts", "deviation over restarts", "best of restarts")
    mean, deviation, best = (glue_average(scores, formula) for formula in formulas)
    if not (mean and deviation and best):
        return None
    synthetic = any(is_synthetic(scores.value, row.value["task"]) for row in rows)
    server = published.get(("glue", "average", TEST_SERVER)) if len(rows) == len(GLUE_AVERAGE) else None
    return Line("GLUE average", "mean", "dev", synthetic, mean, deviation, best, test_server=server)
