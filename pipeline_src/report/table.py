"""The results as text: report.md, and the output of the command-line tool ``results``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from pipeline_src.base.files import read_json
from pipeline_src.base.names import as_text, checked_path
from pipeline_src.report.columns import (
    FROM_CORPUS,
    GLUE_AVERAGE,
    MARKDOWN,
    TERMINAL,
    ScoreRow,
    averaged_rows,
    glue_average,
    score_rows,
    table_rows,
    text_table,
)
from pipeline_src.report.results import RESULTS, SEEDS, Results, position_losses, reading_results, source_losses


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # The tool has no arguments.
    pass


def main(arguments: argparse.Namespace) -> None:
    with reading_results("table"):
        scores = read_json(RESULTS / "scores.json")
        last = max(read_json(RESULTS / "corpus.json", {"examples": dict})["examples"])
        checked_path(last, RESULTS / "corpus.json")
        validation = read_json(RESULTS / f"pretrain/{last}.json")["validation"]
        rows = score_rows(scores)
        parts = [
            validation_line(validation),
            heading(rows),
            text_table(TERMINAL, table_rows(scores)),
            average_line(rows),
        ]
    print("\n" + "\n\n".join(parts))
    print(f"Report: {(RESULTS / 'report.html').resolve()}")


def render_markdown(results: Results) -> str:
    rows = [row for row in results.table if not row.averaged]
    real = [row for row in rows if not row.synthetic]
    synthetic = [row for row in rows if row.synthetic]
    tables = []
    if real:
        tables.append(text_table(MARKDOWN, real))
    if real and synthetic:
        tables.append(f"<details><summary>{len(synthetic)} of synthetic tasks</summary>")
        tables.append(text_table(MARKDOWN, synthetic))
        tables.append("</details>")
    elif synthetic:
        tables.append(text_table(MARKDOWN, synthetic))
    several_seeds = any(row.deviation is not None for row in results.rows)
    parts = [
        f"# {results.title}",
        validation_line(results.last["validation"]),
        *_few_validation_documents(results.corpus),
        *_overlap_warning(results.corpus),
        *_diagnoses(results),
        *_losses_by_source(results),
        f"## {heading(results.rows)}",
        *tables,
        *([SEEDS] if several_seeds else []),
        average_line(results.rows),
        *_sources(results),
    ]
    return "\n\n".join(parts) + "\n"


def heading(rows: Sequence[ScoreRow]) -> str:
    kinds = {row.kind for row in rows}
    names = [
        "real tasks" if "" in kinds else "",
        "tasks MADE FROM THIS CORPUS (held-out sentences)" if FROM_CORPUS in kinds else "",
        "SYNTHETIC tasks (made by this project in the official file layouts)" if "synthetic" in kinds else "",
    ]
    return f"Scores on {', then '.join(filter(None, names))}, in percent"


def validation_line(validation: dict[str, Any]) -> str:
    if "mask_loss" not in validation:
        return "Validation text: " + ", ".join(f"{as_text(name)} {value:.4g}" for name, value in validation.items())
    words = (
        f"Validation text: MLM loss {validation['mask_loss']:.3f} at [MASK] against "
        f"{validation['unigram_loss']:.3f} of unigram counts (gap {validation['gap']:+.3f} nats)"
    )
    if "nsp_accuracy" not in validation:
        return f"{words}; no next sentences"
    accuracy = 100 * validation["nsp_accuracy"]
    majority = 100 * validation["nsp_majority"]
    return f"{words}; NSP accuracy {accuracy:.1f} % (larger class {majority:.1f} %)"


def average_line(rows: Sequence[ScoreRow]) -> str:
    how = "MNLI-m and -mm apart, F1 for QQP and MRPC, Spearman for STS-B, without WNLI"
    average = glue_average(rows)
    if average is None:
        return f"GLUE average ({how}): none, with {len(averaged_rows(rows))} of its {len(GLUE_AVERAGE)} scores"
    chosen = f", {average.chosen}" if average.chosen else ""
    kind = "Synthetic GLUE" if average.synthetic else "GLUE"
    return f"{kind} average ({how}{chosen}): {average.mean:.1f}"


def _few_validation_documents(corpus: dict[str, Any]) -> list[str]:
    counts = corpus.get("few_validation_documents", {})
    sources = ", ".join(as_text(f"{count} of {source}") for source, count in counts.items())
    return [f"**Few validation documents: {sources}.**"] if counts else []


def _overlap_warning(corpus: dict[str, Any]) -> list[str]:
    return [f"**{as_text(corpus['overlap_warning'])}.**"] if "overlap_warning" in corpus else []


def _diagnoses(results: Results) -> list[str]:
    lines = []
    for phase, result in results.pretrain.items():
        if "diagnosis" in result:
            lines.append(f"Is this normal? {phase}: {as_text(result['diagnosis']['sentence'])}.")
    return lines


def _losses_by_source(results: Results) -> list[str]:
    lines = []
    for phase, result in results.pretrain.items():
        changes = []
        for source in source_losses(result, "source_losses"):
            name = as_text(source.name)
            first = source.losses[0]
            last = source.losses[-1]
            pace = f", nine tenths by step {source.nine_tenths:,}" if source.nine_tenths else ": forgotten"
            changes.append(f"{name} {first:.3f} -> {last:.3f} ({source.change:+.3f}{pace})")
        if changes:
            lines.append(f"Going on from another model, {phase}: MLM loss on {'; '.join(changes)}")
        losses = []
        for source in source_losses(result, "by_source"):
            losses.append(f"{as_text(source.name)} {source.losses[-1]:.3f}")
        if losses:
            lines.append(f"By source, {phase}: MLM loss on {'; '.join(losses)}")
    for name, by_phase in position_losses(results).items():
        values = ", ".join(f"{loss:.3f} after {phase}" for phase, loss in by_phase.items())
        lines.append(f"MLM loss at positions {name}: {values}")
    return lines


def _sources(results: Results) -> list[str]:
    if not results.sources:
        return []
    named = "; ".join(f"({letter}) {source}" for letter, source in results.sources.items())
    return [
        f"Published figures are of {results.model} on the real data: {named}. A difference is taken only "
        "on the same split, metric and data."
    ]
