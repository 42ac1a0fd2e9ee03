"""What becomes of a text when a model of masked words is asked to go on writing it.

Four ways to fill several masks (Wang and Cho 2019 for the last): all at once; from left to right; the surest first;
Gibbs sampling, place by place again and again. None is a language model's: their joint distribution is not one that
the model was trained for, as the authors of the last one say themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed, uniform
from pipeline_src.interpretation.probes import rounded
from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.params.interpretation import MASK

SWEEPS = 25  # of Gibbs sampling over all masks
TOP = 20  # tokens that it draws from
RIGHT = (1, 2, 4, 8, 16)  # masks from the judged token on
SHOWN = 3  # likeliest tokens at a mask
TEXTS = 200  # of validation text, in which tokens are judged
Frames = list[list[int]]  # the tokens at the masks after each step


def complete(model: StudiedModel, prompt: Sequence[int], masks: int, how: str, seed: int) -> Frames:
    """Fill ``masks`` masks after a prompt given as ids, by one of :data:`WAYS`; the tokens after each step."""
    end = [token for token in (model.tokenizer.token_to_id("."),) if token is not None]
    before, room = list(prompt), model.room - masks - len(end)
    return WAYS[how](model, before[-room:], end, masks, seed)


def _scores(model: StudiedModel, before: list[int], inner: list[int], end: list[int]) -> Tensor:
    """Log-probabilities at the inner places [masks, entries]; a special token is none to write."""
    places = list(range(len(before), len(before) + len(inner)))
    (scores,) = model.log_probabilities([[*before, *inner, *end]], [places])
    special = {mark for run in model.frame.marks for mark in run} | {
        model.kind.id_of(model.tokenizer, token) for token in (model.kind.pad, model.kind.unk, model.kind.mask)
    }
    scores[:, sorted(special)] = -torch.inf
    return scores


def _at_once(model: StudiedModel, before: list[int], end: list[int], masks: int, seed: int) -> Frames:
    return [_scores(model, before, [model.mask] * masks, end).argmax(-1).tolist()]


def _left_to_right(model: StudiedModel, before: list[int], end: list[int], masks: int, seed: int) -> Frames:
    frames = [[model.mask] * masks]
    for place in range(masks):
        inner = list(frames[-1])
        inner[place] = int(_scores(model, before, inner, end)[place].argmax())
        frames.append(inner)
    return frames[1:]


def _surest_first(model: StudiedModel, before: list[int], end: list[int], masks: int, seed: int) -> Frames:
    frames = [[model.mask] * masks]
    while model.mask in frames[-1]:
        inner = list(frames[-1])
        best = _scores(model, before, inner, end).max(-1)
        open_places = [place for place in range(masks) if inner[place] == model.mask]
        place = max(open_places, key=lambda place: float(best.values[place]))
        inner[place] = int(best.indices[place])
        frames.append(inner)
    return frames[1:]


def _gibbs(model: StudiedModel, before: list[int], end: list[int], masks: int, seed: int) -> Frames:
    draws = uniform(derive_seed(seed, "gibbs", tuple(before)), np.arange(SWEEPS)[:, None], np.arange(masks)[None])
    inner, frames = [model.mask] * masks, []
    for sweep in draws:
        for place, drawn in enumerate(sweep.tolist()):
            inner[place] = model.mask
            likely = _scores(model, before, inner, end)[place].topk(TOP)
            inner[place] = int(likely.indices[_place_of(drawn, likely.values.softmax(-1))])
        frames.append(list(inner))
    return frames


def _place_of(drawn: float, shares: Tensor) -> int:
    return min(int(torch.searchsorted(shares.double().cumsum(0), drawn)), len(shares) - 1)


WAYS: dict[str, Callable[[StudiedModel, list[int], list[int], int, int], Frames]] = {
    "at once": _at_once,
    "left to right": _left_to_right,
    "surest first": _surest_first,
    "gibbs": _gibbs,
}


def completions(model: StudiedModel, prompts: Sequence[str], masks: int, seed: int) -> list[dict[str, Any]]:
    """Each prompt completed in each way: the text after each step, and which share of its tokens stood there before.

    Raises:
        Skipped: the model fills no masks.
    """
    if model.lacks:
        raise Skipped(model.lacks)
    rows = []
    for prompt in prompts:
        ways = {}
        for how in WAYS:
            frames = complete(model, model.ids(prompt), masks, how, seed)
            ways[how] = {
                "texts": [model.tokenizer.decode([t for t in frame if t != model.mask]) for frame in frames],
                "repeated": rounded(1 - len(set(frames[-1])) / masks),
            }
        rows.append({"prompt": prompt, "ways": ways})
    return rows


def filled(model: StudiedModel, masks: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """What the model puts at the one [MASK] of each text, and which rank it gives to the word looked for there.

    Args:
        model: fills masks.
        masks: texts, each with its word.

    Returns:
        For each text ``text``, ``answer``, ``rank``, 1 for the likeliest token, None where the word is no single token,
        and ``likeliest``: the first tokens, each with its probability.

    Raises:
        Skipped: the model fills no masks.
    """
    if model.lacks:
        raise Skipped(model.lacks)
    rows, unknown = [], model.kind.id_of(model.tokenizer, model.kind.unk)
    for text, answer in masks:
        before, after = map(model.ids, text.split(MASK))
        (scores,) = model.log_probabilities([[*before, model.mask, *after][: model.room]], [[len(before)]])
        token, likely = model.ids(f" {answer}"), scores[0].topk(SHOWN)  # in a sentence a space stands before it
        whole = len(token) == 1 and token[0] != unknown
        rows.append({
            "text": text,
            "answer": answer,
            "rank": 1 + int((scores[0] > scores[0, token[0]]).sum()) if whole else None,
            "likeliest": [
                [model.tokenizer.id_to_token(token), rounded(share)]
                for token, share in zip(likely.indices.tolist(), likely.values.exp().tolist(), strict=True)
            ],
        })  # fmt: skip
    return rows


def loss_by_masks(model: StudiedModel, texts: Sequence[Sequence[int]], counts: np.ndarray, seed: int) -> dict[str, Any]:
    """The loss (nats) of one token as more of what follows it is hidden, with the text behind it and without.

    Args:
        model: fills masks.
        texts: as ids; those too short for the most masks and a few tokens on either side are passed over.
        counts: how often each entry stands in training text, int64 [entries]: the loss by these is ``unigram``.
        seed: which token of a text is judged is a function of it.

    Raises:
        Skipped: the model fills no masks, or no text is long enough.
    """
    if model.lacks:
        raise Skipped(model.lacks)
    most = max(RIGHT)
    long = [list(text) for text in texts if len(text) >= most + 8][:TEXTS]
    if not long:
        raise Skipped("no sentence of the validation text is long enough")
    room = np.array([len(text) - most - 7 for text in long])
    drawn = uniform(derive_seed(seed, "judged token"), np.arange(len(long)), 0)
    places = (4 + drawn * room).astype(int).tolist()
    stop = model.tokenizer.token_to_id(".")
    figures: dict[str, Any] = {"texts": len(long), "masks": list(RIGHT), "kept": [], "cut": []}
    for masks in RIGHT:
        for key in ("kept", "cut"):
            hidden = [
                [*text[:place], *[model.mask] * masks, *(text[place + masks :] if key == "kept" else [stop])]
                for text, place in zip(long, places, strict=True)
            ]
            found = model.log_probabilities(hidden, [[place] for place in places])
            losses = [-float(scores[0, text[place]]) for scores, text, place in zip(found, long, places, strict=True)]
            figures[key].append(rounded(float(np.mean(losses))))
    shares = np.log((counts + 1) / (counts + 1).sum())
    figures["unigram"] = rounded(
        -float(np.mean([shares[text[place]] for text, place in zip(long, places, strict=True)]))
    )
    return figures
