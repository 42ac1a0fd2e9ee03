"""Record what a model predicts for a few masked words of the validation set during training."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from pipeline_src.pretrain.data import PretrainingBatch, PretrainingExamples, TensorBatch
from pipeline_src.pretrain.objective import PretrainingObjective
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import read_templates
from pipeline_src.training.batches import to_device
from pipeline_src.training.distributed import Distributed, reshard

NUM_SAMPLES = 3
TOP_K = 3
# Words are searched in this many examples of the validation set.
MAX_EXAMPLES = 512
# A content word is not among this many of the most frequent tokens, and has at least this many letters.
NUM_COMMON = 300
MIN_LETTERS = 4
# A token next to one of these characters is part of a longer word, such as "I've" or "well-known".
JOINERS = frozenset("'’-‐‑")
# At most this many tokens of text are shown on either side of the [MASK].
CONTEXT = 10
PROBABILITY_DIGITS = 4


class MaskedWord(NamedTuple):
    # A batch of one example, and the position of its [MASK].
    batch: PretrainingBatch
    position: int
    # The masked word as an id. `answer` is the same word as text.
    label: int
    # The text around the word, with [MASK].
    text: str
    answer: str


class FillMaskSamples:
    """Predict a frequent, a less frequent and a rare masked word, by which people can judge a model.

    Content words are sorted by frequency and split into thirds, and the middle word of each third is a sample. Samples
    come from different examples. A sample is a whole word that is one token, replaced by [MASK]. The text around it has
    no other predicted token. A causal objective has no samples.
    """

    def __init__(self, examples: PretrainingExamples, tokenizer: Tokenizer, num_common: int = NUM_COMMON) -> None:
        self._tokenizer = tokenizer
        self._kind = kind_of(tokenizer)
        self._special = read_templates(tokenizer).special_ids
        words: list[MaskedWord] = []
        counts: Counter[int] = Counter()
        for example in range(min(MAX_EXAMPLES, len(examples))):
            batch = examples.batch(np.array([example]))
            words += self._words(batch)
            counts.update(batch.ids.tolist())
            counts.update(batch.labels.tolist())
        common = {token for token, _ in counts.most_common(num_common)}
        content = [word for word in words if word.label not in common and len(word.answer) >= MIN_LETTERS]
        # If a tiny text has no content words, use all words. The sort keeps equally frequent words in order.
        content = content or words
        content.sort(key=lambda word: -counts[word.label])

        self._samples: list[MaskedWord] = []
        for third in range(NUM_SAMPLES):
            first = third * len(content) // NUM_SAMPLES
            end = (third + 1) * len(content) // NUM_SAMPLES
            middle = (first + end) // 2
            for word in [*content[middle:end], *content[first:middle]]:
                if all(word.batch is not sample.batch for sample in self._samples):
                    self._samples.append(word)
                    break

    def _words(self, batch: PretrainingBatch) -> list[MaskedWord]:
        words = []
        tokens = [str(self._tokenizer.id_to_token(token)) for token in batch.ids.tolist()]
        for position, label in zip(batch.predicted.tolist(), batch.labels.tolist(), strict=True):
            # Skip predicted tokens that masking left as they were or replaced by a random token.
            if tokens[position] != self._kind.mask or not self._is_word(tokens, position, label):
                continue
            text = self._text(batch, tokens, position)
            if text is not None:
                answer = self._kind.spelt(str(self._tokenizer.id_to_token(label)))
                words.append(MaskedWord(batch, position, label, text, answer))
        return words

    def _is_word(self, tokens: list[str], position: int, label: int) -> bool:
        word = str(self._tokenizer.id_to_token(label))
        if not self._kind.spelt(word).isalpha():
            return False
        # Reject the token if it continues a word ("##ing"), or if the next token continues this one.
        after = tokens[position + 1 : position + 2]
        if any(map(self._kind.continues_word, (word, *after))):
            return False
        neighbors = {self._kind.spelt(token) for token in (tokens[position - 1], *after)}
        return not neighbors & JOINERS

    def _text(self, batch: PretrainingBatch, tokens: list[str], position: int) -> str | None:
        # Returns the text around a [MASK], up to the nearest special tokens. Returns None if the text is short or
        # contains another predicted token.
        ids = batch.ids.tolist()
        first = position
        while first > max(0, position - CONTEXT) and ids[first - 1] not in self._special:
            first -= 1
        end = position + 1
        while end < min(len(ids), position + CONTEXT + 1) and ids[end] not in self._special:
            end += 1
        # Do not begin or end the text within a word.
        while self._kind.continues_word(tokens[first]):
            first += 1
        while end < len(ids) and self._kind.continues_word(tokens[end]):
            end += 1

        is_shown = (first <= batch.predicted) & (batch.predicted < end)
        if np.count_nonzero(is_shown) > 1 or end - first <= CONTEXT:
            return None
        before = self._tokenizer.decode(ids[first:position])
        after = self._tokenizer.decode(ids[position + 1 : end])
        return f"{before} {self._kind.mask} {after}".strip()

    # no_grad, since weights that FSDP gathers under inference_mode could not be trained afterwards.
    @torch.no_grad()
    def fill(self, objective: PretrainingObjective[Any], step: int, distributed: Distributed) -> list[dict[str, Any]]:
        """Predict the masked words with the current model. All processes must call this.

        Args:
            step: number of steps that the model has been trained, copied into the result.

        Returns:
            For each sample: ``step``; ``text``, which contains [MASK]; ``answer``, the masked word; and ``candidates``,
            a list whose only element is the list of the most probable [token, probability] pairs.
        """
        training = objective.training
        objective.eval()
        answers = []
        for batch, position, _, text, answer in self._samples:
            tensors = to_device(TensorBatch.of(batch), distributed.device)
            predicted = torch.tensor([position], device=distributed.device)
            with distributed.autocast():
                logits = objective.token_logits(
                    tensors.ids, tensors.segments, tensors.cu_seqlens, predicted, batch.max_seqlen
                )
            best = logits[0].float().softmax(-1).topk(TOP_K)
            tokens = map(self._tokenizer.id_to_token, best.indices.tolist())
            probabilities = (round(probability, PROBABILITY_DIGITS) for probability in best.values.tolist())
            candidates = [list(pair) for pair in zip(tokens, probabilities, strict=True)]
            answers.append({"step": step, "text": text, "answer": answer, "candidates": [candidates]})
        objective.train(training)
        reshard(objective)
        return answers
