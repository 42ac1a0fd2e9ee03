"""Extract the prose of a page, and repair what removed markup leaves behind.

An example. The page is

    The mill is old.<ref>Reed</ref> It has {{odd|5}} wheels. They turn.{{odd}} Then they rest. It has two parts:
    * a wheel
    The force is given by
    :<math>F = ma</math>
    where m is the mass {{cn}}.

Other modules have already turned links, templates and tags into text or markers (markers.py). A template whose words
are unknown leaves a ‹hole›, and an element without words leaves a ‹gone›. A formula on its own line is enclosed in
markers:

    The mill is old. It has ‹hole› wheels. They turn.‹hole› Then they rest. It has two parts:
    * a wheel
    The force is given by
    :‹formula›F = ma‹formula›
    where m is the mass ‹gone›.

1. ``close_sentences``: the second hole stands between two sentences, so no sentence has lost words. It becomes ‹gone›.
2. ``join_formulas``: the line before the formula has no full stop, and the line after it begins with a small letter.
   The three lines become one: ``The force is given by F = ma where m is the mass ‹gone›.``
3. ``paragraphs``: the list item ends the first paragraph. The sentence with a hole is dropped (``drop_broken``). The
last
   sentence is dropped too, since it introduces a list that was removed (``_drop_lead_in``). The result:

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

# Minimum number of characters in a line of prose. Shorter lines are captions, labels and parts of tables.
MIN_LENGTH = 25
# A line with at least this many characters counts as prose even without a full stop.
MIN_UNENDED_LENGTH = 120
# Minimum number of characters in a list item that counts as a sentence, in scripts without capitals. About eight words.
MIN_ITEM_LENGTH = 45
COLONS = (":", "：")
NOT_PROSE = {"*": "list", "#": "list", ":": "list", ";": "list", "|": "table", "!": "table", "{": "table", "}": "table"}
NOT_PROSE |= {"=": "heading", "-": "rule", BOX: "box"}
# Closing one hole may open another: "a ( ; ) b" -> "a () b" -> "a b".
MAX_REPAIRS = 4
INTERRUPTIONS = frozenset(("formula", "list", "table", "template"))
# These marks may also end an abbreviation or stand inside a sentence.
ABBREVIATING = ".!?…"
# Full stops, question and exclamation marks of other scripts on Wikipedia. They only ever end a sentence.
ENDS = "。！？．｡؟۔؞։।॥።፧፨၊။។៕།༎᠃᠉߹꓿᱾᱿꯫෴܀܁܂"
FULL_STOPS = frozenset(ABBREVIATING + ENDS)
STOPS = FULL_STOPS | frozenset(":;" + PLACEHOLDER)
COMPLETE = FULL_STOPS | frozenset(CLOSERS)
INTRODUCTION_ENDS = COMPLETE | frozenset(":")
SENTENCE_MARKS = (*FULL_STOPS, ":")
SENTENCE_ENDS = COMPLETE | STOPS
# A line that has only these characters is a formula on its own line.
FORMULA_PUNCTUATION = PLACEHOLDER + GONE + " \t,.;:()[]=+-–·&→"
# Maximum number of closing marks after a full stop.
MAX_CLOSERS = 4

# One or more holes. The hole of a template has two characters: the number of its name, and PLACEHOLDER. The match
# starts at the first PLACEHOLDER, since a pattern that starts with a fixed character is several times faster.
_HOLES = re.compile(rf"{PLACEHOLDER}{GONE}*+(?>(?:{NAMES.pattern}?{PLACEHOLDER}{GONE}*+)*)")
_ENDED = re.compile(rf"(?:[^\W_]{{3}}[{ABBREVIATING}]|[{ENDS}])[{re.escape(CLOSERS)}{GONE}]*(?: *|{NAMES.pattern})\Z")
_ENDED_WITHIN = re.compile(rf".{{{MIN_LENGTH - 1}}}(?:[{ABBREVIATING}] |[{ENDS}])")
_SENTENCE_END = re.compile(rf"(?: |[{ENDS}][{re.escape(CLOSERS)}]*)\Z")
_ASIDE = re.compile(rf"(?:(?<=\s)\(|（)[^()（）\n{PLACEHOLDER}]*{PLACEHOLDER}[^()（）\n]*[)）]")
# A letter of a script that has spaces between words.
_LETTER = r"[^\W\u2e80-\u9fff]"
# A marker between two letters, which is replaced by a space.
_WITHIN = re.compile(rf"{GONE}(?<={_LETTER}{GONE}){GONE}*+(?={_LETTER})")
_FORMULA_LINE = re.compile(rf"[ \t:{GONE}]*{FORMULA}([^{FORMULA}]+){FORMULA}([.,;:]?)[ \t{GONE}]*")
# The marks at the start of a list item. In a definition list (``; Mill : It has been here for ages.``), the term
# belongs to the marks, and the definition is the item.
_LIST_MARKS = re.compile(r"[*#:;]++(?:(?<=;)[^:]*+(?::|\Z))?\s*")
# A word of four letters, which a chemical equation does not have.
_WORD = re.compile(r"[^\W\d_]{4}")
_DENSE = re.compile(f"[{DENSE_LETTERS}\u3001-\u30ff\uac00-\ud7a3\uff01-\uff9f]")
# French text has a space before : ; ! ? »
FRENCH = "fr"

# Chess moves: 1.e4 e5 2.Nf3
_MOVES = re.compile(r"\d{1,3}\.(?:\.\.)? ?\S{2,8} +(?:\S{2,8} +)?\d{1,3}\.(?:\.\.)? ?[a-hKQRBNO]")

# Every pattern matches only at the start of a run of characters, so that long runs take linear time. Patterns that
# begin with a fixed character are several times faster than patterns that begin with a set.
_SPACES = re.compile(r"  +")
_AFTER_OPENING = re.compile(r"\((?=[ ,;:])[ ,;:]++")
_EMPTY = re.compile(r"\((?: ?[–—/-] ?)?\)")
_COMMAS, _SEMICOLONS = re.compile(r",(?= ?[,;])[ ,;]++"), re.compile(r";(?= ?[,;])[ ,;]++")
# Two full stops, as left by "Sr.{{ref}}. Then". In scripts with another full stop, a letter may follow:
# 水車。{{ref}}。川
ONE_STOPS = "。．｡۔։।။።។᠃"
_TWO_STOPS = re.compile(
    rf"([.{ONE_STOPS}])\1(?<=[^\s.{ONE_STOPS}]..)(?!\1)"
    rf"(?:(?<!\.)|(?= [{re.escape(OPENERS)}]*[^\W_a-zß-ÿα-ώа-џա-և]|\n|\Z))"
)
_LOOSE = re.compile(r" (?=[,.;:](?:\s|\Z))")
_LOOSE_FRENCH = re.compile(r" (?=[,.](?:\s|\Z))")
_FOOTNOTE = re.compile(r"\[\d{1,3}\]")
# Remains of markup that a page shows as text: characters that occur in the remains, their pattern, and the replacement.
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

# Minimum number of words in a sentence without a full stop.
MIN_WORDS = 8
# Minimum number of lower-case words in a sentence without a full stop. Most titles and labels have fewer.
MIN_LOWERCASE_WORDS = 6
# A text that ends in one of these is not a complete sentence.
UNENDED = frozenset(",;:–—-/([&+=")

# An apostrophe between two words: dell'uomo
_ELIDED = re.compile(r"(?<=\w)['’](?=\w{3})")
_WORDS = re.compile(r"\w+")
# A label and its explanation: "Cortex: the outer layer of the brain.", "Cortex – the outer layer of the brain."
_LABEL = re.compile(r".{1,60}?(?: [–—-]+ |[:：](?!\d)|— )")


_SECOND_CLAUSE = re.compile(
    r"""(?:^|[,;]\ )(?:although|but|though|whereas|while|aber|denn|obgleich|obwohl|sondern|während|aunque|mientras|pero|
    sino|mais|puisque|quoique|tandis|benché|ma|mentre|poiché|sebbene)\b""",
    re.IGNORECASE | re.VERBOSE,
)


@cache
def words_of(language: str) -> dict[str, frozenset[str]]:
    # Return the kind -> words of a language in prose.yaml. Empty for a language that is not listed.
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
    """Repair punctuation around removed templates: ``( ; born 1900 )`` -> ``(born 1900)``.

    In French text, the space before ``:`` and ``;`` is kept.
    """
    if "(" in text:
        text = _AFTER_OPENING.sub("(", text)
        *enclosed, after = text.split(")")
        # "(born 1900 ; )" -> "(born 1900)". The opening bracket may be far away.
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
    """Replace holes (marks of removed markup) between two sentences by GONE, which says that no words are lost.

    A hole directly after the full stop is replaced: ``It ended.{{x}} Then``. After a space, the hole of a template
    stays, because the template might have given the first words of the next sentence. A hole of a formula, code or
    music is replaced there too: ``It ended. <score>…</score> Then``.
    """
    out: list[str] = []
    done = 0
    for holes in _HOLES.finditer(text):
        start, end = holes.span()
        # If a word follows without a space, the hole is part of its sentence.
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

    The line before the formula must not end in a full stop. The line after the formula belongs to the sentence if it
    begins with a lower-case letter: ``It is given by`` / ``F = ma,`` / ``where m is the mass.``
    """
    # For each output line, the pieces to join.
    out: list[list[str]] = [[""]]
    # Number of blank lines since the last output line.
    blanks = 0
    # Number of formulas at the end of the last output line.
    joined = 0
    # Whether the last formula is indented (":"), so that it ends the paragraph unless a line continues its sentence.
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
            # Several formulas follow each other: none is part of a sentence, so drop those that were joined.
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
    """Return the paragraphs of prose.

    As in MediaWiki, lines without a blank line between them form one paragraph. Besides lines that are not prose, the
    following is dropped:

    - sentences that only introduce a list, table or formula (``They are:``), unless only their full stop is missing;
    - the end of a sentence that a list, table or formula interrupts (``where x is the mass.``);
    - sentences with a placeholder.

    Args:
        dropped: incremented by the number of dropped lines and sentences, by kind.
        count: called with each text that is dropped because of a placeholder.
        lists: ``sentences`` keeps list items that are whole sentences, as paragraphs; ``drop`` drops all lists.
    """

    prose: list[str] = []
    block: list[str] = []
    # Whether a list, table or formula directly precedes.
    broken_off = False
    # The last kept paragraph, if it may introduce the next line.
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


def _item(line: str, language: str, count: Callable[[str], None]) -> str:
    # Return the text of a list item if it begins with a whole sentence, else ''.
    text, _ = drop_broken(_LIST_MARKS.sub("", line, count=1), language, count)
    return text if begins_with_sentence(text, language) else ""


def _lines(text: str) -> Iterator[str]:
    # Yield the lines, and a blank line at the end. BREAK ends a paragraph, except in lists and tables.
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


def _finish(
    block: list[str], broken_off: bool, dropped: Counter[str], language: str, count: Callable[[str], None]
) -> str:
    # Return a paragraph without its broken sentences, or '' if it is not prose.
    # Remove the punctuation that followed a removed formula.
    paragraph = " ".join(block).lstrip(" ,;:)")
    if not _is_prose(paragraph, block, language):
        dropped["fragment"] += 1
        if not _ENDED_WITHIN.search(paragraph):
            return ""
        # Drop only the incomplete last sentence: "The mill stands by the river. Its old wheel"
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
    """Drop the sentences of a paragraph that have a placeholder outside brackets.

    Text that was wrongly split off from such a sentence is dropped too: it has an unclosed bracket, or begins with a
    lower-case letter. ``count`` is called with each dropped sentence and each dropped aside in brackets.

    Returns:
        The rest of the paragraph, and the number of dropped sentences.
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


def split_exactly(paragraph: str, language: str) -> list[str]:
    # Split a paragraph so that the sentences, joined, are the paragraph. A mark of ABBREVIATING ends a sentence only
    # before a space, so "T.U.A." stays in one sentence.
    sentences: list[str] = []
    done = 0
    for sentence in split_sentences(paragraph, language):
        start = paragraph.find(sentence, done)
        if start > done and _SENTENCE_END.search(paragraph, max(done, start - MAX_CLOSERS - 1), start):
            sentences.append(paragraph[done:start])
            done = start
    return [*sentences, paragraph[done:]]


def _drop_lead_in(prose: list[str], leading: str, broken_off: bool, dropped: Counter[str], language: str) -> None:
    # Drop the last sentence of the last paragraph if it only introduces what was removed. Keep it if it ends in a colon
    # and has a second clause, or if only its full stop is missing.
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
        # MediaWiki shows a line that begins with a space as preformatted text, such as code.
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
        # A long line is not a caption or label.
        is_ended = paragraph[-1] in SENTENCE_ENDS or len(max(lines, key=len)) >= MIN_UNENDED_LENGTH
    elif _has_words(paragraph):
        # Excludes labels and titles without a full stop: "(a label)", "A title"
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


def is_paragraph(line: str, language: str) -> bool:
    # Return whether a repaired paragraph is still prose.
    return line[:1] not in NOT_PROSE and _is_prose(line, [line], language)


def without_markup(text: str) -> str:
    # Remove characters that a page shows as text but that look like markup.
    for mark, pattern, replacement in _REMAINS:
        if mark in text:
            text = pattern.sub(replacement, text)
    return _SPACES.sub(" ", text) if "  " in text else text


def says_something(lead_in: str, language: str) -> bool:
    # A sentence that ends in a colon says something by itself if it has a second clause: "Three died in prison, while
    # the others were freed:"
    return _SECOND_CLAUSE.search(lead_in) is not None and lacks_only_its_stop(lead_in[:-1], language)


# Cached, since the function may be called twice for the same paragraph.
@lru_cache(64)
def lacks_only_its_stop(text: str, language: str) -> bool:
    """Return whether a text without a full stop ends in a complete sentence.

    The sentence must be longer than a title, and must not end in a word that rarely ends a sentence. Always False for a
    language for which no such words are listed.
    """
    unfinished = words_of(language).get("unfinished")
    if unfinished is None or text[-1:] in UNENDED or text.count(" ") < MIN_LOWERCASE_WORDS:
        return False
    # Look up the word after an apostrophe: "una" in "dell'una".
    if text[text.rfind(" ") + 1 :].lower().rpartition("'")[2] in unfinished:
        return False
    sentence = text
    if any(stop in text for stop in SENTENCE_MARKS):
        sentence = split_exactly(text, language)[-1]
    return sentence[:1].isupper() and _is_long(sentence)


def begins_with_sentence(text: str, language: str) -> bool:
    """Return whether a text begins with a whole sentence and ends in a full stop.

    A sentence begins with a capital. If the verbs of the language are listed, it needs a verb before any relative
    clause, so ``A wheel, which is made of wood.`` is not a sentence. In a script without capitals, only the length and
    the full stop are checked.
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


def _is_long(sentence: str) -> bool:
    # Return whether a sentence has more words than a label or title, and fewer capitals.
    words = _ELIDED.sub("' ", sentence).split()
    initials = [word[0] for word in words]
    num_small, num_capitals = sum(map(str.islower, initials)), sum(map(str.isupper, initials))
    return len(words) >= MIN_WORDS and num_small >= MIN_LOWERCASE_WORDS and 2 * num_capitals <= len(words)
