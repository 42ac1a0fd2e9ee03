"""The report in short, for a pull request."""

from __future__ import annotations

from pipeline_src.report import cost
from pipeline_src.report.headline import Headline, Line, headline
from pipeline_src.report.page import title_of
from pipeline_src.report.results import Results
from pipeline_src.report.table import average_line, heading, text_table, validation_line, verdict
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
    """Validation figures, the headline table, the average and what training took."""
    table = headline(results)
    parts = [
        f"# {title_of(results)}",
        validation_line(results.pretrain["long"]["validation"]),
        f"## {heading(results.scores)}",
        text_table(HEADER, [_cells(table, line) for line in table.lines]),
        average_line(results.scores),
        *_sources(table),
        *_cost(results),
    ]
    return "\n\n".join(parts) + "\n"


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


def _cost(results: Results) -> list[str]:
    logs = cost.measured(results)
    phases = [
        f"{cost.phase_of(log)} phase {plain(log['seconds'], 'duration')}, MFU {plain(log['mfu'], 'percent')}"
        for log in logs
    ]
    return [f"Pretraining took: {'; '.join(phases)}."] if phases else []
