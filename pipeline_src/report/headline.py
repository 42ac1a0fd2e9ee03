"""The headline table: every score of the study beside what was published of a model of its size."""

from __future__ import annotations

from dataclasses import dataclass, field
from string import ascii_lowercase

from pipeline_src.report.published import (
    TEST_SERVER,
    NotComparable,
    Score,
    difference,
    model_of,
    published_scores,
    read_paper,
    split_of,
)
from pipeline_src.report.results import GLUE_AVERAGE, Results, glue_average, in_average, is_synthetic
from pipeline_src.report.table import METRICS
from pipeline_src.report.traced import Figure, Node, Shown


@dataclass(frozen=True)
class Line:
    """One row of the table.

    Attributes:
        title, metric, split: as people read them.
        synthetic: whether the data were made up.
        mean, deviation, best: over restarts.
        chance, random: what learns nothing, and the same training from random weights; None where there is none.
        examples: judged; None for an average.
        file: that was judged; None for an average.
        published: on the same split, with its source; None where nothing was.
        difference: ours less that; None where they are not comparable.
        test_server: published on hidden labels.
        main: whether this is the task's main metric.
    """

    title: Shown | str
    metric: str
    split: str
    synthetic: bool
    mean: Shown
    deviation: Shown
    best: Shown
    chance: Shown | None = None
    random: Shown | None = None
    examples: Shown | None = None
    file: Shown | None = None
    published: Score | None = None
    difference: Figure | None = None
    test_server: Score | None = None
    main: bool = True


@dataclass(frozen=True)
class Headline:
    """The table, the published model that stands beside, and the sources by the letter that marks them."""

    lines: list[Line]
    model: Node | None
    average: Line | None
    averaged: list[Node] = field(default_factory=list)

    @property
    def sources(self) -> list[tuple[str, Node]]:
        """A letter for each source that the table names, in the order in which it does."""
        lines = [*self.lines, *([self.average] if self.average else [])]
        scores = [score for line in lines for score in (line.published, line.test_server) if score and score.source]
        nodes = {score.source.value: score.source for score in scores if score.source}
        return list(zip(ascii_lowercase, nodes.values(), strict=False))

    def letter(self, score: Score) -> str:
        """The letter of a score's source."""
        return next(letter for letter, source in self.sources if score.source and source.value == score.source.value)

    @property
    def whole(self) -> bool:
        """Whether the average is of all scores that the paper averages."""
        return len(self.averaged) == len(GLUE_AVERAGE)


def headline(results: Results) -> Headline:
    """Every row of ``scores.json``, and the GLUE average as the paper counts it."""
    scores, paper = results.node("scores.json"), read_paper()
    model = model_of(paper, results.pretrain["long"]["config"])
    published = published_scores(paper, model.value["name"] if model else None)
    lines = [_line(row, is_synthetic(scores.value, row.value["task"]), published) for row in scores["rows"]]
    rows = in_average(scores)
    return Headline(lines, model, _average(scores, rows, published), rows)


def _line(row: Node, synthetic: bool, published: dict[tuple[str, str, str], Score]) -> Line:
    found = row.value
    split = split_of(found["file"])
    ours = Score(found["row"], found["metric"], split, synthetic, row["mean"])
    beside = published.get((ours.row, ours.metric, ours.split))
    return Line(
        title=row["title"],
        metric=METRICS.get(found["metric"], found["metric"]),
        split=split,
        synthetic=synthetic,
        mean=row["mean"],
        deviation=row["deviation"],
        best=row["best"],
        chance=row["chance"],
        random=row["random_weights"],
        examples=row["examples"],
        file=row["file"],
        published=beside,
        difference=_difference(ours, beside),
        test_server=published.get((ours.row, ours.metric, TEST_SERVER)),
        main=found["main"],
    )


def _difference(ours: Score, beside: Score | None) -> Figure | None:
    if beside is None:
        return None
    try:
        return difference(ours, beside)
    except NotComparable:
        return None


def _average(scores: Node, rows: list[Node], published: dict[tuple[str, str, str], Score]) -> Line | None:
    if not rows:
        return None
    mean, deviation, best = (
        glue_average(scores, formula)
        for formula in ("mean over restarts", "deviation over restarts", "best of restarts")
    )
    assert mean and deviation and best
    whole = len(rows) == len(GLUE_AVERAGE)
    return Line(
        title="GLUE average",
        metric="mean",
        split="dev",
        synthetic=any(is_synthetic(scores.value, row.value["task"]) for row in rows),
        mean=mean,
        deviation=deviation,
        best=best,
        test_server=published.get(("glue", "average", TEST_SERVER)) if whole else None,
    )
