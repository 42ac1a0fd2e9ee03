"""A few masked words of the validation set, and what a model predicts for them as it learns."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from pipeline_src.pretraining.data import PretrainingBatch, PretrainingExamples
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import read_templates
from pipeline_src.training.distributed import Distributed, reshard
from pipeline_src.training.objective import PretrainingObjective

NUM_SAMPLES, TOP_K = 3, 3
MAX_EXAMPLES = 512  # of the validation set, searched for words
NUM_COMMON = 300  # tokens that are too frequent to be content words
MIN_LETTERS = 4  # of a content word
JOINERS = frozenset("'’-‐‑")  # a token next to one of these is part of a longer word: I've, well-known
CONTEXT = 10  # tokens of text shown on either side
PROBABILITY_DIGITS = 4


class MaskedWord(NamedTuple):
    """A [MASK], at ``position`` in a batch of one example; ``answer`` is the masked word, and ``label`` its id."""

    batch: PretrainingBatch
    position: int
    label: int
    text: str
    answer: str


class FillMaskSamples:
    """A frequent, a middling and a rare masked word of a phase's validation examples, on which people judge a model.

    The samples are the middle words of each third of the content words by frequency, from different examples. Content
    words have four letters or more, and are not among the ``num_common`` most frequent tokens. A word is a token of
    letters that [MASK] hides, without another predicted token in the text around it. A causal objective has no samples.
    """

    def __init__(self, examples: PretrainingExamples, tokenizer: Tokenizer, num_common: int = NUM_COMMON) -> None:
        self.tokenizer, self.kind = tokenizer, kind_of(tokenizer)
        self.special = read_templates(tokenizer).special_ids
        words: list[MaskedWord] = []
        counts: Counter[int] = Counter()
        for example in range(min(MAX_EXAMPLES, len(examples))):
            batch = examples.batch(np.array([example]))
            labels = batch.labels.tolist()
            counts.update(batch.ids.tolist())
            counts.update(labels)
            for position, label in zip(batch.predicted.tolist(), labels, strict=True):
                if text := self._text(batch, position, label):
                    answer = self.kind.spelt(str(tokenizer.id_to_token(label)))
                    words.append(MaskedWord(batch, position, label, text, answer))
        common = {token for token, _ in counts.most_common(num_common)}
        content = [word for word in words if word.label not in common and len(word.answer) >= MIN_LETTERS] or words
        content.sort(key=lambda word: -counts[word.label])  # equally frequent words stay in the order of the examples
        self._samples: list[MaskedWord] = []
        for number in range(NUM_SAMPLES):
            first, end = number * len(content) // NUM_SAMPLES, (number + 1) * len(content) // NUM_SAMPLES
            middle, used = (first + end) // 2, {id(sample.batch) for sample in self._samples}
            candidates = [*content[middle:end], *content[first:middle]]
            self._samples += [word for word in candidates if id(word.batch) not in used][:1]

    @torch.no_grad()  # in inference_mode, FSDP would gather weights that cannot be trained afterwards
    def fill(self, objective: PretrainingObjective[Any], step: int, distributed: Distributed) -> list[dict[str, Any]]:
        """Predict the words after ``step`` steps. All processes must call this.

        A result has ``step``, ``text`` with a [MASK], ``answer`` (the masked word), and ``candidates``: a list for the
        [MASK] of (token, probability) pairs, most probable first.
        """
        training, device = objective.training, distributed.device
        objective.eval()
        answers = []
        for batch, position, _, text, answer in self._samples:
            ids, segments, cu_seqlens = (
                torch.from_numpy(array).to(device) for array in (batch.ids, batch.segments, batch.cu_seqlens)
            )
            predicted = torch.tensor([position], device=device)
            with distributed.autocast():
                logits = objective.token_logits(ids, segments, cu_seqlens, predicted, batch.max_seqlen)
            best = logits[0].float().softmax(-1).topk(TOP_K)
            candidates = [
                [self.tokenizer.id_to_token(token), round(probability, PROBABILITY_DIGITS)]
                for token, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            ]
            answers.append({"step": step, "text": text, "answer": answer, "candidates": [candidates]})
        objective.train(training)
        reshard(objective)
        return answers

    def _text(self, batch: PretrainingBatch, position: int, label: int) -> str | None:
        """Return the text around a predicted position, with [MASK]; None if a person could not judge a prediction."""
        tokens = [str(self.tokenizer.id_to_token(token)) for token in batch.ids.tolist()]
        if tokens[position] != self.kind.mask or not self._is_word(tokens, position, label):
            return None
        first, end = max(0, position - CONTEXT), min(len(tokens), position + CONTEXT + 1)
        for index in range(first, end):
            if batch.ids[index] in self.special and index != position:
                first, end = (index + 1, end) if index < position else (first, min(end, index))
        while self.kind.continues_word(tokens[first]):
            first += 1
        while end < len(tokens) and self.kind.continues_word(tokens[end]):
            end += 1
        is_alone = sum(first <= index < end for index in batch.predicted.tolist()) == 1
        if not is_alone or end - first <= CONTEXT:
            return None
        before, after = (
            self.tokenizer.decode(batch.ids[a:b].tolist()) for a, b in ((first, position), (position + 1, end))
        )
        return f"{before} {self.kind.mask} {after}".strip()

    def _is_word(self, tokens: list[str], position: int, label: int) -> bool:
        word, before, after = str(self.tokenizer.id_to_token(label)), tokens[position - 1], tokens[position + 1 :][:1]
        if any(self.kind.spelt(token) in JOINERS for token in (before, *after)):
            return False
        return self.kind.spelt(word).isalpha() and not any(map(self.kind.continues_word, (word, *after)))
