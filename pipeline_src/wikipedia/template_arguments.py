"""The arguments of a template: ``{{name|first|second|key=value}}``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property


class Arguments:
    """The arguments of one call, read when they are asked for.

    Attributes:
        name: of the template, as the page spells it.
        raw: what stands after the first bar; None where there is no bar.
    """

    def __init__(self, name: str, raw: str | None) -> None:
        self.name = name
        self.raw = raw

    @cached_property
    def _read(self) -> tuple[list[str], dict[str, str]]:
        plain: list[str] = []
        named: dict[str, str] = {}
        for argument in self.raw.split("|") if self.raw is not None else ():
            key, equals, value = argument.partition("=")
            if equals:
                named[key.strip().lower()] = value.strip()
            else:
                plain.append(argument.strip())
        if named:  # {{nowrap|1=a = b}}
            numbers = [int(key) for key in named if len(key) <= 2 and key.isascii() and key.isdigit()]
            for number in sorted(numbers):
                if number == len(plain) + 1:
                    plain.append(named[str(number)] if str(number) in named else "")
                elif 0 < number <= len(plain) and str(number) in named:
                    plain[number - 1] = named[str(number)]
        return plain, named

    @property
    def plain(self) -> list[str]:
        """The arguments without a name, stripped, and those named by their number."""
        return self._read[0]

    @property
    def named(self) -> dict[str, str]:
        """The arguments with a name, in lower case."""
        return self._read[1]

    def get(self, key: str) -> str | None:
        """The argument of that number or name; ``last`` is the last one without a name."""
        plain, named = self._read
        if key == "last":
            return plain[-1] if plain else None
        if key.isdigit() and int(key) <= len(plain):
            return plain[int(key) - 1]
        return named.get(key)

    def says(self, key: str, *values: str) -> bool:
        """Whether the argument of that name is one of ``values``; without any, whether it is given and not ``no``."""
        given = self.named.get(key, "").lower()
        return given in values if values else given not in ("", "no", "n", "off", "none")


Handler = Callable[[Arguments], str | None]  # what a template shows; None for words that are not known
