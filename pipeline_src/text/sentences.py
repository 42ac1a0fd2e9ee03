"""Split paragraphs into sentences by the rules of their language.

English is split by the library sentencex, with corrections. By itself, sentencex does not split inside quotation marks,
takes "me." for Maine and "art." for an article of law, and ends a sentence before a lower-case letter ("The band Wham!
was formed"). This module therefore masks such words and marks before sentencex sees the text, and ignores impossible
ends.

In other languages, sentencex makes more mistakes. It applies English abbreviations to languages that it does not know,
ends French sentences at "Mme." and Russian sentences before a dash. For these languages, this module ends a sentence at
a full stop, question or exclamation mark of any script, unless the words around it forbid that. ``sentences.yaml``
lists such words for some languages. ``python -m benchmarks.sentences`` measures precision and recall of both methods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unicodedata import category

from sentencex import segment

from pipeline_src.base.yaml_files import parse_yaml

# Text -> mask of the same length, so that positions stay valid. sentencex takes the words in the last line for
# abbreviations, although before a full stop they are far more often ordinary words.
_MASKS = (
    *((mark, " ") for mark in '"“”'),
    *((mark, "  ") for mark in ("''", "``", " '", "' ", " ‘", "’ ")),
    ("'", "x"),
    ("’", "x"),
    *((f" {word}.", f" {'x' * len(word)}.") for word in "me no may art ill miss fed ark".split()),
)
# A whole sentence in brackets: "(She knew it.) They left."
_WHOLE_IN_BRACKETS = re.compile(r"\(([^()]*[.!?] *)\)")
_BEFORE_NUMBER = re.compile(
    r"(?:^|[ (])(?:approx|(?:[Aa]rt|[Cc]h|[Ee]q|[Ff]ig|[Nn]o|[Pp]ar|[Rr]ef|[Ss]ec|[Tt]ab|[Vv]ol)s?)\.\Z"
)
# sentencex never ends a sentence at an ellipsis, so it is replaced by a full stop.
_ELLIPSIS = re.compile(r"(?<=\w)…(?=[\s\"”’])")
_ENGLISH_OPENERS = " \t\"“‘'(["
_NEVER_FIRST = frozenset(",;:—–)")
# Give sentencex at most this many characters at once, since unclosed quotation marks take quadratic time.
MAX_SEGMENT_LENGTH = 8_000


def split_sentences(paragraph: str, language: str) -> list[str]:
    """Split a paragraph into sentences, which keep all characters but the spaces between them.

    Text in quotation marks is split too: ``"I went. I saw," he said.`` gives two sentences.

    Args:
        paragraph: prose without line breaks.
        language: ISO 639 code, perhaps with a variant (``pt-br``); '' if unknown.
    """
    code = language.partition("-")[0]
    ends = _english_ends(paragraph) if code == "en" else _ends(paragraph, rules_of(code))
    sentences: list[str] = []
    start = 0
    for end in [*ends, len(paragraph)]:
        sentence = paragraph[start:end].strip()
        if sentence:
            sentences.append(sentence)
        start = end
    return sentences


def _english_ends(paragraph: str) -> Iterator[int]:
    start = position = 0
    for piece, is_end in _pieces(_mask(paragraph)):
        end = position + len(piece.rstrip())
        position += len(piece)
        # The sentence includes its closing quotation marks, which were masked.
        while end < position and not paragraph[end].isspace():
            end += 1
        if is_end and (end == len(paragraph) or _may_end(paragraph, start, end)):
            yield end
            start = end


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    # Yield the pieces into which sentencex splits an English text, and whether a sentence may end after each piece. A
    # long text is processed in stretches. The last piece of a stretch may be incomplete, so it is repeated at the start
    # of the next stretch.
    start = 0
    while len(text) - start > MAX_SEGMENT_LENGTH:
        stretch = text[start : start + MAX_SEGMENT_LENGTH]
        complete = list(segment("en", stretch))[:-1]
        if not complete:
            yield stretch, False
        yield from ((piece, True) for piece in complete)
        start += sum(map(len, complete)) or MAX_SEGMENT_LENGTH
    for piece in segment("en", text[start:]):
        yield piece, True


def _mask(text: str) -> str:
    if "…" in text:
        text = _ELLIPSIS.sub(".", text)
    for hidden, mask in _MASKS:
        text = text.replace(hidden, mask)
    return _WHOLE_IN_BRACKETS.sub(r" \1 ", text) if ")" in text else text


def _may_end(text: str, start: int, end: int) -> bool:
    # The most frequent case, a space and a capital, needs no further look at the text that follows.
    if text[end] != " " or not text[end + 1 : end + 2].isupper():
        following = text[end : end + 12].lstrip(_ENGLISH_OPENERS)
        first = following[:1]
        if first in _NEVER_FIRST:
            return False
        # A lower-case letter rarely begins a sentence. Exceptions are words like "iOS", and texts in lower case such as
        # BookCorpus, in which this sentence also began with a lower-case letter.
        if first.islower() and not following[1:2].isupper():
            beginning = text[start : start + 12].lstrip(_ENGLISH_OPENERS)
            return beginning[:1].islower()
        if first.isdecimal():
            return not _BEFORE_NUMBER.search(text, max(start, end - 12), end)
    # Abbreviations before a name: "Ft. Knox"
    return text[end - 3 : end] not in ("Ft.", "Pt.")


@cache
def rules_of(code: str) -> SimpleNamespace:
    tables = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    own = tables.get(code, {})
    rules = tables["und"] | own
    # Add the words that are listed for all languages.
    for name in ("never", "may", "numbered", "starters", "continues"):
        rules[name] = set(f"{tables['und'][name]} {own.get(name, '')}".split())
    return SimpleNamespace(**rules)


# The characters with the Unicode property Sentence_Terminal, except those of historic scripts. The marks in _STOPS also
# occur inside sentences, so they end a sentence only before white space.
_STOPS = ".!?…‼‽⁇⁈⁉"
FULL_STOPS = "։؟۔܀܁܂।॥၊။።፧፨᙮᠃᠉។៕᪨᪩᪪᪫᭚᭛᰻᱾᱿꓿꘎꘏꡶꡷꣎꣏꤯꩝꩞꯫。︒﹒﹖﹗！．？｡"
# “ and « are in both lists, since they open a quotation in some languages and close it in others.
OPENERS = "\"“”„‘‚'’«»‹›([¿¡`"
CLOSERS = "\"'“‘”’»«›‹」』）】》〉])"
_OPEN = re.escape(OPENERS)
_CLOSING = re.escape(CLOSERS)
# In Chinese and Japanese, a half-width mark may end a sentence without a space after it:
# 何ですか?本です。 It does not if Katakana stands next to it, which is mostly a name
# (ラブライブ!サンシャイン), or inside a quoted title (「それゆけ!未確認男」). If a letter follows the closing
# quotation mark, the sentence continues: 「行く！」と言った。 In Dutch "'s Avonds", the group
# `word` matches "Avonds".
_MARK = re.compile(
    # Beginning with a single character set makes the search fast.
    rf"[{_STOPS}{FULL_STOPS}](?:"
    rf"(?<=[{_STOPS}])(?<![{_STOPS}][{_STOPS}])[{_STOPS}]*+[{_CLOSING}]*+"
    rf"(?>(?:[ \u00a0\u202f](?:''|[»”{_STOPS}])(?=\s))*)(?=\s)"
    rf"|(?:(?<=[{FULL_STOPS}])|(?<=[\u3040-\u309f\u3400-\u9fff」』）][!?])"
    r"(?![!?]*+(?:[\u30a0-\u30ff]|[^「『」』!?]{1,40}+[」』])))"
    rf"[{FULL_STOPS}!?]*+[」』）】》〉”’»›)\]]*+(?>(?:[\"'](?!\w))*)(?:(?<=[{FULL_STOPS}!?])|(?!\w))"
    rf")(?=[\s{_OPEN}]*+(?P<dash>[-–—]\s*+[{_OPEN}]*+)?(?:(?<=['’])[nst] )?(?P<word>\w*+)(?P<after>.?))",
    re.S,
)
_CONTINUING = ",;:—–)/&%=+،؛，、；：」』）】》〉"
# Japanese particles after a full stop that belongs to a name: モーニング娘。は歌手である. が、 and で、 are left out,
# since they may begin a sentence.
_NOUN = r"(?=[^\W\u3040-\u309f])"
_PARTICLE = re.compile(rf"[はの](?:{_NOUN}|、)|[がにともで]{_NOUN}|を")
_STRAIGHT_QUOTES = re.compile('"([^"]*+)"')
_FIRST_WORD = re.compile(r"\w|\Z")
# The last part of a word: "art" in "dell'art", "Str" in "Max-Planck-Str". A word that ends in 's has no such part.
_LAST = re.compile(r"['’]s\Z|[^\s.'’-]*\Z")
# Maximum number of letters in an abbreviation.
_MAX_ABBREVIATION = 8
# Look at this many characters before a full stop, which is enough for the longest abbreviations ("z. B").
_LOOK_BACK = 24
# Maximum number of characters in one part of an abbreviation, with its full stop.
_MAX_ABBREVIATION_PART = 5
# Look for the other bracket of a pair within this many characters.
_MAX_BRACKETS = 300


def _ends(text: str, rules: SimpleNamespace) -> Iterator[int]:
    # Make straight quotation marks curly: a closing mark belongs to the sentence before it, an opening mark to the
    # next.
    if '"' in text:
        text = _STRAIGHT_QUOTES.sub("“\\1”", text)
    for used, meant in rules.stands_for.items():
        text = text.replace(used, meant)
    has_full_stop = rules.full_stop and rules.full_stop in text
    first = _FIRST_WORD.search(text).start()  # type: ignore[union-attr]
    has_brackets = "(" in text or "（" in text
    for mark in _MARK.finditer(text):
        stop = mark.start()
        if stop < first or (has_brackets and _in_brackets(text, first, stop)):
            continue
        dash, word, after = mark.groups()
        marks = mark[0]
        if not word[:1].isupper():
            # At the end of the text, `after` is the empty string, which is in _CONTINUING too.
            if (not word and after in _CONTINUING) or (word in rules.continues and len(marks) > 1):
                continue
            # A dash before a letter may begin the next speech («Кто?» — «Я!»). Before a number or mark, the sentence
            # goes on.
            if dash and not word[:1].isalpha():
                continue
            # As in `_may_end`: a lower-case letter begins a sentence only in words like "iOS" and in texts in lower
            # case.
            if is_small(word) and not (word[1:2].isupper() or is_small(text[first])):
                continue
        if marks == ".":
            if has_full_stop or not _ends_at_point(text, first, stop, word, after, rules):
                continue
        elif marks in "。！？!?" and _PARTICLE.match(text, mark.end()):
            continue
        yield mark.end()
        first = mark.start("word")


def is_small(word: str) -> bool:
    """Return whether a word begins with a lower-case letter (False in scripts without case)."""
    return word[:1] != word[:1].title()


def _in_brackets(text: str, start: int, stop: int) -> bool:
    # Return whether a mark stands inside brackets that open in the same sentence and close later.
    for opening, closing in ("()", "（）"):
        opened = text.rfind(opening, max(start, stop - _MAX_BRACKETS), stop)
        if opened >= 0 and text.find(closing, opened, stop) < 0:
            return text.find(closing, stop, stop + _MAX_BRACKETS) >= 0
    return False


def _ends_at_point(text: str, start: int, point: int, following: str, after: str, rules: SimpleNamespace) -> bool:
    # Decide whether a full stop at `point` ends a sentence. The word after it, `following`, does not begin with a
    # lower-case letter. `after` is the character behind that word.
    is_long = point >= _MAX_ABBREVIATION and text[point - _MAX_ABBREVIATION : point].isalpha()
    # A word may also end in a vowel sign of an Indic script, whose category is Mc or Mn: एन. सी. पाधी
    if is_long or not (text[point - 1].isalnum() or category(text[point - 1]) in ("Mc", "Mn")):
        return True
    written = _abbreviation(text[max(start, point - _LOOK_BACK) : point])
    last = written.lower()
    parts = [last]
    names = [last]
    # The names to look up: for "z.b" they are "z.b" and "b", for "пр-т" they are "прт" and "т".
    if not last.isalpha():
        parts = last.replace(" ", "").replace("-", "").split(".")
        last = _LAST.search(last)[0]  # type: ignore[index]
        names = [".".join(parts[index:]) for index in range(len(parts))]
        names.append(last)
    # At the first full stop of "z. B.", also look up "z.b".
    if after == ".":
        names.insert(0, f"{parts[-1]}.{following.lower()}")
    starts = after != "." and following[:1].isupper() and following.lower() in rules.starters
    for name in names:
        if name in rules.may:
            return starts
        if name in rules.never or (name in rules.numbered and following[:1].isdecimal()):
            return False
    # The number or letter of a list item at the start of a sentence: "1. The mill"
    if (len(written) == 1 or last.isdecimal()) and text.startswith(f"{written}.", start):
        return False
    # A number. In languages that write ordinal numbers with a full stop ("am 22. Mai"), it rarely ends a sentence.
    if last.isdecimal():
        return len(last) > 2 or not rules.ordinals or starts or (written != last and not following.isdecimal())
    if rules.ordinals and written.isupper() and not last.strip("ivxlcdm"):
        return starts
    # Longer words end a sentence here, and so does a single Chinese, Japanese or Korean character, which is a word.
    if len(last) > 1 or last > "\u2e7f":
        return True
    # Forms like "UN-a" and "x-T" are words, not initials.
    if len(parts) == 1 and (is_small(written) or is_small(written[-1:])):
        return True
    # Initials do not end a sentence ("J. S. Bach"), but an abbreviation before a typical first word does ("U.S.A.
    # Then").
    return starts and " " not in written and "-" not in written


def _abbreviation(before: str) -> str:
    # Return the last word of a text, together with short words with a full stop before it: "z. B", "apr. J.-C"
    words = before.split()
    written = words.pop()
    while words and words[-1][-1] == "." and len(words[-1]) <= _MAX_ABBREVIATION_PART:
        written = f"{words.pop()} {written}"
    return written.lstrip(OPENERS)
