"""Texts of evaluation sets: written and read, and shared in documents by runs of thirteen words."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.common.errors import PipelineError
from pipeline_src.corpus.contamination import RUN_WORDS, Words, end_to_end
from pipeline_src.corpus.evaluation_texts import FILE, EvaluationRuns, read_texts, write_texts

VOCAB_SIZE = 12
WORDS = Words(np.arange(VOCAB_SIZE) >= 8, np.arange(VOCAB_SIZE) >= 2)  # two marks, six words, four continuations
IDS = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=60)


def words_of(ids: list[int]) -> list[tuple[int, ...]]:
    """Words as tuples of pieces, without marks; the first piece opens one."""
    words: list[list[int]] = []
    for number in ids:
        if number >= 8 and words:
            words[-1].append(number)
        elif number >= 2:
            words.append([number])
    return [tuple(word) for word in words]


def runs_of(ids: list[int]) -> list[tuple[tuple[int, ...], ...]]:
    words = words_of(ids)
    return [tuple(words[start : start + RUN_WORDS]) for start in range(len(words) - RUN_WORDS + 1)]


@given(st.lists(IDS, max_size=4), IDS, st.integers(0, 60), st.integers(0, 60))
def test_shared_text_equals_search_in_tuples_of_words(
    texts: list[list[int]], document: list[int], start: int, length: int
) -> None:
    texts = [*texts, [3, *document[start : start + length]]]  # so that many do
    shared = EvaluationRuns.of(WORDS, *end_to_end(texts)).shared_text(WORDS, np.asarray(document, np.uint16))
    known = {run: number for number, text in reversed(list(enumerate(texts))) for run in runs_of(text)}
    assert shared == next((known[run] for run in runs_of(document) if run in known), None)


@given(st.lists(st.tuples(st.text(max_size=5), st.text(st.characters(codec="utf-8"), max_size=30)), max_size=5))
def test_read_texts_returns_what_write_texts_wrote(texts: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        texts = [(task.encode("utf-8", "replace").decode(), text) for task, text in texts]
        assert write_texts(Path(folder), texts) == len(texts)
        assert list(read_texts(Path(folder))) == texts


def test_read_texts_damaged_line_is_rejected_with_line_number(tmp_path: Path) -> None:
    for line in ("[", '{"task": "rte"}', ""):
        (tmp_path / FILE).write_text(f'{{"task": "rte", "text": "x"}}\n{line}\n')
        with pytest.raises(PipelineError, match=r"not a text of an evaluation set[\s\S]*texts\.jsonl:2"):
            list(read_texts(tmp_path))
