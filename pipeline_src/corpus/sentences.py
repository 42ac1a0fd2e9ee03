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
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sentencex import segment

from pipeline_src.common.yaml_files import parse_yaml

# Each mask is as long as the text that it hides. The words are abbreviations to sentencex, but far more often words.
_QUOTES = (*((mark, " ") for mark in '"“”'), *((mark, "  ") for mark in ("''", "``", " '", "' ", " ‘", "’ ")))
_APOSTROPHES = (("'", "x"), ("’", "x"))
_WORDS = tuple((f" {word}.", f" {'x' * len(word)}.") for word in "me no may art ill miss fed ark".split())
_MASKS = (*_QUOTES, *_APOSTROPHES, *_WORDS)
_WHOLE_IN_BRACKETS = re.compile(r"\(([^()]*[.!?] *)\)")  # (She knew it.) They left.
_BEFORE_NUMBER = re.compile(
    r"(?:^|[ (])(?:approx|(?:[Aa]rt|[Cc]h|[Ee]q|[Ff]ig|[Nn]o|[Pp]ar|[Rr]ef|[Ss]ec|[Tt]ab|[Vv]ol)s?)\.\Z"
)
_BEFORE_NAME = ("Ft.", "Pt.")  # Ft. Knox
_ELLIPSIS = re.compile(r"(?<=\w)…(?=[\s\"”’])")  # to sentencex no end
_ENGLISH_OPENERS = " \t\"“‘'(["
_NEVER_FIRST = frozenset(",;:—–)")
MAX_SEGMENT_LENGTH = 8_000  # characters that sentencex sees at once: unclosed quotes take quadratic time


def split_sentences(paragraph: str, language: str) -> list[str]:
    """Return the sentences of a paragraph in order, stripped, none empty; only spaces between them are left out.

    Sentences within quotation marks count separately: ``"I went. I saw," he said.`` is two.

    Args:
        paragraph: prose without line breaks.
        language: ISO 639 code, also with a variant (``pt-br``); '' if unknown.
    """
    code = language.partition("-")[0]
    ends = _english_ends(paragraph) if code == "en" else _ends(paragraph, rules_of(code))
    sentences: list[str] = []
    start = 0
    for end in ends:
        if sentence := paragraph[start:end].strip():
            sentences.append(sentence)
        start = end
    if last := paragraph[start:].strip():
        sentences.append(last)
    return sentences


def _english_ends(paragraph: str) -> Iterator[int]:
    start = position = 0
    for piece, is_end in _pieces(_mask(paragraph)):
        end = position + len(piece.rstrip())
        position += len(piece)
        if not is_end:
            continue
        while end < position and not paragraph[end].isspace():  # closing quotes that were masked
            end += 1
        if end < len(paragraph) and not _may_end(paragraph, start, end):
            continue
        yield end
        start = end


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield sentencex's pieces of an English text, and whether a sentence may end there.

    A long text is processed in stretches; each begins with the last piece of the one before, which may continue in it.
    """
    start = 0
    while len(text) - start > MAX_SEGMENT_LENGTH:
        stretch = text[start : start + MAX_SEGMENT_LENGTH]
        pieces = list(segment("en", stretch))
        complete = pieces[:-1]
        if not complete:
            yield stretch, False
        yield from ((piece, True) for piece in complete)
        start += sum(map(len, complete)) or MAX_SEGMENT_LENGTH
    for piece in segment("en", text[start:] if start else text):
        yield piece, True


def _mask(text: str) -> str:
    if "…" in text:
        text = _ELLIPSIS.sub(".", text)
    for hidden, mask in _MASKS:
        text = text.replace(hidden, mask)
    return _WHOLE_IN_BRACKETS.sub(r" \1 ", text) if ")" in text else text


def _may_end(text: str, start: int, end: int) -> bool:
    if text[end] != " " or not text[end + 1 : end + 2].isupper():  # most often a blank and a capital
        following = text[end : end + 12].lstrip(_ENGLISH_OPENERS)
        first = following[:1]
        if first in _NEVER_FIRST:
            return False
        if first.islower() and not following[1:2].isupper():  # unless the text has no capitals, as BookCorpus
            return text[start : start + 12].lstrip(_ENGLISH_OPENERS)[:1].islower()
        if first.isdecimal():
            return not _BEFORE_NUMBER.search(text, max(start, end - 12), end)
    return text[end - 3 : end] not in _BEFORE_NAME


@dataclass(frozen=True)
class Rules:
    """The words of one language, in lower case; a language without a table has none.

    Attributes:
        never: abbreviations that no sentence ends with.
        may: abbreviations that a sentence ends with if a word of ``starters`` follows.
        numbered: abbreviations that a sentence ends with unless a number follows.
        starters: words that begin a sentence if they have a capital.
        continues: words that continue a sentence after a quotation, in scripts without capitals.
        ordinals: whether a number with a point may be an ordinal.
    """

    never: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    numbered: frozenset[str] = frozenset()
    starters: frozenset[str] = frozenset()
    continues: frozenset[str] = frozenset()
    ordinals: bool = False


WORD_LISTS = ("never", "may", "numbered", "starters", "continues")


@cache
def rules_of(code: str) -> Rules:
    """Return the rules of a language by its ISO 639 code."""
    table = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).get(code, {})
    words = {name: frozenset(table.get(name, "").split()) for name in WORD_LISTS}
    return Rules(**words, ordinals=table.get("ordinals", False))


# Unicode's property Sentence_Terminal, without marks of historic scripts. The first also occur within sentences, so
# that a blank must follow.
_STOPS, FULL_STOPS = ".!?…‼‽⁇⁈⁉", "։؟۔܀܁܂।॥၊။።፧፨᙮᠃᠉។៕᪨᪩᪪᪫᭚᭛᰻᱾᱿꓿꘎꘏꡶꡷꣎꣏꤯꩝꩞꯫。︒﹒﹖﹗！．？｡"
OPENERS, CLOSERS = "\"“”„‘‚'’«»‹›([¿¡`", "\"'“‘”’»«›‹」』）】》〉])"  # “ and « open in one language, close in another
_OPEN, _CLOSING = re.escape(OPENERS), re.escape(CLOSERS)
_MARK = re.compile(
    rf"[{_STOPS}{FULL_STOPS}](?:"  # a single set of first characters is fast
    rf"(?<=[{_STOPS}])(?<![{_STOPS}][{_STOPS}])[{_STOPS}]*+[{_CLOSING}]*+(?:[ \u00a0\u202f][»”])?(?=\s)"
    rf"|(?<=[{FULL_STOPS}])[{FULL_STOPS}]*+[」』）】》〉”’»›)\]]*+(?:(?<=[{FULL_STOPS}])|(?!\w))"  # 「行く！」と
    rf")(?=[\s{_OPEN}]*+(?P<dash>[-–—]\s*+[{_OPEN}]*+)?(?P<word>\w*+)(?P<after>.?))",
    re.S,
)
_CONTINUING = _NEVER_FIRST.union("/&%=+،؛，、；：」』）】》〉", [""])
# モーニング娘。は歌手である: particles of Japanese before a noun; が、 and で、 may begin a sentence
_NOUN = r"(?=[^\W\u3040-\u309f])"
_PARTICLE = re.compile(rf"[はの](?:{_NOUN}|、)|[がにともで]{_NOUN}|を")
_FIRST_WORD = re.compile(r"\w|\Z")
_LAST = re.compile(r"[^\s.'’-]*\Z")  # dell'art, Max-Planck-Str
_ROMAN = re.compile(r"[ivxlcdm]+")
_MAX_ABBREVIATION = 8  # letters, more than any abbreviation has
_LOOK_BACK = 24  # characters before a point, for the longest abbreviations
_MAX_ABBREVIATION_PART = 5  # characters of a part of an abbreviation, with its point
_MAX_BRACKETS = 300  # characters within which a bracket is closed


def _ends(text: str, rules: Rules) -> Iterator[int]:
    first = _FIRST_WORD.search(text).start()  # type: ignore[union-attr]
    has_brackets = "(" in text or "（" in text
    for mark in _MARK.finditer(text):
        stop = mark.start()
        if stop < first or (has_brackets and _in_brackets(text, first, mark)):
            continue
        dash, word, after = mark.groups()
        if not word and after in _CONTINUING:
            continue
        if is_small(word) and not (word[1:2].isupper() or is_small(text[first])):  # iOS; all of BookCorpus
            continue
        if not word[:1].isupper() and (dash or (word in rules.continues and len(mark[0]) > 1)):
            continue
        if mark[0] == "。" and _PARTICLE.match(text, mark.end()):
            continue
        if mark[0] == "." and not _ends_at_point(text, first, stop, word, after, rules):
            continue
        yield mark.end()
        first = mark.start("word")


def is_small(word: str) -> bool:
    """Return whether a word begins with a small letter of a script that begins sentences with capitals."""
    return word[:1] != word[:1].title()


def _in_brackets(text: str, start: int, mark: re.Match[str]) -> bool:
    """Return whether a bracket that opened within the sentence is open before a mark, and closed later."""
    for opening, closing in ("()", "（）"):
        opened = text.rfind(opening, max(start, mark.start() - _MAX_BRACKETS), mark.start())
        if opened >= 0 and text.find(closing, opened, mark.start()) < 0:
            return text.find(closing, mark.start(), mark.end() + _MAX_BRACKETS) >= 0
    return False


def _ends_at_point(text: str, start: int, point: int, following: str, after: str, rules: Rules) -> bool:
    """Return whether a sentence ends at a point before a word without a small first letter, and the mark after that."""
    is_long = point >= _MAX_ABBREVIATION and text[point - _MAX_ABBREVIATION : point].isalpha()
    if is_long or not text[point - 1].isalnum():
        return True
    words = text[max(start, point - _LOOK_BACK) : point].split()
    written = words.pop()
    while words and words[-1][-1] == "." and len(words[-1]) <= _MAX_ABBREVIATION_PART:  # z. B., apr. J.-C.
        written = f"{words.pop()} {written}"
    written = written.lstrip(OPENERS)
    parts = written.replace(" ", "").replace("-", "").lower().split(".")
    last = _LAST.search(written.lower())[0]  # type: ignore[index]
    starts = after != "." and following[:1].isupper() and following.lower() in rules.starters
    names = [".".join(parts[number:]) for number in range(len(parts) - 1)]
    if after == ".":
        names.append(f"{parts[-1]}.{following.lower()}")  # z. B.
    if len(last) > 1 or len(parts) == 1:
        names.append(last)
    for name in names:
        if name in rules.never:
            return False
        if name in rules.may:
            return starts
        if name in rules.numbered and following[:1].isdecimal():
            return False
    if (len(written) == 1 or last.isdecimal()) and text.startswith(f"{written}.", start):  # the number of a list
        return False
    if last.isdecimal():  # kl. 22. Then
        return len(last) > 2 or not rules.ordinals or starts or (written != last and not following.isdecimal())
    if rules.ordinals and written.isupper() and _ROMAN.fullmatch(last):
        return starts
    if len(last) > 1 or (len(parts) == 1 and is_small(written)):
        return True
    return starts and " " not in written and "-" not in written  # J. S. Bach; U.S.A. Then
