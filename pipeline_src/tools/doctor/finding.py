"""What one check found."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's.

    Attributes:
        check: what was looked at.
        state: ``ok``; ``warning``, where part of the project will not work or a run may fail; ``problem``, where the
            study cannot run.
        found: what is there.
        remedy: what to do, as an imperative sentence; None where all is well.
    """

    check: str
    state: str
    found: str
    remedy: str | None = None
