"""Masked words of validation text whose guesses are written down again and again while a model learns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from pipeline_src.pretraining.loading.batches import PretrainingBatch, PretrainingExamples
from pipeline_src.tokenizer.frame import read_frames
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.objective import PretrainingObjective
from pipeline_src.training.sharding import give_back

SHOWN = 3  # texts
SEARCHED = 512  # examples
COMMON = 300  # tokens: words of grammar, and what a text is full of
LETTERS = 4  # of a word that carries content, at least
JOINERS = frozenset("'’-‐‑")  # what stands beside them is part of a word: I've, well-known
AROUND = 10  # tokens of text shown on either side
TOP = 3
PROBABILITY_DIGITS = 4


class MaskProbes:
    """Masked words of a phase's validation examples that a person can judge: a frequent, a middling and a rare one.

    By rule, not by what the model makes of them: of words that carry content (of four letters or more, not among the
    ``COMMON`` most frequent tokens there), in the order of their frequency, the middle one of each third. Such a word
    is whole, of letters alone and hidden by [MASK], and no other token is predicted in the text shown around it; each
    lies in an example of its own, which the model sees whole. Left to right nothing is masked, and nothing is shown.

    Args:
        examples: of the validation split.
        tokenizer: their vocabulary.
    """

    def __init__(self, examples: PretrainingExamples, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.kind = tokenizer, kind_of(tokenizer)
        self.marks = read_frames(tokenizer).marks
        found: list[tuple[PretrainingBatch, int, int, dict[str, str]]] = []
        times: Counter[int] = Counter()
        for example in range(min(SEARCHED, len(examples))):
            batch = examples.batch(np.array([example]))
            labels = batch.labels.tolist()
            times.update(batch.ids.tolist())
            times.update(labels)
            for position, label in zip(batch.predicted.tolist(), labels, strict=True):
                text = self._text(batch, position, label)
                if text:
                    about = {"text": text, "answer": self._word(label)}
                    found.append((batch, position, label, about))
        common = {token for token, _ in times.most_common(COMMON)}
        content = [probe for probe in found if probe[2] not in common and len(probe[3]["answer"]) >= LETTERS] or found
        content.sort(key=lambda probe: -times[probe[2]])  # equals stay in the order of the examples
        self._probes = [(batch, position, about) for batch, position, _, about in _spread_out(content)]

    @torch.no_grad()  # not inference_mode: weights gathered in it could not be trained afterwards
    def ask(self, objective: PretrainingObjective[Any], step: int, distributed: Distributed) -> list[dict[str, Any]]:
        """What the objective's model puts there after ``step`` steps; it is left as it was. All processes must call it.

        Returns:
            For each text a block ``step``, ``text`` with a [MASK] in it, ``answer``, the word that stands there, and
            ``candidates``: for each [MASK] a list of pairs of a token and its probability, the likeliest first.
        """
        training, device = objective.training, distributed.device
        objective.eval()
        answers = []
        for batch, position, probe in self._probes:
            ids, segments, cu_seqlens = (
                torch.from_numpy(array).to(device) for array in (batch.ids, batch.segments, batch.cu_seqlens)
            )
            predicted = torch.tensor([position], device=device)
            with distributed.autocast():
                scores = objective.word_scores(ids, segments, cu_seqlens, predicted, batch.max_seqlen)  # [1, entries]
            likely = scores[0].float().softmax(-1).topk(TOP)
            candidates = [
                [self.tokenizer.id_to_token(token), round(probability, PROBABILITY_DIGITS)]
                for token, probability in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
            ]
            answers.append({"step": step, **probe, "candidates": [candidates]})
        objective.train(training)
        give_back(objective)
        return answers

    def _word(self, token: int) -> str:
        """A piece as it stands in its word."""
        return self.kind.spelt(str(self.tokenizer.id_to_token(token)))

    def _text(self, batch: PretrainingBatch, position: int, label: int) -> str | None:
        """The words around a predicted position, [MASK] standing there; None where a person could not judge it."""
        if batch.ids[position] != self.tokenizer.token_to_id(self.kind.mask):
            return None
        tokens = [str(self.tokenizer.id_to_token(token)) for token in batch.ids.tolist()]
        first, end = max(0, position - AROUND), min(len(tokens), position + AROUND + 1)
        ends = [i for i in range(first, end) if batch.ids[i] in self.marks]
        first = max([first, *(i + 1 for i in ends if i < position)])
        end = min([end, *(i for i in ends if i > position)])
        while self.kind.continues_word(tokens[first]):
            first += 1
        while end < len(tokens) and self.kind.continues_word(tokens[end]):
            end += 1
        others = any(first <= other < end for other in batch.predicted.tolist() if other != position)
        if others or not self._is_whole(tokens, position, label) or end - first <= AROUND:
            return None
        before, after = (
            self.tokenizer.decode(batch.ids[a:b].tolist()) for a, b in ((first, position), (position + 1, end))
        )
        return f"{before} {self.kind.mask} {after}".strip()

    def _is_whole(self, tokens: list[str], position: int, label: int) -> bool:
        """Whether the masked token is a word by itself."""
        word, before, after = self._word(label), tokens[position - 1], tokens[position + 1 : position + 2]
        inside = self.kind.continues_word(str(self.tokenizer.id_to_token(label)))
        inside = inside or any(map(self.kind.continues_word, after))
        joined = any(self.kind.spelt(token) in JOINERS for token in (before, *after))
        return word.isalpha() and not inside and not joined


def _spread_out(found: list[tuple[PretrainingBatch, int, int, dict[str, str]]]) -> Iterator[Any]:
    """The middle one of each of ``SHOWN`` equal parts, none of an example that was taken."""
    taken: set[int] = set()
    for part in range(SHOWN):
        first, end = part * len(found) // SHOWN, (part + 1) * len(found) // SHOWN
        middle = (first + end) // 2
        for probe in [*found[middle:end], *found[first:middle]]:
            if id(probe[0]) not in taken:
                taken.add(id(probe[0]))
                yield probe
                break
