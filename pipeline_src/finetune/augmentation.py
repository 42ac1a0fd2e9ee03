"""TinyBERT's data augmentation (Jiao et al. 2020, algorithm 1): copies of a task's texts with some words replaced.

A word of one subword is replaced by what a masked language model predicts in its place, a word of several subwords by a
neighbour of its word vector; stop words stay. Differences from huawei-noah/Pretrained-Language-Model,
data_augmentation.py: words are replaced as token ids, so that no text is tokenised again; the vector of a word is the
mean of its subwords' vectors; replacements are tokens that begin a word and consist of letters, of any script; and a
copy of a pair changes only one of its texts.
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

# English words with little meaning, which are not replaced. Text in another language has none of them.
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
    """The replaceable words of a task's texts.

    Attributes:
        first: index of the word's first subword among all tokens, int64 [words].
        subwords: number of subwords, int64 [words].
        sequence: index of the word's sequence, int64 [words].
        text: index of the word's text in the sequence, int64 [words].
        start, length: index of that text's first token among all tokens, and its number of tokens, int64 [words].
    """

    first: np.ndarray
    subwords: np.ndarray
    sequence: np.ndarray
    text: np.ndarray
    start: np.ndarray
    length: np.ndarray

    def select(self, index: np.ndarray) -> Words:
        # `index`: indices, or a bool for each word.
        return Words(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


def find_words(features: Features, tokenizer: Tokenizer) -> Words:
    # Words of letters that are no stop words, in the order of the features.
    kind = kind_of(tokenizer)
    ids = np.asarray(features.ids)
    spelt = spellings(tokenizer)
    is_alpha = np.array([text.isalpha() for text in spelt])
    is_alnum = np.array([text.isalnum() for text in spelt])
    is_special = np.isin(ids, read_templates(tokenizer).special_ids)
    lengths = np.diff(features.cu_seqlens)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    text_opens = ~is_special & np.concatenate([[True], is_special[:-1]])

    # A run is a word, or one token of another kind: [CLS] | play ##ing | , | we | [SEP]. Every special token is a run,
    # so that every run ends where the next one begins.
    in_word = is_alnum[ids]
    joined = kind.is_continuation(tokenizer)[ids] & in_word & np.concatenate([[False], in_word[:-1]])
    runs = np.flatnonzero(is_special | text_opens | ~joined)
    subwords = np.diff(np.concatenate([runs, [len(ids)]]))

    # Words of letters are replaceable, except for stop words. Each word is spelt only once.
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
    # Without the vocabulary's marks, such as ##.
    spelt = kind_of(tokenizer).spelt
    return [spelt(tokenizer.id_to_token(number) or "") for number in range(tokenizer.get_vocab_size())]


# Replacements that are found for each word, and the probability that it is replaced: M and p of
# huawei-noah/Pretrained-Language-Model, data_augmentation.py.
NUM_CANDIDATES = 15
REPLACE_PROB = 0.4

# Batches of the masked language model, and of the search for neighbours.
BATCH_TOKENS = 16_384
BATCH_WORDS = 1024

# Name of the word vectors in the file of the stage `train_word_vectors`.
VECTORS = "word_vectors.embeddings.word_embeddings.weight"


@dataclass(frozen=True)
class Substitutes:
    """The models that propose replacements.

    Attributes:
        vectors: word vectors, normalised to length 1 (zero vectors stay), [vocab_size, width].
        folders: the folders of the model and of the vectors.
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
        raise PipelineError("no word vectors here", vectors, where=KEY, hint=hint)
    table = load_file(file)[VECTORS].to(device)
    if len(table) != tokenizer.get_vocab_size():
        value = f"{len(table)} entries, not {tokenizer.get_vocab_size()}"
        hint = "train them on this study's vocabulary"
        raise PipelineError("word vectors of another vocabulary", value, where=vectors, hint=hint)
    return Substitutes(mlm, torch.nn.functional.normalize(table), tokenizer, (pretrained, vectors))


def find_candidates(features: Features, words: Words, substitutes: Substitutes) -> tuple[np.ndarray, np.ndarray]:
    # Replacements for each word, int64 [words, NUM_CANDIDATES], and how many there are, int64 [words].
    tokenizer = substitutes.tokenizer
    is_alpha = np.array([text.isalpha() for text in spellings(tokenizer)])
    begins = is_alpha & ~kind_of(tokenizer).is_continuation(tokenizer)
    candidates = np.zeros((len(words.first), NUM_CANDIDATES), np.int64)
    counts = np.zeros(len(words.first), np.int64)
    templates = read_templates(tokenizer)
    # A word is masked in its text, which is read together with the original text if both fit.
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
    # Yields (indices of words, the vocabulary entries most probable in their place), batch by batch. The model reads
    # the text with the word masked, and then the original text if the template is that of a pair.
    mlm = substitutes.mlm
    tokenizer = substitutes.tokenizer
    device = substitutes.vectors.device
    all_ids = np.asarray(features.ids)
    mask = tokenizer.token_to_id(kind_of(tokenizer).mask)
    not_allowed = torch.from_numpy(~begins).to(device)
    count = min(NUM_CANDIDATES, int(begins.sum()))
    num_texts = len(template.special_ids) - 1
    # Texts of similar length are in one batch.
    index = index[np.argsort(words.length[index], kind="stable")]
    for chunk in split_greedy(num_texts * words.length[index] + template.size, BATCH_TOKENS):
        batch = words.select(index[chunk])
        position = batch.first - batch.start

        # The text of each word, once or twice: its tokens end to end, and the lengths, [words, num_texts].
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
    # Yields (indices of words, vocabulary entries with the vectors of highest cosine to the word's), batch by batch.
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

        # The vector of a word is the mean of its subwords' vectors. The vocabulary's vectors have length 1: the order
        # of the products is that of the cosines.
        subword_vectors = vectors[torch.from_numpy(subwords).to(device)]
        means = torch.segment_reduce(subword_vectors, "mean", offsets=torch.from_numpy(offsets).to(device))
        products = (means @ vectors.T).masked_fill(~usable, -torch.inf)
        nearest = products.topk(count).indices.cpu().numpy()
        has_vector = means.any(1).cpu().numpy()
        yield batch_index[has_vector], nearest[has_vector]


def augment(features: Features, copies: int, seed: int, substitutes: Substitutes) -> Features:
    """Return the sequences of ``features``, then copies of them in which some words of one text are replaced.

    Each text of a sequence gives ``copies`` copies, without those that equal an earlier copy or the original. The words
    and their replacements depend only on the seed, the example, the text and the number of the copy.
    """
    words = find_words(features, substitutes.tokenizer)
    candidates, counts = find_candidates(features, words, substitutes)
    all_ids = np.asarray(features.ids)
    all_segments = np.asarray(features.segments)
    all_lengths = np.diff(features.cu_seqlens)

    # The random numbers of a word are a function of its text and of its number in the text.
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

            # The replacement has one token: a word of several keeps its first.
            keep = np.ones(len(ids), bool)
            split = words.select(here & (words.subwords > 1))
            keep[ranges(split.first + 1, split.subwords - 1)] = False
            lengths = np.add.reduceat(keep, features.cu_seqlens[:-1], dtype=np.int64)

            # A sequence that equals the original or an earlier copy is left out.
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
    # Texts of 3 and 2 words: 0 1 2 3 4 - 0 0 0 3 3 = 0 1 2 0 1.
    index = np.arange(len(words.first))
    opens = np.concatenate([[True], words.start[1:] != words.start[:-1]])[: len(index)]
    return index - np.maximum.accumulate(np.where(opens, index, 0))


def _sequence_hashes(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(ids)) - np.repeat(starts, lengths)
    return np.add.reduceat(bits(0, ids, positions), starts)
