"""Tool ``plan``: what the study in force would take, stage by stage, before anything runs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.common.parallel import usable_cores
from pipeline_src.params.study import Study, check_study, load_study
from pipeline_src.report.cost import check_price
from pipeline_src.tools.planning.estimate import Prices, make_plan
from pipeline_src.tools.planning.hardware import CHOICES, CPU, Hardware
from pipeline_src.tools.planning.jobs import Jobs
from pipeline_src.tools.planning.output_sizes import recorded_sizes
from pipeline_src.tools.planning.rates import MEASURED, corrections
from pipeline_src.tools.planning.stage_order import stage_order
from pipeline_src.tools.planning.table import plan_table
from pipeline_src.tools.preset import PARAMS, preset_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    cores = usable_cores()
    parser.add_argument("--preset", metavar="NAME", help="plan this study instead of params.yaml, which stays")
    parser.add_argument("--hardware", choices=CHOICES, default=CPU, help="what trains (default: cpu)")
    parser.add_argument("--gpus", type=int, help="GPUs in all (default: 1, none for cpu)")
    parser.add_argument("--cores", type=int, default=cores, help=f"CPU cores in all (default: this machine's, {cores})")
    parser.add_argument("--price", type=float, help="of a GPU for an hour; for cpu, of the machine for an hour")
    parser.add_argument("--cpu-price", type=float, help="beside GPUs: of the machine for an hour of stages without one")
    parser.add_argument("--whole-dump", action="store_true", help="count every part of the dump, listed or not")
    parser.add_argument("--defaults", action="store_true", help=f"leave {MEASURED} out: the project's own rates alone")
    parser.add_argument("--json", action="store_true", help="all figures, in bytes and seconds")


def main(arguments: argparse.Namespace) -> None:
    """Print the plan.

    Raises:
        PipelineError: no such preset or study, no dvc.yaml, or hardware or a price that cannot be.
    """
    for option, price in (("--price", arguments.price), ("--cpu-price", arguments.cpu_price)):
        if price is not None:
            check_price(price, option)
    name, raw, study = _study(arguments.preset)
    hardware = Hardware.of(arguments.hardware, arguments.cores, arguments.gpus)
    measured = Path(os.devnull) if arguments.defaults else MEASURED
    jobs = Jobs(study, recorded_sizes(raw).get, arguments.whole_dump)
    prices = Prices(arguments.price, arguments.cpu_price)
    plan = make_plan(name, jobs, stage_order(study), hardware, prices, corrections(measured))
    print(json.dumps(plan.as_dict(), indent=2, allow_nan=False) if arguments.json else plan_table(plan))


def _study(preset: str | None) -> tuple[str, Mapping[str, Any], Study]:
    """Name, values as they are written, and the checked study: of params.yaml, or of a preset."""
    if preset is None:
        study = load_study(PARAMS)
        return str(PARAMS), yaml.safe_load(PARAMS.read_text(encoding="utf-8")), study
    raw = yaml.safe_load(preset_text(preset))
    return preset, raw, check_study(raw, f"{preset}.yaml")
