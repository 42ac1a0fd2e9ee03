"""Minimal pairs: how often the model prefers the grammatical sentence (Goldberg 2019; BLiMP, Warstadt et al. 2020)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.progress import Progress
from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.interpretation.bootstrap import interval, intervals, rounded
from pipeline_src.interpretation.data import words_of
from pipeline_src.interpretation.model import Sentence, StudiedModel, tokenize_words
from pipeline_src.models.attention import QueryRows
from pipeline_src.tasks.readers import json_lines

TEMPLATES = Path(__file__).with_name("minimal_pairs.yaml")
GOOD, BAD, PHENOMENON, PARADIGM = "sentence_good", "sentence_bad", "linguistics_term", "UID"
ALL = "all"


@dataclass(frozen=True)
class WordPair:
    """A sentence in which one word has a grammatical and an ungrammatical form.

    Attributes:
        words: words of the grammatical sentence.
        position: position of the word with two forms.
        good, bad: its grammatical and its ungrammatical form.
        plural: whether the grammatical form is a plural.
        cluster: label of pairs that are resampled together.
    """

    words: tuple[str, ...]
    position: int
    good: str
    bad: str
    plural: bool
    cluster: str


@dataclass(frozen=True)
class SentencePair:
    """Two sentences with the phenomenon and the paradigm they belong to."""

    good: str
    bad: str
    phenomenon: str
    paradigm: str


def template_pairs() -> dict[str, tuple[str, list[WordPair]]]:
    """Return the title and the pairs of each set of ``minimal_pairs.yaml``."""
    content = parse_yaml(TEMPLATES.read_text(encoding="utf-8"))
    found = {}
    for name, each in content["sets"].items():
        nouns = content["nouns"][: content["people"]] if each.get("people") else content["nouns"]
        pairs = []
        for template in each["templates"]:
            for forms in each["choices"]:
                for number, noun in enumerate(nouns):
                    other = nouns[(number + 1) % len(nouns)]
                    for plural in (0, 1):
                        text = template.replace("{noun}", noun[plural]).replace("{other}", other[1 - plural])
                        words = words_of(text.replace("{choice}", "CHOICE"))
                        at = words.index("CHOICE")
                        good, bad = forms[plural], forms[1 - plural]
                        words = (*words[:at], good, *words[at + 1 :])
                        pairs.append(WordPair(words, at, good, bad, bool(plural), noun[0]))
        found[name] = (each["title"], pairs)
    return found


def judge(model: StudiedModel, control: StudiedModel, pairs: Sequence[WordPair], seed: int) -> dict[str, Any] | None:
    """Compute how often the grammatical form is more likely at the masked position, also with random weights.

    Pairs are left out and counted if a form is not exactly one known token, or is truncated. ``between`` is the
    interval of ``balanced``; ``commoner`` the accuracy of always choosing the number that is correct more often, a half
    if none is left out. Returns None if no pair is left.
    """
    good, bad = (
        tokenize_words(model, [_with_form(pair, form) for pair, form in zip(pairs, forms, strict=True)])
        for forms in ([pair.good for pair in pairs], [pair.bad for pair in pairs])
    )
    masked, positions, tokens, kept = [], [], [], []
    for number, pair in enumerate(pairs):
        at, at_bad = ([t for t, word in enumerate(each.words[number]) if word == pair.position] for each in (good, bad))
        if at != at_bad or len(at) != 1:
            continue
        ids, forms = good.ids[number], (good.ids[number][at[0]], bad.ids[number][at[0]])
        if model.unknown not in forms:
            masked.append([*ids[: at[0]], model.mask, *ids[at[0] + 1 :]])
            positions.append(at)
            tokens.append(forms)
            kept.append(pair)
    if not kept:
        return None
    ours, theirs = (
        np.array(
            [
                preference(float(log_probs[0, good]), float(log_probs[0, bad]))
                for log_probs, (good, bad) in zip(each.log_probabilities(masked, positions), tokens, strict=True)
            ]
        )
        for each in (model, control)
    )
    plural = np.array([pair.plural for pair in kept])
    weights = np.ones(len(plural))
    if 0 < plural.sum() < len(plural):
        weights = np.where(plural, 0.5 / plural.mean(), 0.5 / (1 - plural.mean()))
    clusters = [pair.cluster for pair in kept]
    return {
        "pairs": len(kept),
        "left_out": len(pairs) - len(kept),
        "accuracy": rounded(ours.mean()),
        "balanced": rounded((ours * weights).mean()),
        "singular": rounded(ours[~plural].mean()) if not plural.all() else None,
        "plural": rounded(ours[plural].mean()) if plural.any() else None,
        "random": rounded((theirs * weights).mean()),
        "commoner": rounded(max(plural.mean(), 1 - plural.mean())),
        "between": intervals((ours * weights)[None], clusters, seed)[0],
        "gain": interval(ours * weights, theirs * weights, clusters, seed),
    }


def _with_form(pair: WordPair, form: str) -> Sentence:
    return Sentence((*pair.words[: pair.position], form, *pair.words[pair.position + 1 :]), pair.cluster)


def preference(good: float, bad: float) -> float:
    """Return 1 if the good score is higher, 0.5 for a tie, else 0."""
    return float(np.sign(good - bad) + 1) / 2


def read_pair_set(folder: Path, seed: int, pairs_per_set: int | None = None) -> list[SentencePair]:
    """Read the pairs of each paradigm from files in BLiMP's format, JSON Lines.

    Args:
        folder: of the files.
        seed: keys the sample.
        pairs_per_set: most pairs of a paradigm, sampled without replacement; None takes all.
    """
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


def judge_pair_set(
    model: StudiedModel, control: StudiedModel | None, pairs: Sequence[SentencePair], title: str
) -> dict[str, Any]:
    """Compute how often the grammatical sentence has the higher pseudo-log-likelihood, by phenomenon and in all.

    Each token is masked alone, the way published figures of masked models on BLiMP count (Salazar et al. 2020). Pairs
    are left out and counted if a sentence is longer than the model's input or both have the same tokens. Intervals are
    95 % of the normal approximation, over pairs. Without ``control``, ``random`` and ``gain`` are None.
    """
    good, bad = (
        [each.ids for each in model.tokenizer.encode_batch(side, add_special_tokens=False)]
        for side in ([pair.good for pair in pairs], [pair.bad for pair in pairs])
    )
    kept = [
        number
        for number, (one, other) in enumerate(zip(good, bad, strict=True))
        if one != other and 0 < min(len(one), len(other)) and max(len(one), len(other)) <= model.max_tokens
    ]
    sides = [good[number] for number in kept], [bad[number] for number in kept]
    correct = _preferences(model, *sides)
    by_chance = None if control is None else _preferences(control, *sides)
    phenomena = np.array([pairs[number].phenomenon for number in kept])
    totals = Counter(pair.phenomenon for pair in pairs)
    found = {}
    for name in [ALL, *sorted(totals)]:
        chosen = np.ones(len(kept), bool) if name == ALL else phenomena == name
        if not chosen.any():
            continue
        ours = correct[chosen]
        theirs = None if by_chance is None else by_chance[chosen]
        total = len(pairs) if name == ALL else totals[name]
        found[f"{title} {name}"] = {
            "title": f"{title}: {name.replace('_', ' ')}",
            "pairs": len(ours),
            "left_out": total - len(ours),
            "accuracy": rounded(ours.mean()),
            "balanced": rounded(ours.mean()),
            "between": _normal_interval(ours),
            "singular": None,
            "plural": None,
            "random": None if theirs is None else rounded(theirs.mean()),
            "commoner": None,
            "gain": None if theirs is None else _normal_interval(ours - theirs),
        }
    return found


def _normal_interval(values: np.ndarray) -> list[float]:
    half = 1.96 * values.std() / len(values) ** 0.5
    return [rounded(values.mean() - half), rounded(values.mean() + half)]


def _preferences(model: StudiedModel, good: list[list[int]], bad: list[list[int]]) -> np.ndarray:
    scores = masked_likelihoods(model, [*good, *bad])
    return np.array([preference(*both) for both in zip(scores[: len(good)], scores[len(good) :], strict=True)])


@torch.inference_mode()
def masked_likelihoods(model: StudiedModel, texts: Sequence[Sequence[int]]) -> np.ndarray:
    """Return for each text the sum of its tokens' log-probabilities (nats), each masked alone, float64 [N].

    Texts of one length are evaluated together: text i of L tokens is L sequences, of which one place each is read.
    """
    assert model.head is not None, "check `lacks` first"
    by_length: dict[int, list[int]] = {}
    for number, text in enumerate(texts):
        by_length.setdefault(len(text), []).append(number)
    scores = np.zeros(len(texts))
    with Progress("masking each token", sum(map(len, texts)), "tokens") as progress:
        for length, numbers in sorted(by_length.items()):
            at_once = max(1, model.batch_tokens // (length * (length + model.template.size)))
            for first in range(0, len(numbers), at_once):
                some = numbers[first : first + at_once]
                tokens = np.array([texts[number] for number in some])  # [n, L]
                masked = np.where(np.eye(length, dtype=bool), model.mask, tokens[:, None])  # [n, L, L]
                ids, token_type_ids, layout = model.pack(masked.reshape(-1, length))
                places = layout.first + model.num_leading + torch.arange(length, device=model.device).repeat(len(some))
                rows = QueryRows.of(places, torch.arange(len(places) + 1, device=model.device), 1)
                logits = model.head(model.encoder.decode(ids, token_type_ids, layout, rows))
                log_probs = logits[:, : model.tokenizer.get_vocab_size()].log_softmax(-1)
                found = log_probs.gather(1, torch.from_numpy(tokens.reshape(-1, 1)).to(model.device))
                scores[some] = found.view(tokens.shape).double().sum(1).cpu().numpy()
                progress.advance(tokens.size)
    return scores
