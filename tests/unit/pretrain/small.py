"""A small corpus of predictable sentences, and functions that train on it briefly."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline_src.base.files import write_json
from pipeline_src.examples.token_store import TokenWriter
from pipeline_src.model.bert import BertConfig, BertForMaskedLM, initialise
from pipeline_src.model.hub import save_model
from pipeline_src.pretrain import pretrain
from pipeline_src.pretrain.data import PretrainingBatch, TensorBatch
from pipeline_src.pretrain.phases import Phase
from pipeline_src.study.data import ExamplesParams, Lengths
from pipeline_src.study.machine import Machine, PretrainingMachine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import Masking, ObjectivesParams, PretrainParams, Steps
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer
from pipeline_src.training.distributed import init_distributed
from pipeline_src.training.stop import catch_stop_requests
from pipeline_src.training.trainer import Callback, Trainer

WAYS: dict[str, dict] = {  # of learning, as changes of the parameters
    "mlm": {},
    "sop": {},
    "clm": {"objective": "clm"},
    "bilm": {"objective": "bilm", "architecture": "bilstm"},
    "distilbert": {"objective": "distilbert", "teacher": "teacher"},
    "tinybert": {"objective": "tinybert", "teacher": "teacher", "num_attention_heads": 1},
    "electra": {"objective": "electra", "architecture": "electra", "embedding_size": 16},
    "disentangled": {
        **{"objective": "electra", "architecture": "electra", "embedding_size": 16},
        "objectives": {"electra": {"embeddings": "disentangled"}},
    },
    "all_tokens": {
        **{"objective": "electra", "architecture": "electra", "embedding_size": 16},
        "objectives": {"electra": {"disc_target": "mlm", "disc_weight": 1.0}},
    },
}
PAIRS = {"sop": "sop", "clm": "none", "bilm": "none"}  # else next_sentence
EXAMPLES = ExamplesParams(max_seq_length=Lengths(phase1=16, phase2=32), dupe_factor=4)


def make_study(folder: Path) -> None:
    """Write token shards of a tiny corpus in which every sentence is a run of consecutive ids, and its examples."""
    rng = np.random.default_rng(0)
    tokens, vocabulary = folder / "data" / "tokens", folder / "data" / "vocabulary"
    tokens.mkdir(parents=True)
    vocabulary.mkdir()
    words = [f"{a}{b}{c}" for a in "bdfgk" for b in "aei" for c in "lmn"]
    pieces, splits = [*SPECIAL_TOKENS, *words], {}
    for split, count in (("train", 30), ("validation", 6)):
        writer = TokenWriter(tokens, split, len(pieces))
        cu_seqlens = rng.integers(5, 40, 12 * count)
        writer.add((cu_seqlens[:, None] + np.arange(6)).ravel(), np.full(12 * count, 6), np.full(count, 12))
        splits[split] = writer.close()
    write_json(tokens / "manifest.json", {"splits": splits, "marks": {"single": 2, "pair": 3}})
    save_tokenizer(vocabulary, pieces, lowercase=True)


def build_teacher(folder: Path, **changes: Any) -> BertForMaskedLM:
    """Save a teacher with two layers and random weights in ``folder / "teacher"``."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 256}
    model = BertForMaskedLM(BertConfig(50, **sizes | changes, max_position_embeddings=32))
    initialise(model, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    (folder / "teacher").mkdir(exist_ok=True)
    save_model(folder / "teacher", model, model.bert.config, "BertForMaskedLM", folder / "data/vocabulary")
    return model


class AfterStep(Callback):
    """Callback that calls a function with the number of steps after every step."""

    def __init__(self, call: Callable[[int], None]) -> None:
        super().__init__(every=[1])
        self.call = call

    def after_step(self, trainer: Trainer[Any]) -> None:
        self.call(trainer.state.step)


def train_phase(
    phase: str,
    seed: int = 1,
    mask_prob: float = 0.15,
    phase1: int = 60,
    after_step: Callable[[int], None] | None = None,
    **changes: Any,
) -> None:
    """Train one phase.

    ``changes`` are of PretrainParams, Masking, ModelParams, PretrainingMachine, or ``objectives``, ``attention`` or
    ``precision``. ``after_step`` is called with the number of steps taken.
    """
    objectives = changes.pop("objectives", {})
    shared = {name: changes.pop(name) for name in ("attention", "precision") if name in changes}
    machine = {name: changes.pop(name) for name in list(changes) if name in PretrainingMachine.model_fields}
    masking = {name: changes.pop(name) for name in list(changes) if name in Masking.model_fields}
    sizes = {name: changes.pop(name) for name in list(changes) if name in ModelParams.model_fields}
    params: dict[str, Any] = {
        "steps": Steps(phase1=phase1, phase2=10),
        "train_batch_size": 16,
        "learning_rate": 3e-3,
        "warmup_steps": 5,
        "masking": Masking(**masking),
        "log_points": 100,
    }
    blocks: dict[str, Any] = {
        "seed": seed,
        "mask_prob": mask_prob,
        "model": ModelParams(**{"num_hidden_layers": 1, "hidden_size": 64, "max_position_embeddings": 32} | sizes),
        "pretrain": PretrainParams(**params | changes),
        "objectives": ObjectivesParams(**objectives),
        "machine": Machine(**shared, pretrain=PretrainingMachine(**{"threads": 1} | machine)),
    }
    if after_step is None:
        pretrain.run(phase=phase, **blocks)
        return
    torch.set_num_threads(1)
    with catch_stop_requests() as stop_request, init_distributed(shared.get("precision", "auto")) as distributed:
        training = pretrain.PhaseTraining(Phase(phase, **blocks), distributed, stop_request)
        training.trainer.callbacks.append(AfterStep(after_step))
        training.run()


def train_short() -> None:
    """A program: train the first phase in the working directory, with the changes given as JSON.

    With ``stop_after`` it asks itself to stop before that step ends; with ``sleep_after`` it hangs after one.
    """
    changes = json.loads(sys.argv[1])
    stop, sleep = changes.pop("stop_after", 0), changes.pop("sleep_after", 0)

    def disturb(step: int) -> None:
        if step == stop - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if step == sleep:
            time.sleep(600)

    train_phase("phase1", after_step=disturb, **changes)


def two_pairs(**arrays: Sequence[int] | np.ndarray) -> TensorBatch:
    """Return a batch of two sentence pairs of 6 and 5 tokens, three of them predicted.

    ``arrays`` replace its arrays.
    """
    shared = {
        "segments": [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1],
        "cu_seqlens": [0, 6, 11],
        "labels": [20, 21, 22],
        "pair_label": [0, 1],
        "examples": [5, 3],
    }
    return TensorBatch.of(PretrainingBatch(**{name: np.array(values) for name, values in (shared | arrays).items()}))
