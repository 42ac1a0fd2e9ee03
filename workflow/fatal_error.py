"""An error that ends Snakemake with one sentence."""

from __future__ import annotations


class FatalError(SystemExit):
    """Ends Snakemake with ``sentence`` as the last line of its output.

    For any other exception, Snakemake would also print source lines of this file.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(f"error: {sentence}")
