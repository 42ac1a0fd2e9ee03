"""Apply the quality filters of published corpora to a document: Gopher, C4 and FineWeb.

The rules are those of `datatrove` (https://github.com/huggingface/datatrove). Given the same words and sentences, the
verdicts are the same, which ``benchmarks/corpus_filters.py`` checks. datatrove splits words with spaCy, which separates
punctuation. This module splits them with ``words.py``, at white space in most scripts. ``study/filters.py`` has the
thresholds, and ``language.py`` identifies languages.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from pipeline_src.study.filters import C4, FiltersParams, FineWeb, GopherQuality, GopherRepetition
from pipeline_src.text.language import probability_of
from pipeline_src.text.sentences import CLOSERS, FULL_STOPS, split_sentences
from pipeline_src.text.words import THAI_AND_LAO, is_unspaced, num_letters, split_words

# The characters with the Unicode property Sentence_Terminal.
SENTENCE_ENDS = frozenset(
    "!.?\u0589\u061d\u061e\u061f\u06d4\u0700\u0701\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b"
    "\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u17d6\u17d9\u17da\u1803\u1809\u1944\u1945\u1aa8\u1aa9\u1aaa"
    "\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d\u1b7e\u1c3b\u1c3c\u1c7e\u1c7f\u203c\u203d\u2047\u2048\u2049\u2e2e\u2e3c"
    "\u2e53\u2e54\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d\uaa5e\uaa5f"
    "\uaaf0\uaaf1\uabeb\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61\U00010a56\U00010a57\U00010f55\U00010f56\U00010f57"
    "\U00010f58\U00010f59\U00010f86\U00010f87\U00010f88\U00010f89\U00011047\U00011048\U000110be\U000110bf\U000110c0"
    "\U000110c1\U00011141\U00011142\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df\U00011238\U00011239"
    "\U0001123b\U0001123c\U000112a9\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9\U000115ca\U000115cb\U000115cc"
    "\U000115cd\U000115ce\U000115cf\U000115d0\U000115d1\U000115d2\U000115d3\U000115d4\U000115d5\U000115d6\U000115d7"
    "\U00011641\U00011642\U0001173c\U0001173d\U0001173e\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c"
    "\U00011c41\U00011c42\U00011ef7\U00011ef8\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38"
    "\U00016b44\U00016e98\U0001bc9f\U0001da88"
)
# A word that consists only of these characters is a symbol: punctuation of several scripts and control characters.
SYMBOLS = (
    "".join(SENTENCE_ENDS)
    + string.punctuation
    + "«»“”„’´…–—━∶►（）【】《》〈〉「」、，．：；！？。～％１"
    + "".join(map(chr, (*range(9), *range(11, 32), *range(127, 160))))
)
ELLIPSES, BULLETS = ("...", "…"), ("•", "-")
# FineWeb: a line of up to this many characters is short.
MAX_SHORT_LINE = 30
# C4 keeps only lines that end in one of these.
LINE_ENDS = (".", "?", "!", '"', "'")
# The end of a complete line in other scripts: a full stop, which closing marks may follow. Thai and Lao have no full
# stop, so any end of a line counts. The full stop of Tibetan is U+0F0D.
_OTHER_LINE_END = re.compile(rf"[{FULL_STOPS}\u0f0d][{re.escape(CLOSERS)}]{{0,3}}\Z|[{THAI_AND_LAO}].{{0,20}}\Z")
# In Thai, Lao and Tibetan a space ends a phrase or a sentence.
_PHRASE_END = re.compile(rf"(?<=[\u0f0d{THAI_AND_LAO}]) ")
# C4 keeps only lines with at least 3 words, none of which has more than 1,000 characters.
MIN_LINE_WORDS, MAX_WORD_LENGTH = 3, 1000
POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")
_BLANK_LINES, _LINE_BREAKS = re.compile(r"\n{2,}"), re.compile(r"\n+")

# Function that returns the words of a text. They are split on the first call, since few filters may need them.
Words = Callable[[], Sequence[str]]
# Key of a threshold, such as `min_words`, and the measured value of the text.
Measure = tuple[str, float]


class Refusal(NamedTuple):
    """The rule that a text breaks (GROUP.KEY), the measured value and the threshold."""

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
    bullets = [line.lstrip().startswith(BULLETS) for line in lines]
    yield "max_bullet_lines", _share(bullets)
    cut_off = [line.rstrip().endswith(ELLIPSES) for line in lines]
    yield "max_ellipsis_lines", _share(cut_off)
    with_letter = [word.isalpha() or any(map(str.isalpha, word)) for word in words]
    yield "min_alphabetic_words", _share(with_letter)
    present = set(limits.stop_words).intersection(words)
    if is_unspaced(text):
        # `split_words` cuts a script without spaces into pieces of fixed length. So search its stop words in the whole
        # text.
        anywhere = set(filter(is_unspaced, limits.stop_words))
        present.update(filter(text.__contains__, anywhere))
        # If no stop word is in such a script, the rule does not apply to the text.
        if not anywhere and _share(list(map(is_unspaced, words))) > 0.5:
            return
    yield "min_stop_words", len(present)


def gopher_repetition(text: str, split: Words, limits: GopherRepetition) -> Iterator[Measure]:
    units_of = {"paragraph": _BLANK_LINES.split(text.strip()), "line": _LINE_BREAKS.split(text)}
    for name, units in units_of.items():
        repeated, chars = _repeated(units)
        yield f"max_duplicate_{name}s", _ratio(repeated, len(units))
        yield f"max_duplicate_{name}_chars", _ratio(chars, len(text))
    words = split()
    # The length of an n-gram includes the spaces between its words.
    spaced = " ".join(words)
    starts = [0, *accumulate(len(word) + 1 for word in words)]
    for n in (2, 3, 4):
        # An n-gram ends before the space that precedes the next word.
        spans = zip(starts, starts[n:], strict=False)
        grams = [spaced[start : end - 1] for start, end in spans]
        gram, count = Counter(grams).most_common(1)[0] if grams else ("", 0)
        yield f"max_top_{n}_gram", _ratio(len(gram) * count, len(text))
    joined = "".join(words)
    starts = [0, *accumulate(map(len, words))]
    repeated = len(words)
    for n in range(5, 11):
        # If no n-gram is repeated, no longer n-gram can be.
        if repeated:
            spans = zip(starts, starts[n:], strict=False)
            grams = [joined[start:end] for start, end in spans]
            repeated = _repeated_chars(grams, n)
        yield f"max_duplicate_{n}_grams", _ratio(repeated, len(text))


def c4(text: str, count_sentences: Callable[[str], int], limits: C4) -> Iterator[Measure]:
    sentences = 0
    for line in map(str.strip, text.splitlines()):
        words = split_words(line)
        if len(line) > MAX_WORD_LENGTH and any(len(word) > MAX_WORD_LENGTH for word in words):
            continue
        line = _CITATION.sub("", line)
        if line.endswith("...") or len(words) < MIN_LINE_WORDS:
            continue
        if not line.endswith(LINE_ENDS) and not _ends_elsewhere(line):
            continue
        lower = line.lower()
        yield "max_lorem_ipsum", lower.count("lorem ipsum")
        if "javascript" in lower:
            continue
        yield "max_curly_brackets", line.count("{")
        if any(phrase in lower for phrase in POLICY):
            continue
        # Counting stops at the limit, since more sentences do not change the verdict.
        if limits.min_sentences is not None and sentences < limits.min_sentences:
            sentences += count_sentences(line) + len(_PHRASE_END.findall(line))
    yield "min_sentences", sentences


def fineweb(text: str, split: Words, limits: FineWeb) -> Iterator[Measure]:
    lines = [line for line in text.split("\n") if line.strip()]
    # A complete line may also end in a quotation mark (Chinese) or without any mark (Thai).
    ended = [line[-1] in SENTENCE_ENDS or _ends_elsewhere(line) for line in lines]
    yield "min_punctuated_lines", _share(ended)
    short = [num_letters(line) <= MAX_SHORT_LINE for line in lines]
    yield "max_short_lines", _share(short)
    newlines = text.count("\n")
    _, repeated = _repeated(lines)
    yield "max_duplicate_line_chars", _ratio(repeated, len(text) - newlines)
    words = split()
    yield "max_newlines_per_word", _ratio(newlines, len(words))


BY_WORDS: dict[str, Callable[[str, Words, Any], Iterator[Measure]]] = {
    "gopher_quality": gopher_quality,
    "gopher_repetition": gopher_repetition,
    "fineweb": fineweb,
}


def _ratio(part: float, total: int) -> float:
    return part / total if total else 0.0


def _ends_elsewhere(line: str) -> bool:
    # Return whether a line ends as complete lines do in scripts with other full stops.
    return _OTHER_LINE_END.search(line[-21:]) is not None


def _share(flags: Sequence[bool]) -> float:
    return _ratio(sum(flags), len(flags))


def _repeated(units: Sequence[str]) -> tuple[int, int]:
    if len(set(units)) == len(units):
        return 0, 0
    times = Counter(units)
    return len(units) - len(times), sum(len(unit) * (count - 1) for unit, count in times.items())


def _repeated_chars(grams: Sequence[str], n: int) -> int:
    # Count the characters of repeated n-grams. After a repeated n-gram, continue behind its last word.
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
