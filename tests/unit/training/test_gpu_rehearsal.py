"""The path of a GPU, rehearsed where there is none: what would stop or slow down the first person who has one.

No number here is a GPU's. Shapes, types, devices, graphs and the order of what is done are; see ``pretended_gpu`` and
``gpu_branches`` for how. ``-s`` prints what was counted.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline_src.base.registry import member_names, objective_spec
from pipeline_src.model.attention import BACK_ENDS, RUNS_ON
from pipeline_src.training.optimizers import OPTIMIZERS
from tests.children import Child
from tests.unit.training.rehearsal import MISTAKES, STARTS, TASKS

REHEARSALS = {
    "rehearse": "tests.unit.training.rehearsal:rehearse",
    "count_graphs": "tests.unit.training.gpu_branches:count_graphs",
    "train_together": "tests.unit.training.gpu_branches:train_together",
}
pytestmark = pytest.mark.skipif(
    torch.version.cuda is not None, reason="a CUDA build asks for its driver: the CPU build pretends a GPU"
)
MOST_GRAPHS = MOST_RECOMPILATIONS = 3


def said_by(*commands: Sequence[Any], folder: Path, seconds: int = 300) -> list[list[dict[str, Any]]]:
    """The lines of JSON of programs that run side by side, as ranks of one training where they are several."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outer = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    world = {"WORLD_SIZE": str(len(commands)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} | world for rank in range(len(commands))]
    programs = [
        Child(REHEARSALS[name], arguments, folder, outer | rank, False)
        for (name, *arguments), rank in zip(commands, ranks, strict=True)
    ]
    texts = [program.communicate(timeout=seconds)[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * len(programs), "\n".join(texts)[-4000:]
    return [[json.loads(line) for line in text.splitlines() if line.startswith("{")] for text in texts]


NO_ATTENTION, NO_KERNEL = {"bilstm", "bilm", "word_vectors"}, {"deberta", "deberta_v2"}


@pytest.mark.parametrize("kind", ["pretraining", "family", "finetuning"])
def test_gpu_steps_do_not_synchronise_or_use_unsupported_types(kind, tmp_path):
    (cases,) = said_by(["rehearse", kind], folder=tmp_path)
    for case in cases:
        print(f"{case['case']:45} host waits: {len(case['waits'])}, wrong types: {len(case['types'])}")
    assert not [case for case in cases if case["waits"] or case["types"] or case["refused"]]

    names = {case["case"] for case in cases}
    on_gpu = {name for name in BACK_ENDS if RUNS_ON.get(name, "cuda") == "cuda"}
    if kind == "pretraining":
        assert {f"masked, {optimizer}, {start}" for optimizer in OPTIMIZERS for start in STARTS} <= names
        assert {f"{objective}, {name}" for objective in objectives() for name in on_gpu} <= names
    elif kind == "family":
        members = {part for name in names for part in name.split(", ")}
        assert {*member_names("models"), *member_names("objectives")} <= {"bert", *members, *objectives()}
    else:
        assert {*TASKS, *(f"span, {name}" for name in on_gpu), "tagging, LSTM"} <= names
    flash = [case for case in cases if not {"padded", *NO_ATTENTION, *NO_KERNEL} & set(case["case"].split(", "))]
    assert all("_flash_attention_forward" in case["kernels"] for case in flash)


def objectives() -> list[str]:
    """Those without a teacher, and of encoders that attend; the others are among the family."""
    specs = {name: objective_spec(name) for name in member_names("objectives")}
    return [name for name, spec in specs.items() if not spec.needs_teacher and not spec.only_architectures]


def test_rehearsal_detects_every_mistake(tmp_path):
    """Else the test above could not fail."""
    (cases,) = said_by(["rehearse", "mistakes"], folder=tmp_path)
    assert [case["case"] for case in cases] == list(MISTAKES)
    for case in cases:
        assert case["waits"] or case["types"] or case["refused"], case["case"]


@pytest.mark.parametrize(
    ("batches", "how"),
    [(50, ""), pytest.param(10, "activation_checkpointing", marks=pytest.mark.slow)],
    ids=["kept", "recomputed"],
)
def test_bert_compiles_to_few_graphs_without_breaks(batches, how, tmp_path):
    few_graphs(batches, "aot_eager", how.split(), tmp_path)


FAMILY = [  # every other pair of an objective and an architecture of which something is compiled
    pytest.param(*pair, most, marks=pytest.mark.slow)
    for pair, most in {
        ("mlm", "modernbert"): MOST_RECOMPILATIONS + 2,  # its blocks are of four kinds: first, local, global, last
        # a batch of one sequence alone brings each kind of block another
        **{("mlm", name): MOST_RECOMPILATIONS + 1 for name in ("deberta", "deberta_v2")},
        ("electra", "electra"): MOST_RECOMPILATIONS,
        **{("mlm", name): MOST_RECOMPILATIONS for name in ("albert", "electra", "distilbert", "roberta")},
        **{("mlm", name): MOST_RECOMPILATIONS for name in ("bilstm", "word_vectors")},
        **{(name, "bert"): MOST_RECOMPILATIONS for name in ("clm", "distilbert", "tinybert")},
    }.items()
]


@pytest.mark.parametrize(("objective", "architecture", "most"), FAMILY)
def test_family_compiles_to_few_graphs(objective, architecture, most, tmp_path):
    """As the first half of the compiler sees them, which is a third of its work."""
    few_graphs(4, "eager", [objective, architecture], tmp_path, most)


def few_graphs(batches: int, compiler: str, of: list[str], folder: Path, most: int = MOST_RECOMPILATIONS) -> None:
    ((counted,),) = said_by(["count_graphs", batches, compiler, *of], folder=folder)
    parts, graphs = len(counted["parts"]), counted["graphs"]
    name = ", ".join(of) or "masked, bert"
    print(f"{name}: graphs: {parts}; recompilations over {batches} batches and the edges: {graphs[-1] - parts}")
    assert counted["breaks"] == {} == dict.fromkeys(counted["refused"]) and len(graphs) == batches + 3
    assert 0 < parts <= MOST_GRAPHS and graphs[-1] - parts <= most, counted
    assert graphs[0] == graphs[batches - 1]  # the first batch brings all that the others need


def compiled_together(compiler: str, folder: Path) -> None:
    """Two processes that compile come to the loss of one that does not."""
    ((alone,),) = said_by(["train_together"], folder=folder)
    for (row,) in said_by(*[["train_together", compiler]] * 2, folder=folder):
        for name in ("loss", "mlm_loss", "nsp_loss", "grad_norm"):
            assert row[name] == pytest.approx(alone[name], rel=0.01), name


def test_compiled_distributed_training_equals_eager(tmp_path):
    compiled_together("aot_eager", tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_inductor_distributed_training_equals_eager(tmp_path):
    compiled_together("inductor", tmp_path)
