"""Split paragraphs into sentences, by the rules of the text's language.

English is split by the library sentencex, with corrections. sentencex keeps a speech in quotation marks as one
sentence, takes "me." for Maine and "art." for an article of law, and ends a sentence before a small letter ("The band
Wham! was formed"). So English text is masked, letter by letter, before it is split, and impossible ends are skipped.

In other languages sentencex makes more mistakes: it applies English abbreviations to a language that it does not know,
and ends French sentences at "Mme." and Russian ones before a dash. There a sentence ends at the final punctuation of
any script, unless the words around it say otherwise; ``sentences.yaml`` lists those words for some languages.
``python -m benchmarks.sentences`` measures both.
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

# Each mask is as long as the text that it hides. The words are abbreviations to sentencex, but far more often words.
_MASKS = (
    *((mark, " ") for mark in '"“”'),
    *((mark, "  ") for mark in ("''", "``", " '", "' ", " ‘", "’ ")),
    ("'", "x"),
    ("’", "x"),
    *((f" {word}.", f" {'x' * len(word)}.") for word in "me no may art ill miss fed ark".split()),
)
# (She knew it.) They left.
_WHOLE_IN_BRACKETS = re.compile(r"\(([^()]*[.!?] *)\)")
_BEFORE_NUMBER = re.compile(
    r"(?:^|[ (])(?:approx|(?:[Aa]rt|[Cc]h|[Ee]q|[Ff]ig|[Nn]o|[Pp]ar|[Rr]ef|[Ss]ec|[Tt]ab|[Vv]ol)s?)\.\Z"
)
# For sentencex, an ellipsis ends nothing.
_ELLIPSIS = re.compile(r"(?<=\w)…(?=[\s\"”’])")
_ENGLISH_OPENERS = " \t\"“‘'(["
_NEVER_FIRST = frozenset(",;:—–)")
# Characters that sentencex sees at once: unclosed quotes take quadratic time.
MAX_SEGMENT_LENGTH = 8_000


def split_sentences(paragraph: str, language: str) -> list[str]:
    """Split a paragraph into sentences. Only the spaces between them are left out.

    Sentences within quotation marks count separately: ``"I went. I saw," he said.`` is two.

    Args:
        paragraph: prose without line breaks.
        language: ISO 639 code, also with a variant (``pt-br``); '' if unknown.
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
        # Closing quotes, which were masked, belong to the sentence.
        while end < position and not paragraph[end].isspace():
            end += 1
        if is_end and (end == len(paragraph) or _may_end(paragraph, start, end)):
            yield end
            start = end


# Pieces that sentencex makes of an English text, and whether a sentence may end there. A long text is processed in
# stretches. Each begins with the last piece of the one before, which may continue in it.
def _pieces(text: str) -> Iterator[tuple[str, bool]]:
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
    # Most often a blank and a capital follow.
    if text[end] != " " or not text[end + 1 : end + 2].isupper():
        following = text[end : end + 12].lstrip(_ENGLISH_OPENERS)
        first = following[:1]
        if first in _NEVER_FIRST:
            return False
        # iOS begins a sentence, and a text without capitals, such as BookCorpus, begins all with small letters.
        if first.islower() and not following[1:2].isupper():
            beginning = text[start : start + 12].lstrip(_ENGLISH_OPENERS)
            return beginning[:1].islower()
        if first.isdecimal():
            return not _BEFORE_NUMBER.search(text, max(start, end - 12), end)
    # Ft. Knox
    return text[end - 3 : end] not in ("Ft.", "Pt.")


@cache
def rules_of(code: str) -> SimpleNamespace:
    tables = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    own = tables.get(code, {})
    rules = tables["und"] | own
    # Abbreviations of any language are added to those of the language.
    for name in ("never", "may", "numbered", "starters", "continues"):
        rules[name] = set(f"{tables['und'][name]} {own.get(name, '')}".split())
    return SimpleNamespace(**rules)


# Unicode's property Sentence_Terminal, without marks of historic scripts. The first also occur within sentences, so
# that a blank must follow.
_STOPS = ".!?…‼‽⁇⁈⁉"
FULL_STOPS = "։؟۔܀܁܂।॥၊။።፧፨᙮᠃᠉។៕᪨᪩᪪᪫᭚᭛᰻᱾᱿꓿꘎꘏꡶꡷꣎꣏꤯꩝꩞꯫。︒﹒﹖﹗！．？｡"
# “ and « open a quotation in one language and close it in another.
OPENERS = "\"“”„‘‚'’«»‹›([¿¡`"
CLOSERS = "\"'“‘”’»«›‹」』）】》〉])"
_OPEN = re.escape(OPENERS)
_CLOSING = re.escape(CLOSERS)
# Half-width marks end a sentence before the next character in Chinese and Japanese: 何ですか?本です。 Katakana before
# or after one is mostly a name: ラブライブ!サンシャイン, as is what is in quotes: 「それゆけ!未確認男」. A letter after
# the closing quotes continues the sentence: 「行く！」と言った。
# The next word of "'s Avonds" is Avonds.
_MARK = re.compile(
    # A single set of first characters is fast.
    rf"[{_STOPS}{FULL_STOPS}](?:"
    rf"(?<=[{_STOPS}])(?<![{_STOPS}][{_STOPS}])[{_STOPS}]*+[{_CLOSING}]*+"
    rf"(?:[ \u00a0\u202f](?:''|[»”{_STOPS}])(?=\s))*+(?=\s)"
    rf"|(?:(?<=[{FULL_STOPS}])|(?<=[\u3040-\u309f\u3400-\u9fff」』）][!?])"
    r"(?![!?]*+(?:[\u30a0-\u30ff]|[^「『」』!?]{1,40}+[」』])))"
    rf"[{FULL_STOPS}!?]*+[」』）】》〉”’»›)\]]*+(?:[\"'](?!\w))*+(?:(?<=[{FULL_STOPS}!?])|(?!\w))"
    rf")(?=[\s{_OPEN}]*+(?P<dash>[-–—]\s*+[{_OPEN}]*+)?(?:(?<=['’])[nst] )?(?P<word>\w*+)(?P<after>.?))",
    re.S,
)
_CONTINUING = ",;:—–)/&%=+،؛，、；：」』）】》〉"
# モーニング娘。は歌手である: particles of Japanese before a noun; が、 and で、 may begin a sentence
_NOUN = r"(?=[^\W\u3040-\u309f])"
_PARTICLE = re.compile(rf"[はの](?:{_NOUN}|、)|[がにともで]{_NOUN}|を")
_STRAIGHT_QUOTES = re.compile('"([^"]*+)"')
_FIRST_WORD = re.compile(r"\w|\Z")
# "McDonald's" as a whole; "art" of "dell'art", "Str" of "Max-Planck-Str"
_LAST = re.compile(r"['’]s\Z|[^\s.'’-]*\Z")
# No abbreviation has more letters.
_MAX_ABBREVIATION = 8
# Characters before a point, for the longest abbreviations.
_LOOK_BACK = 24
# Characters of a part of an abbreviation, with its point.
_MAX_ABBREVIATION_PART = 5
# Characters within which a bracket is closed.
_MAX_BRACKETS = 300


def _ends(text: str, rules: SimpleNamespace) -> Iterator[int]:
    # A closing quotation mark belongs to the sentence before it, an opening one to the next.
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
            # Also the empty string, at the end of the text, is in _CONTINUING.
            if (not word and after in _CONTINUING) or (word in rules.continues and len(marks) > 1):
                continue
            # A dash before a number or a mark, unlike one before a speech: «Кто?» — «Я!»
            if dash and not word[:1].isalpha():
                continue
            # iOS begins a sentence, and in a text without capitals, such as BookCorpus, small letters begin all.
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
    """Return whether a word begins with a small letter of a script with capitals."""
    return word[:1] != word[:1].title()


# A bracket that opened within the sentence is open before a mark, and closed later.
def _in_brackets(text: str, start: int, stop: int) -> bool:
    for opening, closing in ("()", "（）"):
        opened = text.rfind(opening, max(start, stop - _MAX_BRACKETS), stop)
        if opened >= 0 and text.find(closing, opened, stop) < 0:
            return text.find(closing, stop, stop + _MAX_BRACKETS) >= 0
    return False


# The word after the point has no small first letter; after is the mark after that word.
def _ends_at_point(text: str, start: int, point: int, following: str, after: str, rules: SimpleNamespace) -> bool:
    is_long = point >= _MAX_ABBREVIATION and text[point - _MAX_ABBREVIATION : point].isalpha()
    # Vowel signs of Indic scripts are marks: एन. सी. पाधी
    if is_long or not (text[point - 1].isalnum() or category(text[point - 1]) in ("Mc", "Mn")):
        return True
    written = _abbreviation(text[max(start, point - _LOOK_BACK) : point])
    last = written.lower()
    parts = [last]
    names = [last]
    # z.b is looked up as z.b and b, пр-т as прт and т.
    if not last.isalpha():
        parts = last.replace(" ", "").replace("-", "").split(".")
        last = _LAST.search(last)[0]  # type: ignore[index]
        names = [".".join(parts[index:]) for index in range(len(parts))]
        names.append(last)
    # The first point of z. B.
    if after == ".":
        names.insert(0, f"{parts[-1]}.{following.lower()}")
    starts = after != "." and following[:1].isupper() and following.lower() in rules.starters
    for name in names:
        if name in rules.may:
            return starts
        if name in rules.never or (name in rules.numbered and following[:1].isdecimal()):
            return False
    # The number of a list.
    if (len(written) == 1 or last.isdecimal()) and text.startswith(f"{written}.", start):
        return False
    # At 22. Then
    if last.isdecimal():
        return len(last) > 2 or not rules.ordinals or starts or (written != last and not following.isdecimal())
    if rules.ordinals and written.isupper() and not last.strip("ivxlcdm"):
        return starts
    # A single letter of Korean, Chinese or Japanese is a word.
    if len(last) > 1 or last > "\u2e7f":
        return True
    # UN-a and x-T are words.
    if len(parts) == 1 and (is_small(written) or is_small(written[-1:])):
        return True
    # J. S. Bach; U.S.A. Then
    return starts and " " not in written and "-" not in written


# The last word of a text, with the short words with points before it: z. B, apr. J.-C
def _abbreviation(before: str) -> str:
    words = before.split()
    written = words.pop()
    while words and words[-1][-1] == "." and len(words[-1]) <= _MAX_ABBREVIATION_PART:
        written = f"{words.pop()} {written}"
    return written.lstrip(OPENERS)
