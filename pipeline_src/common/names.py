"""Names from outside that become folders, files, commands or names of stages: one rule for all of them.

A name holds ASCII letters, digits, - and _, and begins with a letter or digit: so it is one component of a path, never
an option, and means nothing to a shell. A path is of such components, each of which may hold dots, and stays below
its folder.
"""

from __future__ import annotations

import re

LONGEST = 100  # characters: several of them make one file's name, which holds 255 bytes

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_COMPONENT = re.compile(r"\w[^\x00-\x1f\x7f/\\]*")


def check_name(name: str) -> str:
    """The name itself.

    Raises:
        ValueError: it is not a name.
    """
    if not _NAME.fullmatch(name) or len(name) > LONGEST:
        rule = f"letters, digits, - and _ (ASCII, at most {LONGEST}), and begins with a letter or digit"
        raise ValueError(f"a name is of {rule}, unlike {shown(name)}")
    return name


def check_path(path: str) -> str:
    """A path below some folder, as it is.

    Raises:
        ValueError: it is absolute, empty, or has a component such as ``..``.
    """
    components = path.split("/")
    if not all(_COMPONENT.fullmatch(each) and len(each.encode(errors="replace")) <= 255 for each in components):
        raise ValueError(f"a path stays below its folder, names of files with / between them, unlike {shown(path)}")
    return path


def check_file_name(name: str) -> str:
    """The name of a file in some folder, as it is.

    Raises:
        ValueError: it is a path, or none.
    """
    if "/" in check_path(name):
        raise ValueError(f"the name of a file holds no /, unlike {shown(name)}")
    return name


def shown(text: object, most: int = LONGEST) -> str:
    """What somebody gave, for an error: as Python spells it, so that no control code reaches a terminal, and cut."""
    spelled = ascii(text) if not isinstance(text, str) or not text.isprintable() else repr(text)
    return spelled if len(spelled) <= most else f"{spelled[:most]}…"


def shown_text(text: object, most: int = 300) -> str:
    """A library's words, without line ends and control codes."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))[:most]


def as_text(text: str) -> str:
    """Anybody's words as one line of Markdown that shows them: no HTML, no cell of a table, no control codes."""
    safe = shown_text(text.replace("&", "&amp;") if "<" in text else text, most=len(text) * 5)
    return safe.replace("<", "&lt;").replace("|", r"\|")
