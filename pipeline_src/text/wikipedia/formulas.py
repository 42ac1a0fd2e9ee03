"""Convert short TeX formulas to plain text: ``f(x)``, ``\\alpha \\le 1`` as α ≤ 1, ``\\frac{a}{b}`` as a/b.

The notation is that of Unicode Technical Note 28: ``x_{ij}`` as x_ij, ``\\sqrt{a+b}`` as √(a+b). A formula that does
not fit on one line of text has no conversion.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from pipeline_src.text.wikipedia.locale import TABLES
from pipeline_src.text.wikipedia.unit_templates import RAISED

# Maximum number of characters of a formula or of code in a sentence.
MAX_LENGTH = 60
# Maximum number of characters in the TeX source of a formula.
MAX_SOURCE_LENGTH = 240
# Maximum depth of nested groups.
MAX_DEPTH = 6
# TeX command -> character. "|" is written &#124; since it would separate template arguments.
SYMBOLS = TABLES / "symbols.tsv"
_SYMBOLS = dict(line.split("\t") for line in SYMBOLS.read_text(encoding="utf-8").splitlines()[1:])
_FONTS = frozenset(
    """mathbf mathrm mathit mathsf mathcal mathscr mathfrak mathbb boldsymbol bold text textrm textit textbf mbox
    operatorname""".split()
)
_STYLES = frozenset(
    """bf rm it cal displaystyle textstyle scriptstyle left right big Big bigl bigr Bigl Bigr bigg Bigg
    limits nolimits""".split()
)
_ACCENTS = {
    "bar": "\u0304",
    "overline": "\u0304",
    "hat": "\u0302",
    "widehat": "\u0302",
    "tilde": "\u0303",
    "vec": "\u20d7",
    "dot": "\u0307",
    "ddot": "\u0308",
}
_FRACTIONS = frozenset((r"\frac", r"\dfrac", r"\tfrac"))
_MARKS = {"|": "&#124;", "[": "&#91;", "]": "&#93;", "<": " < ", ">": " > ", "'": "′", "~": " ", "-": "-"}
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)
_PLAIN = re.compile(r"[\w+\-=.,()/!:;*%&#≤≥≠×·∞→…±−≈∈∼° ]*")
_SIMPLE = re.compile(r"[\w+−\u0300-\u0308\u20d7-]{1,20}|.")
# A number or a short name, which needs no brackets next to / and √.
_ATOM = re.compile(r"\d+|[^\W\d_]{1,2}[\u0300-\u0308\u20d7²³]*")
_EXPONENT = re.compile(r"[+−-]?\d+")
_SPACES = re.compile(r"\s+")
_CODE = re.compile(r"[\w+\-.,/ :\"%$@^~]*\w[\w+\-,/ :\"%$@^~]*")


class _UnreadableError(Exception):
    pass


# Cached, since a page about mathematics repeats its short formulas.
@lru_cache(10_000)
def formula_text(formula: str) -> str:
    """Convert a TeX formula to plain text, or to '' if it is too long or complex."""
    if len(formula) > MAX_SOURCE_LENGTH:
        return ""
    try:
        text = _read_group(iter(_TOKEN.findall(formula)))
    except _UnreadableError:
        return ""
    text = _SPACES.sub(" ", text).strip()
    return text if len(text) <= MAX_LENGTH else ""


def _read_group(tokens: Iterator[str], depth: int = 0) -> str:
    # Convert the tokens up to the brace that closes the group or, at depth 0, up to the end.
    if depth > MAX_DEPTH:
        raise _UnreadableError
    out: list[str] = []
    above: str | None = None
    # Whether the last token was a fraction.
    divided = False
    for token in tokens:
        if token == "}":
            if not depth:
                raise _UnreadableError
            break
        if token == r"\over" and above is None:
            above, out = "".join(out), []
        elif token in "^_":
            out.append(_script(token, _argument(tokens, depth)))
        else:
            rendered = _render(token, tokens, depth)
            if out and _touch(out[-1], token, rendered, divided):
                out.append(" ")
            out.append(rendered)
        divided = token in _FRACTIONS
    else:
        if depth:
            raise _UnreadableError
    text = "".join(out)
    return text if above is None else _fraction(above, text)


def _argument(tokens: Iterator[str], depth: int) -> str:
    token = next(tokens, "")
    if token.isspace():
        token = next(tokens, "")
    if token in ("", "}", "^", "_"):
        raise _UnreadableError
    return _render(token, tokens, depth)


def _render(token: str, tokens: Iterator[str], depth: int) -> str:
    if token == "{":
        return _read_group(tokens, depth + 1)
    if token[0] != "\\" or len(token) == 1:
        return _character(token)
    name = token[1:]
    if name in _SYMBOLS:
        return _SYMBOLS[name]
    if name in _STYLES:
        return ""
    if token in _FRACTIONS:
        return _fraction(_argument(tokens, depth), _argument(tokens, depth))
    if name == "sqrt":
        return f"√{_bracketed(_argument(tokens, depth))}"
    if name in _FONTS:
        return _argument(tokens, depth)
    if name in _ACCENTS:
        return _accented(_argument(tokens, depth), _ACCENTS[name])
    return _greek(name)


def _touch(before: str, token: str, rendered: str, divided: bool) -> bool:
    # Return whether a space is needed between two letters or digits: "2 sin x", "1/c v"
    word = token[0] == "\\" and rendered.isalpha() and rendered.isascii() and len(rendered) > 1
    return (divided or word) and before[-1:].isalnum() and rendered[:1].isalnum()


def _character(token: str) -> str:
    if token in _MARKS:
        return _MARKS[token]
    if token.isspace():
        return " "
    if not _PLAIN.fullmatch(token) or token in "&#":
        raise _UnreadableError
    return token


def _script(mark: str, text: str) -> str:
    text = text.strip()
    if mark == "^":
        if _EXPONENT.fullmatch(text):
            return text.translate(RAISED)
        if text in ("∘", "′", "∗", "*"):
            return "°" if text == "∘" else text
    return f"{mark}{text}" if _SIMPLE.fullmatch(text) else f"{mark}({text})"


def _fraction(above: str, below: str) -> str:
    return f"{_bracketed(above)}/{_bracketed(below)}"


def _bracketed(text: str) -> str:
    text = text.strip()
    if not text:
        raise _UnreadableError
    is_atom = _ATOM.fullmatch(text) or (text[0] == "(" and text[-1] == ")" and text.find(")") == len(text) - 1)
    return text if is_atom else f"({text})"


def _accented(text: str, accent: str) -> str:
    text = text.strip()
    if not text[:1].isalpha() or not all(map(unicodedata.combining, text[1:])):
        raise _UnreadableError
    return unicodedata.normalize("NFC", text + accent)


def _greek(name: str) -> str:
    size = "SMALL" if name.islower() else "CAPITAL"
    try:
        return unicodedata.lookup(f"GREEK {size} LETTER {name.upper()}")
    except KeyError:
        raise _UnreadableError from None


def code_text(code: str) -> str:
    # Return '' if the code is too long or has characters that would disturb sentence splitting.
    return code if len(code) <= MAX_LENGTH and _CODE.fullmatch(code) else ""
