"""What may stand in a word's place: entries that a model of masked words expects there, or neighbours of its vector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from pipeline_src.common.errors import PipelineError
from pipeline_src.finetuning.distillation import KEY
from pipeline_src.finetuning.words import Words, of_letters, ranges
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.heads import BertForMaskedLM
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.tasks.features import Features
from pipeline_src.tokenizer.frame import Frame, read_frames
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.training.cutting import cut_in_order
from pipeline_src.training.teacher import load_teacher

CANDIDATES = 15  # of each word (huawei-noah/Pretrained-Language-Model, data_augmentation.py, M)
BATCH_TOKENS = 16_384
BATCH_WORDS = 1024  # whose neighbours are looked for at once
VECTORS = "word_vectors.embeddings.word_embeddings.weight"  # as the stage `train_word_vectors` writes them


@dataclass(frozen=True)
class Substitutes:
    """What finds other words.

    Attributes:
        masked: predicts masked words.
        vectors: of every entry, of length 1 or 0 throughout, [entries, width].
        tokenizer: of both.
        folders: where they were read.
    """

    masked: BertForMaskedLM
    vectors: Tensor
    tokenizer: Tokenizer
    folders: tuple[Path, ...] = ()


def load_substitutes(study: Path, student: BertConfig, tokenizer: Tokenizer, device: torch.device) -> Substitutes:
    """The models of a study, given by its folder ``models``, that find other words.

    Raises:
        PipelineError: one is missing, is of another vocabulary, or predicts no masked words.
    """
    pretrained, vectors = study / "pretrained/long", study / "word_vectors"
    masked = load_teacher(pretrained, BertForMaskedLM, student, tokenizer, device, KEY)
    if not (vectors / "model.safetensors").exists():
        raise PipelineError(
            "no word vectors here", vectors, where=KEY,
            remedy="run `dvc repro train_word_vectors` in the teacher's study, or set augmented: 0",
        )  # fmt: skip
    table = load_file(vectors / "model.safetensors")[VECTORS].to(device)
    if len(table) != tokenizer.get_vocab_size():
        raise PipelineError(
            "word vectors of another vocabulary", f"{len(table)} entries, not {tokenizer.get_vocab_size()}",
            where=vectors, remedy="train them on this study's vocabulary",
        )  # fmt: skip
    return Substitutes(masked, torch.nn.functional.normalize(table), tokenizer, (pretrained, vectors))


def find_candidates(features: Features, found: Words, words: Substitutes) -> tuple[np.ndarray, np.ndarray]:
    """Ids of what each word may become, int64 [words, CANDIDATES], and how many there are of it, int64 [words]."""
    begins = of_letters(words.tokenizer) & ~kind_of(words.tokenizer).inner_pieces(words.tokenizer)
    candidates, counts = np.zeros((len(found.first), CANDIDATES), np.int64), np.zeros(len(found.first), np.int64)
    frames, most = read_frames(words.tokenizer), words.masked.bert.config.longest_input
    with_original = 2 * found.length + frames.pair.size <= most
    single = found.pieces == 1
    for frame, fits in ((frames.pair, with_original), (frames.single, ~with_original)):
        for numbers, ids in _by_masking(features, found, np.flatnonzero(single & fits), frame, words, begins):
            candidates[numbers, : ids.shape[1]], counts[numbers] = ids, ids.shape[1]
    for numbers, ids in _by_vectors(features, found, np.flatnonzero(~single), words, begins):
        candidates[numbers, : ids.shape[1]], counts[numbers] = ids, ids.shape[1]
    return candidates, counts


@torch.inference_mode()
def _by_masking(
    features: Features, found: Words, numbers: np.ndarray, frame: Frame, words: Substitutes, begins: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers of words and their likeliest entries, the word masked and, in a pair, the text as it is after it."""
    device, texts = words.vectors.device, len(frame.marks) - 1
    mask = words.tokenizer.token_to_id(kind_of(words.tokenizer).mask)
    head, refused = words.masked.cls["predictions"], torch.from_numpy(~begins).to(device)
    numbers = numbers[np.argsort(found.length[numbers], kind="stable")]
    for piece in cut_in_order(texts * found.length[numbers] + frame.size, BATCH_TOKENS):
        some = found.some(numbers[piece])
        lengths = np.repeat(some.length[:, None], texts, 1)
        flat = np.asarray(features.ids)[ranges(np.repeat(some.start, texts), lengths.ravel())]
        flat[np.cumsum(lengths).reshape(lengths.shape)[:, 0] - some.length + some.first - some.start] = mask
        ids, segments = frame.lay_out(flat, lengths)
        starts = np.concatenate([[0], np.cumsum(lengths.sum(1) + frame.size)])
        masked = starts[:-1] + len(frame.marks[0]) + some.first - some.start
        on_device = (torch.from_numpy(array).to(device) for array in (ids, segments, starts, masked))
        tokens, of_segments, cu_seqlens, places = on_device
        layout = PackedLayout.of(cu_seqlens, len(tokens))
        rows = RowsInUse.of(places, torch.arange(len(places) + 1, device=device), 1)
        scores = head(words.masked.bert.decode(tokens, of_segments, layout, rows))[:, : len(begins)]
        likely = scores.float().masked_fill(refused, -torch.inf).topk(min(CANDIDATES, int(begins.sum()))).indices
        yield numbers[piece], likely.cpu().numpy()


@torch.inference_mode()
def _by_vectors(
    features: Features, found: Words, numbers: np.ndarray, words: Substitutes, begins: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers of words and the entries whose vectors point most nearly where the mean of their pieces' does."""
    known = words.vectors.any(1)
    usable = torch.from_numpy(begins).to(known.device) & known
    most = min(CANDIDATES, int(usable.sum()))
    for first in range(0, len(numbers) if most else 0, BATCH_WORDS):
        some = numbers[first : first + BATCH_WORDS]
        pieces = np.asarray(features.ids)[ranges(found.first[some], found.pieces[some])].astype(np.int64)
        ends = torch.from_numpy(np.concatenate([[0], np.cumsum(found.pieces[some])])).to(known.device)
        means = torch.segment_reduce(words.vectors[torch.from_numpy(pieces).to(known.device)], "mean", offsets=ends)
        near = (means @ words.vectors.T).masked_fill(~usable, -torch.inf).topk(most).indices.cpu().numpy()
        has_vector = means.any(1).cpu().numpy()
        yield some[has_vector], near[has_vector]
