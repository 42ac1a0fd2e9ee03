"""The sides of benchmark ``finetune``: one epoch of a task, ours and by transformers' Trainer, on the same batches.

As a program, ``python -m benchmarks._finetune_sides SIDE CASE POOL STEPS`` trains in a process of its own and prints
what it took as a line of JSON. Both sides start from the same encoder, the same head and the same optimizer, and are
fed the same items in the same batches; ours lays them end to end, Trainer pads them to the longest of the batch.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import lzma

import numpy as np
from torch.utils.data import SequentialSampler

from benchmarks.material import MORE, minilm_folder
from benchmarks.measure import cpu_seconds
from pipeline_src.finetune import task_data
from pipeline_src.finetune.hyperparameter_grid import GridPoint
from pipeline_src.finetune.task_data import EvalSet
from pipeline_src.finetune.task_trainer import TaskTrainer, task_settings
from pipeline_src.model.hub import load_config, save_model
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.machine import Machine
from pipeline_src.study.task_spec import TaskSpec, load_spec
from pipeline_src.tasks.features import Features
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tokenizer.load import load_tokenizer

SQUAD_WINDOWS, SQUAD_JUDGED = 2_000, 300
RATE, BATCH = 1e-4, 32


@dataclass(frozen=True)
class Case:
    spec: TaskSpec
    training: Features
    eval_set: EvalSet


def mrpc() -> Case:
    """Load MRPC as published: 3,668 pairs for training and 408 for evaluation."""
    spec, folder = load_spec("mrpc"), MORE / "glue" / "MRPC"
    task, tokenizer = make_task(spec), load_tokenizer(minilm_folder())
    made = {}
    for file in ("train.tsv", "dev.tsv"):
        examples = task.read(folder / file)
        made[file] = EvalSet("mrpc", examples, task.features(examples, tokenizer, 128))
    return Case(spec, made["train.tsv"].features, made["dev.tsv"])


def squad() -> Case:
    """Load 2,000 windows of SQuAD 1.1's development questions, and evaluate on its last 300 questions."""
    spec = load_spec("squad1")
    task, tokenizer = make_task(spec), load_tokenizer(minilm_folder())
    unpacked = Path("data/benchmarks/squad-dev.json")
    if not unpacked.exists():
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        unpacked.write_bytes(lzma.decompress((MORE / "squad/dev-v1.1.rebuilt.json.xz").read_bytes()))
    examples = task.read(unpacked)
    features = task.features(examples[:SQUAD_WINDOWS], tokenizer, 384)
    cut = int(features.cu_seqlens[SQUAD_WINDOWS])
    tokens = {name: getattr(features, name)[:cut] for name in ("ids", "segments", "offsets", "may_start")}
    items = {name: getattr(features, name)[:SQUAD_WINDOWS] for name in ("labels", "example")}
    training = replace(features, cu_seqlens=features.cu_seqlens[: SQUAD_WINDOWS + 1], **tokens, **items)
    last = examples[-SQUAD_JUDGED:]
    return Case(spec, training, EvalSet("squad1", last, task.features(last, tokenizer, 384)))


CASES: dict[str, Callable[[], Case]] = {"mrpc": mrpc, "squad": squad}


def trainer_of(case: Case) -> TaskTrainer:
    recipe = TaskHyperparameters(learning_rates=(RATE,), epochs=(1,), batch_sizes=(BATCH,), max_length=384)
    encoder = minilm_folder()
    params = FinetuneParams()
    config = load_config(encoder)
    settings = task_settings(case.spec, recipe, params, config)
    return TaskTrainer(settings, recipe, params, config, encoder, case.training, 1, Machine())


def ours(case: Case) -> tuple[float, float, dict[str, float]]:
    # Returns CPU seconds and wall-clock seconds of one epoch, and the scores after it.
    trainer = trainer_of(case)
    busy, wall = cpu_seconds(), time.perf_counter()
    model, *_ = trainer.train("pretrained", GridPoint(RATE, 1, BATCH))
    busy, wall = cpu_seconds() - busy, time.perf_counter() - wall
    return busy, wall, score(case, trainer.predict(model, case.eval_set))


def peer_side(case: Case) -> tuple[float, float, dict[str, float]]:
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    ours_first = trainer_of(case)
    folder = Path("data/benchmarks/finetune") / case.spec.name
    folder.mkdir(parents=True, exist_ok=True)
    huggingface_class = ours_first.config.names.classes[ours_first.task.head]
    start = ours_first.pretrained()
    save_model(folder, start, ours_first.config, huggingface_class, minilm_folder())
    model = getattr(transformers, huggingface_class).from_pretrained(folder, attn_implementation="sdpa")
    order = np.concatenate(task_data.epoch_order(case.training, BATCH, 1, 0))

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *arguments: Any) -> SequentialSampler:
            return SequentialSampler(rows)

    rows = [row(case, int(item)) for item in order]
    peer = InOrder(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(folder / "trainer"),
            learning_rate=RATE,
            num_train_epochs=1,
            per_device_train_batch_size=BATCH,
            warmup_steps=round(0.1 * -(-len(rows) // BATCH)),
            weight_decay=0.01,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
        ),
        train_dataset=rows,
        data_collator=transformers.DataCollatorWithPadding(transformers.AutoTokenizer.from_pretrained(folder)),
    )
    busy, wall = cpu_seconds(), time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        peer.train()
    busy, wall = cpu_seconds() - busy, time.perf_counter() - wall
    # transformers' span model has no pooler, and this project's span head does not use its own.
    start.load_state_dict(model.state_dict(), strict=False)
    return busy, wall, score(case, ours_first.predict(start, case.eval_set))


def row(case: Case, item: int) -> dict[str, Any]:
    begin, end = (int(edge) for edge in case.training.cu_seqlens[item : item + 2])
    features: dict[str, Any] = {
        "input_ids": case.training.ids[begin:end].tolist(),
        "token_type_ids": case.training.segments[begin:end].tolist(),
    }
    label = case.training.labels[item]
    if label.ndim:
        features["start_positions"], features["end_positions"] = (int(index) for index in label)
    else:
        features["labels"] = int(label)
    return features


def score(case: Case, predictions: list[dict[str, Any]]) -> dict[str, float]:
    task = make_task(case.spec)
    scores = task.score(case.eval_set.name, case.eval_set.examples, predictions)
    return {metric: round(scores[metric], 2) for metric in case.spec.eval_set(None).metrics}


SIDES = {"ours": ours, "Trainer": peer_side}


def main(side: str, name: str, pool: str, items: str) -> None:
    # 0 means all items.
    task_data.POOL = int(pool)
    case = CASES[name]()
    if int(items):
        keep = int(items)
        cut = {field: getattr(case.training, field)[:keep] for field in ("labels", "example")}
        case = replace(case, training=replace(case.training, cu_seqlens=case.training.cu_seqlens[: keep + 1], **cut))
    busy, wall, scores = SIDES[side](case)
    count = case.training.items
    fill = mean_fill(case.training)
    print(json.dumps({"examples": count, "cpu_seconds": busy, "seconds": wall, "scores": scores, "fill": fill}))


def mean_fill(training: Features) -> float:
    # Returns the share of real tokens in the batches that Trainer pads.
    order = task_data.epoch_order(training, BATCH, 1, 0)
    padded = sum(len(items) * int(training.lengths[items].max()) for items in order)
    return round(int(training.lengths.sum()) / padded, 3)


if __name__ == "__main__":
    main(*sys.argv[1:])
