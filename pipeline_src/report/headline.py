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
from pipeline_src.report.results import (
    GLUE_AVERAGE,
    Results,
    against,
    glue_average,
    in_average,
    is_from_corpus,
    is_synthetic,
)
from pipeline_src.report.table import METRICS
from pipeline_src.report.traced import JsonRef, Traced, TracedValue


@dataclass(frozen=True)
class Line:
    """One row of the table.

    Attributes:
        title, metric, split: as people read them.
        synthetic: whether the data were made up.
        mean, deviation, best: over restarts.
        majority_baseline, random_weights: of the best constant answer, and of the same training from random weights;
            None where there is none.
        examples: how many; None for an average.
        file: their file; None for an average.
        published: on the same split, with its source; None where nothing was.
        difference: ours less that; None where they are not comparable.
        test_server: published on hidden labels.
        main: whether this is the task's main metric.
        interval: 95 %, of the mean.
        bag_of_words: what words alone get.
        against_random: how far from random weights, and whether by more than noise (evaluation/uncertainty.py).
        from_corpus: whether the data were made from the study's own text.
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
    main: bool = True
    interval: Traced | None = None
    bag_of_words: Traced | None = None
    against_random: JsonRef | None = None
    from_corpus: bool = False


@dataclass(frozen=True)
class Headline:
    """The table, the published model that stands beside, and the sources by the letter that marks them."""

    lines: list[Line]
    model: JsonRef | None
    average: Line | None
    averaged: list[JsonRef] = field(default_factory=list)

    @property
    def sources(self) -> list[tuple[str, JsonRef]]:
        """A letter for each source that the table names, in the order in which it does."""
        lines = [*self.lines, *([self.average] if self.average else [])]
        scores = [score for line in lines for score in (line.published, line.test_server) if score and score.source]
        refs = {score.source.value: score.source for score in scores if score.source}
        return list(zip(ascii_lowercase, refs.values(), strict=False))

    def letter(self, score: Score) -> str:
        """The letter of a score's source."""
        return next(letter for letter, source in self.sources if score.source and source.value == score.source.value)

    @property
    def published(self) -> bool:
        """Whether any line has a published score beside it."""
        return any(line.published or line.test_server for line in self.lines)

    @property
    def whole(self) -> bool:
        """Whether the average is of all scores that the paper averages."""
        return len(self.averaged) == len(GLUE_AVERAGE)


def headline(results: Results) -> Headline:
    """Every row of ``scores.json``, and the GLUE average as the paper counts it."""
    scores, paper = results.ref("scores.json"), read_paper()
    model = model_of(paper, results.pretrain["long"]["config"])
    published = published_scores(paper, model.value["name"] if model else None)
    lines = [
        _line(row, is_synthetic(scores.value, task := row.value["task"]), is_from_corpus(scores.value, task), published)
        for row in scores["rows"]
    ]
    rows = in_average(scores)
    return Headline(lines, model, _average(scores, rows, published), rows)


def _line(row: JsonRef, synthetic: bool, from_corpus: bool, published: dict[tuple[str, str, str], Score]) -> Line:
    values = row.value
    split = split_of(values["file"])
    ours = Score(values["eval_set"], values["metric"], split, synthetic, row["mean"])
    beside = published.get((ours.eval_set, ours.metric, ours.split))
    return Line(
        title=row["title"],
        metric=METRICS.get(values["metric"], values["metric"]),
        split=split,
        synthetic=synthetic,
        mean=row["mean"],
        deviation=row["deviation"],
        best=row["best"],
        majority_baseline=row["majority_baseline"],
        random_weights=row["random_weights"],
        examples=row["examples"],
        file=row["file"],
        published=beside,
        difference=_difference(ours, beside),
        test_server=published.get((ours.eval_set, ours.metric, TEST_SERVER)),
        main=values["main"],
        interval=row["interval"] if values.get("interval") else None,
        bag_of_words=row["baselines"]["bag_of_words"]["score"] if against(values, "bag_of_words") else None,
        against_random=row["baselines"]["random_weights"]["against"] if against(values, "random_weights") else None,
        from_corpus=from_corpus,
    )


def _difference(ours: Score, beside: Score | None) -> TracedValue | None:
    if beside is None:
        return None
    try:
        return difference(ours, beside)
    except NotComparable:
        return None


def _average(scores: JsonRef, rows: list[JsonRef], published: dict[tuple[str, str, str], Score]) -> Line | None:
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
