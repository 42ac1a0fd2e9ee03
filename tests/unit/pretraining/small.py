"""A corpus of a few pages in which every sentence is easy to predict, and short trainings on it."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from pipeline_src.common.files import write_json
from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.heads import BertForMaskedLM
from pipeline_src.models.hub import save_model
from pipeline_src.params.examples import ExamplesParams, Lengths
from pipeline_src.params.machine import Machine, PretrainingMachine
from pipeline_src.params.model import ModelParams
from pipeline_src.params.objectives import ObjectivesParams
from pipeline_src.params.pretrain import Masking, PretrainParams, Steps
from pipeline_src.pretraining import pretrain
from pipeline_src.pretraining.monitor import Monitor
from pipeline_src.tokenizer.token_store import TokenWriter
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer

WAYS: dict[str, dict] = {  # of learning, as changes of the parameters
    "masked": {},
    "sentence_order": {},
    "left_to_right": {"objective": "left_to_right"},
    "both_directions": {"objective": "both_directions", "architecture": "bilstm"},
    "distilled": {"objective": "distilled", "teacher": "teacher"},
    "layers": {"objective": "layers", "teacher": "teacher", "heads": 1},
    "replaced": {"objective": "replaced", "architecture": "electra", "embedding": 16},
    "disentangled": {
        **{"objective": "replaced", "architecture": "electra", "embedding": 16},
        "objectives": {"replaced": {"embeddings": "disentangled"}},
    },
    "all_tokens": {
        **{"objective": "replaced", "architecture": "electra", "embedding": 16},
        "objectives": {"replaced": {"learns": "words", "weight": 1.0}},
    },
}
PAIRS = {"sentence_order": "sentence_order", "left_to_right": "none", "both_directions": "none"}  # else next_sentence
EXAMPLES = ExamplesParams(lengths=Lengths(short=16, long=32), duplicates=4)


def make_study(folder: Path) -> None:
    """Token shards of a tiny corpus in which every sentence is a run of consecutive ids, and plans of its pairs."""
    rng = np.random.default_rng(0)
    tokens, vocabulary = folder / "data" / "tokens", folder / "data" / "vocabulary"
    tokens.mkdir(parents=True), vocabulary.mkdir()
    words = [f"{a}{b}{c}" for a in "bdfgk" for b in "aei" for c in "lmn"]
    pieces, splits = [*SPECIAL_TOKENS, *words], {}
    for split, count in (("train", 30), ("validation", 6)):
        writer = TokenWriter(tokens, split, len(pieces))
        cu_seqlens = rng.integers(5, 40, 12 * count)
        writer.add((cu_seqlens[:, None] + np.arange(6)).ravel(), np.full(12 * count, 6), np.full(count, 12))
        splits[split] = writer.close()
    write_json(tokens / "manifest.json", {"splits": splits, "marks": {"single": 2, "pair": 3}})
    save_tokenizer(vocabulary, pieces, lowercase=True)


def make_teacher(folder: Path, **changes) -> BertForMaskedLM:
    """A shaken model of two layers, saved in ``folder / "teacher"`` with the study's vocabulary."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 256}
    model = BertForMaskedLM(BertConfig(50, **sizes | changes, max_position_embeddings=32))
    initialise(model, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    (folder / "teacher").mkdir(exist_ok=True)
    save_model(folder / "teacher", model, model.bert.config, "BertForMaskedLM", folder / "data/vocabulary")
    return model


def train_phase(phase: str, seed: int = 1, mask_prob: float = 0.15, short: int = 60, **changes) -> None:
    """Train one phase.

    ``changes`` are of PretrainParams, Masking, ModelParams, PretrainingMachine, or ``objectives``, ``attention`` or
    ``precision``.
    """
    objectives = changes.pop("objectives", {})
    shared = {name: changes.pop(name) for name in ("attention", "precision") if name in changes}
    machine = {name: changes.pop(name) for name in list(changes) if name in PretrainingMachine.model_fields}
    masking = {name: changes.pop(name) for name in list(changes) if name in Masking.model_fields}
    sizes = {name: changes.pop(name) for name in list(changes) if name in ModelParams.model_fields}
    params = {
        "steps": Steps(short=short, long=10),
        "batch": 16,
        "learning_rate": 3e-3,
        "warmup": 5,
        "masking": Masking(**masking),
        "curve_points": 100,
    }
    pretrain.run(
        seed=seed,
        mask_prob=mask_prob,
        model=ModelParams(**{"layers": 1, "hidden": 64, "positions": 32} | sizes),
        pretrain=PretrainParams(**params | changes),
        objectives=ObjectivesParams(**objectives),
        phase=phase,
        machine=Machine(**shared, pretrain=PretrainingMachine(**{"threads": 1} | machine)),
    )


def train_short() -> None:
    """A program: train the first phase in the working directory, with the changes given as JSON.

    With ``stop_after`` it asks itself to stop before that step ends; with ``sleep_after`` it hangs after one.
    """
    changes = json.loads(sys.argv[1])
    stop, sleep = changes.pop("stop_after", 0), changes.pop("sleep_after", 0)
    after = Monitor.after

    def disturbed(self: Monitor, step: int, stopping: bool) -> None:
        after(self, step, stopping)
        if step == stop - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if step == sleep:
            time.sleep(600)

    Monitor.after = disturbed  # type: ignore[method-assign]
    train_phase("short", **changes)
