"""Filters of published corpora: the text of a document -> the first rule that refuses it, if any.

Gopher's, C4's and FineWeb's rules, as `datatrove` (https://github.com/huggingface/datatrove) reads them: with the same
words and sentences its verdicts are the same (``benchmarks/corpus_filters.py``). It takes spaCy's words, which separate
punctuation; here ``words.py`` splits them, at white space in most scripts. ``config/filters.py`` has the thresholds,
``language.py`` identifies languages.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from pipeline_src.config.filters import C4, FiltersParams, FineWeb, GopherQuality, GopherRepetition
from pipeline_src.corpus.language import probability_of
from pipeline_src.corpus.sentences import CLOSERS, FULL_STOPS, split_sentences
from pipeline_src.corpus.words import THAI_AND_LAO, is_unspaced, num_letters, split_words

# Unicode's Sentence_Terminal, as code points
_TERMINAL_RANGES = """
21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736 17D4-17D6
17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 203C-203D 2047-2049 2E2E 2E3C
2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE52 FE56-FE57 FF01
FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF
11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946 11A42-11A43
11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44 16E98 1BC9F 1DA88
"""
_RANGES = ([int(code, 16) for code in codes.split("-")] for codes in _TERMINAL_RANGES.split())
SENTENCE_ENDS = frozenset(chr(code) for ends in _RANGES for code in range(ends[0], ends[-1] + 1))
# A word of these alone is a symbol: punctuation of several scripts, control characters.
SYMBOLS = "".join(
    sorted(
        SENTENCE_ENDS
        | set(string.punctuation)
        | set("«»“”„’´…–—━∶►（）【】《》〈〉「」、，．：；！？。～％１")
        | {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}
    )
)
ELLIPSES, BULLETS = ("...", "…"), ("•", "-")
MAX_SHORT_LINE = 30  # characters (FineWeb)
LINE_ENDS = (".", "?", "!", '"', "'")  # of the lines that C4 keeps
# The end of a line in other scripts: a full stop, also before closing marks. Thai and Lao have none, so there it is any
# end. Tibetan's full stop is U+0F0D.
_OTHER_LINE_END = re.compile(rf"[{FULL_STOPS}\u0f0d][{re.escape(CLOSERS)}]{{0,3}}\Z|[{THAI_AND_LAO}].{{0,20}}\Z")
# In Thai, Lao and Tibetan a space ends a phrase or a sentence.
_PHRASE_END = re.compile(rf"(?<=[\u0f0d{THAI_AND_LAO}]) ")
MIN_LINE_WORDS, MAX_WORD_LENGTH = 3, 1000  # fewest words of such a line, most characters of its words
POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")
_BLANK_LINES, _LINE_BREAKS = re.compile(r"\n{2,}"), re.compile(r"\n+")

Words = Callable[[], Sequence[str]]  # of a text, split when they are first needed
Measure = tuple[str, float]  # name of a rule, and the text's value


class Refusal(NamedTuple):
    """The rule that a text breaks: ``GROUP.KEY`` in ``filters`` of params.yaml, the text's value, the threshold."""

    rule: str
    value: float
    limit: float


def refusal(
    text: str,
    filters: FiltersParams,
    language: str,
    words: Callable[[str], Sequence[str]] = split_words,
    sentences: Callable[[str, str], Sequence[str]] = split_sentences,
    probability: Callable[[str, str], float] = probability_of,
) -> Refusal | None:
    """Return the first rule that refuses a document, or None."""
    if not filters.model_fields_set:
        return None
    split = cache(lambda: words(text))
    measures: Iterable[Measure]
    for group, limits in filters:
        if limits is None:
            continue
        if group == "language":
            measures = [("min_probability", probability(language, text))]
        elif group == "c4":
            measures = c4(text, lambda line: len(sentences(line, language)), limits)
        else:
            measures = BY_WORDS[group](text, split, limits)
        for key, value in measures:
            limit = getattr(limits, key)
            if limit is not None and (value < limit if key.startswith("min_") else value > limit):
                return Refusal(f"{group}.{key}", value, limit)
    return None


def gopher_quality(text: str, split: Words, limits: GopherQuality) -> Iterator[Measure]:
    """Yield the measures of ``GopherQuality``."""
    words = split()
    length = num_letters if is_unspaced(text) else len
    lengths = [length(word) for word in words if word.strip(SYMBOLS)]
    yield "min_words", len(lengths)
    yield "max_words", len(lengths)
    yield "min_mean_word_length", _ratio(sum(lengths), len(lengths))
    yield "max_mean_word_length", _ratio(sum(lengths), len(lengths))
    yield "max_hashes_per_word", _ratio(text.count("#"), len(words))
    yield "max_ellipses_per_word", _ratio(sum(map(text.count, ELLIPSES)), len(words))
    lines = text.splitlines()
    yield "max_bullet_lines", _share([line.lstrip().startswith(BULLETS) for line in lines])
    yield "max_ellipsis_lines", _share([line.rstrip().endswith(ELLIPSES) for line in lines])
    yield "min_alphabetic_words", _share([word.isalpha() or any(map(str.isalpha, word)) for word in words])
    found = set(limits.stop_words).intersection(words)
    if is_unspaced(text):
        # Words of a script without spaces are cut by length, so its stop words may stand anywhere in the text.
        anywhere = set(filter(is_unspaced, limits.stop_words))
        found.update(filter(text.__contains__, anywhere))
        # Stop words of other scripts say nothing about such a text.
        if not anywhere and _share(list(map(is_unspaced, words))) > 0.5:
            return
    yield "min_stop_words", len(found)


def gopher_repetition(text: str, split: Words, limits: GopherRepetition) -> Iterator[Measure]:
    """Yield the measures of ``GopherRepetition``."""
    for name, units in (("paragraph", _BLANK_LINES.split(text.strip())), ("line", _LINE_BREAKS.split(text))):
        repeated, chars = _repeated(units)
        yield f"max_duplicate_{name}s", _ratio(repeated, len(units))
        yield f"max_duplicate_{name}_chars", _ratio(chars, len(text))
    words = split()
    spaced = " ".join(words)
    starts = [0, *accumulate(len(word) + 1 for word in words)]
    for n in (2, 3, 4):
        grams = [spaced[start : end - 1] for start, end in zip(starts, starts[n:], strict=False)]
        gram, count = Counter(grams).most_common(1)[0] if grams else ("", 0)
        yield f"max_top_{n}_gram", _ratio(len(gram) * count, len(text))
    joined = "".join(words)
    starts = [0, *accumulate(map(len, words))]
    repeated = len(words)
    for n in range(5, 11):
        # If no run is repeated, no longer one is.
        if repeated:
            grams = [joined[start:end] for start, end in zip(starts, starts[n:], strict=False)]
            repeated = _repeated_chars(grams, n)
        yield f"max_duplicate_{n}_grams", _ratio(repeated, len(text))


def c4(text: str, count_sentences: Callable[[str], int], limits: C4) -> Iterator[Measure]:
    """Yield the measures of ``C4``, line by line."""
    sentences = 0
    for line in map(str.strip, text.splitlines()):
        words = split_words(line)
        if len(line) > MAX_WORD_LENGTH and any(len(word) > MAX_WORD_LENGTH for word in words):
            continue
        line = _CITATION.sub("", line)
        if line.endswith("...") or len(words) < MIN_LINE_WORDS:
            continue
        if not line.endswith(LINE_ENDS) and not _OTHER_LINE_END.search(line[-21:]):
            continue
        lower = line.lower()
        yield "max_lorem_ipsum", lower.count("lorem ipsum")
        if "javascript" in lower:
            continue
        yield "max_curly_brackets", line.count("{")
        if any(phrase in lower for phrase in POLICY):
            continue
        if limits.min_sentences is not None and sentences < limits.min_sentences:  # further ones change nothing
            sentences += count_sentences(line) + len(_PHRASE_END.findall(line))
    yield "min_sentences", sentences


def fineweb(text: str, split: Words, limits: FineWeb) -> Iterator[Measure]:
    """Yield the measures of ``FineWeb``."""
    lines = [line for line in text.split("\n") if line.strip()]
    ended = [line[-1] in SENTENCE_ENDS or _OTHER_LINE_END.search(line[-21:]) is not None for line in lines]
    yield "min_punctuated_lines", _share(ended)
    yield "max_short_lines", _share([num_letters(line) <= MAX_SHORT_LINE for line in lines])
    newlines = text.count("\n")
    yield "max_duplicate_line_chars", _ratio(_repeated(lines)[1], len(text) - newlines)
    yield "max_newlines_per_word", _ratio(newlines, len(split()))


BY_WORDS: dict[str, Callable[[str, Words, Any], Iterator[Measure]]] = {
    "gopher_quality": gopher_quality,
    "gopher_repetition": gopher_repetition,
    "fineweb": fineweb,
}


def _ratio(part: float, total: int) -> float:
    return part / total if total else 0.0


def _share(flags: Sequence[bool]) -> float:
    return _ratio(sum(flags), len(flags))


def _repeated(units: Sequence[str]) -> tuple[int, int]:
    if len(set(units)) == len(units):
        return 0, 0
    times = Counter(units)
    return len(units) - len(times), sum(len(unit) * (count - 1) for unit, count in times.items())


def _repeated_chars(grams: Sequence[str], n: int) -> int:
    """Return the characters in runs of ``n`` words that occur before; a repeated run is skipped as a whole."""
    if len(set(grams)) == len(grams):
        return 0
    seen: set[str] = set()
    chars = position = 0
    while position < len(grams):
        gram = grams[position]
        if gram in seen:
            chars += len(gram)
            position += n
        else:
            seen.add(gram)
            position += 1
    return chars
