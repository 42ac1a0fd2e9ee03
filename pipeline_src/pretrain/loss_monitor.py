"""Is my loss normal? Compare a training with measured runs after as many tokens (``docs/lab/normal-loss.md``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline_src.base.progress import log
from pipeline_src.pretrain.phases import Phase
from pipeline_src.training.trainer import Callback, Trainer

# Its gaps are the nats by which the loss at [MASK] is below a unigram's.
REFERENCE_RUNS = Path(__file__).with_name("reference_runs.tsv")
# Runs of the same recipe are preferred.
RECIPE = ["architecture", "optimizer", "position_init"]
# A comparable run differs by at most these factors.
MAX_RATIOS = {"num_hidden_layers": 3.0, "hidden_size": 1.7, "vocab_size": 3.0, "mask_prob": 2.5}
# Nats around the comparable runs that are still normal: seeds differ by 0.1, texts by more.
BAND = 0.3
# Smallest gap -> stage of learning.
STAGES = {
    0.5: "beyond the plateau of counting words",
    0.1: "leaving the plateau of counting words",
    -0.3: "on the plateau of counting words",
    -math.inf: "it does not know yet how frequent words are",
}


class LossMonitor(Callback):
    # The last comparison; None without a loss at [MASK], and except on the main process.
    status: dict[str, str | None] | None = None

    def __init__(self, phase: Phase, settings: Mapping[str, Any]) -> None:
        super().__init__([phase.pretrain.eval_steps], before=phase.last)
        self._phase = phase
        self._settings = settings

    def after_step(self, trainer: Trainer[Any]) -> None:
        gap = trainer.metrics.get("gap", math.nan)
        if not math.isfinite(gap) or not trainer.distributed.is_main:
            return
        tokens = self._phase.tokens(trainer.state.step)
        # A run that started from a pretrained model compares with none.
        continued = self._phase.pretrain.continued
        runs = pd.read_csv(REFERENCE_RUNS, sep="\t")
        self.status = check_loss(gap, tokens, self._settings, runs, continued)
        log.info("is this normal? %s", self.status["sentence"])


def check_loss(
    gap: float, tokens: float, settings: Mapping[str, Any], runs: pd.DataFrame, continued: bool = False
) -> dict[str, str | None]:
    stage = next(text for smallest, text in STAGES.items() if gap >= smallest)
    side = "below" if gap >= 0 else "above"
    sentence = f"{abs(gap):.2f} nats {side} the unigram baseline after {tokens / 1e6:.2f} M tokens: {stage}, "
    expected = [] if continued else expected_gaps(settings, tokens, runs)
    if not expected:
        reason = "it went on from another model" if continued else "no comparable training was measured"
        return {"status": None, "sentence": sentence + reason}
    low = min(expected)
    high = max(expected)
    status = "normal"
    distance = f"within {BAND} nats of"
    if not low - BAND <= gap <= high + BAND:
        status = "behind" if gap < low else "ahead"
        distance = f"more than {BAND} nats from"
    sentence += f"{status}, {distance} comparable trainings ({low:.2f} to {high:.2f})"
    return {"status": status, "sentence": sentence}


def expected_gaps(settings: Mapping[str, Any], tokens: float, runs: pd.DataFrame) -> list[float]:
    # Runs that are known to have gone wrong are not compared.
    comparable = runs["fault"].isna()
    comparable &= runs["objective"] == settings["objective"]
    for name, limit in MAX_RATIOS.items():
        comparable &= (runs[name] / settings[name]).between(1 / limit, limit)
    same_recipe: list[float] = []
    others: list[float] = []
    for _, run in runs[comparable].sort_values("tokens_m").groupby("curve"):
        measured = 1e6 * run["tokens_m"].to_numpy()
        first = measured[0]
        last = measured[-1]
        # Beyond a run's end, its last gap is used; it is too small, so no training is wrongly called behind.
        if tokens < 0.9 * first or tokens > 1.5 * last:
            continue
        gap = np.interp(math.log(tokens), np.log(measured), run["gap"])
        recipe = run.iloc[0]
        if all(recipe[name] == settings[name] for name in RECIPE):
            same_recipe.append(float(gap))
        else:
            others.append(float(gap))
    return same_recipe or others
