"""Compare tricks of training at a fixed budget of CPU time: validation loss and BLiMP at its end, paired by seed.

    snakemake --cores 2 build_examples                      # of a study, whose recipe is the baseline
    python -m benchmarks.speedrun --minutes 3 --seeds 1 2
    python -m benchmarks.speedrun --family                  # members, each with masked words alone, instead of tricks

Every run has the same CPU-seconds of one thread, so that a trick that makes a step dearer pays for it. Learning rate,
masking rate and batch follow the share of the budget that is used. Validation and BLiMP are not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the stages do; read when torch is imported
import numpy as np
import torch
from scipy import stats
from torch import Tensor

from pipeline_src.base.paths import VOCABULARY
from pipeline_src.interpret.minimal_pairs import judge_sentence_pairs, read_pair_set
from pipeline_src.model.hub import save_model
from pipeline_src.pretrain.build import build_objective, fill_weights
from pipeline_src.pretrain.data import DataShard, TensorBatch, open_examples
from pipeline_src.pretrain.objective import PretrainingObjective
from pipeline_src.pretrain.phases import Phase
from pipeline_src.pretrain.validation import ValidationSet
from pipeline_src.study.machine import Precision
from pipeline_src.study.study import load_study
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tools.ablations import apply
from pipeline_src.tools.inspect import open_masked_lm
from pipeline_src.training.batches import transfer
from pipeline_src.training.distributed import Distributed, choose_precision
from pipeline_src.training.trainer import make_trainer

BASELINE = "baseline"
PHASE = "phase2"
WARMUP = 0.05  # share of the budget
FOREVER = 1 << 40  # steps; the budget ends a run
Recipe = Callable[[float], float]  # of the share of the budget that is used


class Part(NamedTuple):
    """A part of a run: up to which share of the budget, with which masking rate, and the batch by the baseline's.

    ``mask_prob`` None is the study's.
    """

    until: float
    mask_prob: float | None = None
    batch: float = 1.0


def linear(used: float) -> float:
    """Warm up, then fall to zero: the project's own schedule."""
    return min(used / WARMUP, (1 - used) / (1 - WARMUP))


def stable(used: float) -> float:
    """Warm up, stay, and fall over the last fifth (warmup-stable-decay)."""
    return min(used / WARMUP, 1.0, (1 - used) / 0.2)


def late(used: float) -> float:
    """Warm up and stay, for runs whose weights are averaged at their end."""
    return min(used / WARMUP, 1.0)


@dataclass(frozen=True)
class Trick:
    """A change of the recipe.

    Attributes:
        about: what is changed, and whose idea it was.
        params: keys of params.yaml -> other values.
        parts: parts of the run.
        schedule: the learning rate's share of its peak.
        average: from which share of the budget on weights are averaged; None for the last ones.
    """

    about: str
    params: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = (Part(1.0),)
    schedule: Recipe = linear
    average: float | None = None


TRICKS = {
    BASELINE: Trick("the study's own recipe"),
    "masks 0.15": Trick("the paper's masking rate", parts=(Part(1.0, 0.15),)),
    "masks 0.40": Trick("Wettig et al. 2023", parts=(Part(1.0, 0.40),)),
    "masks falling": Trick(
        "0.40, 0.30, then 0.15 (GPT-BERT falls from 0.30)",
        parts=(Part(1 / 3, 0.40), Part(2 / 3, 0.30), Part(1.0, 0.15)),
    ),
    "batches grow": Trick(
        "half, whole, then double the batch",
        parts=(Part(0.3, batch=0.5), Part(0.7), Part(1.0, batch=2.0)),
    ),
    "batches of half": Trick("more steps", parts=(Part(1.0, batch=0.5),)),
    "batches of a quarter": Trick("more steps still", parts=(Part(1.0, batch=0.25),)),
    "stable, then decay": Trick("the learning rate falls over the last fifth", schedule=stable),
    "stable, batches of half": Trick("both", parts=(Part(1.0, batch=0.5),), schedule=stable),
    "averaged weights": Trick("the mean of the last fifth's weights, no decay", schedule=late, average=0.8),
    "all masked": Trick(
        "[MASK] always, nothing random or kept",
        {f"pretrain.masking.{name}_ratio": ratio for name, ratio in (("mask", 1.0), ("random", 0.0), ("keep", 0.0))},
    ),
    "AdamW": Trick("no Muon", {"pretrain.optimizer": "adamw"}),
}
FAMILY = {  # the study's own is ModernBERT
    "BERT": Trick("the paper's encoder", {"model.architecture": "bert"}),
    "RoBERTa": Trick("no token types", {"model.architecture": "roberta"}),
    "ALBERT": Trick("one block for all layers", {"model.architecture": "albert"}),
    "DeBERTa": Trick("v1, with the mask decoder", {"model.architecture": "deberta"}),
    "DistilBERT": Trick("half as deep", {"model.architecture": "distilbert", "model.num_hidden_layers": 2}),
    "ELECTRA, MLM": Trick("its encoder with masked words", {"model.architecture": "electra"}),
    "ELECTRA": Trick(
        "replaced tokens; figures are the generator's",
        {
            "model.architecture": "electra",
            "pretrain.objective": "electra",
            "pretrain.masking.mask_ratio": 0.85,
            "pretrain.masking.random_ratio": 0.0,
            "pretrain.masking.keep_ratio": 0.15,
        },
    ),
}
ALL = TRICKS | FAMILY


def run_once(
    trick: Trick, seed: int, budget: float, blimp: Path | None, pairs: int, precision: Precision
) -> dict[str, Any]:
    """Train for ``budget`` CPU-seconds; return the figures at the end.

    Args:
        blimp: folder of BLiMP's files; None leaves it out.
        pairs: of each of its sets.
        precision: of matmuls, as in machine.yaml.
    """
    study = load_study()
    values = study.model_dump(exclude_unset=True)
    study = type(study).model_validate(apply(dict(trick.params), values))
    phase = Phase(PHASE, seed, study.mask_prob, study.model, study.pretrain, objectives=study.objectives)
    device = torch.device("cpu")
    process = Distributed(0, 1, device, choose_precision(precision, device))
    tokenizer = load_tokenizer(VOCABULARY)

    rates = [study.mask_prob if part.mask_prob is None else part.mask_prob for part in trick.parts]
    opened = [
        open_examples(
            *(PHASE, "train", tokenizer, rate, study.pretrain.masking, seed),
            *(study.pretrain.objective, study.model.architecture),
        )
        for rate in rates
    ]
    objective = build_objective(phase, tokenizer, opened[0].pairs, device)
    fill_weights(phase, objective, None)
    objective.train()

    begun = 0.0

    def used() -> float:
        return (time.process_time() - begun) / budget

    def batches() -> Iterator[list[TensorBatch]]:
        read = 0  # sequences
        for part, examples in zip(trick.parts, opened, strict=True):
            size = round(study.pretrain.train_batch_size * part.batch)
            shard = DataShard()  # one micro-batch
            for batch in examples.batches(size, phase.key("order"), read // size, FOREVER, shard):
                if used() >= part.until:
                    break
                read += size
                yield [TensorBatch.of(piece) for piece in batch]

    trainer = make_trainer(
        objective, phase.optimizer, process, name="speedrun", last=FOREVER, seed=phase.key("dropout")
    )
    peak = study.pretrain.learning_rate
    trainer.schedule = lambda step: peak * max(0.0, trick.schedule(min(1.0, used())))
    total: dict[str, Tensor] = {}
    averaged = tokens = 0
    begun = time.process_time()
    for batch in transfer(batches(), device):
        trainer.train_step(batch)
        tokens += sum(part.workload.tokens for part in batch)
        if trick.average is not None and used() >= trick.average:
            averaged += 1
            for name, parameter in objective.named_parameters():
                total[name] = parameter.detach().double() + total.get(name, 0.0)
    if averaged:
        with torch.no_grad():
            for name, parameter in objective.named_parameters():
                parameter.copy_(total[name] / averaged)
    member = (study.pretrain.objective, study.model.architecture)
    figures = ValidationSet(PHASE, tokenizer, *member, opened[0].store, process).measure(objective)
    figures = {
        "steps": trainer.state.step,
        "tokens": tokens,
        "gap": figures["gap"],
        "accuracy": 100 * figures["mlm_accuracy"],
    }
    if blimp is not None:
        figures["blimp"] = 100 * score_blimp(objective, blimp, pairs)
    return figures


def score_blimp(objective: PretrainingObjective[Any], blimp: Path, pairs: int) -> float:
    """Return the mean accuracy on BLiMP of the objective's model, by the project's own scorer."""
    models = objective.saved_models()
    module, config, huggingface_class = models["generator" if "generator" in models else ""]
    with tempfile.TemporaryDirectory() as folder:
        weights = {name: tensor.detach() for name, tensor in module.state_dict().items()}
        save_model(Path(folder), weights, config, huggingface_class, VOCABULARY, "")
        model = open_masked_lm(Path(folder))
    model = replace(model, encoder=module.bert.eval(), head=module.cls["predictions"].eval())
    figures = judge_sentence_pairs(model, None, read_pair_set(blimp, 1, pairs), "BLiMP")
    return float(figures["BLiMP all"]["accuracy"])


def interval(differences: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Return mean and half width of the 95 % interval of each trick's paired differences.

    Runs of two or three seeds are too few for a variance of their own: it is pooled over the tricks.
    """
    values = [np.asarray(sample) for sample in differences]
    freedom = sum(len(sample) - 1 for sample in values)
    if freedom < 1:
        return [(float(sample.mean()), math.nan) for sample in values]
    variance = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in values) / freedom
    quantile = float(stats.t.ppf(0.975, freedom))
    return [(float(sample.mean()), quantile * math.sqrt(variance / len(sample))) for sample in values]


def table(runs: dict[str, dict[int, dict[str, Any]]]) -> str:
    """Return a Markdown table of all tricks that ran, the baseline first."""
    base = runs[BASELINE]
    names = [name for name in runs if name != BASELINE]
    measured = [figure for figure in ("gap", "accuracy", "blimp") if figure in next(iter(base.values()))]
    ends = {
        figure: interval(
            [[runs[name][seed][figure] - base[seed][figure] for seed in runs[name] if seed in base] for name in names]
        )
        for figure in measured
    }
    mean = {figure: np.mean([run[figure] for run in base.values()]) for figure in (*measured, "tokens")}
    lines = [
        f"| trick | what | tokens (M) | {' | '.join(measured)} |",
        f"| --- | --- | ---: |{' ---: |' * len(measured)}",
        f"| {BASELINE} | {TRICKS[BASELINE].about} | {mean['tokens'] / 1e6:.2f} | "
        + " | ".join(f"{mean[figure]:.3f}" for figure in measured)
        + " |",
    ]
    for number, name in enumerate(names):
        tokens = np.mean([run["tokens"] for run in runs[name].values()]) / 1e6
        cells = [f"{ends[figure][number][0]:+.3f} ± {ends[figure][number][1]:.3f}" for figure in measured]
        lines.append(f"| {name} | {ALL[name].about} | {tokens:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the tricks that have not run yet, seed by seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="CPU-minutes of each run (default 20; quick: 3)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="paired seeds (default 1 2 3)")
    parser.add_argument("--tricks", nargs="+", choices=list(TRICKS), default=list(TRICKS), help="default: all")
    parser.add_argument("--family", action="store_true", help="members of the family instead of tricks")
    parser.add_argument("--blimp", type=Path, help="folder of BLiMP's files (default: left out)")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of each of BLiMP's 67 sets (default 20)")
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "bfloat16", "auto"])
    parser.add_argument("--runs", type=Path, default=Path("logs/speedrun.jsonl"), help="a line a run; goes on there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs: dict[str, dict[int, dict[str, Any]]] = {BASELINE: {}}
    lines = arguments.runs.read_text().splitlines() if arguments.runs.exists() else []
    for row in map(json.loads, lines):
        if row["minutes"] == arguments.minutes:
            runs.setdefault(row["trick"], {})[row["seed"]] = row
    arguments.runs.parent.mkdir(parents=True, exist_ok=True)
    for seed in arguments.seeds:
        for name in dict.fromkeys([BASELINE, *(FAMILY if arguments.family else arguments.tricks)]):
            if seed in runs.setdefault(name, {}):
                continue
            figures = run_once(
                ALL[name], seed, 60 * arguments.minutes, arguments.blimp, arguments.pairs, arguments.precision
            )
            runs[name][seed] = {"minutes": arguments.minutes, "trick": name, "seed": seed} | figures
            with open(arguments.runs, "a") as file:
                file.write(json.dumps(runs[name][seed]) + "\n")
            print(json.dumps(runs[name][seed]), flush=True)
    print(table({name: done for name, done in runs.items() if done}))


if __name__ == "__main__":
    main()
