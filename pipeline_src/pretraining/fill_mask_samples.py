"""Masked words of the validation set, and what a model predicts for them as it learns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from pipeline_src.pretraining.data import PretrainingBatch, PretrainingExamples
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import read_templates
from pipeline_src.training.distributed import Distributed, reshard
from pipeline_src.training.objective import PretrainingObjective

SHOWN = 3  # texts
SEARCHED = 512  # examples
COMMON = 300  # tokens that are too frequent to be content words
LETTERS = 4  # minimum length of a content word
JOINERS = frozenset("'’-‐‑")  # a token next to one is part of a word: I've, well-known
AROUND = 10  # tokens of text shown on either side
TOP = 3
PROBABILITY_DIGITS = 4


class MaskedWord(NamedTuple):
    """A masked word.

    Attributes:
        batch: its example alone.
        position: of the [MASK] in the batch.
        label: its id.
        about: ``text`` with the [MASK] in it, and ``answer``, the word.
    """

    batch: PretrainingBatch
    position: int
    label: int
    about: dict[str, str]


class FillMaskSamples:
    """A frequent, a middling and a rare masked word of a phase's validation examples, which a person can judge.

    They are chosen without the model: of the content words (four letters or more, not among the ``num_common`` most
    frequent tokens) in order of frequency, the middle one of each third. Such a word is a single token of letters that
    [MASK] hides, and no other token is predicted in the text shown around it; each has a different example, which the
    model sees in full. With a left-to-right objective nothing is masked, and there are no samples.

    Args:
        examples: of the validation split.
        tokenizer: has their vocabulary.
    """

    def __init__(self, examples: PretrainingExamples, tokenizer: Tokenizer, num_common: int = COMMON) -> None:
        self.tokenizer, self.kind = tokenizer, kind_of(tokenizer)
        self.special = read_templates(tokenizer).special_ids
        found: list[MaskedWord] = []
        counts: Counter[int] = Counter()
        for example in range(min(SEARCHED, len(examples))):
            batch = examples.batch(np.array([example]))
            labels = batch.labels.tolist()
            counts.update(batch.ids.tolist())
            counts.update(labels)
            for position, label in zip(batch.predicted.tolist(), labels, strict=True):
                text = self._text(batch, position, label)
                if text:
                    found.append(MaskedWord(batch, position, label, {"text": text, "answer": self._word(label)}))
        common = {token for token, _ in counts.most_common(num_common)}
        content = [word for word in found if word.label not in common and len(word.about["answer"]) >= LETTERS] or found
        content.sort(key=lambda word: -counts[word.label])  # equals stay in the order of the examples
        self._samples = list(_spread_out(content))

    @torch.no_grad()  # not inference_mode: weights gathered in it could not be trained afterwards
    def fill(self, objective: PretrainingObjective[Any], step: int, distributed: Distributed) -> list[dict[str, Any]]:
        """Predict the words after ``step`` steps. All processes must call this.

        Returns:
            For each text a dictionary: ``step``, ``text`` with a [MASK] in it, ``answer``, the word at that position,
            and ``candidates``: for each [MASK] pairs of a token and its probability in descending order.
        """
        training, device = objective.training, distributed.device
        objective.eval()
        answers = []
        for batch, position, _, about in self._samples:
            ids, segments, cu_seqlens = (
                torch.from_numpy(array).to(device) for array in (batch.ids, batch.segments, batch.cu_seqlens)
            )
            predicted = torch.tensor([position], device=device)
            with distributed.autocast():
                logits = objective.token_logits(ids, segments, cu_seqlens, predicted, batch.max_seqlen)
            likely = logits[0].float().softmax(-1).topk(TOP)
            candidates = [
                [self.tokenizer.id_to_token(token), round(probability, PROBABILITY_DIGITS)]
                for token, probability in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
            ]
            answers.append({"step": step, **about, "candidates": [candidates]})
        objective.train(training)
        reshard(objective)
        return answers

    def _word(self, token: int) -> str:
        return self.kind.spelt(str(self.tokenizer.id_to_token(token)))

    def _text(self, batch: PretrainingBatch, position: int, label: int) -> str | None:
        """Return the words around [MASK] at a predicted position; None if a person could not judge it."""
        if batch.ids[position] != self.tokenizer.token_to_id(self.kind.mask):
            return None
        tokens = [str(self.tokenizer.id_to_token(token)) for token in batch.ids.tolist()]
        first, end = max(0, position - AROUND), min(len(tokens), position + AROUND + 1)
        ends = [i for i in range(first, end) if batch.ids[i] in self.special]
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
        """Return whether the masked token is a word by itself."""
        word, before, after = self._word(label), tokens[position - 1], tokens[position + 1 : position + 2]
        inside = self.kind.continues_word(str(self.tokenizer.id_to_token(label)))
        inside = inside or any(map(self.kind.continues_word, after))
        joined = any(self.kind.spelt(token) in JOINERS for token in (before, *after))
        return word.isalpha() and not inside and not joined


def _spread_out(found: list[MaskedWord]) -> Iterator[MaskedWord]:
    """Yield the middle one of each of ``SHOWN`` equal parts, each from a different example."""
    taken: set[int] = set()
    for part in range(SHOWN):
        first, end = part * len(found) // SHOWN, (part + 1) * len(found) // SHOWN
        middle = (first + end) // 2
        for word in [*found[middle:end], *found[first:middle]]:
            if id(word.batch) not in taken:
                taken.add(id(word.batch))
                yield word
                break
