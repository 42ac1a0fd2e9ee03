"""Minimal pairs: how often the model prefers the grammatical sentence (Goldberg 2019; BLiMP, Warstadt et al. 2020)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.base.counter_rng import derive_seed, permuted
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.interpret.bootstrap import interval, intervals, mean, rounded
from pipeline_src.interpret.model import ProbedModel, Sentence, SkipMeasure, pseudo_log_likelihoods, tokenize_words
from pipeline_src.tasks.tables import NAMED_FORMATS, READERS

TEMPLATES = Path(__file__).with_name("minimal_pairs.yaml")
# Keys of BLiMP's JSON Lines files.
GOOD = "sentence_good"
BAD = "sentence_bad"
PHENOMENON = "linguistics_term"
PARADIGM = "UID"
# Marks the word with two forms in a template.
CHOICE = "{choice}"
# Name of the results over all phenomena.
ALL = "all"


@dataclass(frozen=True)
class WordPair:
    """A sentence in which one form of a word is grammatical and another form is not.

    Attributes:
        text: the sentence, with ``{choice}`` in place of the word that has the two forms.
        good, bad: the grammatical and the ungrammatical form.
        plural: whether the grammatical form is plural.
        cluster: key of the pairs that the bootstrap resamples together.
    """

    text: str
    good: str
    bad: str
    plural: bool
    cluster: str

    @cached_property
    def position(self) -> int:
        # The index of the word that has the two forms.
        before, _, _ = self.text.partition(CHOICE)
        return len(Sentence.of_text(before, self.cluster).words)

    def with_form(self, form: str) -> Sentence:
        return Sentence.of_text(self.text.replace(CHOICE, form), self.cluster)


@dataclass(frozen=True)
class SentencePair:
    good: str
    bad: str
    phenomenon: str
    paradigm: str


def template_pairs() -> dict[str, tuple[str, list[WordPair]]]:
    content = parse_yaml(TEMPLATES.read_text(encoding="utf-8"))
    people = content["nouns"][: content["people"]]
    sets = {}
    for name, pair_set in content["sets"].items():
        nouns = people if pair_set.get("people") else content["nouns"]
        pairs = []
        # Combine every template, such as "The {noun} near the {other} {choice} not here.", with every choice, such as
        # (is, are), and every noun, such as (man, men).
        for template, forms, number in product(pair_set["templates"], pair_set["choices"], range(len(nouns))):
            noun = nouns[number]
            next_noun = nouns[(number + 1) % len(nouns)]
            for plural in (0, 1):
                # The other noun has the opposite number: "The man near the women is not here."
                text = template.replace("{noun}", noun[plural]).replace("{other}", next_noun[1 - plural])
                pair = WordPair(
                    text=text,
                    good=forms[plural],
                    bad=forms[1 - plural],
                    plural=bool(plural),
                    cluster=noun[0],
                )
                pairs.append(pair)
        sets[name] = (pair_set["title"], pairs)
    return sets


def judge_word_pairs(
    model: ProbedModel, control: ProbedModel, pairs: Sequence[WordPair], title: str, seed: int
) -> dict[str, Any]:
    """Compute how often the grammatical form is more probable at the masked position.

    A pair is left out if a form is not exactly one known token, or lies beyond the model's maximum length.

    Returns:
        A dictionary in which ``left_out`` is the number of left-out pairs, ``balanced`` the accuracy with equal weights
        for singular and plural, ``between`` its interval, and ``random`` the balanced accuracy of random weights.
        ``gain`` is the interval of ``balanced`` minus ``random``. ``commoner`` is the accuracy of always choosing the
        number (singular or plural) that is correct more often.
    """
    good = tokenize_words(model, [pair.with_form(pair.good) for pair in pairs])
    bad = tokenize_words(model, [pair.with_form(pair.bad) for pair in pairs])
    judged: list[WordPair] = []
    # For each judged pair: its tokens with a mask, the position of the mask, and the token ids of the two forms.
    masked: list[list[int]] = []
    positions: list[list[int]] = []
    forms: list[tuple[int, int]] = []
    for number, pair in enumerate(pairs):
        # Token positions of the two forms; empty if the sentence was truncated before the form.
        at = [index for index, word in enumerate(good.words[number]) if word == pair.position]
        at_bad = [index for index, word in enumerate(bad.words[number]) if word == pair.position]
        if at != at_bad or len(at) != 1:
            continue
        (position,) = at
        good_token = good.ids[number][position]
        bad_token = bad.ids[number][position]
        if model.unknown in (good_token, bad_token):
            continue
        ids = list(good.ids[number])
        ids[position] = model.mask
        judged.append(pair)
        masked.append(ids)
        positions.append(at)
        forms.append((good_token, bad_token))
    if not judged:
        raise SkipMeasure("no pair has two forms that are single tokens of the vocabulary")

    def preferences(probed: ProbedModel) -> np.ndarray:
        values = []
        for log_probs, (good, bad) in zip(probed.log_probabilities(masked, positions), forms, strict=True):
            values.append(preference(float(log_probs[0, good]), float(log_probs[0, bad])))
        return np.array(values)

    correct = preferences(model)
    plural = np.array([pair.plural for pair in judged])
    weights = np.ones(len(plural))
    if 0 < plural.sum() < len(plural):
        # Give singular and plural equal total weight.
        weights = np.where(plural, 0.5 / plural.mean(), 0.5 / (1 - plural.mean()))
    balanced = correct * weights
    balanced_control = preferences(control) * weights
    clusters = [pair.cluster for pair in judged]
    return {
        "title": title,
        "pairs": len(judged),
        "left_out": len(pairs) - len(judged),
        "accuracy": rounded(correct.mean()),
        "balanced": rounded(balanced.mean()),
        "singular": mean(correct[~plural]),
        "plural": mean(correct[plural]),
        "random": rounded(balanced_control.mean()),
        "commoner": rounded(max(plural.mean(), 1 - plural.mean())),
        "between": intervals(balanced[None], clusters, seed)[0],
        "gain": interval(balanced, balanced_control, clusters, seed),
    }


def preference(good: float, bad: float) -> float:
    return float(np.sign(good - bad) + 1) / 2


def read_pair_set(folder: Path, seed: int, pairs_per_set: int | None = None) -> list[SentencePair]:
    """Read a random sample of pairs from files with BLiMP's columns: JSON Lines or Parquet.

    Args:
        pairs_per_set: maximum number of pairs of each paradigm; None for all pairs.
    """
    files = []
    for path in sorted(folder.glob("*")):
        if path.suffix in NAMED_FORMATS:
            files.append(path)
    if not files:
        raise PipelineError("minimal pairs not found", folder, hint="run the stage download_tasks, which fetches them")
    columns = (GOOD, BAD, PHENOMENON, PARADIGM)
    by_paradigm: dict[str, list[SentencePair]] = {}
    for path in files:
        read = READERS[path.suffix]
        for number, row in read(path, columns, True, Counter()):
            missing = [column for column in columns if column not in row]
            if missing:
                hint = f"give each line {GOOD}, {BAD}, {PHENOMENON} and {PARADIGM}"
                raise PipelineError("a minimal pair lacks a key", missing[0], where=f"{path}:{number}", hint=hint)
            pair = SentencePair(row[GOOD], row[BAD], row[PHENOMENON], row[PARADIGM])
            by_paradigm.setdefault(pair.paradigm, []).append(pair)
    sampled = []
    for paradigm, pairs in by_paradigm.items():
        # The sample is the start of a permutation that depends only on the seed and the paradigm.
        stream = derive_seed(seed, "pairs of a paradigm", paradigm)
        size = min(len(pairs), pairs_per_set or len(pairs))
        numbers = permuted(stream, np.arange(size), len(pairs))
        sampled += [pairs[number] for number in sorted(numbers.tolist())]
    return sampled


def judge_sentence_pairs(
    model: ProbedModel, control: ProbedModel | None, pairs: Sequence[SentencePair], title: str
) -> dict[str, Any]:
    """Compute how often the grammatical sentence has the higher pseudo-log-likelihood, in total and by phenomenon.

    As in published results, one token is masked at a time (Salazar et al. 2020). A pair is left out if a sentence is
    empty or exceeds the model's maximum length, or if both sentences have the same tokens. Intervals are normal
    approximations over pairs. ``random`` and ``gain`` are None if ``control`` is None.
    """
    good: list[list[int]] = []
    bad: list[list[int]] = []
    phenomenon_of_pair: list[str] = []
    good_encodings = model.tokenizer.encode_batch([pair.good for pair in pairs], add_special_tokens=False)
    bad_encodings = model.tokenizer.encode_batch([pair.bad for pair in pairs], add_special_tokens=False)
    for pair, good_encoding, bad_encoding in zip(pairs, good_encodings, bad_encodings, strict=True):
        lengths = len(good_encoding.ids), len(bad_encoding.ids)
        if min(lengths) > 0 and max(lengths) <= model.max_tokens and good_encoding.ids != bad_encoding.ids:
            good.append(good_encoding.ids)
            bad.append(bad_encoding.ids)
            phenomenon_of_pair.append(pair.phenomenon)
    correct = _preferences(model, good, bad)
    control_correct = None if control is None else _preferences(control, good, bad)
    phenomena = np.array(phenomenon_of_pair)
    totals = Counter(pair.phenomenon for pair in pairs)
    totals[ALL] = len(pairs)
    figures = {}
    for name in [ALL, *sorted(totals.keys() - {ALL})]:
        selected = np.ones(len(phenomena), bool) if name == ALL else phenomena == name
        if not selected.any():
            continue
        values = correct[selected]
        accuracy = rounded(values.mean())
        random = gain = None
        if control_correct is not None:
            random = rounded(control_correct[selected].mean())
            gain = _normal_interval(values - control_correct[selected])
        figures[f"{title} {name}"] = {
            "title": f"{title}: {name.replace('_', ' ')}",
            "pairs": len(values),
            "left_out": totals[name] - len(values),
            "accuracy": accuracy,
            "balanced": accuracy,
            "between": _normal_interval(values),
            "singular": None,
            "plural": None,
            "random": random,
            "commoner": None,
            "gain": gain,
        }
    return figures


def _normal_interval(values: np.ndarray) -> list[float]:
    half = 1.96 * values.std() / len(values) ** 0.5
    return [rounded(values.mean() - half), rounded(values.mean() + half)]


def _preferences(model: ProbedModel, good: list[list[int]], bad: list[list[int]]) -> np.ndarray:
    # All sentences are scored in one call, so that sentences of equal length share batches.
    scores = [log_probs.sum() for log_probs in pseudo_log_likelihoods(model, [*good, *bad])]
    pairs = zip(scores[: len(good)], scores[len(good) :], strict=True)
    return np.array([preference(of_good, of_bad) for of_good, of_bad in pairs])
