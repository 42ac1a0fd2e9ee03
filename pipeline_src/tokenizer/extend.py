"""Add a field's words to the WordPiece vocabulary of a pretrained model (``vocabulary.num_added_tokens``)."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import write_json
from pipeline_src.common.progress import log
from pipeline_src.tokenizer import wordpiece
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import Counted
from pipeline_src.tokenizer.wordpiece_trainer import END, Merger, Spelling

EXTENDED = "extended.json"  # id of each new entry -> ids of the subwords that it replaces
UNUSED = re.compile(r"\[unused\d+\]")  # rows that google-research/bert reserves
MIN_COUNT = 2  # rarer pairs are not merged


def extend(folder: Path, tokenizer: Tokenizer, words: Counted, number: int) -> int:
    """Write a WordPiece vocabulary with up to ``number`` new entries; return its size.

    Merging goes on where the old vocabulary stopped: the words that it cuts are spelt in its subwords, and the most
    frequent pair of neighbours becomes an entry, repeatedly. Entries take the ids of [unused0] to [unusedN], then new
    ones.

    Args:
        words: how often each normalised word occurs.
    """
    if kind_of(tokenizer) is not wordpiece.KIND:
        raise PipelineError(
            "only a WordPiece vocabulary can be extended",
            type(tokenizer.model).__name__,
            where="vocabulary.num_added_tokens",
            hint="set it to 0: byte-level and unigram vocabularies spell any word",
        )
    entries = sorted(ids := tokenizer.get_vocab(), key=ids.__getitem__)
    new = list(islice(Merger(spell_in(tokenizer, words)).learn(MIN_COUNT), number))
    places = [number for number, entry in enumerate(entries) if UNUSED.fullmatch(entry)]
    places += range(len(entries), len(entries) + len(new))
    parts = {}
    for place, entry in zip(places, new, strict=False):
        parts[place] = cut(tokenizer, entry)
        entries[place : place + 1] = [entry]
    longest = tokenizer.model.max_input_chars_per_word
    wordpiece.save_tokenizer(folder, entries, tokenizer.normalizer.lowercase, longest)
    write_json(folder / EXTENDED, {str(place): ids for place, ids in parts.items()})
    log.info("%d entries added, among them %s", len(new), ", ".join(new[:10]))
    return len(entries)


def spell_in(tokenizer: Tokenizer, words: Counted) -> Spelling:
    """Spell the words that a vocabulary cuts into several subwords; those with an unknown one are left out."""
    unknown, forms = tokenizer.token_to_id(wordpiece.UNK), sorted(tokenizer.get_vocab())
    number = {tokenizer.token_to_id(form): place for place, form in enumerate(forms, 1)}
    pieces, lengths, counts = [], [], []
    for word, count in words.items():
        ids = [token.id for token in tokenizer.model.tokenize(word)]
        if len(ids) > 1 and unknown not in ids:
            pieces += [*(number[each] for each in ids), END]
            lengths.append(len(ids) + 1)
            counts.append(count)
    word_of = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return Spelling(forms, len(forms), np.array(pieces, np.int32), word_of, np.array(counts, np.int64))


def cut(tokenizer: Tokenizer, entry: str) -> list[int]:
    """Return the ids of an entry in a vocabulary without it, the longest subword first, as WordPiece cuts words."""
    ids: list[int] = []
    prefix = wordpiece.INNER if entry.startswith(wordpiece.INNER) else ""
    start = len(prefix)
    while start < len(entry):
        found = (tokenizer.token_to_id(prefix + entry[start:stop]) for stop in range(len(entry), start, -1))
        number = next(each for each in found if each is not None)
        ids.append(number)
        start += len(str(tokenizer.id_to_token(number))) - len(prefix)
        prefix = wordpiece.INNER
    return ids
