"""Minimal pairs: how often the model prefers the grammatical sentence (Goldberg 2019; BLiMP, Warstadt et al. 2020)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.interpretation.bootstrap import interval, intervals, rounded
from pipeline_src.interpretation.data import words_of
from pipeline_src.interpretation.model import ProbedModel, Sentence, SkipMeasure, pseudo_log_likelihoods, tokenize_words
from pipeline_src.tasks.readers import json_lines

TEMPLATES = Path(__file__).with_name("minimal_pairs.yaml")
GOOD, BAD, PHENOMENON, PARADIGM = "sentence_good", "sentence_bad", "linguistics_term", "UID"
ALL = "all"


@dataclass(frozen=True)
class WordPair:
    """A grammatical sentence, whose word ``good`` at ``position`` has a form ``bad`` that is ungrammatical there."""

    words: tuple[str, ...]
    position: int
    good: str
    bad: str
    plural: bool  # whether the grammatical form is plural
    cluster: str  # pairs of one cluster are resampled together


@dataclass(frozen=True)
class SentencePair:
    """A grammatical and an ungrammatical sentence, with their phenomenon and its subtype, the paradigm."""

    good: str
    bad: str
    phenomenon: str
    paradigm: str


def template_pairs() -> dict[str, tuple[str, list[WordPair]]]:
    """Return name -> (title, pairs) of each set in ``minimal_pairs.yaml``."""
    content = parse_yaml(TEMPLATES.read_text(encoding="utf-8"))
    sets = {}
    for name, pair_set in content["sets"].items():
        nouns = content["nouns"][: content["people"]] if pair_set.get("people") else content["nouns"]
        pairs = []
        for template in pair_set["templates"]:
            for forms in pair_set["choices"]:
                for number, noun in enumerate(nouns):
                    next_noun = nouns[(number + 1) % len(nouns)]
                    for plural in (0, 1):
                        text = template.replace("{noun}", noun[plural]).replace("{other}", next_noun[1 - plural])
                        words = words_of(text.replace("{choice}", "CHOICE"))
                        position = words.index("CHOICE")
                        good, bad = forms[plural], forms[1 - plural]
                        pair = WordPair(words, position, good, bad, bool(plural), noun[0])
                        pairs.append(replace(pair, words=_with_form(pair, good).words))
        sets[name] = (pair_set["title"], pairs)
    return sets


def judge_word_pairs(
    model: ProbedModel, control: ProbedModel, pairs: Sequence[WordPair], title: str, seed: int
) -> dict[str, Any]:
    """Compute how often the grammatical form is more likely at the masked position, also with random weights.

    A pair is left out and counted if a form is not exactly one known token, or is truncated. ``balanced`` counts
    singular and plural the same, and ``between`` is its interval. ``commoner`` is the accuracy if the form is always
    the one, singular or plural, that is correct more often.
    """
    good, bad = (
        tokenize_words(model, [_with_form(pair, form) for pair, form in zip(pairs, forms, strict=True)])
        for forms in ([pair.good for pair in pairs], [pair.bad for pair in pairs])
    )
    masked, positions, tokens, judged = [], [], [], []
    for number, pair in enumerate(pairs):
        at, at_bad = (
            [index for index, word in enumerate(side.words[number]) if word == pair.position] for side in (good, bad)
        )
        if at != at_bad or len(at) != 1:
            continue
        ids, forms = good.ids[number], (good.ids[number][at[0]], bad.ids[number][at[0]])
        if model.unknown not in forms:
            masked.append([*ids[: at[0]], model.mask, *ids[at[0] + 1 :]])
            positions.append(at)
            tokens.append(forms)
            judged.append(pair)
    if not judged:
        raise SkipMeasure("the vocabulary has no pair's two forms as one token each")
    correct, by_chance = (
        np.array(
            [
                preference(float(log_probs[0, good]), float(log_probs[0, bad]))
                for log_probs, (good, bad) in zip(probed.log_probabilities(masked, positions), tokens, strict=True)
            ]
        )
        for probed in (model, control)
    )
    plural = np.array([pair.plural for pair in judged])
    weights = np.ones(len(plural))
    if 0 < plural.sum() < len(plural):  # singular and plural count the same
        weights = np.where(plural, 0.5 / plural.mean(), 0.5 / (1 - plural.mean()))
    clusters = [pair.cluster for pair in judged]
    return {
        "title": title,
        "pairs": len(judged),
        "left_out": len(pairs) - len(judged),
        "accuracy": rounded(correct.mean()),
        "balanced": rounded((correct * weights).mean()),
        "singular": rounded(correct[~plural].mean()) if not plural.all() else None,
        "plural": rounded(correct[plural].mean()) if plural.any() else None,
        "random": rounded((by_chance * weights).mean()),
        "commoner": rounded(max(plural.mean(), 1 - plural.mean())),
        "between": intervals((correct * weights)[None], clusters, seed)[0],
        "gain": interval(correct * weights, by_chance * weights, clusters, seed),
    }


def _with_form(pair: WordPair, form: str) -> Sentence:
    return Sentence((*pair.words[: pair.position], form, *pair.words[pair.position + 1 :]), pair.cluster)


def preference(good: float, bad: float) -> float:
    """Return 1 if the score ``good`` is higher than ``bad``, 0.5 if they are equal, else 0."""
    return float(np.sign(good - bad) + 1) / 2


def read_pair_set(folder: Path, seed: int, pairs_per_set: int | None = None) -> list[SentencePair]:
    """Read up to ``pairs_per_set`` pairs of each paradigm (None: all) from JSON Lines in BLiMP's format."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise PipelineError("no minimal pairs here", folder, hint="run the stage download_tasks, which fetches them")
    by_paradigm: dict[str, list[SentencePair]] = {}
    for path in files:
        for number, row in json_lines(path, (GOOD, BAD, PHENOMENON, PARADIGM), False, Counter()):
            for column in (GOOD, BAD, PHENOMENON, PARADIGM):
                if column not in row:
                    hint = f"give each line {GOOD}, {BAD}, {PHENOMENON} and {PARADIGM}"
                    raise PipelineError("a pair lacks a value", column, where=f"{path}:{number}", hint=hint)
            pair = SentencePair(row[GOOD], row[BAD], row[PHENOMENON], row[PARADIGM])
            by_paradigm.setdefault(pair.paradigm, []).append(pair)
    sampled = []
    for name, pairs in by_paradigm.items():
        stream = derive_seed(seed, "pairs of a paradigm", name)
        numbers = permuted(stream, np.arange(min(len(pairs), pairs_per_set or len(pairs))), len(pairs))
        sampled += [pairs[number] for number in sorted(numbers.tolist())]
    return sampled


def judge_sentence_pairs(
    model: ProbedModel, control: ProbedModel | None, pairs: Sequence[SentencePair], title: str
) -> dict[str, Any]:
    """Compute how often the grammatical sentence has the higher pseudo-log-likelihood, for all pairs and by phenomenon.

    One token is masked at a time (Salazar et al. 2020), as in published figures. A pair is left out and counted if a
    sentence is empty or longer than the model's input, or if both have the same tokens. Intervals are normal
    approximations over pairs. If ``control`` is None, so are ``random`` and ``gain``.
    """
    good, bad = (
        [encoding.ids for encoding in model.tokenizer.encode_batch(side, add_special_tokens=False)]
        for side in ([pair.good for pair in pairs], [pair.bad for pair in pairs])
    )
    judged = [
        number
        for number, pair in enumerate(zip(good, bad, strict=True))
        if pair[0] != pair[1] and all(0 < len(ids) <= model.max_tokens for ids in pair)
    ]
    sides = [good[number] for number in judged], [bad[number] for number in judged]
    correct = _preferences(model, *sides)
    by_chance = None if control is None else _preferences(control, *sides)
    phenomena = np.array([pairs[number].phenomenon for number in judged])
    totals = Counter(pair.phenomenon for pair in pairs)
    figures = {}
    for name in [ALL, *sorted(totals)]:
        selected = np.ones(len(judged), bool) if name == ALL else phenomena == name
        if not selected.any():
            continue
        values = correct[selected]
        total = len(pairs) if name == ALL else totals[name]
        figures[f"{title} {name}"] = {
            "title": f"{title}: {name.replace('_', ' ')}",
            "pairs": len(values),
            "left_out": total - len(values),
            "accuracy": rounded(values.mean()),
            "balanced": rounded(values.mean()),
            "between": _normal_interval(values),
            "singular": None,
            "plural": None,
            "random": None if by_chance is None else rounded(by_chance[selected].mean()),
            "commoner": None,
            "gain": None if by_chance is None else _normal_interval(values - by_chance[selected]),
        }
    return figures


def _normal_interval(values: np.ndarray) -> list[float]:
    half = 1.96 * values.std() / len(values) ** 0.5
    return [rounded(values.mean() - half), rounded(values.mean() + half)]


def _preferences(model: ProbedModel, good: list[list[int]], bad: list[list[int]]) -> np.ndarray:
    scores = [log_probs.sum() for log_probs in pseudo_log_likelihoods(model, [*good, *bad])]
    return np.array([preference(*pair) for pair in zip(scores[: len(good)], scores[len(good) :], strict=True)])
