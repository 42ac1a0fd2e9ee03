"""Published minimal pairs: is the right one of two sentences the likelier as a whole (BLiMP, Warstadt et al. 2020)?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.common.errors import PipelineError
from pipeline_src.interpretation.probes import interval, intervals, rounded
from pipeline_src.interpretation.scoring import pseudo_log_likelihoods
from pipeline_src.interpretation.senses import words_of
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence, cut_words
from pipeline_src.tasks.files.reading import json_lines

A_PARADIGM = 30  # pairs judged of the thousand of each paradigm; every token of both sentences is hidden in turn
GOOD, BAD, PHENOMENON, PARADIGM = "sentence_good", "sentence_bad", "linguistics_term", "UID"
ALL = "all"


@dataclass(frozen=True)
class SentencePair:
    """Two sentences, and the phenomenon and the set (paradigm) that they belong to."""

    good: Sentence
    bad: Sentence
    phenomenon: str
    paradigm: str


def read_pair_set(folder: Path, seed: int) -> list[SentencePair]:
    """Some pairs of each paradigm, in files of BLiMP's layout: a JSON object a line.

    Raises:
        PipelineError: there is no such file, or a line is not like that.
    """
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise PipelineError("no minimal pairs here", folder, remedy="run the stage download_tasks, which fetches them")
    by_paradigm: dict[str, list[SentencePair]] = {}
    for path in files:
        for number, row in json_lines(path, (GOOD, BAD, PHENOMENON, PARADIGM), False, Counter()):
            for column in (GOOD, BAD, PHENOMENON, PARADIGM):
                if column not in row:
                    remedy = f"give each line {GOOD}, {BAD}, {PHENOMENON} and {PARADIGM}"
                    raise PipelineError("a pair lacks a value", column, where=f"{path}:{number}", remedy=remedy)
            good, bad = (Sentence(words_of(row[column]), f"{path.stem}:{number}") for column in (GOOD, BAD))
            pair = SentencePair(good, bad, row[PHENOMENON], row[PARADIGM])
            by_paradigm.setdefault(pair.paradigm, []).append(pair)
    return [
        pairs[place]
        for name, pairs in by_paradigm.items()
        for place in sorted(_drawn(len(pairs), derive_seed(seed, "pairs of a paradigm", name)))
    ]


def _drawn(size: int, stream: int) -> list[int]:
    """Places of the pairs that are judged."""
    found: list[int] = permuted(stream, np.arange(min(size, A_PARADIGM)), size).tolist()
    return found


def judge_pair_set(
    model: StudiedModel, control: StudiedModel, pairs: Sequence[SentencePair], title: str, seed: int
) -> dict[str, Any]:
    """For each phenomenon, and for all, how often the right sentence has the higher pseudo-log-likelihood.

    Pairs of which a sentence does not fit, or of which the tokenizer makes the same tokens, are left out and counted.
    """
    goods, bads = [pair.good for pair in pairs], [pair.bad for pair in pairs]
    cut = [cut_words(model, side) for side in (goods, bads)]
    kept = [
        number
        for number, (good, bad) in enumerate(zip(cut[0].ids, cut[1].ids, strict=True))
        if good != bad and 0 < min(len(good), len(bad)) and max(len(good), len(bad)) < model.room
    ]
    rights = np.stack([_right(each, [pairs[number] for number in kept]) for each in (model, control)])
    phenomena = np.array([pairs[number].phenomenon for number in kept])
    names = np.array([pairs[number].good.document for number in kept])
    every = Counter(pair.phenomenon for pair in pairs)
    found = {}
    for name in [ALL, *sorted(every)]:
        chosen = np.ones(len(kept), bool) if name == ALL else phenomena == name
        if not chosen.any():
            continue
        ours, theirs = rights[:, chosen]
        total = len(pairs) if name == ALL else every[name]
        found[f"{title} {name}"] = {
            "title": f"{title}: {name.replace('_', ' ')}",
            "pairs": int(chosen.sum()),
            "left_out": total - int(chosen.sum()),
            "accuracy": rounded(ours.mean()),
            "balanced": rounded(ours.mean()),
            "between": intervals(ours[None], names[chosen], seed)[0],
            "singular": None,
            "plural": None,
            "random": rounded(theirs.mean()),
            "commoner": None,
            "gain": interval(ours, theirs, names[chosen], seed),
        }
    return found


def _right(model: StudiedModel, pairs: Sequence[SentencePair]) -> np.ndarray:
    """1 for each pair whose right sentence is the likelier, a half where both are equally likely, [pairs]."""
    good, bad = (
        np.array([sum(tokens) for tokens in pseudo_log_likelihoods(model, side)])
        for side in ([pair.good for pair in pairs], [pair.bad for pair in pairs])
    )
    found: np.ndarray = (np.sign(good - bad) + 1) / 2
    return found
