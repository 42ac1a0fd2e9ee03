"""A plan as a table of at most 100 columns."""

from __future__ import annotations

import textwrap

from pipeline_src.tools.planning.estimate import Plan

WIDTH = 100
HEADS = ("stage", "jobs", "input", "output", "tokens", "FLOPs", "work", "time", "disk", "cost", "rates")
WIDTHS = (18, 4, 7, 7, 6, 6, 7, 7, 7, 8, 8)
UNITS = ((86_400 * 2, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "min"))  # from, seconds, name


def plan_table(plan: Plan) -> str:
    """The stages, the totals and the notes."""
    machine = plan.hardware
    gpus = f"{machine.gpus} x {machine.name.upper()}, " if machine.gpus else ""
    lines = [f"Plan of {plan.name} on {gpus}{machine.cores} CPU cores", "", _line(HEADS)]
    for row in plan.rows:
        unmeasured = "roofline" if row.gpu_hours else "default"
        rates = f"{row.runs} runs" if row.runs > 1 else ("1 run" if row.runs else unmeasured)
        sizes = (amount(row.read, "B"), amount(row.written, "B"), amount(row.tokens), scientific(row.flops))
        times = (duration(row.work), duration(row.elapsed))
        lines.append(_line((row.stage, str(row.jobs), *sizes, *times, amount(row.disk, "B"), money(row.cost), rates)))
    sums = (f"{plan.total('jobs'):.0f}", "", amount(plan.total("written") or 0, "B"), "")
    flops, disk = scientific(plan.total("flops") or 0), amount(plan.total("disk") or 0, "B")
    times = (duration(plan.work), duration(plan.elapsed))
    lines += ["-" * len(_line(HEADS)), _line(("total", *sums, flops, *times, disk, money(plan.total("cost")), ""))]
    hours = plan.total("gpu_hours") or 0
    lines += [
        "",
        *_wrapped(
            f"Time from start to end: {duration(plan.elapsed)} on this hardware; {duration(plan.critical)} with a "
            f"machine for every job (the critical path); {duration(plan.work)} one job after another."
            + (f" GPU-hours: {hours:,.1f}." if hours else "")
        ),
        *_wrapped(
            "work: all jobs of a stage, one after another; time: as many at once as fit. rates: how many runs of "
            "logs/rates.jsonl correct the expected time; else the project's own rates, on a GPU those of the roofline "
            "model. disk: outputs twice (DVC's cache) and what lies beside."
        ),
    ]
    for note in plan.notes:
        lines += _wrapped(note, "- ")
    return "\n".join(lines)


def _line(cells: tuple[str, ...]) -> str:
    first, *rest = (
        f"{cell:<{width}}" if not place else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
    )
    return " ".join([first, *rest]).rstrip()


def _wrapped(text: str, mark: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark))


def amount(value: float, unit: str = "") -> str:
    """``1.7 MB``, ``32.7 G``; nothing for nothing."""
    if not value:
        return "-"
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5 or prefix == "T":
            break
        value /= 1000
    digits = 0 if value >= 99.5 or (not prefix and unit) else 1
    return f"{value:,.{digits}f} {prefix}{unit}".rstrip()


def scientific(value: float) -> str:
    """``1.8e19``; nothing for nothing."""
    if not value:
        return "-"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def duration(seconds: float) -> str:
    """``59 s``, ``12 min``, ``3.5 h``, ``2.1 d``."""
    for start, length, name in UNITS:
        if seconds >= start:
            value = seconds / length
            return f"{value:,.{0 if value >= 99.5 or name == 'min' else 1}f} {name}"
    return f"{seconds:,.0f} s"


def money(value: float | None) -> str:
    """``999.50``, ``12,345``, ``1.2 M``; nothing where nothing is priced."""
    if value is None:
        return "-"
    if value >= 999_999.5:
        return amount(value)
    return f"{value:,.{2 if value < 1000 else 0}f}"
