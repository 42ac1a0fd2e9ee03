"""Stage ``report``: results/*.json in, pages, tables for plots, ``summary.json`` and ``filled_masks.json`` out."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipeline_src.common.files import atomic_file, write_json
from pipeline_src.common.progress import log
from pipeline_src.report.comparison import render_comparison
from pipeline_src.report.cost import PRICE, check_price
from pipeline_src.report.experiments import read_experiment
from pipeline_src.report.interpretation import read_interpretation
from pipeline_src.report.interpretation_page import render_interpretation
from pipeline_src.report.markdown import render_markdown
from pipeline_src.report.page import render_page
from pipeline_src.report.result_files import fitting_results
from pipeline_src.report.results import RESULTS, Results, is_synthetic, read_results, summarise
from pipeline_src.report.table import METRICS, mark_of

# What `dvc plots` draws.
SCORE_COLUMNS = ("score", "split", "metric", "value", "majority_baseline")
CONFUSION_COLUMNS = ("score", "actual", "predicted", "share", "count")


def run(*, price: float = PRICE, experiments: Sequence[str] = (), **blocks: Any) -> None:
    """Write the report of the results at hand, or a comparison of experiments.

    Args:
        blocks: every block of params.yaml: the page shows the file as it was written, so that another one makes another
            page, equal results or not.
        price: of an hour of one process.
        experiments: names of DVC experiments or git revisions, or ``workspace``; then ``comparison.html`` is written
            and nothing else.

    Raises:
        PipelineError: a result is missing or malformed, there is no such experiment, or the price is none.
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
        file.write(render_page(results, summary, price))
    if parts := read_interpretation(results):
        with atomic_file(RESULTS / "interpretation.html") as file:
            file.write(render_interpretation(parts))
    with atomic_file(RESULTS / "report.md") as file:
        file.write(render_markdown(results))
    _write_table(RESULTS / "scores.tsv", SCORE_COLUMNS, score_rows(results))
    _write_table(RESULTS / "confusion.tsv", CONFUSION_COLUMNS, confusion_rows(results))
    write_json(RESULTS / "summary.json", summary)
    masks = results.documents.get("results/interpretation/completion.json", {}).get("filled masks", [])
    write_json(RESULTS / "filled_masks.json", masks)  # in git: what README says of the model is compared with it


def score_rows(results: Results) -> Iterable[Sequence[Any]]:
    """Rows of ``scores.tsv``: SCORE_COLUMNS."""
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
    """Rows of ``confusion.tsv``, CONFUSION_COLUMNS: how often each label was taken for each, and which share of its
    own examples that is."""
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
