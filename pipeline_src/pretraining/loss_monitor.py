"""Is my loss normal? Compare a training with measured runs, and name the likely cause of a high loss.

``reference_runs.tsv`` holds gaps: nats by which the loss at [MASK] is below a unigram's (``docs/lab/normal-loss.md``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipeline_src.common.progress import log
from pipeline_src.examples.token_store import TokenStore
from pipeline_src.pretraining.phases import Phase
from pipeline_src.pretraining.validation import ValidationSet
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.training.trainer import Callback, Trainer

REFERENCE_RUNS = Path(__file__).with_name("reference_runs.tsv")
RECIPE = ["architecture", "optimizer", "position_init"]  # runs of the same recipe are preferred
MAX_RATIOS = {"num_hidden_layers": 3.0, "hidden_size": 1.7, "vocab_size": 3.0, "mask_prob": 2.5}  # of comparable runs
BAND = 0.3  # nats around the comparable runs: seeds differ by 0.1, texts by more
STAGES = {  # smallest gap -> stage of learning
    0.5: "beyond the plateau of counting words",
    0.1: "leaving the plateau of counting words",
    -0.3: "on the plateau of counting words",
    -math.inf: "it does not know yet how frequent words are",
}
MAX_SENTENCES, MIN_SENTENCE_TOKENS = 200_000, 8  # sentences compared, and the least length to be compared
MAX_REPEATED, MAX_UNKNOWN = 0.2, 0.02  # shares of sentences and of tokens; the sample corpus has 0.0008 and 0
VISIBLE_LOSS_RATIO, MAX_EPOCHS = 0.6, 5.0  # training / validation loss; epochs after which text may be known by heart
MIN_STEPS, NUM_ROWS = 50, 3  # steps before a loss is judged; rows of the curve whose mean is compared
MIN_PROGRESS = 0.25  # share of the way from the first loss to the unigram loss; any useful learning rate goes further


class CorpusFacts(NamedTuple):
    """A corpus's number of tokens, share of [UNK], and share of long sentences that repeat an earlier sentence."""

    tokens: int
    unknown: float
    repeated: float

    @classmethod
    def of(cls, store: TokenStore, counts: np.ndarray, unknown_id: int | None) -> CorpusFacts:
        """Read a corpus; ``counts``: each id's frequency. In a large corpus, evenly spaced sentences are compared."""
        step = 1 + len(store.sentences) // MAX_SENTENCES
        starts, ends = store.sentences[:-1:step], store.sentences[1::step]
        long = ends - starts >= MIN_SENTENCE_TOKENS
        sentences = [store.ids[start:end].tobytes() for start, end in zip(starts[long], ends[long], strict=True)]
        unknown = 0.0 if unknown_id is None else float(counts[unknown_id] / max(1, counts.sum()))
        return cls(len(store.ids), unknown, 1 - len(set(sentences)) / len(sentences) if sentences else 0.0)


class Run(NamedTuple):
    """A training, from its start to an evaluation."""

    settings: Mapping[str, Any]  # column of the reference runs -> this run's value
    tokens: float  # positions read: steps x sequences in a batch x length of a full sequence
    metrics: Mapping[str, float]  # of the validation set, with ``gap``
    step: int = 0
    warmup_steps: int = 0
    losses: Sequence[float] = ()  # MLM losses of the training curve
    corpus: CorpusFacts | None = None
    continued: bool = False  # from a pretrained model


class LossMonitor(Callback):
    """Logs after each validation how the loss compares with measured runs; ``status`` is the last comparison."""

    status: dict[str, str | None] | None = None  # None without a loss at [MASK], and except on the main process

    def __init__(self, phase: Phase, settings: Mapping[str, Any], validation: ValidationSet) -> None:
        super().__init__([phase.pretrain.eval_steps], before=phase.last)
        self._phase, self._settings, self._validation = phase, settings, validation

    @cached_property
    def _corpus(self) -> CorpusFacts:
        store, tokenizer, counts = self._validation.store, self._validation.tokenizer, self._validation.train_counts
        return CorpusFacts.of(store, counts, tokenizer.token_to_id(kind_of(tokenizer).unk))

    def after_step(self, trainer: Trainer[Any]) -> None:
        if not math.isfinite(trainer.metrics.get("gap", math.nan)) or not trainer.distributed.is_main:
            return
        params, step = self._phase.pretrain, trainer.state.step
        losses = [point["mlm_loss"] for point in trainer.state.curve if "mlm_loss" in point]
        run = Run(
            self._settings,
            self._phase.tokens(step),
            trainer.metrics,
            step=step,
            warmup_steps=params.warmup_steps,
            losses=losses,
            corpus=self._corpus,
            continued=params.continued,
        )
        self.status = check_loss(run, pd.read_csv(REFERENCE_RUNS, sep="\t"))
        say = log.warning if self.status["cause"] else log.info
        say("is this normal? %s", self.status["sentence"])


def check_loss(run: Run, reference_runs: pd.DataFrame) -> dict[str, str | None]:
    """Return ``status`` (behind, normal, ahead; None: no run is comparable), ``cause``, and both in a ``sentence``."""
    gap, status, (cause, reason) = run.metrics["gap"], None, find_cause(run)
    stage = next(text for smallest, text in STAGES.items() if gap >= smallest)
    side = "below" if gap >= 0 else "above"
    sentence = f"{abs(gap):.2f} nats {side} the unigram baseline after {run.tokens / 1e6:.2f} M tokens: {stage}, "
    expected = [] if run.continued else expected_gaps(run.settings, run.tokens, reference_runs)
    if expected:
        low, high = min(expected), max(expected)
        status = "behind" if gap < low - BAND else "ahead" if gap > high + BAND else "normal"
        distance = f"within {BAND} nats of" if status == "normal" else f"more than {BAND} nats from"
        sentence += f"{status}, {distance} comparable trainings ({low:.2f} to {high:.2f})"
    else:
        sentence += "it went on from another model" if run.continued else "no comparable training was measured"
    if cause is not None:
        sentence += f". Likely cause: {cause}, since {reason}"
    elif status == "behind":
        sentence += ". None of the known causes was found"
    return {"status": status, "cause": cause, "sentence": sentence}


def expected_gaps(settings: Mapping[str, Any], tokens: float, runs: pd.DataFrame) -> list[float]:
    """Return the gaps (see the module's docstring) of comparable runs after ``tokens`` tokens.

    Only runs with the same ``RECIPE`` count; if there are none, all comparable runs do.
    """
    comparable = runs["fault"].isna() & (runs["objective"] == settings["objective"])
    for name, limit in MAX_RATIOS.items():
        comparable &= (runs[name] / settings[name]).between(1 / limit, limit)
    same_recipe = (runs[RECIPE] == [settings[name] for name in RECIPE]).all(axis=1)
    for candidates in (runs[comparable & same_recipe], runs[comparable]):
        gaps = []
        for _, run in candidates.sort_values("tokens_m").groupby("curve"):
            measured = 1e6 * run["tokens_m"].to_numpy()
            # beyond a run's end, its last gap is used; it is too small, so no training is wrongly called behind
            if 0.9 * measured[0] <= tokens <= 1.5 * measured[-1]:
                gaps.append(float(np.interp(math.log(tokens), np.log(measured), run["gap"])))
        if gaps:
            return gaps
    return []


def find_cause(run: Run) -> tuple[str | None, str]:
    """Return the first likely cause of a small gap, and the evidence for it; None and '' if no cause was found."""
    corpus, gap, validation_loss = run.corpus, run.metrics["gap"], run.metrics.get("mlm_loss", math.nan)
    if corpus and corpus.unknown >= MAX_UNKNOWN:
        return "[UNK] in the text", f"{100 * corpus.unknown:.0f} % of the training tokens are [UNK]"
    if corpus and corpus.repeated >= MAX_REPEATED:
        return "repeated text", f"{100 * corpus.repeated:.0f} % of the training sentences are equal to an earlier one"
    if run.step < max(run.warmup_steps, MIN_STEPS) or len(run.losses) < 2 * NUM_ROWS:
        return None, ""
    first, last = np.mean(run.losses[:NUM_ROWS]), np.mean(run.losses[-NUM_ROWS:])
    may_know_text = corpus is not None and run.tokens > MAX_EPOCHS * corpus.tokens  # by heart
    if gap < max(STAGES) and last <= VISIBLE_LOSS_RATIO * validation_loss and not may_know_text:
        losses = f"the training loss is {last:.2f} and that of the validation set {validation_loss:.2f}"
        return "masks that show the words", f"{losses} (see pretrain.masking)"
    if gap < -BAND and first - last <= MIN_PROGRESS * (first - run.metrics["unigram_loss"]):
        return "learning rate near zero", f"the training loss fell from {first:.2f} to {last:.2f} only"
    return None, ""
