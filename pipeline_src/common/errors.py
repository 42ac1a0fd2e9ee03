"""The one error a user is meant to read: what is wrong, which value, where, and what to do next."""

from __future__ import annotations

from typing import Any

LONGEST = 2_000  # characters of each part of an error


class PipelineError(Exception):
    """A mistake in the input, the parameters or the machine that the user can mend.

    ``python -m pipeline_src`` prints it without a traceback and exits with status 2.

    Args:
        what: what is wrong, as a short clause ("unknown key in params.yaml").
        value: the offending value, shown after ``what``; None shows nothing.
        where: file, line, page or task in which the value stands.
        remedy: what to do next, as an imperative sentence.
    """

    def __init__(self, what: str, value: object = None, *, where: object = None, remedy: str) -> None:
        self.what, self.value, self.where, self.remedy = what, value, where, remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        text = self.what if self.value is None else f"{self.what}: {_printable(self.value)}"
        if self.where is not None:
            text += f"\n  where:  {_printable(self.where)}"
        return f"{text}\n  remedy: {_printable(self.remedy)}"

    def __reduce__(self) -> tuple[Any, ...]:  # crosses process pools and Beam workers unchanged
        return _rebuild, (self.what, self.value, self.where, self.remedy)


def _printable(said: object) -> str:
    """What came from outside, without codes that a terminal would obey and characters that it cannot write; cut."""
    text = str(said)
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _rebuild(what: str, value: object, where: object, remedy: str) -> PipelineError:
    return PipelineError(what, value, where=where, remedy=remedy)


class Interrupted(Exception):
    """A stage was asked to stop and has saved where it is; the same command goes on from there.

    ``python -m pipeline_src`` prints it and exits with ``STATUS``: a temporary failure that asks to be tried again.
    """

    STATUS = 75  # EX_TEMPFAIL of sysexits.h
