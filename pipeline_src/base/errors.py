"""The exception for mistakes that a user can fix, and the one for a stage that was asked to stop."""

from __future__ import annotations

from typing import Any

from pipeline_src.base.messages import without_credentials

MAX_CHARACTERS_OF_A_PART = 2_000


class PipelineError(Exception):
    """A mistake in the input, the parameters or the machine that the user can fix.

    ``python -m pipeline_src`` prints it without a traceback and exits with status 2.

    Args:
        what: the fault, as a short clause ("unknown key in params.yaml").
        value: the offending value, printed after ``what``. None prints nothing.
        where: where the value was found: a file, line, page or task.
        hint: what the user can do next, as an imperative sentence.
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
        # Without this, pickle (process pools, Beam workers) would rebuild the error from its text alone.
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
    # PanicException, raised by Rust libraries through pyo3, is not a subclass of Exception and cannot be imported.
    return type(error).__name__ == "PanicException"


def _rebuild(what: str, value: object, where: object, hint: str) -> PipelineError:
    return PipelineError(what, value, where=where, hint=hint)


class Interrupted(Exception):
    """A stage was asked to stop and has saved its state.

    ``python -m pipeline_src`` prints the message and exits with ``STATUS``. The same command continues from the saved
    state.
    """

    # EX_TEMPFAIL in sysexits.h: a temporary failure, so the caller may try again.
    STATUS = 75
