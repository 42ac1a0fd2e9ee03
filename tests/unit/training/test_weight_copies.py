"""Passes with bfloat16 copies of the weights give autocast's numbers, bit for bit.

Run with ``-s`` to see how many weights have a copy.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from pipeline_src.common.registry import architecture_spec, member_names, objective_spec
from pipeline_src.config.pretrain import ElectraParams
from pipeline_src.models.bert import compile_parts
from pipeline_src.pretraining.data import TensorBatch
from pipeline_src.training.objective import load_objective
from pipeline_src.training.weight_copies import Bfloat16Weights
from tests.children import Child
from tests.unit.training import rehearsal
from tests.unit.training.gpu_branches import KINDS_OF_BLOCKS, take_them

STEPS = 3
MEMBERS = [
    (objective, architecture)
    for objective in member_names("objectives")
    for architecture in member_names("models")
    if architecture in (objective_spec(objective).only_architectures or [architecture])
    and objective not in architecture_spec(architecture).refused_objectives
]
# an LSTM, and heads whose matrix is the embeddings', or which two losses read
NO_COPIES = {("bilm", "bilstm"), ("distilbert", "bilstm")}


class Run(NamedTuple):
    """What steps of training gave: the numbers of each step, and the names of parameters with a copy."""

    numbers: list[dict[str, Tensor]]
    copied: set[str]


def make(name: str, architecture: str, own: ElectraParams | None = None) -> Any:
    torch.manual_seed(0)  # a teacher has torch's initial weights
    build = rehearsal.member_of(name, architecture, KINDS_OF_BLOCKS.get(architecture, 2))
    if name == "electra":
        config = inspect.getclosurevars(build).nonlocals["student"]
        objective = load_objective(name)(config, "nsp", own or ElectraParams(embeddings="separate"))
    else:
        objective = build()
    objective.init_weights(torch.Generator().manual_seed(0))
    return objective.train()


def last_unpredicted(batch: TensorBatch) -> TensorBatch:
    """The batch, whose last token no prediction is of: a bidirectional language model predicts from the next one."""
    return replace(batch, predicted=batch.predicted.clamp(max=len(batch.ids) - 2))


def losses(objective: Any, batch: TensorBatch) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return torch.stack([term.loss for term in objective(batch).values()])


def steps_of(objective: Any, with_copies: bool, micro_batches: int = 2, preset: bool = False, seed: int = 1) -> Run:
    """Losses, gradients and parameters of some steps; with dropout, and AdamW in between."""
    batches = [list(map(last_unpredicted, each)) for each in rehearsal.pretraining_batches(40) if len(each) == 2][
        :STEPS
    ]
    optimizer = torch.optim.AdamW(objective.parameters(), 1e-2)
    trained = {name: parameter for name, parameter in objective.named_parameters() if parameter.requires_grad}
    copies = Bfloat16Weights(objective, lambda: losses(objective, batches[0][0]).unbind()) if with_copies else None
    numbers = []
    for step, batch in enumerate(batches):
        torch.manual_seed(seed + step)
        for parameter in trained.values():
            parameter.grad = torch.zeros_like(parameter) if preset else None
        buffers = [parameter.grad for parameter in trained.values()]
        result = {}
        for number, micro_batch in enumerate(batch[:micro_batches]):
            if copies is None:
                result[f"loss {number}"] = losses(objective, micro_batch)
                result[f"loss {number}"].sum().backward()
            else:
                with copies.in_use():
                    result[f"loss {number}"] = losses(objective, micro_batch)
                    result[f"loss {number}"].sum().backward()
        if preset:
            assert all(one is parameter.grad for one, parameter in zip(buffers, trained.values(), strict=True))
        result |= {f"{name}.grad": part.grad.clone() for name, part in trained.items() if part.grad is not None}
        optimizer.step()
        if copies is not None:
            copies.refresh()
        numbers.append({name: part.detach().clone() for name, part in (result | trained).items()})
    assert dict(objective.named_parameters()).items() >= trained.items()
    assert all(part.dtype == part.grad.dtype == torch.float32 for part in trained.values() if part.grad is not None)
    copied = {id(slot.parameter) for slot in copies._slots} if copies else set()
    return Run(numbers, {name for name, part in trained.items() if id(part) in copied})


def differing(one: Run, other: Run) -> list[str]:
    """Names of numbers that are not equal bit for bit, with the step."""
    assert [step.keys() for step in one.numbers] == [step.keys() for step in other.numbers]
    return [
        f"{name} of step {number}"
        for number, (ours, reference) in enumerate(zip(one.numbers, other.numbers, strict=True))
        for name in ours
        if not torch.equal(ours[name].view(torch.int32), reference[name].view(torch.int32))
    ]


@pytest.fixture(autouse=True)
def attention_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "ATTENTION", "auto")


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize(("name", "architecture"), MEMBERS)
def test_weight_copies_of_every_member_are_bit_identical(name, architecture, micro_batches):
    expected = steps_of(make(name, architecture), False, micro_batches)
    result = steps_of(make(name, architecture), True, micro_batches)
    assert differing(result, expected) == []
    assert bool(result.copied) == ((name, architecture) not in NO_COPIES)


@pytest.mark.parametrize(("embeddings", "disc_target"), [("shared", "rtd"), ("shared", "mlm"), ("disentangled", "rtd")])
def test_weight_copies_of_electra_variants_are_bit_identical(embeddings, disc_target):
    own = ElectraParams(embeddings=embeddings, disc_target=disc_target)
    expected, result = (steps_of(make("electra", "electra", own), with_copies) for with_copies in (False, True))
    assert differing(result, expected) == []
    assert {name.split(".")[0] for name in result.copied} == {"model", "generator"}


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_weight_copies_add_gradients_in_place(micro_batches):
    expected, result = (
        steps_of(make("mlm", "bert"), with_copies, micro_batches, preset=True) for with_copies in (False, True)
    )
    assert differing(result, expected) == []


def test_weight_copies_with_activation_checkpointing_are_bit_identical():
    def built() -> Any:
        objective = make("mlm", "bert")
        objective.model.bert.encoder.activation_checkpointing = True
        return objective

    expected, result = (steps_of(built(), with_copies) for with_copies in (False, True))
    assert differing(result, expected) == [] and result.copied == steps_of(make("mlm", "bert"), True).copied


def test_weight_copies_comparison_detects_other_seed():
    """So the comparison sees dropout."""
    assert differing(steps_of(make("mlm", "bert"), True), steps_of(make("mlm", "bert"), False, seed=9))


def test_weight_copies_cover_all_linear_layers_but_decoder():
    objective = make("mlm", "bert")
    linear = {
        f"{name}.{own}"
        for name, part in objective.named_modules()
        if isinstance(part, nn.Linear)
        for own, _ in part.named_parameters()
    }
    assert linear - steps_of(objective, True).copied == {
        "model.cls.predictions.decoder.weight", "model.cls.predictions.decoder.bias"
    }  # fmt: skip


def test_weight_copies_skip_parameters_read_twice_frozen_or_unread():
    assert all(".layer." not in name for name in steps_of(make("mlm", "albert"), True).copied)
    objective = make("mlm", "bert")
    objective.model.bert.encoder.layer[0].requires_grad_(False)
    expected = make("mlm", "bert")
    expected.model.bert.encoder.layer[0].requires_grad_(False)
    result = steps_of(objective, True)
    assert differing(result, steps_of(expected, False)) == []
    assert not [name for name in result.copied if "layer.0" in name] and [
        name for name in result.copied if "layer.1" in name
    ]
    apart = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    copies = Bfloat16Weights(apart, lambda: [apart[0](torch.ones(1, 4)[:0].bfloat16()).sum()])
    assert {slot.linear for slot in copies._slots} == {apart[0]}


def test_weight_copies_trial_pass_keeps_rng_and_gradients():
    objective, (batch, _) = make("mlm", "bert"), next(rehearsal.pretraining_batches(1))
    state = torch.get_rng_state()
    Bfloat16Weights(objective, lambda: losses(objective, batch).unbind())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in objective.parameters())


@pytest.mark.parametrize("when", ["before the backward pass", "after it"])
def test_weight_copies_restore_parameters_after_exception(when):
    objective, (batch, _) = make("mlm", "bert"), next(rehearsal.pretraining_batches(1))
    copies = Bfloat16Weights(objective, lambda: losses(objective, batch).unbind())
    before = dict(objective.named_parameters())
    with pytest.raises(ZeroDivisionError), copies.in_use():
        assert objective.model.bert.encoder.layer[0].output.dense.weight.dtype == torch.bfloat16
        loss = losses(objective, batch).sum()
        if when == "after it":
            loss.backward()
        raise ZeroDivisionError
    after = dict(objective.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items()) and len(after) == len(before)
    assert all(slot.parameter.grad is None and slot.copy.grad is None for slot in copies._slots)


def test_weight_copies_without_linear_layers_do_nothing():
    embedding = nn.Embedding(3, 4)
    copies = Bfloat16Weights(embedding, lambda: [embedding(torch.tensor([1])).sum()])
    with copies.in_use():
        embedding(torch.tensor([1])).sum().backward()
    copies.refresh()
    assert embedding.weight.grad is not None


# ---------------------------------------------------------------- branches of a GPU, and compiled


def compare_on_gpu_branches() -> None:
    """A program: print for each member what differs, how many copies it has, and the graphs after each way.

    Its arguments are torch.compile's back end, empty for no compiling, and the members. Where nothing is compiled every
    tensor says that it lies on a GPU.
    """
    _, compiler, *members = sys.argv
    take_them(compiler)
    if compiler:
        from torch._dynamo.utils import counters
    else:
        torch.Tensor.is_cuda = property(lambda tensor: True)  # type: ignore[assignment, misc]
    for name, architecture in (member.split("/") for member in members):
        runs, graphs = [], []
        for with_copies in (False, True):
            objective = make(name, architecture)
            if compiler:
                torch._dynamo.reset()
                counters.clear()
                compile_parts(objective)
            runs.append(steps_of(objective, with_copies))
            graphs.append(counters["stats"]["unique_graphs"] if compiler else 0)
        line = {"member": f"{name}/{architecture}", "differing": differing(*runs), "copies": len(runs[1].copied)}
        print(json.dumps({**line, "graphs": graphs}), flush=True)


def said_by(function: Callable[[], None], *arguments: str, folder: Path) -> list[dict[str, Any]]:
    program = Child(f"{__name__}:{function.__name__}", arguments, folder, os.environ, False)
    text, _ = program.communicate(timeout=500)
    assert program.returncode == 0, text[-4000:]
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


SOME = ("electra/electra", "mlm/albert", "mlm/bert", "mlm/modernbert", "tinybert/bert")
EVERY = tuple("/".join(member) for member in MEMBERS)


@pytest.mark.parametrize(
    ("compiler", "members"),
    [
        pytest.param("", SOME, id="not compiled, some"),
        pytest.param("", EVERY, id="not compiled, every", marks=pytest.mark.slow),
        pytest.param("eager", ("mlm/albert", "mlm/bert"), id="eager, some"),
        pytest.param("eager", (*SOME, "mlm/deberta", "mlm/deberta_v2"), id="eager, more", marks=pytest.mark.slow),
        pytest.param("aot_eager", (*SOME, "mlm/deberta"), id="aot_eager", marks=pytest.mark.slow),
    ],
)
def test_weight_copies_on_gpu_branches_are_bit_identical(compiler, members, tmp_path):
    result = said_by(compare_on_gpu_branches, compiler, *members, folder=tmp_path)
    for line in result:
        print(line["member"], line["copies"], "copies,", line["graphs"], "graphs")
    assert [line["member"] for line in result] == [*members]
    assert not [line for line in result if line["differing"] or line["graphs"][0] != line["graphs"][1]]
