"""Examples on disk: of each, two places in the token store and how many tokens stand there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline_src.common.errors import PipelineError

SAMPLE_INDEX = np.dtype([("a", "<i8"), ("b", "<i8"), ("a_length", "<u2"), ("b_length", "<u2"), ("is_random", "u1")])
AT_ONCE = 1 << 20  # rows that are looked at together


def read_sample_index(path: Path, tokens: int | None = None) -> np.ndarray:
    """A table of examples, :data:`SAMPLE_INDEX` [examples], through a memory map.

    Args:
        path: the file.
        tokens: how many the store has, which every example is held to; None where the tokens are not read.

    Raises:
        PipelineError: there is no such file, it is damaged, or an example reaches beyond the tokens.
    """
    remedy = "run the stage `build_examples` again"
    if not path.exists():
        raise PipelineError("no sample index", path, remedy="run the stage `build_examples`")
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise PipelineError("the sample index is damaged", error, where=path, remedy=remedy) from None
    if not isinstance(rows, np.ndarray) or rows.dtype != SAMPLE_INDEX or rows.ndim != 1:
        found = f"{rows.dtype} {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise PipelineError("the sample index is damaged", f"a table of {found}", where=path, remedy=remedy)
    rows = rows.view(np.ndarray)
    if tokens is None:
        return rows
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        wrong = np.zeros(len(some), bool)
        for text in ("a", "b"):
            wrong |= (some[text] < 0) | (some[text] > tokens - some[f"{text}_length"].astype(np.int64))
        if wrong.any():
            raise PipelineError(
                "the sample index is damaged", f"example {start + int(wrong.argmax()):,} is not within the tokens",
                where=path, remedy=remedy,
            )  # fmt: skip
    return rows
