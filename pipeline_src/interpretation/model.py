"""The probed model: encoder, MLM head if there is one, and tokenizer; word vectors and pseudo-log-likelihoods."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.progress import Progress
from pipeline_src.models.adapter import ENCODER, MLM_HEAD
from pipeline_src.models.attention import PackedBatch, QueryRows
from pipeline_src.models.bert import Bert, BertConfig, BertForPretraining, HasAttentionProbs, initialise, make_encoder
from pipeline_src.models.hub import filled, load_config, read_tensors
from pipeline_src.tokenizer.load import check_vocab_size, kind_of, load_tokenizer
from pipeline_src.tokenizer.special_tokens import Kind, Template, read_templates

TRANSFORM = f"{MLM_HEAD}transform."  # missing from a head that only predicts the next word


class SkipMeasure(Exception):
    """Raised if a model or a study lacks what a measure needs; its text is the reason in "MEASURE left out: …"."""


@dataclass(frozen=True)
class ProbedModel:
    """A model in evaluation mode; ``head`` is the MLM head, [P, H] -> [P, vocab_size], None if the folder has none."""

    encoder: Bert
    head: nn.Module | None
    config: BertConfig
    tokenizer: Tokenizer
    batch_tokens: int = 8_192  # tokens, with padding, in one forward pass

    @classmethod
    def open(cls, folder: Path) -> Self:
        if not folder.is_dir():
            raise PipelineError("no model here", folder, hint="run the study, or give --model FOLDER")
        config, tokenizer = load_config(folder), load_tokenizer(folder)
        check_vocab_size(tokenizer, config.vocab_size, folder)
        tensors = read_tensors(folder, config.names)
        if any(name.startswith(TRANSFORM) for name in tensors):
            model = filled(BertForPretraining, config, tensors, folder, (*ENCODER, MLM_HEAD))
            return cls(model.bert.eval(), model.cls["predictions"].eval(), config, tokenizer)
        encoder = filled(make_encoder, config, tensors, folder, ENCODER)
        return cls(encoder.eval(), None, config, tokenizer)

    def with_random_weights(self, seed: int, **unsaved: Any) -> Self:
        """Return the same architecture with random weights, which is the control of every measure.

        ``unsaved``: fields of the config that decide how weights are initialised, and are not in a model's folder.
        """
        config = replace(self.config, **unsaved)
        generator = torch.Generator().manual_seed(derive_seed(seed, "random control") % 2**63)
        model = make_encoder(config) if self.head is None else BertForPretraining(config)
        initialise(model, generator)
        if self.head is None:
            return replace(self, encoder=model.eval())
        return replace(self, encoder=model.bert.eval(), head=model.cls["predictions"].eval())

    def to(self, device: torch.device) -> Self:
        return replace(self, encoder=self.encoder.to(device), head=None if self.head is None else self.head.to(device))

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    @cached_property
    def template(self) -> Template:
        """Special tokens around one text."""
        return read_templates(self.tokenizer).single

    @cached_property
    def kind(self) -> Kind:
        return kind_of(self.tokenizer)

    @cached_property
    def mask(self) -> int:
        return self.kind.id_of(self.tokenizer, self.kind.mask)

    @cached_property
    def unknown(self) -> int:
        return self.kind.id_of(self.tokenizer, self.kind.unk)

    @property
    def max_tokens(self) -> int:
        """Length of the longest text in tokens, without special tokens."""
        return self.config.longest_input - self.template.size

    @property
    def num_leading(self) -> int:
        """Number of special tokens before a text."""
        return len(self.template.special_ids[0])

    @property
    def attends(self) -> bool:
        return any(isinstance(module, HasAttentionProbs) for module in self.encoder.modules())

    @property
    def lacks(self) -> str | None:
        """Reason why the model cannot fill a mask; None if it can."""
        if self.head is None:
            return "the model has no head of masked words"
        return "the model reads left to right and fills no mask" if self.config.is_decoder else None

    @property
    def mlm_head(self) -> nn.Module:
        """The MLM head, if the model can fill a mask."""
        if self.head is None or self.lacks:
            raise SkipMeasure(self.lacks)
        return self.head

    def ids(self, text: str) -> list[int]:
        """Encode a text without special tokens, truncated to ``max_tokens``."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids[: self.max_tokens]

    def pack(self, texts: Sequence[Sequence[int]] | np.ndarray) -> tuple[Tensor, Tensor, PackedBatch]:
        """Add special tokens, and lay texts end to end; return input_ids [T], token_type_ids [T] and the layout."""
        lengths = np.array([len(text) for text in texts], np.int64)
        flat = np.concatenate([np.asarray(text, np.int64) for text in texts])
        ids, token_type_ids = self.template.apply_batch(flat, lengths[:, None])
        cu_seqlens = np.concatenate([[0], np.cumsum(lengths + self.template.size)])
        input_ids, types, starts = (
            torch.from_numpy(array).to(self.device) for array in (ids, token_type_ids, cu_seqlens)
        )
        return input_ids, types, PackedBatch.of(starts, len(ids), int(lengths.max()) + self.template.size)

    def batches(self, texts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Yield batches of indices of texts, sorted by length, with up to ``batch_tokens`` padded tokens each."""
        batch: list[int] = []
        for number in sorted(range(len(texts)), key=lambda number: len(texts[number])):
            if batch and (len(texts[number]) + self.template.size) * (len(batch) + 1) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    def token_index(self, layout: PackedBatch, positions: Sequence[Sequence[int]]) -> Tensor:
        """Return the index in the packed texts of ``positions`` in each text (without special tokens), int64."""
        starts = (layout.first + self.num_leading).tolist()
        by_text = zip(starts, positions, strict=True)
        return torch.tensor([start + position for start, of_text in by_text for position in of_text], dtype=torch.int64)

    @torch.no_grad()
    def hidden_states(self, texts: Sequence[Sequence[int]]) -> tuple[list[Tensor], PackedBatch]:
        """Return [embeddings, output of each layer], each [T, H], and the layout of the packed texts."""
        ids, token_type_ids, layout = self.pack(texts)
        return self.encoder.hidden_states(ids, token_type_ids, layout), layout

    @torch.no_grad()
    def log_probabilities(self, texts: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return, for each text, the log-probabilities at ``positions``, [positions, vocab_size].

        Texts are token ids without special tokens, which positions do not count either.
        """
        head = self.mlm_head
        results: dict[int, Tensor] = {}
        for batch in self.batches(texts):
            ids, token_type_ids, layout = self.pack([texts[number] for number in batch])
            hidden = self.encoder.decode(ids, token_type_ids, layout)
            logits = head(hidden[self.token_index(layout, [positions[number] for number in batch])])
            log_probs = logits[:, : self.tokenizer.get_vocab_size()].log_softmax(-1)
            results |= zip(batch, log_probs.split([len(positions[number]) for number in batch]), strict=True)
        return [results[number] for number in range(len(texts))]


class Sentence(NamedTuple):
    """The words of a sentence, and its document and source of text."""

    words: tuple[str, ...]
    document: str
    source: str = ""


class Subwords(NamedTuple):
    """Token ids of sentences without special tokens, and the index of each token's word in its sentence."""

    ids: list[list[int]]
    words: list[list[int]]


class WordVectors(NamedTuple):
    """Vectors of W words, [L + 1, W, H], embeddings first; each word's sentence and position in it, int64 [W]."""

    vectors: Tensor
    sentence: np.ndarray
    position: np.ndarray


def tokenize_words(model: ProbedModel, sentences: Sequence[Sentence]) -> Subwords:
    """Tokenize sentences, whose words are joined by spaces; they are truncated between words to the longest input."""
    encodings = model.tokenizer.encode_batch(
        [" ".join(sentence.words) for sentence in sentences], add_special_tokens=False
    )
    ids, words = [], []
    for sentence, encoding in zip(sentences, encodings, strict=True):
        ends = list(accumulate((len(word) + 1 for word in sentence.words), initial=-1))[1:]
        # A token belongs to the word in which it ends, since some tokenizers make the space before a word part of it.
        numbers = [bisect_right(ends, max(start, end - 1)) for start, end in encoding.offsets]
        size = model.max_tokens
        while 0 < size < len(numbers) and numbers[size] == numbers[size - 1]:  # do not split a word
            size -= 1
        ids.append(encoding.ids[:size])
        words.append(numbers[:size])
    return Subwords(ids, words)


@torch.no_grad()
def word_vectors(model: ProbedModel, sentences: Sequence[Sentence]) -> WordVectors:
    """Return the vector of every word in every layer, which is the mean of its subwords' hidden states."""
    subwords = tokenize_words(model, sentences)
    sentence: list[int] = []
    position: list[int] = []
    of_token: list[list[int]] = []  # index of the word among all words, for each token of each sentence
    for number, words in enumerate(subwords.words):
        distinct = list(dict.fromkeys(words))
        numbers = {word: len(position) + rank for rank, word in enumerate(distinct)}
        of_token.append([numbers[word] for word in words])
        sentence += [number] * len(distinct)
        position += distinct
    vectors: Tensor | None = None
    counts = torch.zeros(len(position))
    for batch in model.batches(subwords.ids):
        batch = [number for number in batch if subwords.ids[number]]
        if not batch:
            continue
        states, layout = model.hidden_states([subwords.ids[number] for number in batch])
        index = model.token_index(layout, [range(len(subwords.ids[number])) for number in batch])
        target = torch.tensor([word for number in batch for word in of_token[number]])
        if vectors is None:
            vectors = torch.zeros(len(states), len(position), states[0].shape[1])
        for layer, state in enumerate(states):
            vectors[layer].index_add_(0, target, state[index])
        counts.index_add_(0, target, torch.ones(len(target)))
    if vectors is None:
        vectors = torch.zeros(1, 0, model.config.hidden_size)
    vectors /= counts.clamp(min=1)[None, :, None]
    return WordVectors(vectors, np.array(sentence, np.int64), np.array(position, np.int64))


@torch.no_grad()  # not inference_mode: DeBERTa caches tensors that integrated gradients need later
def pseudo_log_likelihoods(
    model: ProbedModel, texts: Sequence[Sequence[int]], words: Sequence[Sequence[int]] | None = None
) -> list[np.ndarray]:
    """Return, for each text, the log-probability (nats) of each of its tokens if that is masked, float64 [L].

    Only this token is masked (Salazar et al. 2020). With ``words``, the index of each token's word, the later subwords
    of the same word are masked too, since they would give the token away (Kauf and Ivanova 2023).
    """
    head, vocab_size = model.mlm_head, model.tokenizer.get_vocab_size()
    by_length: dict[int, list[int]] = {}
    for number, text in enumerate(texts):
        by_length.setdefault(len(text), []).append(number)
    results = [np.zeros(len(text)) for text in texts]
    with Progress("masking each token", sum(map(len, texts)), "tokens") as progress:
        for length, numbers in sorted(by_length.items()):
            tokens = np.array([texts[number] for number in numbers])  # [n, L]
            word = np.array([words[number] if words else range(length) for number in numbers])
            log_probs = np.zeros(tokens.shape)
            # There is a sequence for each masked token. A batch has only complete texts if at least one fits.
            batch = max(1, model.batch_tokens // (length + model.template.size))
            batch = batch // max(length, 1) * length or batch
            for start in range(0, tokens.size, batch):
                text_of, position = np.divmod(np.arange(start, min(start + batch, tokens.size)), length)
                same_word = word[text_of] == word[text_of, position][:, None]
                masked = np.where(same_word & (np.arange(length) >= position[:, None]), model.mask, tokens[text_of])
                ids, token_type_ids, layout = model.pack(masked)
                index = layout.first + model.num_leading + torch.from_numpy(position).to(model.device)
                queries = QueryRows.of(index, torch.arange(len(index) + 1, device=model.device), 1)
                logits = head(model.encoder.decode(ids, token_type_ids, layout, queries))[:, :vocab_size]
                expected = torch.from_numpy(tokens[text_of, position]).to(model.device)
                of_token = logits.log_softmax(-1).gather(1, expected[:, None])[:, 0]
                log_probs[text_of, position] = of_token.double().cpu().numpy()
                progress.advance(len(index))
            for number, of_text in zip(numbers, log_probs, strict=True):
                results[number] = of_text
    return results
