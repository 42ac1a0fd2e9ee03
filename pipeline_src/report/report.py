"""Stage ``report``: make HTML pages, tables, ``summary.json`` and ``filled_masks.json`` from results/*.json."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline_src.base.files import atomic_file, write_json
from pipeline_src.base.paths import DEFAULT_MODEL
from pipeline_src.base.progress import log
from pipeline_src.report.columns import COLUMNS, TSV
from pipeline_src.report.comparison import render_comparison
from pipeline_src.report.experiments import read_experiment
from pipeline_src.report.interpretation import is_complete, render_interpretation
from pipeline_src.report.page import render_page
from pipeline_src.report.results import BERT, RESULTS, Results, read_results, reading_results, summarise
from pipeline_src.report.run_page import check_price, render_run
from pipeline_src.report.table import render_markdown
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.model import ModelParams
from pipeline_src.study.settled import when_settled

CONFUSION_COLUMNS = ("score", "actual", "predicted", "share", "count")


def run(
    *,
    price: float | None = None,
    experiments: Sequence[str] = (),
    model: ModelParams | None = None,
    finetune: FinetuneParams | None = None,
    **blocks: Any,
) -> None:
    """Write the report of the results in the workspace, or a comparison of experiments.

    Args:
        price: price per hour of one training process; if None, run.html shows no price.
        experiments: names of DVC experiments, git revisions, or ``workspace``. If given, only ``comparison.html`` is
            written.
        model, finetune: the study's architecture and the encoder that it fine-tunes. If None, they are BERT and the
            model of this study.
    """
    if price is not None:
        check_price(price, "--price")
    if experiments:
        with reading_results("comparison"), atomic_file(RESULTS / "comparison.html") as file:
            file.write(render_comparison([read_experiment(name) for name in dict.fromkeys(experiments)]))
        log.info("comparison: %s", RESULTS / "comparison.html")
        return
    architecture = model.architecture if model else BERT
    encoder = Path(finetune.model) if finetune else DEFAULT_MODEL
    with reading_results("report"):
        _write_report(read_results(RESULTS, architecture, encoder), price)
    log.info("report: %s", RESULTS / "report.html")


def _write_report(results: Results, price: float | None) -> None:
    summary = summarise(results)
    pages = {
        "report.html": render_page(results, summary),
        "report.md": render_markdown(results),
        # run.html depends on this machine, so DVC does not track it.
        "run.html": render_run(results, price),
    }
    if is_complete(results.interpretation):
        pages["interpretation.html"] = render_interpretation(
            results.interpretation, results.scores["rules"], results.titles
        )
    for name, text in pages.items():
        with atomic_file(RESULTS / name) as file:
            file.write(text)
    columns = [column for column in COLUMNS if TSV in column.where]
    scores = []
    for row in results.rows:
        scores.append([column.text(row) for column in columns])
    _write_table(RESULTS / "scores.tsv", [column.header for column in columns], scores)
    _write_table(RESULTS / "confusion.tsv", CONFUSION_COLUMNS, _confusions(results))

    def write_tracked() -> None:
        write_json(RESULTS / "summary.json", summary)
        # A test compares the README with this file.
        write_json(RESULTS / "filled_masks.json", results.filled_masks)

    # git tracks both files. While DVC makes an experiment, it temporarily replaces them with those of the last commit.
    when_settled(write_tracked)


def _confusions(results: Results) -> Iterator[Sequence[Any]]:
    row_of_set = {row.eval_set: row for row in results.rows}
    for task in results.tasks.values():
        for eval_set, errors in task["errors"].items():
            matrix = errors["confusion"]
            if matrix is None:
                continue
            row = row_of_set[eval_set]
            title = f"{row.title} (synthetic)" if row.synthetic else row.title
            for actual, counts in zip(matrix["labels"], matrix["counts"], strict=True):
                total = sum(counts) or 1
                for predicted, count in zip(matrix["labels"], counts, strict=True):
                    yield title, actual, predicted, f"{count / total:.4f}", count


def _write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with atomic_file(path) as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([header, *rows])
