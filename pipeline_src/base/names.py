"""Validate names from params.yaml and downloads, and print untrusted text safely.

A name becomes part of a path, a command or a stage's name. It has only ASCII letters, digits, - and _, and begins with
a letter or digit. So it is a single path component, is never read as an option, and needs no quoting in a shell.
Each component of a path begins with a letter, digit or _, so the path cannot leave its folder.
"""

from __future__ import annotations

import math
import os
import re

from pipeline_src.base.errors import PipelineError

# A file name may have 255 bytes, and this project joins several names into one file name.
MAX_NAME_LENGTH = 100

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# The "]" of a Markdown link, image or link definition, with the backslashes before it.
LINK_END = re.compile(r"(\\*)\](?=[(\[:])")
_COMPONENT = re.compile(r"\w[^\x00-\x1f\x7f/\\]*")


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        rule = f"only ASCII letters, digits, - and _ (at most {MAX_NAME_LENGTH}), and begins with a letter or digit"
        raise ValueError(f"a name has {rule}; not {shown(name)}")
    return name


def check_path(path: str) -> str:
    """Return ``path`` if it is relative and cannot leave its folder.

    Raises:
        ValueError: the path is such as ``../a`` or ``/etc/passwd``, or a component has an invalid name.
    """
    components = path.split("/")
    if not all(_COMPONENT.fullmatch(part) and len(part.encode(errors="replace")) <= 255 for part in components):
        raise ValueError(f"a path is relative, without .. or hidden names, such as folder/file.txt; not {shown(path)}")
    return path


def check_file_name(name: str) -> str:
    if "/" in check_path(name):
        raise ValueError(f"a file name has no /; not {shown(name)}")
    return name


def checked_path(path: object, where: object, hint: str = "delete it and run its stage again, or `dvc pull` it") -> str:
    """Return ``path``, read from the file ``where``, if it cannot leave its folder.

    In contrast to ``check_path``, a file name may begin with any character.

    Raises:
        PipelineError: the path is absolute, has ``..`` or control codes, or is not a string.
    """
    if not isinstance(path, str) or _CONTROL.search(path) or any(part in ("", ".", "..") for part in path.split("/")):
        raise PipelineError("path leads outside its folder", shown(path), where=where, hint=hint)
    return path


def shown(text: object, max_length: int = 100) -> str:
    """Return the ``repr`` of a value, cut to ``max_length`` characters, with control codes escaped."""
    spelled = ascii(text) if not isinstance(text, str) or not text.isprintable() else repr(text)
    return spelled if len(spelled) <= max_length else f"{spelled[:max_length]}…"


def shown_text(text: object, max_length: int = 300) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(text))[:max_length]


def as_text(text: str) -> str:
    """Escape untrusted text as one line of Markdown, without control codes, HTML, links or images."""
    safe = shown_text(text.replace("&", "&amp;") if "<" in text else text, max_length=len(text) * 5)
    # "![x](http://a)" -> "![x\](http://a)", "[x][1]" -> "[x\][1]". Backslashes before the "]" are doubled.
    safe = LINK_END.sub(lambda end: end[1] * 2 + r"\]", safe)
    return safe.replace("<", "&lt;").replace("|", r"\|")


def number_of(unit: str, name: str, default: float, minimum: float = 0, maximum: float = math.inf) -> float:
    value = os.environ.get(name, str(default))
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    # The condition also rejects NaN, since each comparison with NaN is false.
    if not minimum <= number <= maximum or math.isinf(number):
        limits = f"{minimum:g} " + ("or more" if math.isinf(maximum) else f"up to {maximum:,g}")
        raise PipelineError(
            f"invalid number of {unit}", value, where=f"${name}", hint=f"set it to {limits}, or unset it"
        )
    return number
