"""Add words of a domain to the WordPiece vocabulary of a pretrained model (``vocabulary.num_added_tokens``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import write_json
from pipeline_src.base.progress import log
from pipeline_src.tokenizer import wordpiece
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import Counted
from pipeline_src.tokenizer.wordpiece_trainer import END, Merger, Spelling

# File that maps the id of each new entry to the ids of the subwords that it replaces.
EXTENDED = "extended.json"
# Reserved entries in the vocabularies of google-research/bert.
UNUSED = re.compile(r"\[unused\d+\]")
# Pairs that occur less often are not merged.
MIN_COUNT = 2


def extend(folder: Path, tokenizer: Tokenizer, words: Counted, number: int) -> int:
    """Learn up to ``number`` new entries from ``words``, and write the extended vocabulary.

    Learning starts from the words that the vocabulary splits, and merges their subwords. New entries first take the ids
    of [unused0], [unused1] and so on, then ids at the end.

    Returns:
        The size of the extended vocabulary.
    """
    if kind_of(tokenizer) is not wordpiece.KIND:
        raise PipelineError(
            "this kind of vocabulary cannot be extended",
            type(tokenizer.model).__name__,
            where="vocabulary.num_added_tokens",
            hint="set it to 0, or start from a model with a WordPiece vocabulary",
        )
    ids = tokenizer.get_vocab()
    entries = sorted(ids, key=ids.__getitem__)
    new = list(islice(Merger(spell_in(tokenizer, words)).learn(MIN_COUNT), number))
    new_ids = [index for index, entry in enumerate(entries) if UNUSED.fullmatch(entry)]
    new_ids += range(len(entries), len(entries) + len(new))
    subwords = {}
    for index, entry in zip(new_ids, new, strict=False):
        subwords[str(index)] = split_entry(ids, entry)
        # Replace a reserved entry, or append at the end.
        entries[index : index + 1] = [entry]
    max_length = tokenizer.model.max_input_chars_per_word
    wordpiece.save_tokenizer(folder, entries, tokenizer.normalizer.lowercase, max_length)
    write_json(folder / EXTENDED, subwords)
    log.info("%d entries added, among them %s", len(new), ", ".join(new[:10]))
    return len(entries)


def spell_in(tokenizer: Tokenizer, words: Counted) -> Spelling:
    # Return the words that the vocabulary splits, spelled in its subwords. Words that contain [UNK] are left out.
    unknown = tokenizer.token_to_id(wordpiece.UNK)
    forms = sorted(tokenizer.get_vocab())
    # The trainer numbers the pieces from 1, in the order of `forms`.
    numbers = {tokenizer.token_to_id(piece): number for number, piece in enumerate(forms, 1)}
    pieces = []
    lengths = []
    counts = []
    for word, count in words.items():
        ids = [token.id for token in tokenizer.model.tokenize(word)]
        if len(ids) > 1 and unknown not in ids:
            pieces += [numbers[number] for number in ids]
            pieces.append(END)
            lengths.append(len(ids) + 1)
            counts.append(count)
    word_of = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return Spelling(forms, len(forms), np.array(pieces, np.int32), word_of, np.array(counts, np.int64))


def split_entry(vocabulary: Mapping[str, int], entry: str) -> list[int]:
    # Return the ids of the subwords into which WordPiece splits an entry that is not in the vocabulary.
    ids: list[int] = []
    prefix = wordpiece.INNER if entry.startswith(wordpiece.INNER) else ""
    start = len(prefix)
    while start < len(entry):
        # Take the longest subword in the vocabulary. Every single letter is in it.
        end = len(entry)
        while prefix + entry[start:end] not in vocabulary:
            end -= 1
        ids.append(vocabulary[prefix + entry[start:end]])
        start = end
        prefix = wordpiece.INNER
    return ids
