"""Check names from outside that become folders, files, commands or stages, and print foreign text safely.

A name has ASCII letters, digits, - and _, and begins with a letter or digit, so it is one component of a path, never an
option, and has no meaning in a shell. A path's components begin with a letter, digit or _, so it stays in its folder.
"""

from __future__ import annotations

import math
import os
import re

from pipeline_src.base.errors import PipelineError

# A file's name has up to 255 bytes and may hold several names.
MAX_NAME_LENGTH = 100

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# "]" of a link, an image or the definition of one, and the backslashes before it
LINK_END = re.compile(r"(\\*)\](?=[(\[:])")
_COMPONENT = re.compile(r"\w[^\x00-\x1f\x7f/\\]*")


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        rule = f"letters, digits, - and _ (ASCII, at most {MAX_NAME_LENGTH}), and begins with a letter or digit"
        raise ValueError(f"a name is of {rule}, unlike {shown(name)}")
    return name


def check_path(path: str) -> str:
    """Return a relative path that stays below its folder; raise ValueError for others, such as ``../a``."""
    components = path.split("/")
    if not all(_COMPONENT.fullmatch(part) and len(part.encode(errors="replace")) <= 255 for part in components):
        raise ValueError(f"a path stays below its folder, names of files with / between them, unlike {shown(path)}")
    return path


def check_file_name(name: str) -> str:
    if "/" in check_path(name):
        raise ValueError(f"the name of a file holds no /, unlike {shown(name)}")
    return name


def checked_path(path: object, where: object, hint: str = "delete it and run its stage again, or `dvc pull` it") -> str:
    """Return a path that the record ``where`` names, if it stays below its folder.

    Unlike in ``check_path``, a file's name may begin with any character.
    """
    if not isinstance(path, str) or _CONTROL.search(path) or any(part in ("", ".", "..") for part in path.split("/")):
        raise PipelineError("a file outside of its folder", shown(path), where=where, hint=hint)
    return path


def shown(text: object, max_length: int = 100) -> str:
    """Return the ``repr`` of a value, truncated, with control codes escaped."""
    spelled = ascii(text) if not isinstance(text, str) or not text.isprintable() else repr(text)
    return spelled if len(spelled) <= max_length else f"{spelled[:max_length]}…"


def shown_text(text: object, max_length: int = 300) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(text))[:max_length]


def as_text(text: str) -> str:
    """Return foreign text as one line of Markdown without control codes, HTML, links and images."""
    safe = shown_text(text.replace("&", "&amp;") if "<" in text else text, max_length=len(text) * 5)
    # "![x](http://a)", "[x][1]", "[1]: http://a" -> "![x\](http://a)", ...; a backslash before it is doubled
    safe = LINK_END.sub(lambda end: end[1] * 2 + r"\]", safe)
    return safe.replace("<", "&lt;").replace("|", r"\|")


def number_of(unit: str, name: str, default: float, minimum: float = 0, maximum: float = math.inf) -> float:
    value = os.environ.get(name, str(default))
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    # NaN compares as false.
    if not minimum <= number <= maximum or math.isinf(number):
        limits = f"{minimum:g} " + ("or more" if math.isinf(maximum) else f"up to {maximum:,g}")
        raise PipelineError(f"not a number of {unit}", value, where=f"${name}", hint=f"set it to {limits}, or unset it")
    return number
