"""TinyBERT's data augmentation (Jiao et al. 2020, algorithm 1): copies of a task's texts with some words replaced.

A word of one subword is replaced by a prediction of a masked language model in its place. A word of several subwords is
replaced by a nearest neighbour of its word vector. Stop words are never replaced.

Differences from data_augmentation.py of huawei-noah/Pretrained-Language-Model:

- Words are replaced as token ids, so no text is tokenised again.
- The vector of a word is the mean of its subwords' vectors.
- A replacement is one token that begins a word and consists of letters, in any script.
- A copy of a pair changes only one of the two texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from pipeline_src.base.counter_rng import bits, derive_seed, integers, uniform
from pipeline_src.base.errors import PipelineError
from pipeline_src.finetune.distillation import KEY
from pipeline_src.model.attention import PackedBatch, QueryRows
from pipeline_src.model.bert import BertConfig, BertForMaskedLM
from pipeline_src.pretrain.teacher import load_teacher
from pipeline_src.tasks.features import Features, ranges
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import Template, read_templates
from pipeline_src.training.batches import split_greedy

# English stop words, which are never replaced. In other languages, every word may be replaced.
PRONOUNS = """
    i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself
    we us our ours ourselves they them their theirs themselves this that these those who whom whose which what
"""
AUXILIARIES = """
    am is are was were be been being have has had having do does did doing done
    can could will would shall should may might must ought
    ain aren couldn didn doesn don hadn hasn haven isn mightn mustn needn shan shouldn wasn weren won wouldn
    s t d ll m re ve o y
"""
PREPOSITIONS = """
    about above after against at before below between by down during for from in into of off on out over
    through to under until up upon with
"""
OTHERS = """
    a an the and but or nor if because as while than so again further then once here there when where why how
    all any both each few more most other some such no not only own same too very just now
"""
STOP_WORDS = frozenset(" ".join((PRONOUNS, AUXILIARIES, PREPOSITIONS, OTHERS)).split())


@dataclass(frozen=True)
class Words:
    """The replaceable words of a task's texts, as int64 arrays [words].

    Attributes:
        first: index of the word's first subword among all tokens.
        subwords: number of the word's subwords.
        sequence: index of the word's sequence.
        text: index of the word's text in the sequence: 0, or 1 for the second text of a pair.
        start: index of the text's first token among all tokens.
        length: number of tokens in the text.
    """

    first: np.ndarray
    subwords: np.ndarray
    sequence: np.ndarray
    text: np.ndarray
    start: np.ndarray
    length: np.ndarray

    def select(self, index: np.ndarray) -> Words:
        # `index`: indices of words, or a bool mask [words].
        return Words(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


def find_words(features: Features, tokenizer: Tokenizer) -> Words:
    # Returns the words that consist of letters and are not stop words, in the order of the features.
    kind = kind_of(tokenizer)
    ids = np.asarray(features.ids)
    spelt = spellings(tokenizer)
    is_alpha = np.array([text.isalpha() for text in spelt])
    is_alnum = np.array([text.isalnum() for text in spelt])
    is_special = np.isin(ids, read_templates(tokenizer).special_ids)
    lengths = np.diff(features.cu_seqlens)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    text_opens = ~is_special & np.concatenate([[True], is_special[:-1]])

    # Split the tokens into runs. A run is either all subwords of a word, or a single other token:
    # [CLS] | play ##ing | , | we | [SEP]. Special tokens are runs too, so every run ends where the next one begins.
    in_word = is_alnum[ids]
    joined = kind.is_continuation(tokenizer)[ids] & in_word & np.concatenate([[False], in_word[:-1]])
    runs = np.flatnonzero(is_special | text_opens | ~joined)
    subwords = np.diff(np.concatenate([runs, [len(ids)]]))

    # A run is replaceable if it consists of letters and is not a stop word. Each distinct word is looked up only once.
    replaceable = ~is_special[runs] & np.logical_and.reduceat(is_alpha[ids], runs)
    means_something: dict[bytes, bool] = {}
    for number in np.flatnonzero(replaceable):
        word = ids[runs[number] : runs[number] + subwords[number]]
        key = word.tobytes()
        if key not in means_something:
            means_something[key] = "".join(spelt[subword] for subword in word).lower() not in STOP_WORDS
        replaceable[number] = means_something[key]
    first = runs[replaceable]

    # A text begins after a special token and ends before the next one.
    texts = np.flatnonzero(text_opens)
    ends = np.flatnonzero(is_special)
    text_of = np.searchsorted(texts, first, side="right") - 1
    start = texts[text_of]
    first_text = np.searchsorted(texts, features.cu_seqlens[:-1])
    return Words(
        first=first,
        subwords=subwords[replaceable],
        sequence=sequence[first],
        text=text_of - first_text[sequence[first]],
        start=start,
        length=ends[np.searchsorted(ends, start)] - start,
    )


def spellings(tokenizer: Tokenizer) -> list[str]:
    # Returns the text of each vocabulary entry, without marks of the vocabulary such as ##.
    spelt = kind_of(tokenizer).spelt
    return [spelt(tokenizer.id_to_token(number) or "") for number in range(tokenizer.get_vocab_size())]


# Number of candidate replacements for each word, and the probability that a word is replaced. They are M and p in
# data_augmentation.py of huawei-noah/Pretrained-Language-Model.
NUM_CANDIDATES = 15
REPLACE_PROB = 0.4

# Batch size of the masked language model in tokens, and batch size of the neighbour search in words.
BATCH_TOKENS = 16_384
BATCH_WORDS = 1024

# Name of the word vectors in the safetensors file that the stage `train_word_vectors` writes.
VECTORS = "word_vectors.embeddings.word_embeddings.weight"


@dataclass(frozen=True)
class Substitutes:
    """The models that propose replacements.

    Attributes:
        mlm: masked language model.
        vectors: word vectors, [vocab_size, width], normalised to length 1 except for zero vectors.
        folders: folders of the masked language model and of the word vectors.
    """

    mlm: BertForMaskedLM
    vectors: Tensor
    tokenizer: Tokenizer
    folders: tuple[Path, ...] = ()


def load_substitutes(study: Path, student: BertConfig, tokenizer: Tokenizer, device: torch.device) -> Substitutes:
    # `study`: the folder `models` of a study.
    pretrained = study / "pretrained/phase2"
    vectors = study / "word_vectors"
    mlm = load_teacher(pretrained, BertForMaskedLM, student, tokenizer, device, KEY)
    file = vectors / "model.safetensors"
    if not file.exists():
        hint = "run `dvc repro train_word_vectors` in the teacher's study, or set num_augmentations: 0"
        raise PipelineError("word vectors not found", vectors, where=KEY, hint=hint)
    table = load_file(file)[VECTORS].to(device)
    if len(table) != tokenizer.get_vocab_size():
        value = f"{len(table)} entries, not {tokenizer.get_vocab_size()}"
        hint = "train the word vectors with this study's vocabulary"
        raise PipelineError("the word vectors have another vocabulary size", value, where=vectors, hint=hint)
    return Substitutes(mlm, torch.nn.functional.normalize(table), tokenizer, (pretrained, vectors))


def find_candidates(features: Features, words: Words, substitutes: Substitutes) -> tuple[np.ndarray, np.ndarray]:
    # Returns candidate replacements for each word, int64 [words, NUM_CANDIDATES], and their number, int64 [words].
    tokenizer = substitutes.tokenizer
    is_alpha = np.array([text.isalpha() for text in spellings(tokenizer)])
    begins = is_alpha & ~kind_of(tokenizer).is_continuation(tokenizer)
    candidates = np.zeros((len(words.first), NUM_CANDIDATES), np.int64)
    counts = np.zeros(len(words.first), np.int64)
    templates = read_templates(tokenizer)
    # The model reads the text with the word masked. If the text fits twice into the input, the model also reads the
    # unmasked text, as the second text of a pair.
    fit_twice = 2 * words.length + templates.pair.size <= substitutes.mlm.bert.config.longest_input
    is_single = words.subwords == 1
    read_twice = np.flatnonzero(is_single & fit_twice)
    read_once = np.flatnonzero(is_single & ~fit_twice)
    batches = chain(
        _by_masking(features, words, read_twice, templates.pair, substitutes, begins),
        _by_masking(features, words, read_once, templates.single, substitutes, begins),
        _by_vectors(features, words, np.flatnonzero(~is_single), substitutes, begins),
    )
    for index, ids in batches:
        count = ids.shape[1]
        candidates[index, :count] = ids
        counts[index] = count
    return candidates, counts


@torch.inference_mode()
def _by_masking(
    features: Features,
    words: Words,
    index: np.ndarray,
    template: Template,
    substitutes: Substitutes,
    begins: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    # Yields, for each batch, (indices of words, the most probable vocabulary entries in their place). If `template` is
    # that of a pair, the model reads the text with the word masked and then the unmasked text.
    mlm = substitutes.mlm
    tokenizer = substitutes.tokenizer
    device = substitutes.vectors.device
    all_ids = np.asarray(features.ids)
    mask = tokenizer.token_to_id(kind_of(tokenizer).mask)
    not_allowed = torch.from_numpy(~begins).to(device)
    count = min(NUM_CANDIDATES, int(begins.sum()))
    num_texts = len(template.special_ids) - 1
    # Sort by length, so that texts of similar length are in the same batch.
    index = index[np.argsort(words.length[index], kind="stable")]
    for chunk in split_greedy(num_texts * words.length[index] + template.size, BATCH_TOKENS):
        batch = words.select(index[chunk])
        position = batch.first - batch.start

        # The tokens of each word's text, once or twice, concatenated. `lengths` is [words, num_texts].
        lengths = np.repeat(batch.length[:, None], num_texts, 1)
        texts = all_ids[ranges(np.repeat(batch.start, num_texts), lengths.ravel())]
        first_text = np.cumsum(lengths).reshape(lengths.shape)[:, 0] - batch.length
        texts[first_text + position] = mask
        sequences = template.apply_batch(texts, lengths)
        cu_seqlens = np.concatenate([[0], np.cumsum(lengths.sum(1) + template.size)])
        masked = cu_seqlens[:-1] + len(template.special_ids[0]) + position

        arrays = (*sequences, cu_seqlens, masked)
        ids, segments, starts, positions = (torch.from_numpy(array).to(device) for array in arrays)
        layout = PackedBatch.of(starts, len(ids))
        rows = QueryRows.of(positions, torch.arange(len(positions) + 1, device=device), 1)
        hidden = mlm.bert.decode(ids, segments, layout, rows)
        logits = mlm.cls["predictions"](hidden)[:, : len(begins)]
        logits = logits.float().masked_fill(not_allowed, -torch.inf)
        yield index[chunk], logits.topk(count).indices.cpu().numpy()


@torch.inference_mode()
def _by_vectors(
    features: Features, words: Words, index: np.ndarray, substitutes: Substitutes, begins: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    # Yields, for each batch, (indices of words, vocabulary entries with the highest cosine to the word's vector).
    vectors = substitutes.vectors
    device = vectors.device
    all_ids = np.asarray(features.ids)
    usable = torch.from_numpy(begins).to(device) & vectors.any(1)
    count = min(NUM_CANDIDATES, int(usable.sum()))
    if not count:
        return
    for first in range(0, len(index), BATCH_WORDS):
        batch_index = index[first : first + BATCH_WORDS]
        batch = words.select(batch_index)
        subwords = all_ids[ranges(batch.first, batch.subwords)].astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(batch.subwords)])

        # The vector of a word is the mean of its subwords' vectors. The vectors of the vocabulary have length 1, so
        # dot products have the same order as cosines.
        subword_vectors = vectors[torch.from_numpy(subwords).to(device)]
        means = torch.segment_reduce(subword_vectors, "mean", offsets=torch.from_numpy(offsets).to(device))
        products = (means @ vectors.T).masked_fill(~usable, -torch.inf)
        nearest = products.topk(count).indices.cpu().numpy()
        has_vector = means.any(1).cpu().numpy()
        yield batch_index[has_vector], nearest[has_vector]


def augment(features: Features, copies: int, seed: int, substitutes: Substitutes) -> Features:
    """Append copies of the sequences in ``features`` in which some words of one text are replaced.

    Each text of a sequence gives ``copies`` copies. A copy is left out if it equals the original or an earlier copy.
    Which words are replaced, and by what, depends only on the seed, the example, the text and the index of the copy.
    """
    words = find_words(features, substitutes.tokenizer)
    candidates, counts = find_candidates(features, words, substitutes)
    all_ids = np.asarray(features.ids)
    all_segments = np.asarray(features.segments)
    all_lengths = np.diff(features.cu_seqlens)

    # A word's random numbers depend only on its text and on its position among the text's replaceable words.
    keys = features.example[words.sequence] * 2 + words.text
    number = _number_within_text(words)

    parts = [(all_ids, all_segments, all_lengths, np.arange(features.items))]
    hashes = [_sequence_hashes(all_ids, all_lengths)]
    for copy in range(copies):
        is_drawn = uniform(derive_seed(seed, "which", copy), keys, number) < REPLACE_PROB
        replaced = is_drawn & (counts > 0)
        choice = integers(derive_seed(seed, "what", copy), keys, number, np.maximum(counts, 1))
        for text in np.unique(words.text):
            here = replaced & (words.text == text)
            ids = all_ids.copy()
            ids[words.first[here]] = candidates[here, choice[here]]

            # A replacement is one token, so a word of several subwords keeps only the position of its first subword.
            keep = np.ones(len(ids), bool)
            split = words.select(here & (words.subwords > 1))
            keep[ranges(split.first + 1, split.subwords - 1)] = False
            lengths = np.add.reduceat(keep, features.cu_seqlens[:-1], dtype=np.int64)

            # Leave out copies that equal the original or an earlier copy.
            copy_hashes = _sequence_hashes(ids[keep], lengths)
            is_new = ~np.any([copy_hashes == earlier for earlier in hashes], axis=0)
            hashes.append(copy_hashes)
            keep &= np.repeat(is_new, all_lengths)
            parts.append((ids[keep], all_segments[keep], lengths[is_new], np.flatnonzero(is_new)))

    ids, segments, lengths, origin = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Features(
        ids=ids.astype(np.int32),
        segments=segments.astype(np.int8),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        labels=features.labels[origin],
        example=features.example[origin],
        counts=features.counts,
    )


def _number_within_text(words: Words) -> np.ndarray:
    # Returns the position of each word among the words of its text.
    # Example for texts of 3 and 2 words: 0 1 2 3 4 - 0 0 0 3 3 = 0 1 2 0 1.
    index = np.arange(len(words.first))
    opens = np.concatenate([[True], words.start[1:] != words.start[:-1]])[: len(index)]
    return index - np.maximum.accumulate(np.where(opens, index, 0))


def _sequence_hashes(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(ids)) - np.repeat(starts, lengths)
    return np.add.reduceat(bits(0, ids, positions), starts)
