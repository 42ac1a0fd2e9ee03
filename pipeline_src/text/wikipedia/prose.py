"""Separate prose from the rest of a page, and repair what removed markup leaves behind.

An example. The page is

    The mill is old.<ref>Reed</ref> It has {{odd|5}} wheels. They turn.{{odd}} Then they rest. It has two parts:
    * a wheel
    The force is given by
    :<math>F = ma</math>
    where m is the mass {{cn}}.

Before this module, links, templates and tags become text or a marker (markers.py). A template of unknown words leaves a
hole, one without words a ‹gone›, and a formula on a line of its own has marks around it:

    The mill is old. It has ‹hole› wheels. They turn.‹hole› Then they rest. It has two parts:
    * a wheel
    The force is given by
    :‹formula›F = ma‹formula›
    where m is the mass ‹gone›.

1. ``close_sentences``: the second hole stands between two sentences, so neither has lost words. It becomes ‹gone›.
2. ``join_formulas``: the line before the formula has no full stop, and the line after it begins with a small letter.
   The three lines are one: ``The force is given by F = ma where m is the mass ‹gone›.``
3. ``paragraphs``: a line of a list ends the first paragraph. Its sentence with a hole is dropped (``drop_broken``), and
   so is its last one, which leads to a list that is not there (``_drop_lead_in``). What is left:

    The mill is old. They turn. Then they rest.
    The force is given by F = ma where m is the mass .

4. ``repair``: ``mass .`` becomes ``mass.``
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from unicodedata import category

from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.text.sentences import CLOSERS, OPENERS, is_small, split_sentences
from pipeline_src.text.wikipedia.markers import BOX, BREAK, FORMULA, GONE, NAMES, PLACEHOLDER
from pipeline_src.text.words import DENSE_LETTERS, DENSE_WEIGHT

# Shorter lines are captions, labels and scraps of tables.
MIN_LENGTH = 25
# Characters from which a line counts as prose even without a full stop.
MIN_UNENDED_LENGTH = 120
# Characters of an item of a list in a script without capitals: eight words.
MIN_ITEM_LENGTH = 45
COLONS = (":", "：")
NOT_PROSE = {"*": "list", "#": "list", ":": "list", ";": "list", "|": "table", "!": "table", "{": "table", "}": "table"}
NOT_PROSE |= {"=": "heading", "-": "rule", BOX: "box"}
# Closing one hole may open another: "a ( ; ) b" -> "a () b" -> "a b".
MAX_REPAIRS = 4
INTERRUPTIONS = frozenset(("formula", "list", "table", "template"))
# These may also end an abbreviation or stand within a sentence.
ABBREVIATING = ".!?…"
# the full stops, question and exclamation marks of the other scripts of Wikipedia, which end nothing but a sentence
ENDS = "。！？．｡؟۔؞։।॥።፧፨၊။។៕།༎᠃᠉߹꓿᱾᱿꯫෴܀܁܂"
FULL_STOPS = frozenset(ABBREVIATING + ENDS)
STOPS = FULL_STOPS | frozenset(":;" + PLACEHOLDER)
COMPLETE = FULL_STOPS | frozenset(CLOSERS)
INTRODUCTION_ENDS = COMPLETE | frozenset(":")
SENTENCE_MARKS = (*FULL_STOPS, ":")
SENTENCE_ENDS = COMPLETE | STOPS
# A line of only these is a formula on its own line.
FORMULA_PUNCTUATION = PLACEHOLDER + GONE + " \t,.;:()[]=+-–·&→"
# Closing marks that follow a full stop.
MAX_CLOSERS = 4

# One or more holes. Those of templates are two characters, the number of the name and PLACEHOLDER. The match starts at
# the first PLACEHOLDER: a pattern that starts with one certain character is several times faster.
_HOLES = re.compile(rf"{PLACEHOLDER}{GONE}*+(?:{NAMES.pattern}?{PLACEHOLDER}{GONE}*+)*+")
_ENDED = re.compile(rf"(?:[^\W_]{{3}}[{ABBREVIATING}]|[{ENDS}])[{re.escape(CLOSERS)}{GONE}]*(?: *|{NAMES.pattern})\Z")
_ENDED_WITHIN = re.compile(rf".{{{MIN_LENGTH - 1}}}(?:[{ABBREVIATING}] |[{ENDS}])")
_SENTENCE_END = re.compile(rf"(?: |[{ENDS}][{re.escape(CLOSERS)}]*)\Z")
_ASIDE = re.compile(rf"(?:(?<=\s)\(|（)[^()（）\n{PLACEHOLDER}]*{PLACEHOLDER}[^()（）\n]*[)）]")
# A letter of a script with spaces between words.
_LETTER = r"[^\W\u2e80-\u9fff]"
# A marker between two letters separates them.
_WITHIN = re.compile(rf"{GONE}(?<={_LETTER}{GONE}){GONE}*+(?={_LETTER})")
_FORMULA_LINE = re.compile(rf"[ \t:{GONE}]*{FORMULA}([^{FORMULA}]+){FORMULA}([.,;:]?)[ \t{GONE}]*")
# Of a term with its definition, ``; Mill : It has been here for ages.``, the definition is an item.
_LIST_MARKS = re.compile(r"[*#:;]++(?:(?<=;)[^:]*+(?::|\Z))?\s*")
# An equation of chemistry has no such word.
_WORD = re.compile(r"[^\W\d_]{4}")
_DENSE = re.compile(f"[{DENSE_LETTERS}\u3001-\u30ff\uac00-\ud7a3\uff01-\uff9f]")
# French pages have a space before : ; ! ? »
FRENCH = "fr"

# Moves of chess: 1.e4 e5 2.Nf3
_MOVES = re.compile(r"\d{1,3}\.(?:\.\.)? ?\S{2,8} +(?:\S{2,8} +)?\d{1,3}\.(?:\.\.)? ?[a-hKQRBNO]")

# Every pattern starts only where a run starts, so that long runs take linear time; those that begin with one certain
# character are several times faster than those that begin with one of a set.
_SPACES = re.compile(r"  +")
_AFTER_OPENING = re.compile(r"\((?=[ ,;:])[ ,;:]++")
_EMPTY = re.compile(r"\((?: ?[–—/-] ?)?\)")
_COMMAS, _SEMICOLONS = re.compile(r",(?= ?[,;])[ ,;]++"), re.compile(r";(?= ?[,;])[ ,;]++")
# Sr.{{ref}}. Then; in scripts whose full stop is another, also before a letter: 水車。{{ref}}。川
ONE_STOPS = "。．｡۔։।။።។᠃"
_TWO_STOPS = re.compile(
    rf"([.{ONE_STOPS}])\1(?<=[^\s.{ONE_STOPS}]..)(?!\1)"
    rf"(?:(?<!\.)|(?= [{re.escape(OPENERS)}]*[^\W_a-zß-ÿα-ώа-џա-և]|\n|\Z))"
)
_LOOSE = re.compile(r" (?=[,.;:](?:\s|\Z))")
_LOOSE_FRENCH = re.compile(r" (?=[,.](?:\s|\Z))")
_FOOTNOTE = re.compile(r"\[\d{1,3}\]")
# What a page shows as text but looks like markup: characters that it holds, its pattern, and what replaces it.
_REMAINS = (
    ("{", re.compile(r"\{[{|]++"), " "),
    ("}", re.compile(r"\}\}++|\|\}++"), " "),
    ("[", re.compile(r"\[\[++"), " "),
    ("]", re.compile(r"\]\]++"), " "),
    ("=", re.compile(r"==+"), "="),
    ("-->", re.compile("(?<= )--++>(?= )"), "→"),
    ("-->", re.compile("(?<!-)--++>"), " "),
    ("<", re.compile(r"<!-[<!-]*+"), " "),
    ("<", re.compile(r"(?<![</])/*+<[</]*+(?=ref)(?:[^<>\n]{0,100}>)?", re.IGNORECASE), ""),
    ("''", re.compile("''+"), "'"),
)

# Words of a sentence that says something without its end.
MIN_WORDS = 8
# Words in lower case of a sentence without its full stop, unlike most titles and labels.
MIN_LOWERCASE_WORDS = 6
# After these a sentence continues.
UNENDED = frozenset(",;:–—-/([&+=")

# An apostrophe between two words: dell'uomo
_ELIDED = re.compile(r"(?<=\w)['’](?=\w{3})")
_WORDS = re.compile(r"\w+")
# "Cortex: the outer layer of the brain.", "Cortex – the outer layer of the brain."
_LABEL = re.compile(r".{1,60}?(?: [–—-]+ |[:：](?!\d)|— )")


_SECOND_CLAUSE = re.compile(
    r"""(?:^|[,;]\ )(?:although|but|though|whereas|while|aber|denn|obgleich|obwohl|sondern|während|aunque|mientras|pero|
    sino|mais|puisque|quoique|tandis|benché|ma|mentre|poiché|sebbene)\b""",
    re.IGNORECASE | re.VERBOSE,
)


# The words of a language by kind (prose.yaml). None for a language without a table.
@cache
def words_of(language: str) -> dict[str, frozenset[str]]:
    tables = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    table = tables.get(language.partition("-")[0], {})
    return {kind: frozenset(words.split()) for kind, words in table.items()}


def repair(paragraph: str, language: str) -> str:
    if "  " in paragraph:
        paragraph = _SPACES.sub(" ", paragraph)
    for _ in range(MAX_REPAIRS):
        before = paragraph
        paragraph = without_markup(close_holes(paragraph, language)).strip()
        if paragraph == before:
            break
    return paragraph


def close_holes(text: str, language: str) -> str:
    """Close the holes that removed templates leave: ``( ; born 1900 )`` -> ``(born 1900)``.

    French pages keep the space that they have before ``:`` and ``;``, as before ``!``, ``?`` and ``»``.
    """
    if "(" in text:
        text = _AFTER_OPENING.sub("(", text)
        *enclosed, after = text.split(")")
        # "(born 1900 ; )" -> "(born 1900)", also where the bracket was opened long before
        text = ")".join([*(part.rstrip(" ,;:") for part in enclosed), after])
        text = _EMPTY.sub("", text)
    if "[" in text:
        text = _FOOTNOTE.sub("", text).replace("[]", "").replace("[ ]", "")
    text = _SEMICOLONS.sub("; ", _COMMAS.sub(", ", text))
    if '""' in text:
        text = text.replace('""', "")
    if "  " in text:
        text = _SPACES.sub(" ", text)
    if " ," in text or " ." in text or " ;" in text or " :" in text:
        text = (_LOOSE_FRENCH if language == FRENCH else _LOOSE).sub("", text)
    if ".." in text or text.rstrip(CLOSERS)[-1:] in ONE_STOPS:
        text = _TWO_STOPS.sub(r"\1", text)
    return text


def close_sentences(text: str) -> str:
    """Remove the holes between two sentences: ``It ended.{{x}} Then`` lost no words of one.

    Unlike a template, a formula, code or music has no words that begin a sentence: ``It ended. <score>…</score> Then``.
    """
    out: list[str] = []
    done = 0
    for holes in _HOLES.finditer(text):
        start, end = holes.span()
        # A word follows without a blank: it is a part of the same sentence.
        if text[end : end + 1].strip():
            continue
        if not _ENDED.search(text, max(0, start - 13), start):
            continue
        following = text[end : end + 40].lstrip(f" \t\n{OPENERS}")[:1]
        if not (is_small(following) or following.isdecimal()):
            is_named = start > 0 and NAMES.match(text, start - 1) is not None
            out += (text[done : start - is_named], GONE)
            done = end
    return "".join(out) + text[done:]


def join_formulas(text: str) -> str:
    """Move a readable formula on its own line back into its sentence.

    The line before must introduce it, without a full stop; the line after belongs to the sentence if it begins with a
    small letter: ``It is given by`` / ``F = ma,`` / ``where m is the mass.``
    """
    # The parts of each line.
    out: list[list[str]] = [[""]]
    # The number of blank lines since the last line of out.
    blanks = 0
    # The number of formulas at the end of the last line of out.
    joined = 0
    # Whether the formula ends the paragraph.
    indented = False
    for line in text.split("\n"):
        if not line.strip(f" \t{GONE}"):
            blanks += 1
            continue
        before = out[-1][-1].rstrip(f" \t{GONE}")
        formula = _FORMULA_LINE.fullmatch(line) if FORMULA in line else None
        if formula and blanks < 2 and _leads_up(out[-1][0], before) and (not joined or before[-1] in ",;"):
            out[-1].append(formula[1].strip() + formula[2])
            joined, indented = joined + 1, ":" in line[: formula.start(1)]
        elif joined and blanks < 2 and _continues(line) and before[-1:] not in FULL_STOPS:
            out[-1].append(line)
            joined = 0
        else:
            out += [[""]] * blanks
            # This formula was the first of several, which are no part of a sentence.
            if joined and line.lstrip()[:1] == ":":
                del out[-1][-joined:]
                out.append([":"])
            elif joined and indented and not blanks:
                out.append([""])
            out.append([line])
            joined = 0
        blanks = 0
    return "\n".join(" ".join(pieces) for pieces in out[1:]).replace(FORMULA, "")


def _leads_up(start: str, end: str) -> bool:
    start = start.lstrip(GONE)
    return start[:1] not in NOT_PROSE and start[:1] != " " and end[-1:] not in COMPLETE and end != ""


def _continues(line: str) -> bool:
    return line[:1] != " " and is_small(line.lstrip(GONE + FORMULA))


def paragraphs(
    text: str,
    dropped: Counter[str],
    language: str,
    count: Callable[[str], None],
    lists: str,
) -> list[str]:
    """Return the paragraphs of prose. ``dropped`` counts the other lines by kind.

    As in MediaWiki, lines without a blank line between them are one paragraph. Also left out are sentences that only
    introduce a list, table or formula (``They are:``), unless just their full stop is missing; the rest of a sentence
    after one (``where x is the mass.``); and every sentence with a placeholder. ``count`` is called with the text
    dropped for a placeholder. With ``lists="sentences"``, items of lists that are whole sentences are paragraphs.
    """

    prose: list[str] = []
    block: list[str] = []
    # Whether a list, table or formula came last.
    broken_off = False
    # The last paragraph kept, if it may introduce what follows and nothing has followed.
    leading = ""
    for raw in _lines(text):
        line = raw.strip()
        if GONE in line:
            line = _WITHIN.sub(" ", line).replace(GONE, "").strip()
        kind = _kind(raw, line) if line else "blank"
        if kind is None:
            block.append(line)
            continue
        if block:
            if (
                kind in INTERRUPTIONS
                and block[-1][-1] not in INTRODUCTION_ENDS
                and (PLACEHOLDER in line or not lacks_only_its_stop(" ".join(block), language))
            ):
                # The formula or list was part of this sentence.
                block.append(PLACEHOLDER)
            paragraph = _finish(block, broken_off, dropped, language, count)
            if paragraph:
                prose.append(paragraph)
                leading = paragraph if paragraph[-1] not in COMPLETE else ""
                broken_off = False
            else:
                _drop_lead_in(prose, leading, False, dropped, language)
                leading = ""
                broken_off = block[-1][-1] not in FULL_STOPS | {";"}
            block = []
        if kind == "blank":
            continue
        broken_off = kind != "heading" and (broken_off or kind != "box")
        item = _item(line, language, count) if lists == "sentences" and kind == "list" else ""
        if item:
            prose.append(item)
        else:
            dropped[kind] += 1
            _drop_lead_in(prose, leading, broken_off, dropped, language)
        leading = ""
    _drop_lead_in(prose, leading, False, dropped, language)
    return prose


# The text of a list's line if it begins with a whole sentence, else ''.
def _item(line: str, language: str, count: Callable[[str], None]) -> str:
    text, _ = drop_broken(_LIST_MARKS.sub("", line, count=1), language, count)
    return text if begins_with_sentence(text, language) else ""


# BREAK ends a paragraph, except in lists and tables. The last line is blank.
def _lines(text: str) -> Iterator[str]:
    for raw in text.split("\n"):
        if BOX in raw:
            start = raw.lstrip(f" \t{GONE}")
            if start[:1] == BOX:
                yield BOX
                raw = GONE + start.lstrip(f" \t{GONE}{BOX}")
            raw = raw.replace(BOX, PLACEHOLDER)
        if BREAK in raw:
            if raw.lstrip(f" \t{GONE}{BREAK}")[:1] in NOT_PROSE:
                yield raw.replace(BREAK, " ").lstrip()
            else:
                for piece in raw.split(BREAK):
                    yield piece.strip()
                    yield ""
            continue
        yield raw
    yield ""


# The paragraph without its broken sentences, or '' if it is not prose.
def _finish(
    block: list[str], broken_off: bool, dropped: Counter[str], language: str, count: Callable[[str], None]
) -> str:
    # Punctuation of a removed formula.
    paragraph = " ".join(block).lstrip(" ,;:)")
    if not _is_prose(paragraph, block, language):
        dropped["fragment"] += 1
        if not _ENDED_WITHIN.search(paragraph):
            return ""
        # "The mill stands by the river. Its old wheel" loses only its open end.
        *complete, _ = split_exactly(paragraph, language)
        paragraph = "".join(complete).rstrip()
        if is_small(paragraph) or not _is_prose(paragraph, [paragraph], language):
            return ""
    rest_of_sentence = broken_off and is_small(paragraph)
    if not rest_of_sentence and PLACEHOLDER not in paragraph:
        return paragraph
    paragraph, sentences = drop_broken(PLACEHOLDER * rest_of_sentence + paragraph, language, count)
    if sentences:
        dropped["gap"] += sentences
    return "" if _is_short(paragraph) else paragraph


def drop_broken(paragraph: str, language: str, count: Callable[[str], None]) -> tuple[str, int]:
    """Drop the sentences with a placeholder outside brackets. Returns the rest and their number.

    Parts that punctuation within such a sentence split off (an open bracket, a small letter at the start) are dropped
    too. ``count`` is called with each sentence and each aside in brackets that is dropped.
    """

    def aside(match: re.Match[str]) -> str:
        count(match[0])
        return ""

    paragraph = _ASIDE.sub(aside, paragraph)
    if PLACEHOLDER not in paragraph:
        return paragraph, 0
    sentences = split_exactly(paragraph, language)
    complete: list[str] = []
    torn = False
    for sentence in sentences:
        torn = (
            PLACEHOLDER in sentence
            or sentence.count("(") != sentence.count(")")
            or sentence.rstrip(CLOSERS + " ")[-1:] not in STOPS
            or (torn and is_small(sentence))
        )
        if torn:
            count(sentence)
        else:
            complete.append(sentence)
    return "".join(complete).rstrip(), len(sentences) - len(complete)


# Joined, the sentences are the paragraph. A mark of ABBREVIATING ends one only before a space, which keeps T.U.A. in
# one.
def split_exactly(paragraph: str, language: str) -> list[str]:
    sentences: list[str] = []
    done = 0
    for sentence in split_sentences(paragraph, language):
        start = paragraph.find(sentence, done)
        if start > done and _SENTENCE_END.search(paragraph, max(done, start - MAX_CLOSERS - 1), start):
            sentences.append(paragraph[done:start])
            done = start
    return [*sentences, paragraph[done:]]


# Drop the last sentence of the last paragraph if it only announces what was removed. It stays if it ends in a colon
# and says something by itself, or if only its full stop is missing.
def _drop_lead_in(prose: list[str], leading: str, broken_off: bool, dropped: Counter[str], language: str) -> None:
    if not leading.endswith(COLONS) and (not leading or not broken_off or lacks_only_its_stop(leading, language)):
        return
    *before, last = split_exactly(leading, language)
    if last.endswith(COLONS) and says_something(last, language):
        return
    prose.pop()
    paragraph = "".join(before).rstrip()
    if not _is_short(paragraph):
        prose.append(paragraph)
    dropped["lead-in"] += 1


def _kind(raw: str, line: str) -> str | None:
    if raw[0] == " " and len(line) < MIN_UNENDED_LENGTH:
        # A line that begins with a space is shown as typed: code, verse.
        return "preformatted"
    if PLACEHOLDER in line:
        unnamed = NAMES.sub("", line)
        if not unnamed.strip(FORMULA_PUNCTUATION):
            return "formula" if unnamed == line else "template"
    return NOT_PROSE.get(line[0])


def _is_prose(paragraph: str, lines: list[str], language: str) -> bool:
    if paragraph[:1].isdigit() and _MOVES.match(paragraph):
        return False
    if _is_short(paragraph):
        return False
    if len(paragraph) >= MIN_UNENDED_LENGTH:
        # One long line is no caption and no label.
        is_ended = paragraph[-1] in SENTENCE_ENDS or len(max(lines, key=len)) >= MIN_UNENDED_LENGTH
    elif _has_words(paragraph):
        # "(a label)" and "A title" are none.
        is_ended = paragraph.rstrip(CLOSERS)[-1:] in STOPS
    else:
        return False
    return is_ended or lacks_only_its_stop(paragraph, language)


def _is_short(text: str, limit: int = MIN_LENGTH) -> bool:
    if len(text) >= limit:
        return False
    return text.isascii() or len(text) + (DENSE_WEIGHT - 1) * len(_DENSE.findall(text)) < limit


def _has_words(text: str) -> bool:
    if _WORD.search(text):
        return True
    return 2 * sum(not character.isascii() and category(character)[0] in "LM" for character in text) > len(text)


# Whether a repaired paragraph is still prose.
def is_paragraph(line: str, language: str) -> bool:
    return line[:1] not in NOT_PROSE and _is_prose(line, [line], language)


# Characters of markup that a page shows as text are removed, so that nobody mistakes them for markup.
def without_markup(text: str) -> str:
    for mark, pattern, replacement in _REMAINS:
        if mark in text:
            text = pattern.sub(replacement, text)
    return _SPACES.sub(" ", text) if "  " in text else text


# A sentence that ends in a colon says something if it has a second clause:
# Three died in prison, while the others were freed:
def says_something(lead_in: str, language: str) -> bool:
    return _SECOND_CLAUSE.search(lead_in) is not None and lacks_only_its_stop(lead_in[:-1], language)


# The function is called for a paragraph, and again for what follows it.
@lru_cache(64)
def lacks_only_its_stop(text: str, language: str) -> bool:
    """Return whether a text without a full stop ends in a complete sentence.

    The sentence must be long, unlike a title, and not end in a word that hardly ends one. In a language for which no
    such words are listed, the answer is always no.
    """
    unfinished = words_of(language).get("unfinished")
    if unfinished is None or text[-1:] in UNENDED or text.count(" ") < MIN_LOWERCASE_WORDS:
        return False
    # Of dell'una, the word after the apostrophe counts.
    if text[text.rfind(" ") + 1 :].lower().rpartition("'")[2] in unfinished:
        return False
    sentence = text
    if any(stop in text for stop in SENTENCE_MARKS):
        sentence = split_exactly(text, language)[-1]
    return sentence[:1].isupper() and _is_long(sentence)


def begins_with_sentence(text: str, language: str) -> bool:
    """Return whether a text begins with a whole sentence and ends with a stop.

    A sentence begins with a capital. It has a verb, where the language's verbs are listed, before any relative clause:
    ``A wheel, which is made of wood.`` is none. In a script without capitals, its length and its stop tell.
    """
    if text.rstrip(CLOSERS)[-1:] not in FULL_STOPS:
        return False
    sentence = split_sentences(text, language)[0]
    first = sentence.lstrip(OPENERS)[:1]
    if not first.isalpha() or is_small(first) or _LABEL.match(sentence):
        return False
    if first.title() == first.lower():
        return not _is_short(sentence, MIN_ITEM_LENGTH)
    return _is_long(sentence) and _has_verb(sentence, language)


def _has_verb(sentence: str, language: str) -> bool:
    table = words_of(language)
    if not table.get("verbs"):
        return True
    first, *words = _WORDS.findall(sentence.lower())
    known = table["verbs"] | table["relatives"] | table["subordinates"]
    first_known = next((word for word in words if word in known), "")
    return first_known in table["verbs"] and first not in table["relatives"]


# More words than a label or a title has, and fewer capitals.
def _is_long(sentence: str) -> bool:
    words = _ELIDED.sub("' ", sentence).split()
    initials = [word[0] for word in words]
    num_small, num_capitals = sum(map(str.islower, initials)), sum(map(str.isupper, initials))
    return len(words) >= MIN_WORDS and num_small >= MIN_LOWERCASE_WORDS and 2 * num_capitals <= len(words)
