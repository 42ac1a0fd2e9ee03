"""Repair what removed markup leaves behind in a paragraph: empty brackets, double marks, loose spaces."""

from __future__ import annotations

import re

from pipeline_src.text.sentences import CLOSERS, OPENERS

# Closing one hole may open another: "a ( ; ) b" -> "a () b" -> "a b".
MAX_REPAIRS = 4
# French text has a space before : ; ! ? »
FRENCH = "fr"

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


def without_markup(text: str) -> str:
    # Remove characters that a page shows as text but that look like markup.
    for mark, pattern, replacement in _REMAINS:
        if mark in text:
            text = pattern.sub(replacement, text)
    return _SPACES.sub(" ", text) if "  " in text else text
