"""The results table as text, for a terminal; printed by the tool ``table``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_src.common.names import as_text
from pipeline_src.report.results import (
    GLUE_AVERAGE,
    METRICS,
    RESULTS,
    against,
    fitting_results,
    further_tasks,
    glue_average,
    in_average,
    is_from_corpus,
    is_of_best_epoch,
    is_synthetic,
    read_result,
)
from pipeline_src.report.traced import FORMATS, JsonRef

HEADER = (
    "task",
    "metric",
    "score",
    "95 % interval",
    "majority",
    "bag of words",
    "random weights",
    "better than random?",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``table`` takes no arguments."""


def main(arguments: argparse.Namespace) -> None:
    """Print the table and the path of the report."""
    scores = read_result(RESULTS, "scores.json")
    validation = read_result(RESULTS, "pretrain/phase2.json")["validation"]
    with fitting_results("table"):
        table = f"{text_table(HEADER, score_cells(scores))}\n\n{average_line(scores)}"
        text = f"\n{validation_line(validation)}\n\n{heading(scores)}\n\n{table}"
    print(text)
    print(f"Report: {Path('results/report.html').resolve()}")


def heading(scores: dict[str, Any]) -> str:
    """Return one line that names the data of the scores."""
    kinds = [
        "real tasks" if not all(_made(scores, row["task"]) for row in scores["rows"]) else "",
        "tasks MADE FROM THIS CORPUS (held-out sentences)" if scores.get("from_corpus") else "",
        "SYNTHETIC tasks (made by this project in the official file layouts)" if scores["synthetic"] else "",
    ]
    return f"Scores on {', then '.join(filter(None, kinds))}, in percent"


def validation_line(validation: dict[str, Any]) -> str:
    """Return the validation figures of pretraining as one line."""
    if "mask_loss" not in validation:
        return "Validation text: " + ", ".join(f"{as_text(name)} {value:.4g}" for name, value in validation.items())
    words = (
        f"Validation text: MLM loss {validation['mask_loss']:.3f} at [MASK] against "
        f"{validation['unigram_loss']:.3f} of unigram counts (gap {validation['gap']:+.3f} nats)"
    )
    if "nsp_accuracy" not in validation:
        return f"{words}; no next sentences"
    accuracy, majority = (100 * validation[name] for name in ("nsp_accuracy", "nsp_majority"))
    return f"{words}; NSP accuracy {accuracy:.1f} % (larger class {majority:.1f} %)"


def average_line(scores: dict[str, Any]) -> str:
    """Return the paper's GLUE average as one line."""
    ref = JsonRef(scores, "results/scores.json")
    average, rows = glue_average(ref), in_average(ref)
    kind = "Synthetic GLUE" if any(is_synthetic(scores, row.value["task"]) for row in rows) else "GLUE"
    some = f", {len(rows)} of the {len(GLUE_AVERAGE)} scores" if 0 < len(rows) < len(GLUE_AVERAGE) else ""
    how = f"MNLI-m and -mm apart, F1 for QQP and MRPC, Spearman for STS-B, without WNLI{some}"
    how += ", some of the best epoch" if scores.get("best_epoch") else ""
    return f"{kind} average ({how}): {'none' if average is None else f'{average.value:.1f}'}"


def row_texts(row: dict[str, Any]) -> dict[str, str]:
    """Return the cells of one row of ``results/scores.json``, as in every report."""
    spread = "" if row["deviation"] is None else f" ± {row['deviation']:.1f}"
    words = row.get("baselines", {}).get("bag_of_words")
    return {
        "metric": METRICS.get(row["metric"], row["metric"]),
        "score": f"{row['mean']:.1f}{spread}",
        "interval": "–" if not row.get("interval") else FORMATS["interval"](row["interval"]),
        "majority_baseline": f"{row['majority_baseline']:.1f}",
        "bag_of_words": "–" if words is None else f"{words['score']:.1f}",
        "random_weights": "–" if row["random_weights"] is None else f"{row['random_weights']:.1f}",
        "verdict": verdict(against(row, "random_weights")),
    }


def verdict(found: dict[str, Any] | None, better: str = "yes") -> str:
    """Return a difference as a word: better, worse, same, or not significant with the number of examples needed."""
    if found is None:
        return "–"
    if found["significant"]:
        return better if found["difference"] > 0 else "worse"
    if found["examples_needed"] is None:
        return "same"
    return f"not significant ({found['examples_needed']:,} examples needed)"


def score_cells(scores: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the table's rows as text, with the columns of :data:`HEADER`; synthetic tasks come last."""
    rows = sorted(scores["rows"], key=lambda row: is_synthetic(scores, row["task"]))
    return [(row["title"] + mark_of(scores, row["task"]), *row_texts(row).values()) for row in rows]


def mark_of(scores: dict[str, Any], task: str) -> str:
    """Return the mark that follows the title of a task: without real labelled data, or scored at its best epoch."""
    kind, epoch = _made(scores, task), "best epoch" if is_of_best_epoch(scores, task) else ""
    return f" ({', '.join(filter(None, (kind, epoch)))})" if kind or epoch else ""


def _made(scores: dict[str, Any], task: str) -> str:
    return "from this corpus" if is_from_corpus(scores, task) else "synthetic" if is_synthetic(scores, task) else ""


def further_titles(scores: dict[str, Any]) -> list[str]:
    """Return the titles of :func:`further_tasks`."""
    own = further_tasks(scores)
    return list(dict.fromkeys(row["title"] for row in scores["rows"] if row["task"] in own))


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns line up in a terminal, with numbers aligned right."""
    rows = [[as_text(cell) for cell in row] for row in rows]
    widths = [max(len(str(row[column])) for row in [header, *rows]) for column in range(len(header))]
    numeric = [
        bool(rows) and all(row[column][:1].isdigit() or row[column][:1] in "-–" for row in rows)
        for column in range(len(header))
    ]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        return f"| {' | '.join(cells)} |"

    rule = "|".join(
        f" {'-' * (width - 1)}{':' if right else '-'} " for width, right in zip(widths, numeric, strict=True)
    )
    return "\n".join([line(header), f"|{rule}|", *map(line, rows)])
