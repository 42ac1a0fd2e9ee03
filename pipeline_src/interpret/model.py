"""The probed model (encoder, tokenizer, optional MLM head), with word vectors and pseudo-log-likelihoods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor, nn

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.progress import Progress
from pipeline_src.model.adapter import ENCODER, MLM_HEAD
from pipeline_src.model.attention import PackedBatch, QueryRows
from pipeline_src.model.bert import Bert, BertConfig, BertForPretraining, HasAttentionProbs, initialise, make_encoder
from pipeline_src.model.hub import filled, load_config, read_tensors
from pipeline_src.tokenizer.load import check_vocab_size, kind_of, load_tokenizer
from pipeline_src.tokenizer.special_tokens import Kind, Template, read_templates

# Prefix of the MLM head's dense layer and LayerNorm. A head for next-word prediction does not have them.
TRANSFORM = f"{MLM_HEAD}transform."


class SkipMeasure(Exception):
    """Raised if a model or study lacks something that a measure needs. The text is logged as the reason."""


@dataclass(frozen=True)
class ProbedModel:
    """A model in evaluation mode.

    Attributes:
        head: the MLM head, [P, H] -> [P, vocab_size]; None if the model's folder has no MLM head.
        batch_tokens: maximum number of tokens in a forward pass, padding included.
    """

    encoder: Bert
    head: nn.Module | None
    config: BertConfig
    tokenizer: Tokenizer
    batch_tokens: int = 8_192

    @classmethod
    def open(cls, folder: Path) -> Self:
        if not folder.is_dir():
            raise PipelineError("no model here", folder, hint="run the study, or give --model FOLDER")
        config = load_config(folder)
        tokenizer = load_tokenizer(folder)
        check_vocab_size(tokenizer, config.vocab_size, folder)
        tensors = read_tensors(folder, config.names)
        has_head = any(name.startswith(TRANSFORM) for name in tensors)
        if not has_head:
            encoder = filled(make_encoder, config, tensors, folder, ENCODER)
            return cls(encoder.eval(), None, config, tokenizer)
        model = filled(BertForPretraining, config, tensors, folder, (*ENCODER, MLM_HEAD))
        return cls(model.bert.eval(), model.cls["predictions"].eval(), config, tokenizer)

    def with_random_weights(self, seed: int, **unsaved: Any) -> Self:
        """Return the same architecture with random weights. It is the control of every measure.

        Args:
            unsaved: config fields that affect the initialisation of weights and are not saved in a model's folder.
        """
        config = replace(self.config, **unsaved)
        generator = torch.Generator().manual_seed(derive_seed(seed, "random control") % 2**63)
        if self.head is None:
            encoder = make_encoder(config)
            initialise(encoder, generator)
            return replace(self, encoder=encoder.eval())
        model = BertForPretraining(config)
        initialise(model, generator)
        return replace(self, encoder=model.bert.eval(), head=model.cls["predictions"].eval())

    def to(self, device: torch.device) -> Self:
        head = None if self.head is None else self.head.to(device)
        return replace(self, encoder=self.encoder.to(device), head=head)

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    @cached_property
    def template(self) -> Template:
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
        # Maximum length of a text in tokens, special tokens not included.
        return self.config.longest_input - self.template.size

    @property
    def num_leading(self) -> int:
        return len(self.template.special_ids[0])

    @property
    def attends(self) -> bool:
        return any(isinstance(module, HasAttentionProbs) for module in self.encoder.modules())

    @property
    def lacks(self) -> str | None:
        # Reason why the model cannot fill masks; None if it can.
        if self.head is None:
            return "the model has no MLM head"
        return "the model reads left to right and fills no mask" if self.config.is_decoder else None

    @property
    def mlm_head(self) -> nn.Module:
        if self.head is None or self.lacks:
            raise SkipMeasure(self.lacks)
        return self.head

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids[: self.max_tokens]

    def pack(self, texts: Sequence[Sequence[int]] | np.ndarray) -> tuple[Tensor, Tensor, PackedBatch]:
        """Add special tokens and concatenate texts. Return input_ids [T], token_type_ids [T] and the layout."""

        def tensor(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(self.device)

        # The tokens of all texts, concatenated, and the number of tokens in each text.
        arrays = [np.asarray(text, np.int64) for text in texts]
        flat = np.concatenate(arrays)
        num_tokens = np.array([len(text) for text in texts], np.int64)
        ids, types = self.template.apply_batch(flat, num_tokens[:, None])
        # Start of each text, and end of the last text. Lengths of 3 and 4 tokens, special tokens included, give
        # [0, 3, 7].
        lengths = num_tokens + self.template.size
        cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
        max_seqlen = int(lengths.max())
        layout = PackedBatch.of(tensor(cu_seqlens), len(ids), max_seqlen)
        return tensor(ids), tensor(types), layout

    def batches(self, texts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        # Yields lists of text indices. Texts are sorted by length, to reduce padding.
        batch: list[int] = []
        for number in sorted(range(len(texts)), key=lambda number: len(texts[number])):
            # This text is the longest so far, so the batch would be padded to its length.
            length = len(texts[number]) + self.template.size
            if batch and length * (len(batch) + 1) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    def token_index(self, layout: PackedBatch, positions: Sequence[Sequence[int]]) -> Tensor:
        # Returns indices of packed tokens, int64 [P]. `positions`: for each text, token positions that do not count
        # special tokens.
        starts = (layout.first + self.num_leading).tolist()
        index: list[int] = []
        for start, positions_of_text in zip(starts, positions, strict=True):
            index += [start + position for position in positions_of_text]
        return torch.tensor(index, dtype=torch.int64)

    @torch.no_grad()
    def hidden_states(self, texts: Sequence[Sequence[int]]) -> tuple[list[Tensor], PackedBatch]:
        """Return [embeddings, output of each layer], each [T, H], and the layout of the packed texts."""
        ids, token_type_ids, layout = self.pack(texts)
        return self.encoder.hidden_states(ids, token_type_ids, layout), layout

    @torch.no_grad()
    def log_probabilities(self, texts: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return, for each text, the log-probabilities at its ``positions``, [positions, vocab_size].

        Texts are token ids without special tokens, and positions are counted without special tokens.
        """
        head = self.mlm_head
        # The output layer may be padded beyond the vocabulary.
        vocab_size = self.tokenizer.get_vocab_size()
        results: dict[int, Tensor] = {}
        for batch in self.batches(texts):
            texts_of_batch = [texts[number] for number in batch]
            positions_of_batch = [positions[number] for number in batch]
            ids, token_type_ids, layout = self.pack(texts_of_batch)
            hidden = self.encoder.decode(ids, token_type_ids, layout)
            index = self.token_index(layout, positions_of_batch)
            logits = head(hidden[index])[:, :vocab_size]
            log_probs = logits.log_softmax(-1)
            by_text = log_probs.split([len(of_text) for of_text in positions_of_batch])
            results.update(zip(batch, by_text, strict=True))
        # Restore the original order, since batches are sorted by length.
        return [results[number] for number in range(len(texts))]


class Sentence(NamedTuple):
    """A sentence in words and punctuation marks.

    Attributes:
        text: the sentence as it is written. Some tokenizers encode "here." differently from "here .". None: the words,
            joined by spaces, as for a treebank.
    """

    words: tuple[str, ...]
    document: str
    text: str | None = None

    @classmethod
    def of_text(cls, text: str, document: str) -> Self:
        text = text.strip()
        words = tuple(word for word, _ in BertPreTokenizer().pre_tokenize_str(text))
        return cls(words, document, text)


class Subwords(NamedTuple):
    """For each sentence, the token ids (without special tokens) and the index of each token's word in the sentence."""

    ids: list[list[int]]
    words: list[list[int]]


class WordVectors(NamedTuple):
    """Vectors of W words.

    Attributes:
        vectors: [L + 1, W, H], the embeddings first, then each layer.
        sentence: index of each word's sentence, int64 [W].
        position: index of each word in its sentence, int64 [W].
    """

    vectors: Tensor
    sentence: np.ndarray
    position: np.ndarray


def tokenize_words(model: ProbedModel, sentences: Sequence[Sentence]) -> Subwords:
    # A sentence that exceeds the model's maximum length is truncated between words.
    texts = [" ".join(sentence.words) if sentence.text is None else sentence.text for sentence in sentences]
    encodings = model.tokenizer.encode_batch(texts, add_special_tokens=False)
    subwords = Subwords([], [])
    for sentence, text, encoding in zip(sentences, texts, encodings, strict=True):
        word_ends = _word_ends(sentence.words, text)
        starts, ends = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
        # A token belongs to the word in which it ends. Its start does not tell, because in some tokenizers the space
        # before a word is part of the token.
        last_characters = np.maximum(starts, ends - 1)
        word_of_token = np.searchsorted(word_ends, last_characters, side="right").tolist()
        size = model.max_tokens
        # Move the end back to a word boundary.
        while 0 < size < len(word_of_token) and word_of_token[size] == word_of_token[size - 1]:
            size -= 1
        subwords.ids.append(encoding.ids[:size])
        subwords.words.append(word_of_token[:size])
    return subwords


def _word_ends(words: Sequence[str], text: str) -> list[int]:
    # Returns the end of each word in the text. The ends in "He ran." are 2, 6 and 7.
    ends = []
    end = 0
    for word in words:
        end = text.index(word, end) + len(word)
        ends.append(end)
    return ends


@torch.no_grad()
def word_vectors(model: ProbedModel, sentences: Sequence[Sentence]) -> WordVectors:
    # Returns a vector for each word: the mean of its subwords' hidden states.
    subwords = tokenize_words(model, sentences)
    # The sentence of each word, and the word's position in it.
    sentence: list[int] = []
    position: list[int] = []
    # For each token of each sentence, the index of its word among the words of all sentences.
    word_of_token: list[list[int]] = []
    for number, words in enumerate(subwords.words):
        distinct = list(dict.fromkeys(words))
        index_of_word = {word: len(position) + rank for rank, word in enumerate(distinct)}
        word_of_token.append([index_of_word[word] for word in words])
        sentence += [number] * len(distinct)
        position += distinct

    # Sentences without tokens are skipped, since they have no words.
    vectors = torch.zeros(1, 0, model.config.hidden_size)
    counts = torch.zeros(len(position))
    for batch in model.batches(subwords.ids):
        texts = [subwords.ids[number] for number in batch if subwords.ids[number]]
        if not texts:
            continue
        states, layout = model.hidden_states(texts)
        if not vectors.numel():
            vectors = torch.zeros(len(states), len(position), states[0].shape[1])
        tokens = model.token_index(layout, [range(len(text)) for text in texts])
        target: list[int] = []
        for number in batch:
            target += word_of_token[number]
        # Add the state of every subword to its word; the sums are divided below.
        index = torch.tensor(target)
        for layer, state in enumerate(states):
            vectors[layer].index_add_(0, index, state[tokens])
        counts.index_add_(0, index, torch.ones(len(index)))
    vectors /= counts.clamp(min=1)[None, :, None]
    return WordVectors(vectors, np.array(sentence, np.int64), np.array(position, np.int64))


@torch.no_grad()
def pseudo_log_likelihoods(
    model: ProbedModel, texts: Sequence[Sequence[int]], words: Sequence[Sequence[int]] | None = None
) -> list[np.ndarray]:
    """Return, for each text, the log-probability of each token when this token is masked, in nats, float64 [L].

    Args:
        words: for each text, the index of each token's word. If given, the later subwords of the same word are masked
            too, since they would reveal the token (Kauf and Ivanova 2023). If None, one token is masked at a time
            (Salazar et al. 2020).
    """
    head = model.mlm_head
    # The output layer may be padded beyond the vocabulary.
    vocab_size = model.tokenizer.get_vocab_size()
    # Group texts by length, so that no padding is needed.
    by_length: dict[int, list[int]] = {}
    for number, text in enumerate(texts):
        by_length.setdefault(len(text), []).append(number)
    results = [np.zeros(len(text)) for text in texts]
    with Progress("masking each token", sum(map(len, texts)), "tokens") as progress:
        for length, numbers in sorted(by_length.items()):
            # The tokens of N texts, and the index of each token's word, both int64 [N, L].
            tokens = np.array([texts[number] for number in numbers])
            word = np.array([words[number] if words else range(length) for number in numbers])
            log_probs = np.zeros(tokens.shape)
            # There is one sequence for each masked token. If a batch has room for all sequences of a text, it has only
            # complete texts.
            num_sequences = max(1, model.batch_tokens // (length + model.template.size))
            num_texts = num_sequences // max(length, 1)
            batch = num_texts * length or num_sequences
            for start in range(0, tokens.size, batch):
                # The B sequences of this batch. For each, the index of its text and the predicted position, int64 [B].
                sequences = np.arange(start, min(start + batch, tokens.size))
                text_of, position = np.divmod(sequences, length)
                # Mask the predicted token and the later tokens of the same word, bool [B, L].
                same_word = word[text_of] == word[text_of, position][:, None]
                not_before = np.arange(length) >= position[:, None]
                masked = np.where(same_word & not_before, model.mask, tokens[text_of])

                ids, token_type_ids, layout = model.pack(masked)
                # The last layer is only computed for the predicted token of each sequence.
                index = layout.first + model.num_leading + torch.from_numpy(position).to(model.device)
                num_rows = torch.arange(len(index) + 1, device=model.device)
                queries = QueryRows.of(index, num_rows, 1)
                hidden = model.encoder.decode(ids, token_type_ids, layout, queries)
                logits = head(hidden)[:, :vocab_size]

                expected = torch.from_numpy(tokens[text_of, position]).to(model.device)
                of_expected = logits.log_softmax(-1).gather(1, expected[:, None])
                log_probs[text_of, position] = of_expected[:, 0].double().cpu().numpy()
                progress.advance(len(index))
            for number, of_text in zip(numbers, log_probs, strict=True):
                results[number] = of_text
    return results
