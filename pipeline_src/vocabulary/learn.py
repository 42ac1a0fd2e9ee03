"""Learning a WordPiece vocabulary from word counts: the most frequent pair of pieces becomes a piece, again and again.

The same merges as `tokenizers`' WordPieceTrainer, but with every tie broken by spelling, so that two runs write the
same bytes; and it starts from counts of distinct words, so that its cost depends on them and not on the text.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pipeline_src.progress import Progress
from pipeline_src.vocabulary.wordpiece import LONGEST_WORD, SPECIAL_TOKENS


def count_words(paragraphs: Iterable[str], lowercase: bool) -> Counter[str]:
    """Count the words BERT's tokenizer sees.

    Chunks between spaces are counted as they stand (fast), and only distinct ones are normalised and split:
    neither step looks beyond a space.
    """
    chunks: Counter[str] = Counter()
    for paragraph in paragraphs:
        chunks.update(paragraph.split(" "))
    normalizer, splitter = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(chunk)):
            words[word] += count
    return words


def choose_alphabet(words: Mapping[str, int], most: int) -> list[str]:
    """The ``most`` frequent characters, sorted by code point."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted(ranked[:most])


def learn_vocabulary(words: Mapping[str, int], size: int, alphabet: int, min_count: int) -> list[str]:
    """Learn pieces from word counts (Schuster and Nakajima 2012; the paper, section 3: "WordPiece embeddings").

    Args:
        words: how often each normalised word occurs.
        size: entries in all, special tokens and characters included; fewer if the text holds no more.
        alphabet: most single characters kept.
        min_count: rarer words and pairs are not learnt from.

    Returns:
        Special tokens, then characters and their ``##`` forms, then merged pieces in the order they were learnt.
    """
    characters = choose_alphabet(words, alphabet)
    known = set(characters)
    spelled: list[list[str]] = []
    counts: list[int] = []
    for word in sorted(words):
        if words[word] >= min_count and len(word) <= LONGEST_WORD and known.issuperset(word):
            spelled.append([word[0], *("##" + character for character in word[1:])])
            counts.append(words[word])
    inner = sorted({"##" + character for word in words for character in word[1:] if character in known})
    vocabulary = [*SPECIAL_TOKENS, *characters, *inner][:size]
    seen = set(vocabulary)

    pair_counts: Counter[tuple[str, str]] = Counter()
    found_in: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for index, pieces in enumerate(spelled):
        for pair in zip(pieces, pieces[1:], strict=False):
            pair_counts[pair] += counts[index]
            found_in[pair].add(index)
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)

    with Progress("learning pieces", size, "piece") as progress:
        progress.advance(len(vocabulary))
        while len(vocabulary) < size and heap:
            count, pair = heapq.heappop(heap)
            if -count != pair_counts[pair]:
                if pair_counts[pair]:
                    heapq.heappush(heap, (-pair_counts[pair], pair))  # stale: put back with its count of now
                continue
            if -count < min_count:
                break
            piece = pair[0] + pair[1].removeprefix("##")
            if piece not in seen:  # the same piece can come from two splits
                seen.add(piece)
                vocabulary.append(piece)
                progress.advance()
            changed: set[tuple[str, str]] = set()
            for index in found_in.pop(pair):
                pieces = spelled[index]
                for old in zip(pieces, pieces[1:], strict=False):
                    pair_counts[old] -= counts[index]
                merged = _merge(pieces, pair, piece)
                spelled[index] = merged
                for new in zip(merged, merged[1:], strict=False):
                    pair_counts[new] += counts[index]
                    found_in[new].add(index)
                    changed.add(new)
            del pair_counts[pair]
            for new in changed:
                if piece in new:
                    heapq.heappush(heap, (-pair_counts[new], new))
    return vocabulary


def _merge(word: list[str], pair: tuple[str, str], piece: str) -> list[str]:
    """Replace every occurrence of ``pair`` in ``word``, from the left."""
    merged, position = [], 0
    while position < len(word):
        if word[position] == pair[0] and position + 1 < len(word) and word[position + 1] == pair[1]:
            merged.append(piece)
            position += 2
        else:
            merged.append(word[position])
            position += 1
    return merged
