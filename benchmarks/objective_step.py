"""A training step of two networks beside transformers' classes, joined as their users join them: by CPU-seconds.

``replaced``: ELECTRA, generator and discriminator over shared embeddings; the peer draws words by Gumbel noise over all
scores. ``distilled``: DistilBERT with a teacher of twice its layers, asked at every step, KL and cosine on all real
tokens on both sides; ``distilled-predicted`` learns of the predicted tokens alone, beside the same peer. Random text,
the same batches and initial weights on both sides.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the stages do; read when torch is imported

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks._pretrain_sides import (
    LEARNING_RATE,
    SIZES,
    WEIGHT_DECAY,
    Batch,
    config_of,
    process_on,
    random_batches,
    training_side,
    transformers_model,
)
from benchmarks.measure import cpu_seconds, report
from pipeline_src.config.pretrain import DistilBertParams, ElectraParams
from pipeline_src.models.bert import initialise
from pipeline_src.objectives.distilbert import DistilBertObjective
from pipeline_src.objectives.electra import ElectraObjective
from pipeline_src.pretraining.data import TensorBatch
from pipeline_src.training.objective import PretrainingObjective
from pipeline_src.training.optimizers import DEFAULT_MAX_GRAD_NORM, make_optimizer

CPU, LENGTH, WARM_UP = torch.device("cpu"), 128, 1
SEQUENCES = {"tiny": 32, "mini": 32, "base": 8}
PEER = "transformers sdpa"
BARS = {
    "electra": {"tiny": 5.0, "mini": 2.5, "base": 1.3},
    "distilbert": {"tiny": 1.5, "mini": 1.5, "base": 1.5},
    "distilled-predicted": {"tiny": 6.0},
}
Made = tuple[PretrainingObjective[TensorBatch], nn.ModuleList, Callable[[Batch], Tensor]]


def replaced(size: str) -> Made:
    """Ours, the peer's networks, and the peer's loss of a batch."""
    config, draw = config_of(size, "electra"), torch.Generator().manual_seed(1)
    objective = ElectraObjective(config, "none", ElectraParams())
    objective.init_weights(draw)
    judge, generator = (transformers_model(*saved, "sdpa") for saved in objective.saved_models().values())
    generator.electra.embeddings = judge.electra.embeddings
    generator.tie_weights()

    def loss(batch: Batch) -> Tensor:
        inputs = {name: batch.padded[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
        found = generator(**inputs, labels=batch.padded["labels"])
        chosen = batch.padded["labels"] >= 0
        scores = found.logits[chosen].detach()
        noise = -torch.empty_like(scores).exponential_().log()
        drawn = (scores + noise).argmax(-1)
        seen = inputs["input_ids"].masked_scatter(chosen, drawn)
        other = torch.zeros_like(seen).masked_scatter(chosen, (drawn != batch.padded["labels"][chosen]).long())
        judged: Tensor = judge(**inputs | {"input_ids": seen}, labels=other).loss
        return found.loss + 50 * judged

    return objective, nn.ModuleList([judge, generator]), loss


def distilled(size: str, tokens: str = "all") -> Made:
    """As :func:`replaced`."""
    config, draw = config_of(size, "distilbert"), torch.Generator().manual_seed(1)
    larger = replace(config_of(size, "bert"), num_hidden_layers=2 * config.num_hidden_layers, hidden_dropout_prob=0.0)
    teacher = DistilBertObjective.build_teacher(larger)
    initialise(teacher, draw)
    objective = DistilBertObjective(config, "none", DistilBertParams(loss_on=tokens))  # type: ignore[arg-type]
    objective.set_teacher(teacher.eval().requires_grad_(False))
    objective.init_weights(draw)
    student = transformers_model(*objective.saved_models()[""], "sdpa")
    master = transformers_model(teacher, larger, "BertForMaskedLM", "sdpa").eval()

    def loss(batch: Batch) -> Tensor:
        inputs = {name: batch.padded[name] for name in ("input_ids", "attention_mask")}
        real = inputs["attention_mask"].bool()
        found = student(**inputs, labels=batch.padded["labels"], output_hidden_states=True)
        with torch.no_grad():
            taught = master(**inputs, token_type_ids=batch.padded["token_type_ids"], output_hidden_states=True)
        ours, theirs = (F.log_softmax(one.logits[real] / 2, -1) for one in (found, taught))
        apart = F.kl_div(ours, theirs.exp(), reduction="batchmean") * 4
        last = (one.hidden_states[-1][real] for one in (found, taught))
        return 5 * apart + 2 * found.loss + (1 - F.cosine_similarity(*last)).mean()

    return objective, nn.ModuleList([student]), loss


MAKERS: dict[str, Callable[[str], Made]] = {
    "electra": replaced,
    "distilbert": distilled,
    "distilled-predicted": lambda size: distilled(size, "predicted"),
}


def peer_steps(networks: nn.ModuleList, loss: Callable[[Batch], Tensor], batches: list[Batch]) -> Iterator[float]:
    """Training steps as users of transformers write them."""
    optimizer: torch.optim.Optimizer = make_optimizer(networks, LEARNING_RATE, WEIGHT_DECAY)
    for batch in batches:
        total = loss(batch)
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(networks.parameters(), DEFAULT_MAX_GRAD_NORM)
        optimizer.step()
        yield total.item()


def measure(objective: str, size: str, steps: int) -> dict[str, float]:
    """Real tokens per CPU-second of both sides, from medians of steps that they take in turn."""
    draw, batches = torch.Generator().manual_seed(2), []
    for batch in random_batches(LENGTH, SEQUENCES[size], WARM_UP + steps, CPU):
        flat = replace(batch.flat, sampling_noise=torch.rand(len(batch.flat.labels), generator=draw))
        batches.append(replace(batch, flat=flat))
    ours, networks, loss = MAKERS[objective](size)
    side, theirs = training_side(ours.train(), batches, process_on("cpu")), peer_steps(networks, loss, batches)
    seconds: dict[str, list[float]] = {"ours": [], PEER: []}
    for batch in batches:
        for name, step in (("ours", side.step), (PEER, lambda: next(theirs))):
            gc.collect()
            start = cpu_seconds()
            step()
            seconds[name].append((cpu_seconds() - start) / batch.tokens)
    return {name: 1 / statistics.median(each[WARM_UP:]) for name, each in seconds.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and report against the bars."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--objective", choices=MAKERS, default="electra")
    parser.add_argument("--size", choices=[size for size in SIZES if size in SEQUENCES], default="tiny")
    parser.add_argument("--steps", type=int, default=5, help=f"timed steps, after {WARM_UP} of warm-up")
    options = parser.parse_args(arguments)
    rates = measure(options.objective, options.size, options.steps)
    bar = BARS[options.objective].get(options.size)
    report(
        f"objective_step {options.objective} {options.size}",
        "real tokens per CPU-second",
        rates["ours"],
        {PEER: rates[PEER]},
        {} if bar is None else {PEER: bar},
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
