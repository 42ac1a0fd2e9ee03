"""Clean text for logs, errors and records: remove passwords from URLs, escape control codes."""

from __future__ import annotations

import logging
import re
import unicodedata

# https://user:password@host/path
_USER = re.compile(r"([a-z][a-z0-9+.-]*://)[^/\s'\"<>?#]*@", re.IGNORECASE)
# ?token=hf_abc, &X-Amz-Signature=0f3a
_SECRET = re.compile(
    r"([?&;][\w.-]*(?:token|key|secret|sig|signature|passw|pwd|auth|credential|session)[\w.-]*=)[^&;\s'\"<>]+",
    re.IGNORECASE,
)


def without_credentials(text: str) -> str:
    """Replace user names, passwords and tokens in a text's URLs with ``…``."""
    return _SECRET.sub(r"\1…", _USER.sub(r"\1…@", text))


def printable(text: str) -> str:
    if text.isprintable():
        return text
    letters = []
    for letter in text:
        is_kept = letter in "\n\t" or letter.isprintable() or unicodedata.category(letter) == "Zs"
        letters.append(letter if is_kept else letter.encode("unicode_escape").decode())
    return "".join(letters)


class CleanFormatter(logging.Formatter):
    # Messages and tracebacks may quote a URL with a password, or control codes that a server sent.

    def format(self, record: logging.LogRecord) -> str:
        return printable(without_credentials(super().format(record)))


def amount(value: float) -> str:
    # 1.7e6 -> "1.7 M", 1.8e19 -> "1.8e19", 0 -> "-"
    if not value or value >= 999.95e12:
        return f"{value:.1e}".replace("e+", "e") if value else "-"
    power = next(power for power in range(5) if value < 999.95 * 1000**power)
    return f"{value / 1000**power:.1f} {' kMGT'[power].strip()}"
