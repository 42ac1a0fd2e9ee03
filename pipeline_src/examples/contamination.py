"""Find runs of 13 words that evaluation texts share with the training corpus (Brown et al. 2020, appendix C).

Text is compared as token ids: a word is the hash of its subwords, and a run is the hash of its 13 words. Punctuation is
ignored, and so is case if the vocabulary is uncased. The overlap is always reported. With
``corpus.decontaminate: remove``, the training documents that share a run are also dropped, whereas Brown et al. removed
only the shared passage. The stage ``download_tasks`` writes the texts of the evaluation sets only for this setting.
Without it, their file is empty, so that a change to the list of tasks does not invalidate the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.base.counter_rng import bits, derive_seed
from pipeline_src.base.parallel import map_in_order
from pipeline_src.base.progress import Progress
from pipeline_src.examples.token_store import TokenStore
from pipeline_src.text.words import is_unspaced
from pipeline_src.tokenizer.load import kind_of

RUN_WORDS = 13
# Number of tokens whose runs are hashed at once.
BLOCK_TOKENS = 1 << 22
# A table over the first FILTER_BITS bits of a hash rules out most runs, so that few need a binary search.
FILTER_BITS = 24
_SUBWORD = derive_seed("overlap", "piece")
_WORD = derive_seed("overlap", "word")


def sorted_unique(values: np.ndarray) -> np.ndarray:
    # Same result as np.unique, which uses a hash table that is 40 times slower for millions of numbers (numpy 2.4.6).
    values = np.sort(values)
    is_new = np.ones(len(values), bool)
    is_new[1:] = values[1:] != values[:-1]
    return values[is_new]


@dataclass(frozen=True)
class Words:
    """Rules that group the subwords of a vocabulary into words.

    Attributes:
        continues: for each id, whether the subword continues a word, bool [vocab_size].
        written: for each id, whether the subword contains a letter or digit, bool [vocab_size].
    """

    continues: np.ndarray
    written: np.ndarray

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Words:
        kind = kind_of(tokenizer)
        continues = kind.is_continuation(tokenizer)
        written = np.zeros(len(continues), bool)
        for subword, number in tokenizer.get_vocab().items():
            letters = kind.spelt(subword)
            written[number] = any(map(str.isalnum, letters))
            # Chinese and Thai have no spaces between words, so each of their subwords counts as a word.
            if is_unspaced(letters):
                continues[number] = False
        # [UNK] stands for any word, so two of them are not a shared word.
        written[kind.id_of(tokenizer, kind.unk)] = False
        return cls(continues, written)

    def runs(self, ids: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hash every run of 13 consecutive words that lies within one text.

        Args:
            ids: token ids of all texts, concatenated, [tokens].
            starts: index in ``ids`` of each text's first token, ascending, int64 [texts].

        Returns:
            A hash for each run, uint64 [runs], and the index of the text that the run is in, int64 [runs].
        """
        positions = np.flatnonzero(self.written[ids])
        if not len(positions):
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        subwords = ids[positions]
        continues = self.continues[subwords]
        opens = ~continues
        # A text begins with a new word, even if its first subword would continue one.
        first_written = np.searchsorted(positions, starts)
        first_written = first_written[first_written < len(positions)]
        opens[first_written] = True
        first = np.flatnonzero(opens)
        lengths = np.diff(first, append=len(subwords))
        within = np.arange(len(subwords)) - np.repeat(first, lengths)
        hashes = bits(_SUBWORD, subwords, within)
        with np.errstate(over="ignore"):
            words = np.add.reduceat(hashes, first)
        text = np.searchsorted(starts, positions[first], side="right") - 1
        # The hash of a run is the sum of its word hashes, each multiplied by an odd factor for its position in the run.
        count = max(0, len(words) - RUN_WORDS + 1)
        factors = bits(_WORD, np.arange(RUN_WORDS), 0) | np.uint64(1)
        runs = np.zeros(count, np.uint64)
        with np.errstate(over="ignore"):
            for offset, factor in enumerate(factors):
                runs += words[offset : offset + count] * factor
        text_of_last_word = text[len(text) - count :]
        inside = text[:count] == text_of_last_word
        return runs[inside], text[:count][inside]


def measure_overlap(
    store: TokenStore, words: Words, texts: dict[str, tuple[np.ndarray, np.ndarray]], workers: int | None = None
) -> dict[str, dict[str, Any]]:
    """Measure how much of each set of texts occurs in ``store``.

    Args:
        texts: name of the set -> its ``ids`` and ``starts``, as in ``Words.runs``.

    Returns:
        A dictionary for each set. ``texts`` is the number of texts with at least 13 words, ``found`` the number of
        these texts that share a run of 13 words with the store, and ``share`` is ``found / texts``. ``runs`` is the
        number of runs in the set, and ``share_of_runs`` the fraction of these runs that occur in the store. A fraction
        is None if there is nothing to count.
    """
    of_texts = {name: words.runs(ids, starts) for name, (ids, starts) in texts.items()}
    all_runs = [runs for runs, _ in of_texts.values()]
    sorted_runs = sorted_unique(np.concatenate([np.empty(0, np.uint64), *all_runs]))
    shared = np.zeros(len(sorted_runs), bool)
    blocks = _blocks(store)
    if len(sorted_runs):
        search = partial(_search, store, words, sorted_runs)
        with Progress("looking for shared passages", len(store.ids), "token") as progress:
            for num_tokens, indices in map_in_order(search, blocks, 1 if len(blocks) == 1 else workers):
                shared[indices] = True
                progress.advance(num_tokens)
    figures = {}
    for name, (runs, text) in of_texts.items():
        index = np.searchsorted(sorted_runs, runs)
        is_shared = shared[index]
        num_texts = len(sorted_unique(text))
        num_shared = len(sorted_unique(text[is_shared]))
        figures[name] = {
            "texts": num_texts,
            "found": num_shared,
            "share": round(num_shared / num_texts, 4) if num_texts else None,
            "runs": len(runs),
            "share_of_runs": round(float(is_shared.mean()), 4) if len(runs) else None,
        }
    return figures


def _blocks(store: TokenStore) -> list[tuple[int, int]]:
    # Split the documents into ranges [first, stop) with about BLOCK_TOKENS tokens each.
    starts = store.sentences[store.documents]
    edges = np.unique(np.searchsorted(starts, [*range(0, len(store.ids), BLOCK_TOKENS), len(store.ids)])).tolist()
    return list(pairwise(edges))


def _search(store: TokenStore, words: Words, sorted_runs: np.ndarray, block: tuple[int, int]) -> tuple[int, np.ndarray]:
    # Return the number of tokens in a block of documents, and the indices in `sorted_runs` of the runs that occur
    # there.
    first, stop = block
    documents = store.documents[first : stop + 1]
    edges = store.sentences[documents]
    start = int(edges[0])
    end = int(edges[-1])
    ids = store.ids[start:end]
    runs, _ = words.runs(ids, edges[:-1] - start)
    shift = np.uint64(64 - FILTER_BITS)
    may_occur = np.zeros(1 << FILTER_BITS, bool)
    may_occur[sorted_runs >> shift] = True
    candidate = may_occur[runs >> shift]
    candidates = runs[candidate]
    return end - start, _find(sorted_runs, candidates)


def _find(sorted_runs: np.ndarray, runs: np.ndarray) -> np.ndarray:
    # For each of `runs` that is in `sorted_runs`, return its index there, in the order of `runs`.
    index = np.searchsorted(sorted_runs, runs)
    return index[index < np.searchsorted(sorted_runs, runs, side="right")]


def end_to_end(texts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    # Concatenate the texts. Return all ids, and the index of the first id of each text, both int64.
    lengths = np.asarray([len(ids) for ids in texts], np.int64)
    flat = np.fromiter((number for ids in texts for number in ids), np.int64, int(lengths.sum()))
    return flat, np.cumsum(lengths) - lengths


@dataclass(frozen=True)
class EvaluationRuns:
    """The 13-word runs of the evaluation texts.

    Attributes:
        hashes: hashes of the runs, sorted and unique, uint64 [runs].
        texts: for each hash, the index of the first evaluation text that contains the run, int64 [runs].
    """

    words: Words
    hashes: np.ndarray
    texts: np.ndarray

    @classmethod
    def of(cls, words: Words, ids: np.ndarray, starts: np.ndarray) -> EvaluationRuns:
        runs, texts = words.runs(ids, starts)
        hashes, first = np.unique(runs, return_index=True)
        return cls(words, hashes, texts[first])

    def shared_text(self, ids: np.ndarray) -> int | None:
        # Return the index of the evaluation text that contains the first shared run of a document, or None.
        runs, _ = self.words.runs(ids, np.zeros(1, np.int64))
        shared = _find(self.hashes, runs)
        return int(self.texts[shared[0]]) if len(shared) else None
