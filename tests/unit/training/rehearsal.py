"""Steps of training on a pretended GPU, case by case; ``rehearse`` is a program that prints what was seen of each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_src.base.registry import architecture_spec, member_names, objective_spec
from pipeline_src.finetune.finetune import TaskObjective
from pipeline_src.finetune.heads import LOSSES, BertForTask
from pipeline_src.finetune.task_data import training_batches
from pipeline_src.model import attention
from pipeline_src.model.bert import BertConfig, load_architecture
from pipeline_src.pretrain.data import PretrainingBatch, TensorBatch
from pipeline_src.pretrain.mlm import BertObjective
from pipeline_src.pretrain.objective import load_objective
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import ElectraParams
from pipeline_src.tasks.features import Features, TokenFeatures
from pipeline_src.training import checkpoint
from pipeline_src.training.batches import split_balanced, transfer
from pipeline_src.training.checkpoint import KINDS
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.gpu import Outputs
from pipeline_src.training.optimizers import MOMENTS, OPTIMIZERS
from pipeline_src.training.trainer import LossTerm, Objective, OptimizerConfig, Trainer, make_trainer
from tests.unit.training.pretended_gpu import GPU, Seen, Watch, lend_cuda, pretended, where

STEPS, SEQUENCES, LONGEST, ENTRIES = 2, 6, 64, 1_000
CONFIG = BertConfig(ENTRIES, 64, 2, 2, 128, LONGEST)
ON_GPU = sorted(name for name in attention.BACK_ENDS if attention.RUNS_ON.get(name, GPU.type) == GPU.type)
PRECISION, ATTENTION = (torch.bfloat16, "flash_varlen") if GPU.type == "cuda" else (torch.float32, "padded")
STARTS: dict[str, tuple[str, ...]] = {  # what is read before the first step
    "fresh": (),
    "resumed": tuple(KINDS),
    "long phase": tuple(MOMENTS),
}


class Case(NamedTuple):
    """What is trained, on which batches, by which optimizer, from where."""

    name: str
    objective: Callable[[], Objective[Any]]
    batches: Callable[[], Iterator[Any]]
    optimizer: str = "adamw"
    start: str = "fresh"


def rehearse() -> None:
    """A program: take the steps of each case of the kind that is named, and print a line of JSON for each."""
    lend_cuda()
    for case in CASES[sys.argv[1]]():
        print(json.dumps({"case": case.name, **asdict(steps(case))}, default=sorted), flush=True)


def steps(case: Case) -> Seen:
    """Some steps of the project's own loop."""
    with pretended(), Watch() as watch:
        try:
            objective = on_gpu(case.objective)
            trainer = rehearsal_trainer(objective, Distributed(0, 1, GPU, PRECISION), case.optimizer)
            if STARTS[case.start]:
                restore(objective, trainer.optimizer, STARTS[case.start])
            watch.seen.waits.clear()  # what waits before the first step
            take_steps(trainer, islice(case.batches(), STEPS))
            watch.seen.types += narrowed(objective, trainer.optimizer)
        except Exception as error:
            watch.seen.refused.append(f"{type(error).__name__}: {str(error).splitlines()[0]} at {where(error)}")
    return watch.seen


def on_gpu(make: Callable[[], Objective[Any]]) -> Objective[Any]:
    """An objective whose parameters lie on the GPU, and its teacher's too, where it has one."""
    with torch.device("meta"):
        objective = make()
    for module in filter(None, (objective, getattr(objective, "teacher", None))):
        for part in module.modules():
            for name, parameter in list(part._parameters.items()):
                if parameter is not None:
                    there = torch.empty(parameter.shape, device=GPU)
                    part._parameters[name] = nn.Parameter(there, requires_grad=parameter.requires_grad)
    if hasattr(objective, "tie"):
        objective.tie()
    return objective


def rehearsal_trainer(objective: Objective[Any], distributed: Distributed, optimizer: str = "adamw") -> Trainer[Any]:
    """The project's own, without callbacks."""
    recipe = OptimizerConfig(1e-3, total_steps=1_000, decay_steps=0, optimizer=optimizer)
    return make_trainer(objective, recipe, distributed, name="rehearsal", last=1_000, seed=1)


def run_again(run: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
    """Stand-in for a CUDA graph: replay by running again, into the same outputs. As there, nothing runs at first."""
    outputs: Outputs = {}

    def replay() -> None:
        for name, value in run().items():
            if name in outputs:
                outputs[name].copy_(value)
            else:
                outputs[name] = value.clone()

    return replay, outputs


def take_steps(trainer: Trainer[Any], batches: Iterable[Any]) -> None:
    """Take steps as ``run`` does, without its look at the losses at the end of training, which waits for them."""
    trainer.objective.train()
    for batch in transfer(batches, trainer.distributed.device):
        trainer.train_step(batch)


def narrowed(objective: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Parameters, gradients and moments that are not in float32 on the GPU."""
    result = []
    for name, parameter in objective.named_parameters():
        moments = [each for kind, each in optimizer.state[parameter].items() if kind in MOMENTS]
        for tensor in (parameter, parameter.grad, *moments):
            if tensor is not None and (tensor.dtype, tensor.device) != (torch.float32, GPU):
                result.append(f"{name}: {tensor.dtype} on {tensor.device}")
    return result


def restore(objective: nn.Module, optimizer: torch.optim.Optimizer, kinds: tuple[str, ...]) -> None:
    """Weights and moments, as a checkpoint or the phase before brings them."""
    parameters = dict(objective.named_parameters())
    shapes = {f"{kind}.{name}": list(part.shape) for name, part in parameters.items() for kind in kinds}

    class Stored:
        """Stands in for the file."""

        def __init__(self, *_: object) -> None:
            self.keys = lambda: list(shapes)

        def __enter__(self) -> Stored:
            return self

        def __exit__(self, *_: object) -> None: ...

        def get_slice(self, name: str) -> Any:
            return type("Slice", (), {"get_shape": lambda _: shapes[name]})()

        def get_tensor(self, name: str) -> Tensor:
            return torch.empty(shapes[name])

    checkpoint.safe_open = Stored  # type: ignore[assignment]
    checkpoint.restore_tensors("", parameters, optimizer, kinds, 7, "")  # type: ignore[arg-type]


# ---------------------------------------------------------------- pretraining


def pretraining() -> Iterator[Case]:
    """Every objective on every attention of a GPU; every optimizer from every start."""
    for name in ("mlm", "clm", "electra"):
        for back_end in ON_GPU:
            yield Case(f"{name}, {back_end}", objective_of(name, attention=back_end), pretraining_batches)
    steady = objective_of("mlm", activation_checkpointing=True, attention_probs_dropout_prob=0.0)
    yield Case("masked, recomputed, no dropout on attention", steady, pretraining_batches)
    shallow = objective_of("mlm", num_hidden_layers=1)
    for optimizer in OPTIMIZERS:
        for start in STARTS:
            yield Case(f"masked, {optimizer}, {start}", shallow, pretraining_batches, optimizer, start)


def objective_of(name: str, **changes: Any) -> Callable[[], Any]:
    """Makes an objective of pretraining."""
    kind = load_objective(name)
    own = {"electra": ElectraParams(embeddings="separate")}.get(name)
    return lambda: kind(replace(CONFIG, is_decoder=kind.spec.causal, **changes), "nsp", own)


def family() -> Iterator[Case]:
    """Every architecture but BERT by an objective that takes it; every objective that needs a teacher, or another."""
    for architecture in member_names("models"):
        if architecture == CONFIG.names.model_type:
            continue
        refused = architecture_spec(architecture).refused_objectives
        names = [name for name in member_names("objectives") if takes(name, architecture) and name not in refused]
        name = "mlm" if "mlm" in names else names[0]
        yield Case(f"{name}, {architecture}", member_of(name, architecture), pretraining_batches)
    for name in member_names("objectives"):
        (architecture, *_) = objective_spec(name).only_architectures or (CONFIG.names.model_type,)
        if architecture != CONFIG.names.model_type or objective_spec(name).needs_teacher:
            yield Case(name, member_of(name, architecture), pretraining_batches)


def takes(objective: str, architecture: str) -> bool:
    """Whether an objective can be trained on encoders of this architecture, and has no teacher."""
    only = objective_spec(objective).only_architectures
    return (not only or architecture in only) and not objective_spec(objective).needs_teacher


def member_of(name: str, architecture: str, layers: int = 2) -> Callable[[], Any]:
    """Makes an objective of pretraining on an encoder of the family, with a teacher twice as deep where it has one."""
    kind, member = load_objective(name), load_architecture(architecture)
    sizes = {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "max_position_embeddings": 2 * LONGEST,
    }
    student, teacher = (
        member.config.from_params(
            ModelParams(architecture=architecture, num_hidden_layers=depth, **sizes),
            ENTRIES,
            kind.spec.causal,
            attention=ATTENTION,
        )
        for depth in (layers, 2 * layers)
    )

    def make() -> Any:
        objective = kind(student, "nsp", None)
        if kind.build_teacher is not None:
            objective.set_teacher(kind.build_teacher(teacher).eval().requires_grad_(False))
        return objective

    return make


def make_batch(rng: np.random.Generator, lengths: np.ndarray) -> TensorBatch:
    """Sequences of these lengths, of which about 15 % of the tokens are predicted."""
    tokens, cu_seqlens = int(lengths.sum()), np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(5, ENTRIES, tokens)
    predicted = np.sort(rng.choice(tokens, max(1, round(0.15 * tokens)), replace=False))
    pairs, examples = rng.integers(0, 2, len(lengths)), np.arange(len(lengths))
    draws = rng.random(len(predicted), dtype=np.float32)
    batch = PretrainingBatch(ids, np.zeros_like(ids), cu_seqlens, predicted, ids[predicted], pairs, examples, draws)
    return TensorBatch.of(batch)


def pretraining_batches(count: int = STEPS, seed: int = 0) -> Iterator[list[TensorBatch]]:
    """As a study has them: most sequences nearly full, some short; each batch is cut in two."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        nearly_full = LONGEST - rng.integers(0, 3, SEQUENCES)
        lengths = np.where(rng.random(SEQUENCES) < 0.3, rng.integers(8, LONGEST, SEQUENCES), nearly_full)
        yield [make_batch(rng, lengths[piece]) for piece in split_balanced(lengths, 200)]


# ---------------------------------------------------------------- fine-tuning

TASKS: Mapping[str, tuple[str, int]] = {  # what is learnt: head and outputs
    "classification": ("sequence", 3),
    "regression": ("sequence", 1),
    "choice": ("choice", 1),
    "span": ("span", 2),
    "tagging": ("token", 5),
}


def finetuning() -> Iterator[Case]:
    """Every head, on every attention of a GPU, through an LSTM, and over frozen layers."""
    for task in TASKS:
        yield Case(task, objective_of_task(task), task_batches(task))
    for back_end in ON_GPU:
        yield Case(f"span, {back_end}", objective_of_task("span", attention=back_end), task_batches("span"))
    for task in ("classification", "span", "tagging"):
        yield Case(f"{task}, LSTM", objective_of_task(task, bilstm=True), task_batches(task))
    for frozen in ("last", "weighted_all"):
        objective = objective_of_task("tagging", frozen=frozen)
        yield Case(f"tagging, frozen: {frozen}, resumed", objective, task_batches("tagging"), start="resumed")


def objective_of_task(
    task: str, bilstm: bool = False, frozen: str | None = None, attention: str = "auto"
) -> Callable[[], Objective[Any]]:
    """Makes the objective of a task."""
    head, outputs = TASKS[task]
    config = replace(CONFIG, attention=attention)
    return lambda: TaskObjective(BertForTask(config, head, outputs, bilstm, frozen), LOSSES[head])


def task_batches(task: str) -> Callable[[], Iterator[Any]]:
    """Batches of a task's features, each cut in pieces."""
    rng, items = np.random.default_rng(0), STEPS * SEQUENCES
    per_item = 4 if task == "choice" else 1
    lengths = rng.integers(5, LONGEST // per_item, items * per_item)
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(5, ENTRIES, cu_seqlens[-1]).astype(np.int32)
    labels = {
        "classification": rng.integers(0, 3, items),
        "regression": rng.random(items).astype(np.float32),
        "choice": rng.integers(0, 4, items),
        "span": np.stack([np.zeros_like(lengths), lengths - 1], axis=1),
        "tagging": rng.integers(0, 5, len(ids)),
    }[task]
    parts = ids, np.zeros(len(ids), np.int8), cu_seqlens, labels, np.arange(items), per_item
    features = TokenFeatures(*parts, word=np.arange(len(ids))) if task == "tagging" else Features(*parts)
    return lambda: training_batches(features, SEQUENCES, 1, 1, 4 * LONGEST)


# ---------------------------------------------------------------- mistakes


class Mistaken(BertObjective):
    """Makes one mistake in every step."""

    mistake: Callable[[TensorBatch, Tensor], object]

    def forward(self, batch: TensorBatch) -> dict[str, LossTerm]:
        """The sums of the losses, and the mistake."""
        terms = super().forward(batch)
        self.mistake(batch, terms["mlm"].loss)  # type: ignore[call-arg, arg-type]
        return terms


def flash_in_float32(batch: TensorBatch, loss: Tensor) -> None:
    """What the kernel of flash attention would not take."""
    flat, positions = torch.empty(len(batch.ids), 2, 32, device=GPU), batch.cu_seqlens.int()
    longest = batch.max_seqlen
    torch.ops.aten._flash_attention_forward(flat, flat, flat, positions, positions, longest, longest, 0.0, False, False)


MISTAKES: Mapping[str, Callable[[TensorBatch, Tensor], object]] = {
    "item": lambda batch, loss: loss.item(),
    "bool": lambda batch, loss: bool(loss > 0),
    "tolist": lambda batch, loss: batch.cu_seqlens.tolist(),
    "nonzero": lambda batch, loss: batch.labels.nonzero(),
    "index by a mask": lambda batch, loss: batch.ids[batch.ids > 5],
    "repeat without a size": lambda batch, loss: batch.ids.repeat_interleave(batch.ids),
    "to the host": lambda batch, loss: loss.cpu(),
    "a number to the GPU": lambda batch, loss: loss + torch.tensor([1.0], device=GPU),
    "tensors of two devices": lambda batch, loss: batch.labels + torch.arange(len(batch.labels)),
    "flash in float32": flash_in_float32,
    "a loss in bfloat16": lambda batch, loss: torch.log_softmax(loss.new_empty(2, 2).bfloat16(), 1, torch.bfloat16),
}


def mistakes() -> Iterator[Case]:
    """Each of which must be seen."""
    for name, mistake in MISTAKES.items():

        def make(mistake: Any = mistake) -> Mistaken:
            objective = Mistaken(replace(CONFIG, num_hidden_layers=1), "nsp")
            objective.mistake = mistake
            return objective

        yield Case(name, make, pretraining_batches)


CASES = {"pretraining": pretraining, "family": family, "finetuning": finetuning, "mistakes": mistakes}
