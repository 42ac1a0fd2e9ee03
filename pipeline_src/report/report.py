"""Stage ``report``: render pages, plot tables, ``summary.json`` and ``filled_masks.json`` from results/*.json."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipeline_src.common.files import atomic_file, write_json
from pipeline_src.common.names import as_text
from pipeline_src.common.progress import log
from pipeline_src.report.comparison import render_comparison
from pipeline_src.report.cost import PRICE, check_price
from pipeline_src.report.experiments import read_experiment
from pipeline_src.report.going_on import going_on_lines
from pipeline_src.report.headline import Headline, Line, headline
from pipeline_src.report.interpretation import read_interpretation, render_interpretation
from pipeline_src.report.page import render_page, render_run, title_of
from pipeline_src.report.results import (
    METRICS,
    RESULTS,
    Results,
    fitting_results,
    is_synthetic,
    read_results,
    summarise,
)
from pipeline_src.report.table import average_line, heading, mark_of, text_table, validation_line, verdict
from pipeline_src.report.traced import DASH, Traced, plain

HEADER = (
    "task",
    "metric",
    "split",
    "score",
    "95 % interval",
    "best",
    "majority baseline",
    "bag of words",
    "random weights",
    "better than random?",
    "published",
    "difference",
    "test server",
)


def render_markdown(results: Results) -> str:
    """Render validation figures, the headline table and the average."""
    table = headline(results)
    parts = [
        f"# {title_of(results)}",
        validation_line(results.pretrain["phase2"]["validation"]),
        *_few_validation_documents(results),
        *_diagnoses(results),
        *going_on_lines(results.pretrain),
        f"## {heading(results.scores)}",
        *_score_tables(table),
        average_line(results.scores),
        *_sources(table),
    ]
    return "\n\n".join(parts) + "\n"


def _few_validation_documents(results: Results) -> list[str]:
    few = results.corpus.get("few_validation_documents", {})
    sources = ", ".join(as_text(f"{count} of {source}") for source, count in few.items())
    return [f"**Few validation documents: {sources}.**"] if few else []


def _diagnoses(results: Results) -> list[str]:
    """Where each phase lies next to measured trainings; see ``pretraining/loss_monitor.py``."""
    return [
        f"Is this normal? {phase}: {as_text(result['diagnosis']['sentence'])}."
        for phase, result in results.pretrain.items()
        if "diagnosis" in result  # missing without a loss at [MASK], and in older results
    ]


def _score_tables(table: Headline) -> list[str]:
    """Scores on real data, then those of synthetic tasks in a folded block."""
    real, synthetic = ([line for line in table.lines if line.synthetic == made] for made in (False, True))
    tables = [text_table(HEADER, [_cells(table, line) for line in lines]) for lines in (real, synthetic) if lines]
    if real and synthetic:
        tables[1:] = [f"<details><summary>{len(synthetic)} of synthetic tasks</summary>", tables[1], "</details>"]
    return tables


def _cells(table: Headline, line: Line) -> tuple[str, ...]:
    def cell(traced: Traced | None, format: str = "one") -> str:
        return DASH if traced is None else plain(traced, format)

    published, server = (
        f"{plain(score.value, 'one')} ({table.letter(score)})" if score else DASH
        for score in (line.published, line.test_server)
    )
    title = line.title if isinstance(line.title, str) else plain(line.title)
    return (
        title + (" (synthetic)" if line.synthetic else " (from this corpus)" if line.from_corpus else ""),
        line.metric,
        line.split,
        plain(line.mean, "one") + plain(line.deviation, "spread"),
        cell(line.interval, "interval"),
        cell(line.best),
        cell(line.majority_baseline),
        cell(line.bag_of_words),
        cell(line.random_weights),
        verdict(line.against_random.value if line.against_random else None),
        published,
        cell(line.difference, "signed"),
        server,
    )


def _sources(table: Headline) -> list[str]:
    if not table.sources or table.model is None:
        return []
    named = "; ".join(f"({letter}) {source.value}" for letter, source in table.sources)
    return [
        f"Published figures are of {table.model.value['name']} on the real data: {named}. A difference is taken only "
        "on the same split, metric and data."
    ]


# columns of the tables for `dvc plots`
SCORE_COLUMNS = ("score", "split", "metric", "value", "majority_baseline")
CONFUSION_COLUMNS = ("score", "actual", "predicted", "share", "count")


def run(*, price: float = PRICE, experiments: Sequence[str] = (), **blocks: Any) -> None:
    """Write the report of the results in the workspace, or a comparison of experiments.

    Args:
        blocks: all sections of params.yaml, which the page shows as written, so that a change makes a new page.
        price: price of an hour of one process.
        experiments: names of DVC experiments, git revisions, or ``workspace``; if given, only ``comparison.html`` is
            written.
    """
    check_price(price, "--price")
    if experiments:
        with fitting_results("comparison"), atomic_file(RESULTS / "comparison.html") as file:
            file.write(render_comparison([read_experiment(name) for name in dict.fromkeys(experiments)]))
        log.info("comparison: %s", RESULTS / "comparison.html")
        return
    with fitting_results("report"):
        _write_report(read_results(), price)
    log.info("report: %s", RESULTS / "report.html")


def _write_report(results: Results, price: float) -> None:
    summary = summarise(results)
    with atomic_file(RESULTS / "report.html") as file:
        file.write(render_page(results, summary))
    with atomic_file(RESULTS / "run.html") as file:  # of this machine, so not in DVC
        file.write(render_run(results, price))
    if parts := read_interpretation(results):
        with atomic_file(RESULTS / "interpretation.html") as file:
            file.write(render_interpretation(parts))
    with atomic_file(RESULTS / "report.md") as file:
        file.write(render_markdown(results))
    _write_table(RESULTS / "scores.tsv", SCORE_COLUMNS, score_rows(results))
    _write_table(RESULTS / "confusion.tsv", CONFUSION_COLUMNS, confusion_rows(results))
    write_json(RESULTS / "summary.json", summary)
    masks = [mask.value for mask in results.filled_masks]
    write_json(RESULTS / "filled_masks.json", masks)  # tracked by git; a test compares README with it


def score_rows(results: Results) -> Iterable[Sequence[Any]]:
    """Return the rows of ``scores.tsv``, with the columns SCORE_COLUMNS."""
    for row in results.scores["rows"]:
        mark = mark_of(results.scores, row["task"])
        metric = METRICS.get(row["metric"], row["metric"])
        yield (
            f"{row['title']}, {metric}{mark}",
            row["file"],
            metric,
            f"{row['mean']:.4f}",
            f"{row['majority_baseline']:.4f}",
        )


def confusion_rows(results: Results) -> Iterable[Sequence[Any]]:
    """Return the rows of ``confusion.tsv``: count of each gold and predicted label, and its share of the gold label."""
    titles = {row["eval_set"]: row["title"] for row in results.scores["rows"]}
    for task, ref in results.tasks.items():
        mark = " (synthetic)" if is_synthetic(results.scores, task) else ""
        for row, errors in ref.value["errors"].items():
            if (matrix := errors["confusion"]) is None:
                continue
            for actual, counts in zip(matrix["labels"], matrix["counts"], strict=True):
                for predicted, count in zip(matrix["labels"], counts, strict=True):
                    yield titles[row] + mark, actual, predicted, f"{count / (sum(counts) or 1):.4f}", count


def _write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with atomic_file(path) as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([header, *rows])
