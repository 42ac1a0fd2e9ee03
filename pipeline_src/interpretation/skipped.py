"""What a measure raises where a model or a study lacks what it needs: said on the page, never an error."""

from __future__ import annotations


class Skipped(Exception):
    """Its text is the reason, as the rest of a sentence that begins with the measure's name."""
