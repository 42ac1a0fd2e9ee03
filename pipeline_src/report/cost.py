"""What pretraining took, as the report's tables show it: by formula beside the paper, and as measured here."""

from __future__ import annotations

from typing import Any

from pipeline_src.files import read_json
from pipeline_src.progress import duration
from pipeline_src.report.provenance import LOGS
from pipeline_src.report.results import PHASES, Results

# Parameters and normalised computation as published, of 1 M steps of "128,000 tokens/batch": every step counts at
# length 512. By phase, as this project counts, 900,000 of the steps of 256 sequences are at 128 (paper, A.2).
PUBLISHED = {
    "BERT-base, as published": (110e6, 1.408e19),
    "BERT-base, by phase": (110e6, 4.686e18),
    "BERT-large, as published": (340e6, 4.352e19),
    "BERT-large, by phase": (340e6, 1.448e19),
}
PUBLISHED_STEPS = 1_000_000


def arithmetic_rows(results: Results) -> list[dict[str, str]]:
    """Parameters, steps, tokens, FLOPs and normalised computation by phase, of both, and of the paper.

    Empty for results of a release that did not count them.
    """
    costs = {phase: found["cost"] for phase, found in results.pretrain.items() if "cost" in found}
    if not costs:
        return []
    parameters = results.pretrain["long"]["parameters"]
    rows = [_arithmetic(f"{phase} ({results.lengths[phase]} tokens)", parameters, costs[phase]) for phase in costs]
    if len(costs) == len(PHASES):
        totals = {name: sum(cost[name] for cost in costs.values()) for name in costs["long"]}
        rows.append(_arithmetic("both", parameters, totals))
    for name, (size, computation) in PUBLISHED.items():
        cost = {"steps": PUBLISHED_STEPS, "normalised_computation": computation}
        rows.append(_arithmetic(name, size, cost))
    return rows


def measured_rows(results: Results) -> list[dict[str, str]]:
    """Time, speed, utilisation, energy and memory by phase, where ``logs/`` holds those of the very run shown."""
    rows = []
    for phase in PHASES:
        path = LOGS / "pretrain" / f"{phase}.cost.json"
        if not path.exists():
            continue
        found = read_json(path)
        if found["flops"] != results.pretrain[phase].get("cost", {}).get("flops"):
            continue  # of another run than these results, which came by `dvc pull`, say
        rows.append(
            {
                "name": phase,
                "time": duration(found["seconds"]),
                "training": duration(found["training_seconds"]),
                "speed": f"{found['tokens_per_second']:,.0f}",
                "mfu": f"{100 * found['mfu']:.1f} %",
                "energy": _energy(found["joules"]),
                "memory": f"{found['peak_memory'] / 1e6:,.0f}",
                "peak": f"{found['peak_flops'] / 1e12:,.4g}",
                "source": found["peak_source"],
                "processes": str(found["processes"]),
            }
        )
    return rows


def _arithmetic(name: str, parameters: float, cost: dict[str, Any]) -> dict[str, str]:
    return {
        "name": name,
        "parameters": f"{parameters:,.0f}",
        "steps": f"{cost['steps']:,}",
        "tokens": f"{cost['tokens']:,}" if "tokens" in cost else "–",
        "flops": scientific(cost["flops"]) if "flops" in cost else "–",
        "computation": scientific(cost["normalised_computation"]),
    }


def scientific(value: float) -> str:
    """``1.408e19``, as the paper's readers write it."""
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _energy(joules: float | None) -> str:
    if joules is None:
        return "–"
    return f"{joules / 1e3:,.1f} kJ" if joules < 3.6e5 else f"{joules / 3.6e6:,.2f} kWh"
