"""What rules ask of a cluster follows from params.yaml and from what the cluster is like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import Study


@pytest.fixture(scope="module")
def resources(workflow_module: Callable[[str], ModuleType]) -> ModuleType:
    return workflow_module("resources")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def base(root: Path) -> dict[str, Any]:
    return yaml.safe_load(preset_text("bert-base", root / "workflow/presets"))


@pytest.fixture
def sample(root: Path) -> Study:
    return Study(**yaml.safe_load(preset_text("test", root / "workflow/presets")))


def test_study_resources_full_study_uses_all_gpus(resources: ModuleType, base: dict[str, Any]) -> None:
    single = resources.StudyResources(Study(**base), resources.Cluster())
    assert single.geometry == (1, 8) and single.group("corpus") is None
    two = resources.StudyResources(Study(**base), resources.Cluster.of({"nodes": 2, "gpus_per_node": 4}))
    requested = two.pretraining
    assert (requested["nodes"], requested["gres"], requested["tasks"], requested["mpi"]) == (2, "gpu:4", 8, "srun")
    assert requested["slurm_extra"] == "--signal=URG@120" and requested["mem_mb"] < single.pretraining["mem_mb"]
    launcher = two.launcher(threads=4)
    assert launcher.startswith("srun --kill-on-bad-exit=1 --wait=0 --nodes=2 --ntasks=8 --ntasks-per-node=4 ")
    assert launcher.endswith("--cpus-per-task=4 --gres=gpu:4")


def test_study_resources_sample_uses_one_gpu_and_groups_jobs(
    resources: ModuleType, sample: Study, base: dict[str, Any]
) -> None:
    plan, full = (resources.StudyResources(study, resources.Cluster()) for study in (sample, Study(**base)))
    assert plan.geometry == (1, 1) and plan.launcher(threads=2) == ""
    assert plan.pretraining["gpu"] == plan.finetuning["gpu"] == 1 and "mpi" not in plan.pretraining
    assert plan.group("corpus") == "corpus"
    for name in ("pretraining", "finetuning"):
        small, large = getattr(plan, name), getattr(full, name)
        assert small["mem_mb"] < large["mem_mb"] and small["runtime"] < large["runtime"]
    spread = resources.StudyResources(sample, resources.Cluster.of({"gpus_per_node": 1, "nodes": 2}))
    assert spread.geometry == (2, 1)


@pytest.mark.parametrize(
    ("preset", "books", "changes", "small"),
    [
        ("test", 30_000, {}, (True, True)),
        ("test", 2_000_000_000, {}, (False, True)),
        ("test", 30_000, {"num_hidden_layers": 12, "hidden_size": 768}, (True, False)),  # as a fine-tuned BERT-base
        ("bert-base", 30_000, {"num_hidden_layers": 2, "hidden_size": 128}, (True, False)),  # a million steps
    ],
)
def test_study_resources_small_study_is_recognized_by_sizes(
    resources: ModuleType, project: Path, root: Path, preset: str, books: int, changes: dict[str, int], small: Any
) -> None:
    for file, size in {"data/own/books/a.txt": books, "data/own/wikipedia/excerpt.xml.bz2": 10_000}.items():
        (project / file).parent.mkdir(parents=True)
        with open(project / file, "wb") as opened:
            opened.truncate(size)
    raw = yaml.safe_load(preset_text(preset, root / "workflow/presets"))
    raw["corpus"]["sources"]["books"]["from"] = "own-books"
    if preset == "test":
        raw["corpus"]["sources"]["wikipedia"]["from"] = "own-wikipedia"
    if preset == "bert-base":
        raw["corpus"]["sources"]["wikipedia"]["parts"] = ["1-p1p41242"]
    raw["model"] |= changes
    plan = resources.StudyResources(Study(**raw), resources.Cluster())
    assert (plan.small_corpus, plan.small_training) == small
    assert (plan.work(memory=32_000, minutes=480)["mem_mb"] == 8000) == small[0]
    assert (plan.finetuning["runtime"] == 60) == small[1]


@pytest.mark.parametrize(("batch", "geometry"), [(8, (1, 1)), (32, (1, 4)), (128, (2, 8)), (256, (4, 8))])
def test_study_resources_geometry_follows_batch_size(
    resources: ModuleType, base: dict[str, Any], batch: int, geometry: tuple[int, int]
) -> None:
    base["pretrain"]["train_batch_size"] = batch
    assert resources.StudyResources(Study(**base), resources.Cluster(nodes=4)).geometry == geometry


def test_study_resources_are_capped_by_cluster(resources: ModuleType, base: dict[str, Any]) -> None:
    narrow = {"gpus_per_node": 4, "max_runtime": 600, "partition": "cpu", "gpu_partition": "gpu"}
    plan = resources.StudyResources(Study(**base), resources.Cluster.of(narrow))
    assert plan.pretraining["runtime"] == 600  # it continues from its checkpoint
    assert plan.pretraining["slurm_partition"] == plan.finetuning["slurm_partition"] == "gpu"
    assert plan.work(memory=1000, minutes=900) == {"mem_mb": 1000, "runtime": 600, "slurm_partition": "cpu"}


@pytest.mark.parametrize(
    ("way", "single", "many"),
    [
        ("gres", "--gres=gpu:1", "--gres=gpu:8"),
        ("gpus_per_node", "--gpus-per-node=1", "--gpus-per-node=8"),
        ("gpus_per_task", "--gpus-per-task=1", "--gpus-per-task=1"),
    ],
)
def test_study_resources_gpu_request_chooses_option(
    resources: ModuleType, base: dict[str, Any], way: str, single: str, many: str
) -> None:
    """As the executor turns resources into options: ``gres`` by itself, ``slurm_extra`` as it is."""

    def options(requested: dict[str, Any]) -> str:
        return (f"--gres={requested['gres']} " if "gres" in requested else "") + requested.get("slurm_extra", "")

    plan = resources.StudyResources(Study(**base), resources.Cluster.of({"gpu_request": way}))
    assert single in options(plan.finetuning) and "gpu" not in plan.finetuning
    requested = plan.pretraining
    assert many in options(requested) and "--signal=URG@120" in options(requested) and "gpu" not in requested
    assert plan.launcher(threads=1).endswith(many)
    assert options(requested).count("gpu") == many.count("gpu")


@pytest.mark.parametrize(
    "config",
    [{"gpus_per_nodes": 4}, {"nodes": 0}, {"gpus_per_node": "all"}, {"max_runtime": 0.5}, {"gpu_request": "gpu"}],
)
def test_cluster_invalid_config_is_rejected(resources: ModuleType, config: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match=next(iter(config))):
        resources.Cluster.of(config)
