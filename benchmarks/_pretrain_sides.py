"""The sides of benchmark ``pretrain_step``: one training step of each, on the same batches, from the same weights.

Ours is the project's own loop, model and losses, on flat tokens. The peers are transformers' model in the step that
its users write, on the rectangle it asks for, padded to the longest of its batch and with -100 where nothing is
predicted. Every side has the same optimizer, fused AdamW with the paper's decay groups, and clips the gradients' norm
at 1. All batches are made beforehand, outside of what is timed.

As a program, ``python -m benchmarks._pretrain_sides SIDE SIZE LENGTH SEQUENCES DEVICE ARCHITECTURE PRECISION TEXT``
takes two steps and prints its memory as a line of JSON.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_src.base.registry import architecture_spec
from pipeline_src.model.bert import BertConfig, compile_parts, load_architecture
from pipeline_src.model.hub import save_tensors
from pipeline_src.model.losses import IGNORE_INDEX
from pipeline_src.pretrain.data import DataShard, PretrainingBatch, TensorBatch
from pipeline_src.pretrain.objective import PretrainingObjective, load_objective
from pipeline_src.study.machine import Precision
from pipeline_src.study.model import ModelParams
from pipeline_src.training.batches import to_device, transfer
from pipeline_src.training.distributed import Distributed, choose_precision
from pipeline_src.training.optimizers import DEFAULT_MAX_GRAD_NORM, make_optimizer
from pipeline_src.training.trainer import OptimizerConfig, Trainer, make_trainer

# Number of layers and hidden size.
SIZES = {"tiny": (2, 128), "mini": (4, 256), "base": (12, 768), "large": (24, 1024)}
# As in the paper, appendix A.2.
LEARNING_RATE, WEIGHT_DECAY = 1e-4, 0.01
# The vocabulary has at most this many entries.
ENTRIES = 30_522
# As in the paper, section 3.1.
MASK_PROB = 0.15
# The embedding size of ALBERT and ELECTRA-small.
NARROW = 128
# Parts of the model that transformers does not have.
NOT_THERE = ("mask_decoder",)
STEPS_FOR_MEMORY = 2
# More steps than any run has.
FOREVER = 1 << 30
# transformers class that is trained on pairs -> its argument for the pair labels.
PAIR_LABELS = {
    "BertForPreTraining": "next_sentence_label",
    "AlbertForPreTraining": "sentence_order_label",
}


@dataclass(frozen=True)
class Batch:
    """One batch as both kinds of side take it.

    Attributes:
        flat: as the project's loop takes it.
        padded: by transformers' names, each [B, L] or [B].
        rectangle: place of every predicted token in the padded batch laid end to end, int64 [P].
    """

    flat: TensorBatch
    padded: dict[str, Tensor]
    rectangle: Tensor

    @property
    def tokens(self) -> int:
        # The number of real tokens, including [CLS] and [SEP].
        return self.flat.workload.tokens

    @classmethod
    def of(cls, batch: PretrainingBatch, device: torch.device) -> Batch:
        flat = TensorBatch.of(batch)
        keep = torch.arange(flat.max_seqlen) < flat.cu_seqlens.diff()[:, None]
        rectangle = keep.flatten().nonzero().squeeze(1)[flat.predicted]

        def pad(tokens: Tensor) -> Tensor:
            return torch.zeros(keep.shape, dtype=torch.int64).masked_scatter(keep, tokens)

        labels = torch.full((keep.numel(),), IGNORE_INDEX).index_copy(0, rectangle, flat.labels)
        padded = {
            "input_ids": pad(flat.ids),
            "token_type_ids": pad(flat.segments),
            "attention_mask": keep.long(),
            "labels": labels.view(keep.shape),
            **dict.fromkeys(PAIR_LABELS.values(), flat.pair_label),
        }
        return cls(
            to_device(flat, device),
            {name: tensor.to(device) for name, tensor in padded.items()},
            rectangle.to(device),
        )


@dataclass(frozen=True)
class Side:
    """A side of the comparison.

    Attributes:
        step: takes one training step with the next batch.
        loss: of a batch without dropout; changes nothing.
    """

    step: Callable[[], object]
    loss: Callable[[Batch], float]


def ours(config: BertConfig, batches: list[Batch], process: Distributed) -> Side:
    # Compiled on a GPU, as the stage does it.
    return training_side(ours_objective(config).to(process.device), batches, process)


def training_side(
    objective: PretrainingObjective[TensorBatch], batches: list[Batch], process: Distributed, optimizer: str = "adamw"
) -> Side:
    if process.device.type == "cuda":
        compile_parts(objective)
    trainer = make_benchmark_trainer(objective, process, optimizer)
    coming = transfer(([batch.flat] for batch in batches), process.device)
    return Side(lambda: trainer.train_step(next(coming)), lambda batch: loss_of(objective, batch, process))


def loss_of(objective: PretrainingObjective[TensorBatch], batch: Batch, process: Distributed) -> float:
    objective.eval()
    counts = objective.loss_counts(batch.flat.workload)
    with torch.no_grad(), process.autocast():
        mean = sum(term.loss / counts[name] for name, term in objective(batch.flat).items())
    objective.train()
    return float(mean)


def make_benchmark_trainer(
    objective: PretrainingObjective[TensorBatch], process: Distributed, optimizer: str = "adamw"
) -> Trainer[TensorBatch]:
    # A constant rate, for as many steps as anybody takes.
    recipe = OptimizerConfig(LEARNING_RATE, FOREVER, decay_steps=0, weight_decay=WEIGHT_DECAY, optimizer=optimizer)
    return make_trainer(objective, recipe, process, name="pretraining", last=FOREVER, seed=1)


def _peer(
    attention: str, mean_loss: Callable[[nn.Module, Batch], Tensor], compiled: bool = False
) -> Callable[[BertConfig, list[Batch], Distributed], Side]:
    def build(config: BertConfig, batches: list[Batch], process: Distributed) -> Side:
        model = _theirs(config, attention).to(process.device)
        if compiled:
            model.compile(dynamic=True)
        optimizer: torch.optim.Optimizer = make_optimizer(model, LEARNING_RATE, WEIGHT_DECAY)
        coming = iter(batches)

        def step() -> None:
            batch = next(coming)
            with process.autocast():
                loss = mean_loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), DEFAULT_MAX_GRAD_NORM)
            optimizer.step()
            if process.device.type == "cpu":
                # Users look at the loss; on a GPU, that would wait for the step.
                loss.item()

        def loss(batch: Batch) -> float:
            model.eval()
            with torch.no_grad(), process.autocast():
                mean = mean_loss(model, batch)
            model.train()
            return float(mean)

        return Side(step, loss)

    return build


def _whole(model: nn.Module, batch: Batch) -> Tensor:
    # transformers' users compute logits at every position.
    config, pair_label = model.config, PAIR_LABELS.get(type(model).__name__)
    left_out = {label for label in PAIR_LABELS.values() if label != pair_label}
    if getattr(config, "type_vocab_size", 0) < 2:
        left_out.add("token_type_ids")
    return model(**{name: tensor for name, tensor in batch.padded.items() if name not in left_out}).loss


def _predicted_places(model: nn.Module, batch: Batch) -> Tensor:
    # Logits are computed only at the predicted positions.
    inputs = {name: batch.padded[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    encoded = model.bert(**inputs)
    words, pairs = model.cls(encoded.last_hidden_state.flatten(0, 1)[batch.rectangle], encoded.pooler_output)
    of_words = nn.functional.cross_entropy(words.float(), batch.flat.labels)
    return of_words + nn.functional.cross_entropy(pairs.float(), batch.flat.pair_label)


SDPA, PREDICTED, EAGER, COMPILED = (
    "transformers sdpa",
    "transformers sdpa, head on predicted places",
    "transformers eager",
    "transformers sdpa, compiled",
)
SIDES: dict[str, Callable[[BertConfig, list[Batch], Distributed], Side]] = {
    "ours": ours,
    SDPA: _peer("sdpa", _whole),
    PREDICTED: _peer("sdpa", _predicted_places),
    EAGER: _peer("eager", _whole),
    COMPILED: _peer("sdpa", _whole, compiled=True),
}


def config_of(size: str, architecture: str = "bert") -> BertConfig:
    """Return the config of a size, with 30,522 vocabulary entries and transformers' dropout of 0.1."""
    layers, width = SIZES[size]
    embedding = NARROW if architecture_spec(architecture).factorized_embeddings else None
    params = ModelParams(
        architecture=architecture, num_hidden_layers=layers, hidden_size=width, embedding_size=embedding
    )
    config = load_architecture(architecture).config.from_params(params, ENTRIES)
    left_out: dict[str, Any] = {name: False for name in NOT_THERE if hasattr(config, name)}
    return replace(config, **left_out)


def real_batches(length: int, sequences: int, count: int, device: torch.device) -> list[Batch]:
    # Random text goes without a corpus and its libraries.
    from benchmarks._study import training_examples

    loader = training_examples(length).batches(sequences, 1, 0, count, DataShard())
    return [Batch.of(batch[0], device) for batch in loader]


def random_batches(length: int, sequences: int, count: int, device: torch.device) -> list[Batch]:
    return [Batch.of(batch, device) for batch in random_examples(length, sequences, count)]


def random_examples(
    length: int, sequences: int, count: int, entries: int = ENTRIES, mask_prob: float = MASK_PROB
) -> Iterator[PretrainingBatch]:
    """Return batches of random tokens. Seven of eight sequences are full, the others have random lengths."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        lengths = np.where(rng.random(sequences) < 7 / 8, length, rng.integers(4, length + 1, sequences))
        yield random_batch(rng, lengths, entries, mask_prob)


def random_batch(
    rng: np.random.Generator, lengths: np.ndarray, entries: int = ENTRIES, mask_prob: float = MASK_PROB
) -> PretrainingBatch:
    """Return sequences of random tokens, with as many predictions as in text, and none at the first token."""
    tokens, starts = int(lengths.sum()), np.cumsum(lengths) - lengths
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    keys = rng.random(tokens)
    keys[starts] = 1.0
    # In each sequence at random.
    order = np.lexsort((keys, sequence))
    number = np.maximum(1, np.rint(mask_prob * lengths))
    predicted = np.sort(order[np.arange(tokens) - starts[sequence] < number[sequence]])
    return PretrainingBatch(
        ids=rng.integers(0, entries, tokens),
        segments=rng.integers(0, 2, tokens),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]),
        predicted=predicted,
        labels=rng.integers(0, entries, len(predicted)),
        pair_label=rng.integers(0, 2, len(lengths)),
        examples=np.arange(len(lengths)),
    )


MAKERS = {"real": real_batches, "random": random_batches}


def ours_objective(config: BertConfig) -> PretrainingObjective[TensorBatch]:
    huggingface_class = config.names.classes["pretraining"]
    objective = load_objective("mlm")(config, pairs="nsp" if huggingface_class in PAIR_LABELS else "none")
    objective.init_weights(torch.Generator().manual_seed(1))
    return objective.train()


def _theirs(config: BertConfig, attention: str) -> nn.Module:
    huggingface_class = config.names.classes["pretraining"]
    return transformers_model(ours_objective(config).saved_models()[""].module, config, huggingface_class, attention)


def transformers_model(module: nn.Module, config: BertConfig, huggingface_class: str, attention: str) -> Any:
    """Load the weights of this project's model into transformers' model, in training mode."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)

    weights = dict(module.state_dict())
    with tempfile.TemporaryDirectory() as folder:
        save_tensors(Path(folder), weights, config, huggingface_class)
        model, info = getattr(transformers, huggingface_class).from_pretrained(
            folder, attn_implementation=attention, output_loading_info=True
        )
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    return model.train()


def process_on(name: str, precision: Precision = "auto") -> Distributed:
    """One process on ``cpu``, or of ``cuda`` on the GPU with the first number.

    What runs in a thread has to say which one it means.
    """
    device = torch.device(name, 0) if name == "cuda" else torch.device(name)
    return Distributed(0, 1, device, choose_precision(precision, device))


def held(device: torch.device) -> int:
    # On a CPU, returns the memory that the process uses before it makes a model.
    if device.type == "cpu":
        return memory("VmRSS")
    torch.cuda.reset_peak_memory_stats()
    return 0


def most_held(device: torch.device, before: int) -> dict[str, float]:
    # Peak memory so far, and the part above the memory used before, in MB.
    peak = memory("VmHWM") if device.type == "cpu" else torch.cuda.max_memory_allocated()
    return {"peak_mb": peak / 1e6, "of_training_mb": (peak - before) / 1e6}


def memory(field: str) -> int:
    # VmRSS is what the process holds, VmHWM the most it has held.
    line = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert line is not None
    return int(line[1]) * 1024


def main(
    side: str,
    size: str,
    length: str,
    sequences: str,
    device_name: str,
    architecture: str,
    precision: Precision,
    text: str,
) -> None:
    process = process_on(device_name, precision)
    device = process.device
    if side != "ours":
        import transformers  # noqa: F401  # what its code takes is not counted against it
    batches = MAKERS[text](int(length), int(sequences), STEPS_FOR_MEMORY, device)
    before = held(device)
    steps = SIDES[side](config_of(size, architecture), batches, process)
    for _ in batches:
        steps.step()
    print(json.dumps(most_held(device, before)))


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
