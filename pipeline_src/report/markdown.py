"""The report in short, for a pull request."""

from __future__ import annotations

from pipeline_src.report import cost
from pipeline_src.report.headline import Headline, Line, headline
from pipeline_src.report.page import title_of
from pipeline_src.report.results import Results
from pipeline_src.report.table import average_line, heading, text_table, validation_line
from pipeline_src.report.traced import DASH, Shown, plain

HEADER = (
    "task",
    "metric",
    "split",
    "score",
    "best",
    "chance",
    "random weights",
    "published",
    "difference",
    "test server",
)


def render_markdown(results: Results) -> str:
    """Validation figures, the headline table, the average and what training took."""
    found = headline(results)
    parts = [
        f"# {title_of(results)}",
        validation_line(results.pretrain["long"]["validation"]),
        f"## {heading(results.scores)}",
        text_table(HEADER, [_cells(found, line) for line in found.lines]),
        average_line(results.scores),
        *_sources(found),
        *_cost(results),
    ]
    return "\n\n".join(parts) + "\n"


def _cells(found: Headline, line: Line) -> tuple[str, ...]:
    def one(shown: Shown | None, form: str = "one") -> str:
        return DASH if shown is None else plain(shown, form)

    published, server = (
        f"{plain(score.figure, 'one')} ({found.letter(score)})" if score else DASH
        for score in (line.published, line.test_server)
    )
    title = line.title if isinstance(line.title, str) else plain(line.title)
    return (
        title + (" (synthetic)" if line.synthetic else ""),
        line.metric,
        line.split,
        plain(line.mean, "one") + plain(line.deviation, "spread"),
        one(line.best),
        one(line.chance),
        one(line.random),
        published,
        one(line.difference, "signed"),
        server,
    )


def _sources(found: Headline) -> list[str]:
    if not found.sources or found.model is None:
        return []
    named = "; ".join(f"({letter}) {source.value}" for letter, source in found.sources)
    return [
        f"Published figures are of {found.model.value['name']} on the real data: {named}. A difference is taken only "
        "on the same split, metric and data."
    ]


def _cost(results: Results) -> list[str]:
    logs = cost.measured(results)
    said = [
        f"{cost.phase_of(log)} phase {plain(log['seconds'], 'duration')}, MFU {plain(log['mfu'], 'percent')}"
        for log in logs
    ]
    return [f"Pretraining took: {'; '.join(said)}."] if said else []
