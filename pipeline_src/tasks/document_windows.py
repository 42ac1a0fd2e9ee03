"""Sentences of tagged words as windows over their documents (paper, section 5.3: "the maximal document context")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.progress import log
from pipeline_src.tasks.features import NO_TAG, TokenFeatures
from pipeline_src.tasks.files.conll import Example
from pipeline_src.tasks.sequences import encode
from pipeline_src.tokenizer.frame import read_frames
from pipeline_src.tokenizer.load import kind_of

CONTEXT = 4  # a later window of a document begins with up to a fourth of sentences that came before


@dataclass(frozen=True)
class Piece:
    """A sentence, or a part of one that is longer than a window: the number of its example and of its first word.

    ``words`` are the token ids of each word, at least one.
    """

    example: int
    first: int
    words: list[list[int]]

    @property
    def tokens(self) -> int:
        """How many tokens it has."""
        return sum(map(len, self.words))


def window_features(
    task: str, labels: Sequence[str], examples: Sequence[Example], tokenizer: Tokenizer, max_length: int
) -> TokenFeatures:
    """Windows of at most ``max_length`` tokens: [CLS] earlier sentences, without tags; sentences with tags [SEP].

    A window is filled with whole sentences of one document. The first token of a word carries its tag (paper, section
    5.3). Every word carries it exactly once: a word without tokens is read as [UNK], one that is longer than a window
    by its first tokens, and a sentence that is longer is cut between words.
    """
    frame, kind = read_frames(tokenizer).single, kind_of(tokenizer)
    unknown = kind.id_of(tokenizer, kind.unk)
    room = max_length - frame.size
    counts: Counter[str] = Counter()
    pieces = _pieces(examples, _word_tokens(examples, tokenizer, unknown, room, counts), room, counts)
    ids: list[int] = []
    word: list[int] = []
    cu_seqlens, owners = [0], []
    for _, document in groupby(pieces, lambda piece: examples[piece.example].document):
        for context, tagged in _windows(list(document), room):
            inner = [token for piece in (*context, *tagged) for tokens in piece.words for token in tokens]
            ids += frame.around(inner)[0]
            word += [-1] * (len(frame.marks[0]) + sum(piece.tokens for piece in context))
            for piece in tagged:
                for number, tokens in enumerate(piece.words, start=piece.first):
                    word += [number] + [-1] * (len(tokens) - 1)
            word += [-1] * len(frame.marks[1])
            cu_seqlens.append(len(ids))
            owners.append(tagged[0].example)
    for reason, count in sorted((+counts).items()):
        log.info("%s: %d %s", task, count, reason)
    of_word = np.array(word, np.int64)
    numbers = {label: number for number, label in enumerate(labels)}
    tags = np.array([numbers[tag] for example in examples for tag in example.tags], np.int64)
    return TokenFeatures(
        ids=np.array(ids, np.int32),
        segments=np.zeros(len(ids), np.int8),
        cu_seqlens=np.array(cu_seqlens, np.int64),
        labels=np.where(of_word >= 0, tags[of_word], NO_TAG),
        example=np.array(owners, np.int64),
        counts=dict(sorted((+counts).items())),
        word=of_word,
    )


def _word_tokens(
    examples: Sequence[Example], tokenizer: Tokenizer, unknown: int, room: int, counts: Counter[str]
) -> dict[str, list[int]]:
    """Token ids of every distinct word, from 1 to ``room`` of them."""
    times = Counter(word for example in examples for word in example.words)
    ids = {}
    for word, tokens in zip(times, encode(tokenizer, list(times)), strict=True):
        if not tokens:
            counts["words without a token, read as [UNK]"] += times[word]
            tokens = [unknown]
        if len(tokens) > room:
            counts["words longer than a window, cut"] += times[word]
        ids[word] = tokens[:room]
    return ids


def _pieces(
    examples: Sequence[Example], tokens: dict[str, list[int]], room: int, counts: Counter[str]
) -> Iterator[Piece]:
    """Every sentence in one piece where it fits into ``room`` tokens, else in as many as it takes."""
    first = 0
    for number, example in enumerate(examples):
        words: list[list[int]] = []
        size = 0
        cut = False
        for word in example.words:
            if size + len(tokens[word]) > room:
                yield Piece(number, first, words)
                first += len(words)
                words, size, cut = [], 0, True
            words.append(tokens[word])
            size += len(tokens[word])
        yield Piece(number, first, words)
        first += len(words)
        counts["sentences longer than a window, cut between words"] += cut


def _windows(pieces: Sequence[Piece], room: int) -> Iterator[tuple[Sequence[Piece], Sequence[Piece]]]:
    """Pieces of a document that are context, and those that are tagged, for each window."""
    first = 0
    while first < len(pieces):
        begin, left = first, room
        most = min(room // CONTEXT, room - pieces[first].tokens)  # what must be tagged comes before context
        while begin and room - left + pieces[begin - 1].tokens <= most:
            begin -= 1
            left -= pieces[begin].tokens
        last = first
        while last < len(pieces) and pieces[last].tokens <= left:
            left -= pieces[last].tokens
            last += 1
        yield pieces[begin:first], pieces[first:last]
        first = last
