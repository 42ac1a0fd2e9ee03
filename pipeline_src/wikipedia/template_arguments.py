"""The arguments of a template: ``{{name|first|second|key=value}}``."""

from __future__ import annotations

from collections.abc import Callable


class Arguments:
    """The arguments of one call, read when they are asked for.

    Attributes:
        name: of the template, as the page spells it.
        raw: what stands after the first bar; None where there is no bar.
    """

    __slots__ = ("_named", "_plain", "name", "raw")

    def __init__(self, name: str, raw: str | None) -> None:
        self.name = name
        self.raw = raw
        self._plain: list[str] | None = None
        self._named: dict[str, str] = {}

    def _read(self) -> list[str]:
        plain: list[str] = []
        named = self._named
        for argument in self.raw.split("|") if self.raw is not None else ():
            if "=" in argument:
                key, _, value = argument.partition("=")
                named[key.strip().lower()] = value.strip()
            else:
                plain.append(argument.strip())
        if named:  # {{nowrap|1=a = b}}
            for number in sorted(int(key) for key in named if len(key) <= 2 and key.isascii() and key.isdigit()):
                value = named.get(str(number), "")
                if number == len(plain) + 1:
                    plain.append(value)
                elif 0 < number <= len(plain):
                    plain[number - 1] = value
        self._plain = plain
        return plain

    @property
    def plain(self) -> list[str]:
        """The arguments without a name, stripped, and those named by their number."""
        return self._read() if self._plain is None else self._plain

    @property
    def named(self) -> dict[str, str]:
        """The arguments with a name, in lower case."""
        if self._plain is None:
            self._read()
        return self._named

    def get(self, key: str) -> str | None:
        """The argument of that number or name; ``last`` is the last one without a name."""
        plain = self.plain
        if key == "last":
            return plain[-1] if plain else None
        if key.isdigit() and int(key) <= len(plain):
            return plain[int(key) - 1]
        return self._named.get(key)

    def says(self, key: str, *values: str) -> bool:
        """Whether the argument of that name is one of ``values``; without any, whether it is given and not ``no``."""
        given = self.named.get(key, "").lower()
        return given in values if values else given not in ("", "no", "n", "off", "none")


Handler = Callable[[Arguments], str | None]  # what a template shows; None for words that are not known
