"""The small language in which a table says what a template shows.

``{1}`` is the first argument without a name, ``{last}`` the last, ``{lt|2}`` the one named ``lt``, else the second. A
part in ``< >`` is shown where all its arguments are given and not empty: ``HMS {1}< ({2})>``.
"""

from __future__ import annotations

import re

from pipeline_src.wikipedia.placeholders import GONE
from pipeline_src.wikipedia.template_arguments import Arguments, Handler

_TOKEN = re.compile(r"\{([^{}]+)\}|<|>")
Part = str | tuple[str, ...] | list["Part"]  # text, the names of an argument, an optional part


def compile_form(form: str) -> Handler:
    """What shows ``form``; it shows a hole (None) where the template has no arguments at all, but needs one."""
    parts = _parse(form)
    if not any(isinstance(part, (tuple, list)) for part in parts):
        return lambda _: form
    if form == "{last}":
        return _last
    if form == "{1}":
        return _first

    needed = any(isinstance(part, tuple) for part in parts)

    def show(arguments: Arguments) -> str | None:
        if needed and arguments.raw is None:
            return None
        text = _show(parts, arguments, optional=False)
        return None if text is None else text or GONE

    return show


def _first(arguments: Arguments) -> str | None:
    plain = arguments.plain
    return (plain[0] or GONE) if plain else None


def _last(arguments: Arguments) -> str | None:
    plain = arguments.plain
    return (plain[-1] or GONE) if plain else None


def _parse(form: str) -> list[Part]:
    stack: list[list[Part]] = [[]]
    done = 0
    for token in _TOKEN.finditer(form):
        if token.start() > done:
            stack[-1].append(form[done : token.start()])
        done = token.end()
        if token[0] == "<":
            stack.append([])
        elif token[0] == ">":
            part = stack.pop()
            stack[-1].append(part)
        else:
            stack[-1].append(tuple(token[1].split("|")))
    if done < len(form):
        stack[-1].append(form[done:])
    (parts,) = stack  # a form with < and no > is a mistake in the table
    return parts


def _show(parts: list[Part], arguments: Arguments, *, optional: bool) -> str | None:
    """The text of ``parts``; None where an argument is missing, or empty in an ``optional`` part."""
    out = []
    for part in parts:
        if isinstance(part, str):
            out.append(part)
        elif isinstance(part, list):
            out.append(_show(part, arguments, optional=True) or "")
        else:
            values = [value for key in part if (value := arguments.get(key)) is not None]
            value = next((value for value in values if value), None if optional or not values else "")
            if value is None:
                return None
            out.append(value)
    return "".join(out)
