"""Formulas that read as text: ``n``, ``f(x)``, ``\\alpha \\le 1``; the others leave a placeholder."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from pipeline_src.wikipedia.placeholders import PLACEHOLDER
from pipeline_src.wikipedia.unit_templates import RAISED

LONGEST = 60  # characters of a formula or a piece of code that may stand in a sentence
_COMMANDS = {
    "times": "×", "cdot": "·", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "pm": "±",
    "infty": "∞", "to": "→", "rightarrow": "→", "approx": "≈", "ldots": "…", "dots": "…", "in": "∈", "sim": "∼",
    "log": "log", "ln": "ln", "sin": "sin", "cos": "cos", "exp": "exp", "max": "max", "min": "min", "hbar": "ħ",
}  # fmt: skip
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_SPACE = re.compile(r"\\[,;:! ]")
_GROUP = re.compile(r"\{([\w+−-]{1,6})\}")
_EXPONENT = re.compile(r"\^([+−-]?\d+)")
_READABLE = re.compile(r"[\w+\-=.,()/ ^≤≥≠×·∞→…±−≈∈∼%°]+")
_CODE = re.compile(r"[\w+\-.,/ :\"%$@^~]*\w[\w+\-,/ :\"%$@^~]*")


@lru_cache(10_000)  # a page of mathematics says the same short ones over and over
def formula_text(formula: str) -> str:
    """``formula`` (TeX) as characters where it is short and flat, else ``placeholders.PLACEHOLDER``."""
    formula = formula.strip()
    if len(formula) > LONGEST:
        return PLACEHOLDER
    if "~" in formula:
        formula = formula.replace("~", " ").strip()  # a space, in TeX
    if "\\" in formula or "{" in formula:
        formula = _SPACE.sub(" ", formula)
        formula = _GROUP.sub(r"\1", _COMMAND.sub(_command, formula))
    if not _READABLE.fullmatch(formula):
        return PLACEHOLDER
    return _EXPONENT.sub(lambda power: power[1].translate(RAISED), formula) if "^" in formula else formula


def code_text(code: str) -> str:
    """``code`` itself where it is short and without marks that would end or break a sentence, else a placeholder."""
    return code if len(code) <= LONGEST and _CODE.fullmatch(code) else PLACEHOLDER


def _command(match: re.Match[str]) -> str:
    name = match[1]
    if name in _COMMANDS:
        return _COMMANDS[name]
    size = "SMALL" if name.islower() else "CAPITAL"
    try:
        return unicodedata.lookup(f"GREEK {size} LETTER {'LAMDA' if name.lower() == 'lambda' else name.upper()}")
    except KeyError:
        return match[0]
