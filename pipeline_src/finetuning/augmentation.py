"""TinyBERT's data augmentation (Jiao et al. 2020, algorithm 1): copies of a task's texts with some words replaced.

A word of one subword is replaced by a prediction of a masked language model, a word of several subwords by a
neighbour of its word vector; stop words stay. This follows huawei-noah/Pretrained-Language-Model,
data_augmentation.py, with these differences: words are replaced as token ids, so that no text is tokenised again; the
vector of a word is the mean of its subwords' vectors; candidates begin a word and consist of letters only, of any
script; and only one text of a pair is changed at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from pipeline_src.common.counter_rng import bits, derive_seed, integers, uniform
from pipeline_src.common.errors import PipelineError
from pipeline_src.finetuning.distillation import KEY
from pipeline_src.models.attention import PackedBatch, QueryRows
from pipeline_src.models.bert import BertConfig, BertForMaskedLM
from pipeline_src.tasks.features import Features
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import Template, read_templates
from pipeline_src.training.batches import split_greedy
from pipeline_src.training.teacher import load_teacher

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
        sequence: number of its sequence, int64 [words].
        text: number of its text in the sequence, from 0, int64 [words].
        start, length: index of its text's first token among all tokens, and number of tokens, int64 [words].
    """

    first: np.ndarray
    subwords: np.ndarray
    sequence: np.ndarray
    text: np.ndarray
    start: np.ndarray
    length: np.ndarray

    def some(self, chosen: np.ndarray) -> Words:
        """Select words by numbers or by a mask."""
        return Words(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def find_words(features: Features, tokenizer: Tokenizer) -> Words:
    """Return the words that consist of letters only and are not stop words, in their order."""
    kind, ids = kind_of(tokenizer), np.asarray(features.ids)
    inner, spelt, letters = kind.is_continuation(tokenizer), spellings(tokenizer), of_letters(tokenizer)
    is_special = np.isin(ids, read_templates(tokenizer).special_ids)
    lengths = np.diff(features.cu_seqlens)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    text_opens = ~is_special & np.concatenate([[True], is_special[:-1]])
    in_words = np.array([text.isalnum() for text in spelt])[ids]
    joined = inner[ids] & in_words & np.concatenate([[False], in_words[:-1]])
    # special tokens are separate runs, so that every run ends where the next one begins
    runs = np.flatnonzero(is_special | text_opens | ~joined)
    subwords = np.diff(np.concatenate([runs, [len(ids)]]))
    kept = ~is_special[runs] & np.logical_and.reduceat(letters[ids], runs)
    known: dict[bytes, bool] = {}
    for number in np.flatnonzero(kept):
        own = ids[runs[number] : runs[number] + subwords[number]]
        if (key := own.tobytes()) not in known:
            known[key] = "".join(spelt[subword] for subword in own).lower() not in STOP_WORDS
        kept[number] = known[key]
    first = runs[kept]
    texts = np.flatnonzero(text_opens)
    text_of = np.searchsorted(texts, first, side="right") - 1
    ends = np.flatnonzero(is_special)
    start = texts[text_of]
    first_text = np.searchsorted(texts, features.cu_seqlens[:-1])
    return Words(
        first=first,
        subwords=subwords[kept],
        sequence=sequence[first],
        text=text_of - first_text[sequence[first]],
        start=start,
        length=ends[np.searchsorted(ends, start)] - start,
    )


def spellings(tokenizer: Tokenizer) -> list[str]:
    """Return the spelling of each vocabulary entry inside a word."""
    spelt = kind_of(tokenizer).spelt
    return [spelt(tokenizer.id_to_token(number) or "") for number in range(tokenizer.get_vocab_size())]


def of_letters(tokenizer: Tokenizer) -> np.ndarray:
    """Return which vocabulary entries consist of letters only, bool [vocab_size]."""
    return np.array([text.isalpha() for text in spellings(tokenizer)])


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate the ranges of ``lengths[i]`` numbers from ``starts[i]``, int64."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)


CANDIDATES = 15  # per word (huawei-noah/Pretrained-Language-Model, data_augmentation.py, M)
BATCH_TOKENS = 16_384
BATCH_WORDS = 1024  # whose neighbours are searched together
VECTORS = "word_vectors.embeddings.word_embeddings.weight"  # as written by the stage `train_word_vectors`


@dataclass(frozen=True)
class Substitutes:
    """The models that propose replacements.

    Attributes:
        masked: a masked language model.
        vectors: word vectors, normalised to length 1 (or zero), [vocab_size, width].
        tokenizer: of both.
        folders: of both.
    """

    masked: BertForMaskedLM
    vectors: Tensor
    tokenizer: Tokenizer
    folders: tuple[Path, ...] = ()


def load_substitutes(study: Path, student: BertConfig, tokenizer: Tokenizer, device: torch.device) -> Substitutes:
    """Load the models that propose replacements from a study's folder ``models``."""
    pretrained, vectors = study / "pretrained/phase2", study / "word_vectors"
    masked = load_teacher(pretrained, BertForMaskedLM, student, tokenizer, device, KEY)
    if not (vectors / "model.safetensors").exists():
        raise PipelineError(
            "no word vectors here", vectors, where=KEY,
            hint="run `dvc repro train_word_vectors` in the teacher's study, or set num_augmentations: 0",
        )  # fmt: skip
    table = load_file(vectors / "model.safetensors")[VECTORS].to(device)
    if len(table) != tokenizer.get_vocab_size():
        raise PipelineError(
            "word vectors of another vocabulary", f"{len(table)} entries, not {tokenizer.get_vocab_size()}",
            where=vectors, hint="train them on this study's vocabulary",
        )  # fmt: skip
    return Substitutes(masked, torch.nn.functional.normalize(table), tokenizer, (pretrained, vectors))


def find_candidates(features: Features, found: Words, words: Substitutes) -> tuple[np.ndarray, np.ndarray]:
    """Return the candidates of each word, int64 [words, CANDIDATES], and their number, int64 [words]."""
    begins = of_letters(words.tokenizer) & ~kind_of(words.tokenizer).is_continuation(words.tokenizer)
    candidates, counts = np.zeros((len(found.first), CANDIDATES), np.int64), np.zeros(len(found.first), np.int64)
    templates, most = read_templates(words.tokenizer), words.masked.bert.config.longest_input
    with_original = 2 * found.length + templates.pair.size <= most
    single = found.subwords == 1
    for template, fits in ((templates.pair, with_original), (templates.single, ~with_original)):
        for numbers, ids in _by_masking(features, found, np.flatnonzero(single & fits), template, words, begins):
            candidates[numbers, : ids.shape[1]], counts[numbers] = ids, ids.shape[1]
    for numbers, ids in _by_vectors(features, found, np.flatnonzero(~single), words, begins):
        candidates[numbers, : ids.shape[1]], counts[numbers] = ids, ids.shape[1]
    return candidates, counts


@torch.inference_mode()
def _by_masking(
    features: Features, found: Words, numbers: np.ndarray, template: Template, words: Substitutes, begins: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield numbers of words and their most probable entries, given the original text and the text with a mask."""
    device, texts = words.vectors.device, len(template.special_ids) - 1
    mask = words.tokenizer.token_to_id(kind_of(words.tokenizer).mask)
    head, refused = words.masked.cls["predictions"], torch.from_numpy(~begins).to(device)
    numbers = numbers[np.argsort(found.length[numbers], kind="stable")]
    for chunk in split_greedy(texts * found.length[numbers] + template.size, BATCH_TOKENS):
        some = found.some(numbers[chunk])
        lengths = np.repeat(some.length[:, None], texts, 1)
        flat = np.asarray(features.ids)[ranges(np.repeat(some.start, texts), lengths.ravel())]
        flat[np.cumsum(lengths).reshape(lengths.shape)[:, 0] - some.length + some.first - some.start] = mask
        ids, segments = template.apply_batch(flat, lengths)
        starts = np.concatenate([[0], np.cumsum(lengths.sum(1) + template.size)])
        masked = starts[:-1] + len(template.special_ids[0]) + some.first - some.start
        on_device = (torch.from_numpy(array).to(device) for array in (ids, segments, starts, masked))
        tokens, of_segments, cu_seqlens, places = on_device
        layout = PackedBatch.of(cu_seqlens, len(tokens))
        rows = QueryRows.of(places, torch.arange(len(places) + 1, device=device), 1)
        scores = head(words.masked.bert.decode(tokens, of_segments, layout, rows))[:, : len(begins)]
        likely = scores.float().masked_fill(refused, -torch.inf).topk(min(CANDIDATES, int(begins.sum()))).indices
        yield numbers[chunk], likely.cpu().numpy()


@torch.inference_mode()
def _by_vectors(
    features: Features, found: Words, numbers: np.ndarray, words: Substitutes, begins: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield numbers of words and the entries with the highest cosine to the mean vector of the word's subwords."""
    known = words.vectors.any(1)
    usable = torch.from_numpy(begins).to(known.device) & known
    most = min(CANDIDATES, int(usable.sum()))
    for first in range(0, len(numbers) if most else 0, BATCH_WORDS):
        some = numbers[first : first + BATCH_WORDS]
        subwords = np.asarray(features.ids)[ranges(found.first[some], found.subwords[some])].astype(np.int64)
        ends = torch.from_numpy(np.concatenate([[0], np.cumsum(found.subwords[some])])).to(known.device)
        means = torch.segment_reduce(words.vectors[torch.from_numpy(subwords).to(known.device)], "mean", offsets=ends)
        near = (means @ words.vectors.T).masked_fill(~usable, -torch.inf).topk(most).indices.cpu().numpy()
        has_vector = means.any(1).cpu().numpy()
        yield some[has_vector], near[has_vector]


CHANGED = 0.4  # probability that a word is replaced (huawei-noah/Pretrained-Language-Model, p)


def augment(features: Features, copies: int, seed: int, words: Substitutes) -> Features:
    """Return the sequences of ``features``, followed by up to ``copies`` of each of their texts with words replaced.

    The replaced words and their replacements depend only on the seed, the example, the text and the copy. A copy equal
    to an earlier one is dropped.
    """
    found = find_words(features, words.tokenizer)
    candidates, counts = find_candidates(features, found, words)
    keys = features.example[found.sequence] * 2 + found.text
    number = _number_within(found)
    before, segments = np.diff(features.cu_seqlens), np.asarray(features.segments)
    seen = [_row_sums(np.asarray(features.ids), before)]
    parts, origins = [(features.ids, segments, before)], [np.arange(features.items)]
    for copy in range(copies):
        changes = (uniform(derive_seed(seed, "which", copy), keys, number) < CHANGED) & (counts > 0)
        chosen = integers(derive_seed(seed, "what", copy), keys, number, np.maximum(counts, 1))
        for text in np.unique(found.text):
            here = changes & (found.text == text)
            ids, kept = np.array(features.ids), np.ones(len(features.ids), bool)
            ids[found.first[here]] = candidates[here, chosen[here]]
            longer = found.some(here & (found.subwords > 1))
            kept[ranges(longer.first + 1, longer.subwords - 1)] = False
            lengths = np.add.reduceat(kept, features.cu_seqlens[:-1], dtype=np.int64)
            own = _row_sums(ids[kept], lengths)
            new = ~np.any([own == earlier for earlier in seen], axis=0)
            seen.append(own)
            of_new = kept & np.repeat(new, before)
            parts.append((ids[of_new], segments[of_new], lengths[new]))
            origins.append(np.flatnonzero(new))
    ids, segments, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
    origin = np.concatenate(origins)
    return Features(
        ids=ids.astype(np.int32),
        segments=segments.astype(np.int8),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        labels=features.labels[origin],
        example=features.example[origin],
        counts=features.counts,
    )


def _number_within(found: Words) -> np.ndarray:
    """Number of each word within its text, int64 [words]."""
    places = np.arange(len(found.first))
    opens = np.concatenate([[True], found.start[1:] != found.start[:-1]])[: len(places)]
    return places - np.maximum.accumulate(np.where(opens, places, 0))


def _row_sums(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """64-bit hash of each row of ids, uint64 [rows]."""
    starts = np.cumsum(lengths) - lengths
    return np.add.reduceat(bits(0, ids, np.arange(len(ids)) - np.repeat(starts, lengths)), starts)
