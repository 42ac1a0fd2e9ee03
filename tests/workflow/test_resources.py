"""What rules ask of a cluster follows from params.yaml and from what the cluster is like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.params.machine import Machine, PretrainingMachine
from pipeline_src.params.study import Study
from pipeline_src.tools.planning.hardware import CHIPS, Allocation
from pipeline_src.tools.planning.rates import compile_seconds, expected_seconds


@pytest.fixture(scope="module")
def resources(workflow_module: Callable[[str], ModuleType]) -> ModuleType:
    return workflow_module("resources")


@pytest.fixture
def base(root: Path) -> dict[str, Any]:
    return yaml.safe_load((root / "workflow/presets/bert-base.yaml").read_text())


LARGE = {"layers": 24, "hidden": 1024, "heads": 16}


def test_parameters_are_counted_as_the_paper_does(resources: ModuleType, base: dict[str, Any]) -> None:
    assert resources.StudyResources(Study(**base), resources.Cluster()).parameters == pytest.approx(110e6, rel=0.02)
    base["model"] |= LARGE
    assert resources.StudyResources(Study(**base), resources.Cluster()).parameters == pytest.approx(336e6, rel=0.02)


def test_a_larger_model_gets_more_gpus_and_memory(resources: ModuleType, base: dict[str, Any]) -> None:
    small = resources.StudyResources(Study(**base), resources.Cluster())
    assert small.geometry("short") == (1, 8)
    base["model"] |= LARGE
    large = resources.StudyResources(Study(**base), resources.Cluster())
    nodes, gpus = large.geometry("short")
    assert nodes > 1 and gpus == 8
    asked = large.pretraining("short")
    assert asked["nodes"] == nodes and asked["gres"] == "gpu:8" and asked["tasks"] == 8 * nodes
    assert asked["mem_mb"] > small.pretraining("short")["mem_mb"]
    assert asked["slurm_extra"] == "--signal=URG@120"
    launcher = large.launcher("short", threads=4)
    assert launcher.startswith(f"srun --kill-on-bad-exit=1 --wait=0 --nodes={nodes} --ntasks={8 * nodes} ")
    assert "--ntasks-per-node=8" in launcher and "--gres=gpu:8" in launcher
    assert large.finetuning("mnli")["mem_mb"] > small.finetuning("mnli")["mem_mb"]


def test_a_small_study_takes_one_gpu_and_groups_its_jobs(
    resources: ModuleType, root: Path, base: dict[str, Any]
) -> None:
    test = Study(**yaml.safe_load((root / "workflow/presets/test.yaml").read_text()))
    plan = resources.StudyResources(test, resources.Cluster())
    assert plan.geometry("short") == (1, 1) and plan.launcher("short", threads=2) == ""
    assert plan.pretraining("short")["gpu"] == 1 and "mpi" not in plan.pretraining("short")
    assert plan.group("corpus") == "corpus"
    assert resources.StudyResources(Study(**base), resources.Cluster()).group("corpus") is None


def test_no_job_asks_for_more_than_the_cluster_has(resources: ModuleType, base: dict[str, Any]) -> None:
    base["model"] |= LARGE
    narrow = {"gpus_per_node": 4, "max_nodes": 2, "max_runtime": 600, "partition": "cpu", "gpu_partition": "gpu"}
    plan = resources.StudyResources(Study(**base), resources.Cluster.of(narrow))
    assert plan.geometry("short") == (2, 4)
    assert plan.pretraining("short")["runtime"] == 600  # it goes on from its checkpoint
    assert plan.pretraining("short")["slurm_partition"] == plan.on_gpu["slurm_partition"] == "gpu"
    assert plan.work(memory=1000, minutes=900) == {"mem_mb": 1000, "runtime": 600, "slurm_partition": "cpu"}


def test_a_known_gpu_takes_what_the_roofline_model_says(resources: ModuleType, base: dict[str, Any]) -> None:
    plans = {
        gpu: resources.StudyResources(Study(**base), resources.Cluster.of({"gpu": gpu, "max_runtime": 99_999}))
        for gpu in ("h100", "a100")
    }
    assert [plan.geometry("short") for plan in plans.values()] == [(1, 2), (1, 8)]
    hours = {gpu: (plan.pretraining("short")["runtime"] - 30) / 2 / 60 for gpu, plan in plans.items()}
    assert 4 < hours["h100"] < 8 and 4 < hours["a100"] < 8
    # so small a batch is not divided further: the host launches as long as the GPU computes
    base["pretrain"]["steps"]["short"] *= 30
    endless = resources.StudyResources(Study(**base), resources.Cluster.of({"gpu": "h100"}))
    assert endless.geometry("short") == (1, 4)
    assert resources.StudyResources(Study(**base), resources.Cluster()).geometry("short") == (4, 8)


def minutes_of(plan: Any) -> float:
    """What the short phase is expected to take; twice that is asked for, and half an hour."""
    return (plan.pretraining("short")["runtime"] - 30) / 2


@pytest.mark.parametrize("sharding", ["none", "optimiser", "full"])
def test_time_is_what_a_plan_counts_sharding_and_compiling_included(
    resources: ModuleType, base: dict[str, Any], sharding: str
) -> None:
    """On GPUs without NVLink, where what they send each other is most of the time."""
    cluster = {"gpu": "l4", "gpus_per_node": 8, "max_nodes": 1, "max_runtime": 999_999, "pretraining_hours": 1}
    machine = Machine(pretrain=PretrainingMachine(sharding=sharding))
    plan = resources.StudyResources(Study(**base), resources.Cluster.of(cluster), machine)
    (job,) = plan._jobs.pretrain("short")
    nodes, gpus = plan.geometry("short")
    allocation = Allocation.on(CHIPS["l4"], 1, gpus, sharding)
    assert gpus > 1 and compile_seconds(job, allocation) == 60
    filled = expected_seconds(job, allocation) * job.slot_flops / job.flops
    assert minutes_of(plan) == pytest.approx((filled + 60) / 60, abs=1)
    plain = minutes_of(resources.StudyResources(Study(**base), resources.Cluster.of(cluster)))
    assert (abs(minutes_of(plan) - plain) < 1) == (sharding == "none")


@pytest.mark.parametrize(("steps", "compiling"), [(1_000, 0), (5_000, 1)])
def test_the_compilers_minute_is_asked_for_of_an_unknown_gpu_too(
    resources: ModuleType, base: dict[str, Any], steps: int, compiling: int
) -> None:
    """Where so much training is left that ``compile: auto`` compiles."""
    base["pretrain"]["steps"]["short"] = steps
    plan = resources.StudyResources(Study(**base), resources.Cluster())
    (job,) = plan._jobs.pretrain("short")
    assert plan.geometry("short") == (1, 1)
    assert minutes_of(plan) == pytest.approx((job.slot_flops / 100e12 + 6) / 60 + compiling, abs=0.5)


def test_memory_of_a_node_grows_with_its_processes_and_holds_one_checkpoint(
    resources: ModuleType, base: dict[str, Any]
) -> None:
    """Each draws all weights on the host (4 bytes a parameter), one gathers a checkpoint (12); twice that is asked."""
    asked = {}
    for gpus in (2, 8):
        cluster = resources.Cluster(gpus_per_node=gpus, max_nodes=1)
        plan = resources.StudyResources(Study(**base), cluster)
        assert plan.geometry("short") == (1, gpus)
        asked[gpus] = plan.pretraining("short")["mem_mb"] - 4000 * (1 + gpus)
        assert asked[gpus] == pytest.approx(2 * (4 * gpus + 12) * plan.parameters / 1e6, abs=1)


@pytest.mark.parametrize(
    ("way", "one", "many"),
    [
        ("gres", "--gres=gpu:1", "--gres=gpu:8"),
        ("gpus_per_node", "--gpus-per-node=1", "--gpus-per-node=8"),
        ("gpus_per_task", "--gpus-per-task=1", "--gpus-per-task=1"),
    ],
)
def test_one_key_says_how_gpus_are_asked_for(
    resources: ModuleType, base: dict[str, Any], way: str, one: str, many: str
) -> None:
    """As the executor turns resources into options: ``gres`` by itself, ``slurm_extra`` as it is."""

    def options(asked: dict[str, Any]) -> str:
        return (f"--gres={asked['gres']} " if "gres" in asked else "") + asked.get("slurm_extra", "")

    plan = resources.StudyResources(Study(**base), resources.Cluster.of({"gpu_request": way}))
    assert one in options(plan.on_gpu) and "gpu" not in plan.on_gpu
    asked = plan.pretraining("short")
    assert many in options(asked) and "--signal=URG@120" in options(asked) and "gpu" not in asked
    assert plan.launcher("short", threads=1).endswith(many)
    assert options(asked).count("gpu") == many.count("gpu")


@pytest.mark.parametrize(
    "config",
    [{"gpus_per_nodes": 4}, {"max_nodes": 0}, {"gpu_teraflops": "fast"}, {"gpu": "quick"}, {"gpu_request": "gpu"}],
)
def test_a_mistake_in_the_config_is_named(resources: ModuleType, config: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match=next(iter(config))):
        resources.Cluster.of(config)
