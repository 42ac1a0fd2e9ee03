"""Parse the arguments of a template."""

from __future__ import annotations

import re
from collections.abc import Callable

from pipeline_src.text.wikipedia.locale import Locale
from pipeline_src.text.wikipedia.siteinfo import LANGUAGES

# The language code in the name of a template: lang-fr, k-de, enS, lang-en2, lang-ja-short
_LANGUAGE_CODE = re.compile(r"(?:\w+-)?([a-z]{2,3}?)(?:s|2|-short)?")

COMPUTED = frozenset(("count", "language", "last", "title"))


class Arguments:
    """The arguments of a template call ``{{name|first|second|key=value}}``, parsed on first use.

    Attributes:
        name: name of the template as it is written on the page.
        raw: the text after the first "|"; None if there is none.
    """

    __slots__ = ("_named", "_plain", "locale", "name", "raw")

    def __init__(self, name: str, raw: str | None, locale: Locale) -> None:
        self.name = name
        self.raw = raw
        self.locale = locale
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
        # Numbered arguments, which are used if a value contains "=": {{nowrap|1=a = b}}
        if named:
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
        return self._read() if self._plain is None else self._plain

    @property
    def named(self) -> dict[str, str]:
        if self._plain is None:
            self._read()
        return self._named

    def get(self, key: str) -> str | None:
        """Return the argument with a number or name, or None if it is missing.

        Some keys are computed unless an argument has this name:

        - ``last``: the last unnamed argument;
        - ``title``: the first unnamed argument that is not a language code;
        - ``count``: the number of unnamed arguments;
        - ``language``: the label ("French: ") of the language in the template's name ({{lang-fr|moulin}}) or in the
          first argument ({{langx|fr|moulin}}).
        """
        plain = self.plain
        if key.isdigit() and int(key) <= len(plain):
            return plain[int(key) - 1]
        if key in self._named or key not in COMPUTED:
            return self._named.get(key)
        if key == "count":
            return str(len(plain))
        if key == "last":
            return plain[-1] if plain else None
        if key == "title":
            return next((title for title in plain if title not in LANGUAGES), None)
        code = _LANGUAGE_CODE.fullmatch(self.name.lower())
        return self.locale.language_label(code[1] if code else "".join(plain[:1]).lower())

    def says(self, key: str, *values: str) -> bool:
        # Return whether the argument has one of `values`. If no values are given, return whether it is set and not
        # "no".
        given = self.named.get(key, "").lower()
        return given in values if values else given not in ("", "no", "n", "off", "none")


# A handler returns the words of a template, '' if it has no words, or None if they are unknown.
Handler = Callable[[Arguments], str | None]
