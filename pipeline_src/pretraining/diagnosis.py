"""Is my loss normal? Say where a training lies next to measured ones, and why if something is wrong with it.

``atlas.tsv`` holds the measured ones: nats below the unigram baseline at [MASK] by size, tokens, vocabulary and mask
rate, each row with its origin (``docs/lab/normal-loss.md`` explains it). Nothing here changes what is trained.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline_src.common.progress import log
from pipeline_src.common.registry import objective_spec
from pipeline_src.config.pretrain import Masking, PretrainParams
from pipeline_src.examples.token_store import TokenStore
from pipeline_src.pretraining.validation import ValidationSet
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.training.trainer import Callback, Trainer

ATLAS = Path(__file__).with_name("atlas.tsv")

# Where a training lies, in nats below the unigram baseline
COUNTING, LEFT = -0.3, 0.5  # it has learnt how frequent words are; it has learnt something of their context
LEAVING = 0.1
BAND = 0.3  # around the comparable curves: seeds differ by 0.1, texts by more
# Which curves of the atlas are comparable
SIZE_FACTOR, VOCABULARY_FACTOR, MASK_FACTOR = 3.0, 3.0, 2.5
EARLIER, LATER = 1.1, 1.5  # tokens before a curve's first measurement and after its last one, as factors

# Causes
SENTENCES_READ, LONG_SENTENCE = 200_000, 8  # sentences that are looked at, and the tokens of one that counts
REPEATED, UNKNOWN = 0.2, 0.02  # shares; the sample has 0.0008 and 0
ENTROPY = 1.5  # nats below the atlas at which so few words are used that lines must repeat
VISIBLE = 1 - Masking().mask_ratio  # share of the validation set's predicted tokens that the model sees
ROWS = 3  # rows of the curve whose mean is compared with others
FELL_TO = 0.6  # of the validation loss: training loss at which the labels must be visible
REREAD = 5.0  # times that the text is read, after which a low training loss may be text learnt by heart
RISES, SIGNIFICANT = 0.25, 4.0  # nats, and standard errors, by which a loss has risen
SECOND_DIFFERENCE = 1.652  # median of its size in normal noise, in standard deviations; a trend changes it little
GROWS = 1.6  # times its least value: norm of the gradient
STEPS_ENOUGH, PREDICTIONS_ENOUGH = 50, 1_000  # before them, losses are too few or too noisy to judge
FELL = 0.25  # of the way from the first loss to that of word counts, which any useful learning rate has gone by then
SEEN_ENOUGH = 0.05  # shares of the predicted tokens that are kept, and replaced, from which copying is learnt in time
COPIED = 0.08  # nats by which a model that copies some of the visible tokens predicts them better than masked ones
COUNTED = 0.25  # nats over the entropy of words: a training loss at which word counts are known


@dataclass(frozen=True)
class RunSettings:
    """What is trained, as far as the atlas tells trainings apart; names and values of params.yaml."""

    architecture: str
    objective: str
    optimizer: str
    position_init: str
    num_hidden_layers: int
    hidden_size: int
    vocab_size: int
    mask_prob: float


@dataclass(frozen=True)
class CorpusFacts:
    """The training text.

    Attributes:
        tokens: number of them.
        entropy: of its unigram distribution, in nats.
        unknown: share of [UNK].
        repeated: share of sentences of :data:`LONG_SENTENCE` tokens or more that are equal to an earlier one.
    """

    tokens: int
    entropy: float
    unknown: float
    repeated: float

    @classmethod
    def of(cls, store: TokenStore, counts: np.ndarray, unknown: int | None) -> CorpusFacts:
        """Read the facts of a corpus; of a large one, evenly spaced sentences are compared.

        Args:
            store: its tokens.
            counts: frequency of each id, int64 [vocab_size].
            unknown: id of [UNK]; None if the vocabulary has none.
        """
        total = max(1, int(counts.sum()))
        probabilities = counts[counts > 0] / total
        return cls(
            tokens=len(store.ids),
            entropy=float(-(probabilities * np.log(probabilities)).sum()),
            unknown=0.0 if unknown is None else float(counts[unknown] / total),
            repeated=repeated_share(store),
        )


def repeated_share(store: TokenStore) -> float:
    """Return the share of long sentences that are equal to an earlier one; 0 without long sentences."""
    count = len(store.sentences) - 1
    read = np.arange(count) if count <= SENTENCES_READ else np.arange(SENTENCES_READ) * count // SENTENCES_READ
    starts, ends = store.sentences[read], store.sentences[read + 1]
    long = ends - starts >= LONG_SENTENCE
    sentences = [store.ids[start:end].tobytes() for start, end in zip(starts[long], ends[long], strict=True)]
    return 1 - len(set(sentences)) / len(sentences) if sentences else 0.0


@dataclass(frozen=True)
class Run:
    """A training up to an evaluation.

    Attributes:
        settings: what is trained.
        tokens: positions read so far: steps x sequences of a batch x the length of a full one.
        step, warmup_steps: steps taken, and those in which the learning rate rises.
        metrics: of the validation set, see :func:`pipeline_src.pretraining.validation.masked_lm_metrics`.
        rows: the training curve so far; empty if it was not recorded.
        corpus: the training text; None if unknown.
        masking: how training masks.
        goes_on: it started from a pretrained model.
    """

    settings: RunSettings
    tokens: float
    metrics: Mapping[str, float]
    step: int = 0
    warmup_steps: int = 0
    rows: Sequence[Mapping[str, float]] = ()
    corpus: CorpusFacts | None = None
    masking: Masking = Masking()
    goes_on: bool = False

    @property
    def gap(self) -> float:
        """Nats below the unigram baseline at [MASK]."""
        return self.metrics["gap"]

    @property
    def settled(self) -> bool:
        """True after enough steps at the full learning rate, and with enough predicted tokens, to judge losses."""
        return (
            self.step >= max(self.warmup_steps, STEPS_ENOUGH)
            and self.metrics.get("predictions", 0) >= PREDICTIONS_ENOUGH
        )

    @property
    def copies(self) -> bool | None:
        """True if it predicts tokens that it sees better than masked ones, the first thing learnt of the context.

        Both are assumed to have the shares in the validation set with which they are sampled. None if nothing is
        masked, or if training does not keep some of these tokens and replace others, as the validation set does.
        """
        masked = objective_spec(self.settings.objective).corruption == "masked"
        if not masked or min(self.masking.keep_ratio, self.masking.random_ratio) < SEEN_ENOUGH:
            return None
        mask_loss = self.metrics.get("mask_loss", math.nan)
        visible_loss = (self.metrics.get("mlm_loss", math.nan) - (1 - VISIBLE) * mask_loss) / VISIBLE
        return not mask_loss - visible_loss < COPIED

    @property
    def waited(self) -> bool:
        """True if it has known word counts for half of its steps, so that more should follow."""
        entropy = self.metrics["unigram_loss"] if self.corpus is None else self.corpus.entropy
        counted = [row["step"] for row in self.rows if row.get("mlm_loss", math.inf) < entropy + COUNTED]
        return bool(counted) and self.step - counted[0] >= self.step / 2

    def train_losses(self) -> np.ndarray:
        """Return the MLM losses of the training curve, float64 [rows]."""
        return np.array([row["mlm_loss"] for row in self.rows if "mlm_loss" in row], np.float64)


@dataclass(frozen=True)
class Diagnosis:
    """Where a training lies.

    Attributes:
        place: ``before``, ``plateau``, ``leaving`` or ``beyond`` the plateau of counting words.
        pace: ``behind``, ``normal`` or ``ahead`` of comparable trainings; None without any.
        cause: key of :data:`CAUSES`; None if none was found.
        sentence: all of this, for people.
    """

    place: str
    pace: str | None
    cause: str | None
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_atlas(path: Path = ATLAS) -> pd.DataFrame:
    """Return the measured trainings, one row a measurement."""
    return pd.read_csv(path, sep="\t")


class LossMonitor(Callback):
    """Compares a training with measured ones after each validation, and logs the result.

    Args:
        settings: of the training.
        params: of the training.
        lengths: tokens of a full sequence in each phase.
        validation: the validation set, measured before.
        last: the last step, after which :meth:`diagnose` is called.
    """

    def __init__(
        self,
        settings: RunSettings,
        params: PretrainParams,
        lengths: Mapping[str, int],
        validation: ValidationSet,
        last: int,
    ) -> None:
        super().__init__([params.eval_steps], before=last)
        self._settings, self._params, self._lengths, self._validation = settings, params, lengths, validation
        self._atlas = read_atlas()

    @cached_property
    def _corpus(self) -> CorpusFacts:
        validation = self._validation
        tokenizer, counts = validation.tokenizer, validation.train_counts
        return CorpusFacts.of(validation.store, counts, tokenizer.token_to_id(kind_of(tokenizer).unk))

    def after_step(self, trainer: Trainer[Any]) -> None:
        self.diagnose(trainer)

    def diagnose(self, trainer: Trainer[Any]) -> Diagnosis | None:
        """Log and return how the loss compares, from ``trainer.metrics``; None if there is no loss at [MASK].

        Only the main process diagnoses.
        """
        if "gap" not in trainer.metrics or not trainer.distributed.is_main:
            return None
        params, step = self._params, trainer.state.step
        in_phase1 = min(step, params.steps.phase1)
        positions = in_phase1 * self._lengths["phase1"] + (step - in_phase1) * self._lengths["phase2"]
        run = Run(
            settings=self._settings,
            tokens=params.train_batch_size * positions,
            metrics=trainer.metrics,
            step=step,
            warmup_steps=params.warmup_steps,
            rows=trainer.state.curve,
            corpus=self._corpus,
            masking=params.masking,
            goes_on=params.goes_on,
        )
        diagnosis = diagnose(run, self._atlas)
        if diagnosis is not None:
            level = logging.WARNING if diagnosis.cause else logging.INFO
            log.log(level, "is this normal? %s", diagnosis.sentence)
        return diagnosis


def diagnose(run: Run, atlas: pd.DataFrame) -> Diagnosis | None:
    """Say where a training lies; None if its objective has no loss at [MASK].

    Args:
        run: the training.
        atlas: from :func:`read_atlas`.
    """
    if not math.isfinite(run.metrics.get("gap", math.nan)):
        return None
    place = place_of(run.gap)
    expected = None if run.goes_on else expected_gap(run.settings, run.tokens, atlas)
    pace = None
    if expected is not None:
        low, high = expected[0] - BAND, expected[1] + BAND
        pace = "behind" if run.gap < low else "ahead" if run.gap > high else "normal"
    found = {name: reason for name, find in CAUSES.items() if (reason := find(run, atlas))}
    cause = next(iter(found), None)
    parts = [f"{run.gap:.2f} nats below the unigram baseline after {run.tokens / 1e6:.2f} M tokens: {PLACES[place]}"]
    if expected is not None:
        parts.append(f"{pace} (comparable trainings: {_range(*expected)})")
    else:
        parts.append("it went on from another model" if run.goes_on else "no comparable training was measured")
    sentence = ", ".join(parts)
    if cause is not None:
        sentence += f". Likely cause: {cause}, since {found[cause]}"
    elif pace == "behind":
        sentence += ". None of the known causes was found"
    return Diagnosis(place, pace, cause, sentence)


PLACES = {
    "before": "it does not know yet how frequent words are",
    "plateau": "on the plateau of counting words",
    "leaving": "leaving the plateau of counting words",
    "beyond": "beyond the plateau of counting words",
}


def place_of(gap: float) -> str:
    """Return the key of :data:`PLACES` for a gap in nats."""
    return "before" if gap < COUNTING else "plateau" if gap < LEAVING else "leaving" if gap < LEFT else "beyond"


def expected_gap(settings: RunSettings, tokens: float, atlas: pd.DataFrame) -> tuple[float, float] | None:
    """Return the least and the largest gap of comparable trainings after as many tokens; None without any.

    Comparable are those of the same objective and a similar size, vocabulary and mask rate; if some of these have the
    same architecture, optimizer and initial positions, these alone.
    """
    near = (
        atlas["fault"].isna()
        & (atlas["objective"] == settings.objective)
        & _within(atlas["num_hidden_layers"] * atlas["hidden_size"] ** 2, _size(settings), SIZE_FACTOR)
        & _within(atlas["vocab_size"], settings.vocab_size, VOCABULARY_FACTOR)
        & _within(atlas["mask_prob"], settings.mask_prob, MASK_FACTOR)
    )
    same = near & (atlas[["architecture", "optimizer", "position_init"]] == _named(settings)).all(axis=1)
    for rows in (atlas[same], atlas[near]):
        gaps = [gap for _, curve in rows.groupby("curve") if (gap := _gap_at(curve, tokens)) is not None]
        if gaps:
            return min(gaps), max(gaps)
    return None


def _size(settings: RunSettings) -> int:
    return settings.num_hidden_layers * settings.hidden_size**2


def _named(settings: RunSettings) -> pd.Series:
    return pd.Series({name: getattr(settings, name) for name in ("architecture", "optimizer", "position_init")})


def _within(values: pd.Series, value: float, factor: float) -> pd.Series:
    return (values <= value * factor) & (values >= value / factor)


def _gap_at(curve: pd.DataFrame, tokens: float) -> float | None:
    """Return the gap of one training after ``tokens``, linear in their logarithm; None far from its measurements.

    After its last measurement the gap is taken to stay the same: too small, so that no training is wrongly called
    behind. Before its first measurement that would be too large.
    """
    curve = curve.sort_values("tokens_m")
    measured = curve["tokens_m"].to_numpy() * 1e6
    if not measured[0] / EARLIER <= tokens <= measured[-1] * LATER:
        return None
    return float(np.interp(math.log(tokens), np.log(measured), curve["gap"]))


def _range(low: float, high: float) -> str:
    return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"


def _unknown_words(run: Run, atlas: pd.DataFrame) -> str | None:
    if run.corpus is None or run.corpus.unknown < UNKNOWN:
        return None
    return f"{100 * run.corpus.unknown:.0f} % of the training tokens are [UNK]: train the vocabulary on this text"


def _repeated_text(run: Run, atlas: pd.DataFrame) -> str | None:
    if run.corpus is None:
        return None
    if run.corpus.repeated >= REPEATED:
        return f"{100 * run.corpus.repeated:.0f} % of the training sentences are equal to an earlier one"
    known = atlas[_within(atlas["vocab_size"], run.settings.vocab_size, 2)]["unigram_loss"]
    if run.corpus.entropy < known.min() - ENTROPY:
        return f"the words of the training text have an entropy of {run.corpus.entropy:.1f} nats, not {known.min():.1f}"
    return None


def _visible_labels(run: Run, atlas: pd.DataFrame) -> str | None:
    """A model that sees what it predicts knows nothing at [MASK]; one that has learnt its text by heart does."""
    losses = run.train_losses()
    if not len(losses) or run.gap >= LEFT or (run.corpus and run.tokens > REREAD * run.corpus.tokens):
        return None
    here, validation = losses[-ROWS:].mean(), run.metrics["mlm_loss"]
    if here > FELL_TO * validation:
        return None
    return (
        f"the training loss is {here:.2f} and that of the validation set, masked as in the paper, {validation:.2f}: "
        "training shows the words that it predicts (pretrain.masking)"
    )


def _rate_too_high(run: Run, atlas: pd.DataFrame) -> str | None:
    losses = run.train_losses()
    norms = np.array([row["grad_norm"] for row in run.rows if "grad_norm" in row], np.float64)
    if len(losses) < 2 * ROWS:
        return None
    means = np.convolve(losses, np.ones(ROWS) / ROWS, mode="valid")  # of neighbouring rows
    rise, noise = means[-1] - means.min(), np.median(np.abs(np.diff(losses, 2))) / SECOND_DIFFERENCE
    if rise > max(RISES, SIGNIFICANT * noise * math.sqrt(2 / ROWS)):
        return f"the training loss rose by {rise:.2f} nats after step {_lowest(run, means)}"
    if run.gap < LEAVING and run.copies is False and run.step >= STEPS_ENOUGH and len(norms) >= 2 * ROWS:
        smooth = np.convolve(norms, np.ones(ROWS) / ROWS, mode="valid")
        growth = smooth[-1] / smooth.min()
        if growth > GROWS:
            return f"the norm of the gradient grew to {growth:.1f} times its least value, and nothing is learnt"
    return None


def _lowest(run: Run, means: np.ndarray) -> int:
    return int([row["step"] for row in run.rows if "mlm_loss" in row][int(means.argmin()) + ROWS - 1])


def _rate_near_zero(run: Run, atlas: pd.DataFrame) -> str | None:
    losses = run.train_losses()
    if not run.settled or len(losses) < 2 * ROWS or run.gap >= COUNTING:
        return None
    first, last = losses[:ROWS].mean(), losses[-ROWS:].mean()
    if first - last > FELL * (first - run.metrics["unigram_loss"]):
        return None
    return f"the training loss fell from {first:.2f} to {last:.2f} only, in {run.step:,} steps and past the warm-up"


def _shuffled_labels(run: Run, atlas: pd.DataFrame) -> str | None:
    if not COUNTING <= run.gap < LEAVING or run.copies is not False or not (run.settled and run.waited):
        return None
    return "even where it sees the word to predict, it knows no more than how frequent words are"


CAUSES: dict[str, Callable[[Run, pd.DataFrame], str | None]] = {  # the first that is found is named
    "[UNK] in the text": _unknown_words,
    "repeated text": _repeated_text,
    "masks that show the words": _visible_labels,
    "learning rate too high": _rate_too_high,
    "learning rate near zero": _rate_near_zero,
    "labels that do not belong to their positions": _shuffled_labels,
}
