"""Cost of pretraining: by formula, next to the paper's; as measured here; and at a price per hour."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.paths import LOGS
from pipeline_src.report.headline import read_paper
from pipeline_src.report.results import PHASES, Curve, Results, read_curve
from pipeline_src.report.traced import JsonRef, Traced, TracedValue, computed

PRICE = 1.0  # default price of an hour of one device
# schemas of the logs of a pretraining phase and of one run of a stage
COST = {"flops": float, "seconds": float, "processes": int}
RUN = {"seconds": float, "cpu_seconds": float, "max_rss_mb": float, "started": str}


@dataclass(frozen=True)
class Arithmetic:
    """Parameters, steps, tokens, FLOPs and normalised computation of one phase, of both, or as published."""

    name: str
    parameters: Traced
    steps: Traced
    computation: Traced
    tokens: Traced | None = None
    flops: Traced | None = None
    source: Traced | None = None


def arithmetic(results: Results) -> list[Arithmetic]:
    """Return the cost of training by formula, then the paper's; empty for results without it."""
    phases = [results.ref(f"pretrain/{phase}.json") for phase in PHASES]
    counted = [phase for phase in phases if "cost" in phase]
    if not counted:
        return []
    parameters = phases[-1]["parameters"]
    rows = [
        Arithmetic(
            phase.value["phase"],
            parameters,
            phase["cost"]["steps"],
            phase["cost"]["normalised_computation"],
            phase["cost"]["tokens"],
            phase["cost"]["flops"],
        )
        for phase in counted
    ]
    if len(counted) == len(PHASES):
        names = ("steps", "normalised_computation", "tokens", "flops")
        totals = [computed("sum", *(phase["cost"][name] for phase in counted)) for name in names]
        rows.append(Arithmetic("both phases", parameters, *totals))
    paper = read_paper()
    plan = paper["phases"]
    for model in paper["cost"]:
        by_phase = computed(
            "normalised computation by phase", model["parameters"], plan["batch"], plan["steps"], plan["lengths"]
        )
        name, source = model.value["name"], model["source"]
        published = model["normalised_computation"]
        rows.append(Arithmetic(f"{name}, as published", model["parameters"], model["steps"], published, source=source))
        rows.append(Arithmetic(f"{name}, by phase", model["parameters"], model["steps"], by_phase, source=source))
    return rows


def measured(results: Results) -> list[JsonRef]:
    """Return ``logs/pretrain/<phase>.cost.json`` of each phase, if they belong to the results shown."""
    logs = []
    for phase in PHASES:
        path = LOGS / "pretrain" / f"{phase}.cost.json"
        if path.exists() and _same_run(ref := JsonRef(read_json(path, COST), path.as_posix()), results.pretrain[phase]):
            logs.append(ref)
    return logs


def _same_run(ref: JsonRef, pretrain: dict[str, Any]) -> bool:
    return ref.value["flops"] == pretrain.get("cost", {}).get("flops")


def on_gpu(log: JsonRef) -> bool:
    """Return whether a phase trained on a GPU; a CPU's measured peak varies with the load, so MFU is unreliable."""
    return "peak_source" in log and not log.value["peak_source"].endswith("this machine")


def phase_of(ref: JsonRef) -> str:
    """Return the phase of a log, from its name."""
    return Path(ref.document).name.split(".")[0]


def throughput(logs: list[JsonRef]) -> dict[str, Curve]:
    """Return step and tokens per second of the phases in ``logs/``, as tracked during training."""
    paths = {
        phase_of(ref): LOGS / "dvclive" / phase_of(ref) / "plots" / "metrics" / "tokens_per_second.tsv" for ref in logs
    }
    return {phase: read_curve(path) for phase, path in paths.items() if path.exists()}


def check_price(price: float, option: str) -> None:
    """Raise a PipelineError if ``price``, from a command line option, is not a price."""
    if not 0 <= price < float("inf"):  # nor NaN
        raise PipelineError("not a price", price, where=option, hint="give a number of 0 or more")


def price(rate: JsonRef, logs: list[JsonRef]) -> TracedValue | None:
    """Return rate x hours x processes over the measured phases; None if there are none."""
    parts = [part for ref in logs for part in (ref["seconds"], ref["processes"])]
    return computed("price", rate, *parts) if parts else None


@dataclass(frozen=True)
class StageCost:
    """Cost of the last runs of one stage on this machine."""

    name: str
    runs: TracedValue
    seconds: TracedValue
    cpu_seconds: TracedValue
    memory: TracedValue


def stage_costs() -> list[StageCost]:
    """Read ``logs/<stage>/*.run.json``, in the order in which the stages began."""
    costs = []
    for folder in sorted(LOGS.glob("*")):
        runs = [JsonRef(read_json(path, RUN), path.as_posix()) for path in sorted(folder.glob("*.run.json"))]
        if not runs:
            continue
        seconds, cpu_seconds, memory = (
            [run[name] for run in runs] for name in ("seconds", "cpu_seconds", "max_rss_mb")
        )
        cost = StageCost(
            folder.name,
            runs=computed("how many", *seconds),
            seconds=computed("sum", *seconds),
            cpu_seconds=computed("sum", *cpu_seconds),
            memory=computed("largest", *memory),
        )
        costs.append((min(run.value["started"] for run in runs), cost))
    return [cost for _, cost in sorted(costs, key=lambda started_and_cost: started_and_cost[0])]
