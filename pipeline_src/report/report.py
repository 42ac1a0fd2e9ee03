"""Stage ``report``: results/*.json in, ``report.html``, ``report.md``, ``scores.tsv`` and ``summary.json`` out."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pandas as pd

from pipeline_src.files import atomic_file, write_json
from pipeline_src.progress import log
from pipeline_src.report.cost import arithmetic_rows, measured_rows
from pipeline_src.report.figures import length_bars, pretraining_curves, score_bars
from pipeline_src.report.provenance import provenance, stage_costs
from pipeline_src.report.results import RESULTS, Results, read_results, summarise
from pipeline_src.report.table import (
    HEADER,
    average_line,
    heading,
    heldout_line,
    own_titles,
    row_texts,
    score_cells,
    text_table,
)


def run() -> None:
    """Write the report of the results at hand.

    Raises:
        PipelineError: a result is missing or malformed.
    """
    results = read_results()
    summary = summarise(results)
    with atomic_file(RESULTS / "report.html") as file:
        file.write(render_page(results, summary))
    with atomic_file(RESULTS / "report.md") as file:
        file.write(render_markdown(results))
    columns = {"title": "score", "file": "split", "metric": "metric", "mean": "value", "chance": "chance"}
    table = pd.DataFrame(results.scores["rows"])[list(columns)].rename(columns=columns)
    with atomic_file(RESULTS / "scores.tsv") as file:
        table.to_csv(file, sep="\t", index=False, float_format="%.4f", lineterminator="\n")
    write_json(RESULTS / "summary.json", summary)
    log.info("report: %s", RESULTS / "report.html")


def render_markdown(results: Results) -> str:
    """The report in short, for a pull request."""
    scores = results.scores
    parts = [
        f"# {title_of(results)}",
        heldout_line(results.pretrain["long"]["heldout"]),
        f"## {heading(scores)}",
        text_table(HEADER, score_cells(scores)),
        average_line(scores),
    ]
    return "\n\n".join(parts) + "\n"


def title_of(results: Results) -> str:
    """The report's title, from the size of the model."""
    config = results.pretrain["long"]["config"]
    return f"BERT with {config['num_hidden_layers']} layers of {config['hidden_size']}, from raw text to scores"


def render_page(results: Results, summary: dict[str, float]) -> str:
    """The self-contained page."""
    template = Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    long = results.pretrain["long"]
    parts = results.corpus["parts"].values()
    return environment.from_string(template).render(
        title=title_of(results),
        model=f"{long['parameters']:,} parameters",
        words=sum(part["words"] for part in parts),
        mask_prob=long["mask_prob"],
        synthetic=results.synthetic,
        own=own_titles(results.scores),
        headline=_headline(results, summary),
        rows=[{**row, **row_texts(row)} for row in results.scores["rows"]],
        average=average_line(results.scores),
        rules=results.scores["rules"],
        score_bars=score_bars(results),
        pretraining_curves=pretraining_curves(results),
        length_bars=length_bars(results),
        pretrain={phase: {**found, "length": results.lengths[phase]} for phase, found in results.pretrain.items()},
        arithmetic=arithmetic_rows(results),
        measured=measured_rows(results),
        corpus=results.corpus,
        provenance=provenance(),
        stages=stage_costs(),
    )


def _headline(results: Results, summary: dict[str, float]) -> list[dict[str, str]]:
    """The figures in the boxes at the top."""
    labels = {
        "mlm_loss": "held-out MLM loss (nats)",
        "mlm_gap": "nats better than unigram counts at [MASK]",
        "nsp_accuracy": "held-out NSP accuracy",
        "glue": "GLUE average",
        "squad1": "SQuAD 1.1 F1",
        "squad2": "SQuAD 2.0 F1",
        "swag": "SWAG accuracy",
    }
    boxes = []
    for name, value in summary.items():
        plain = name.removeprefix("synthetic_")
        label = labels[plain] + (", synthetic" if plain != name else "")
        boxes.append(
            {
                "label": label,
                "value": f"{value:.3f}" if plain in ("mlm_loss", "mlm_gap", "nsp_accuracy") else f"{value:.1f}",
            }
        )
    return boxes
