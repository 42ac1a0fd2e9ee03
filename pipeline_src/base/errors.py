"""The error for users: what is wrong, which value, where, and what to do next."""

from __future__ import annotations

from typing import Any

from pipeline_src.base.messages import without_credentials

MAX_CHARACTERS_OF_A_PART = 2_000


class PipelineError(Exception):
    """A mistake in the input, the parameters or the machine that the user can fix.

    ``python -m pipeline_src`` prints it without a traceback and exits with status 2.

    Args:
        what: what is wrong, as a short clause ("unknown key in params.yaml").
        value: the offending value, shown after ``what``; None shows nothing.
        where: file, line, page or task of the value.
        hint: what to do next, as an imperative sentence.
    """

    def __init__(self, what: str, value: object = None, *, where: object = None, hint: str) -> None:
        self.what, self.value, self.where, self.hint = what, value, where, hint
        super().__init__(str(self))

    def __str__(self) -> str:
        text = self.what if self.value is None else f"{self.what}: {_printable(self.value)}"
        if self.where is not None:
            text += f"\n  where:  {_printable(self.where)}"
        return f"{text}\n  hint: {_printable(self.hint)}"

    def __reduce__(self) -> tuple[Any, ...]:
        # An error crosses process pools and Beam workers unchanged.
        return _rebuild, (self.what, self.value, self.where, self.hint)


def _printable(value: object) -> str:
    text = without_credentials(str(value))
    if len(text) > MAX_CHARACTERS_OF_A_PART:
        text = f"{text[:MAX_CHARACTERS_OF_A_PART]}…"
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def is_panic(error: BaseException) -> bool:
    # pyo3's class of a panic is no Exception and cannot be imported.
    return type(error).__name__ == "PanicException"


def _rebuild(what: str, value: object, where: object, hint: str) -> PipelineError:
    return PipelineError(what, value, where=where, hint=hint)


class Interrupted(Exception):
    """A stage was asked to stop and has saved its state; the same command continues from there.

    ``python -m pipeline_src`` prints it and exits with ``STATUS``: a temporary failure, to be retried.
    """

    # EX_TEMPFAIL of sysexits.h
    STATUS = 75
