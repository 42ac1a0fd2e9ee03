"""Books out of a file of several, whole or cut at their chapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.sources.catalogue import Excerpt
from pipeline_src.sources.excerpts import cut_out

TWO_BOOKS = (
    b"Contents\nCHAPTER I\n\n*** START ONE\nBy nobody\nCHAPTER I\n\nCaf\xe9.\n\nCHAPTER II\n\nEnd of CHAPTER II.\n"
    b"*** END ONE\nsmall print\n*** START TWO\nOnce.\n*** END TWO\nmore small print\n"
)


def cut(tmp_path: Path, **excerpts: dict[str, str]) -> dict[str, bytes]:
    (tmp_path / "all.txt").write_bytes(TWO_BOOKS)
    (tmp_path / "out").mkdir(exist_ok=True)
    wanted = {path.replace("_", "."): Excerpt.model_validate(said) for path, said in excerpts.items()}
    cut_out(tmp_path / "all.txt", wanted, tmp_path / "out", "all.txt")
    return {path.name: path.read_bytes() for path in sorted((tmp_path / "out").iterdir())}


def test_chapters_become_files_and_what_stands_around_them_is_left_out(tmp_path: Path) -> None:
    one = {"begins": r"^\*\*\* START ONE$", "ends": r"^\*\*\* END", "chapters": "^CHAPTER [IVX]+$"}
    two = {"begins": "^Once", "ends": r"^\*\*\* END"}
    assert cut(tmp_path, one_txt=one, two_txt=two) == {
        "one-001.txt": b"CHAPTER I\n\nCaf\xe9.\n\n",
        "one-002.txt": b"CHAPTER II\n\nEnd of CHAPTER II.\n",
        "two.txt": b"Once.\n",
    }


def test_to_the_end_of_the_file(tmp_path: Path) -> None:
    assert cut(tmp_path, rest_txt={"begins": "^more", "ends": r"\Z"}) == {"rest.txt": b"more small print\n"}


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ({"begins": "^START THREE", "ends": "END"}, "^START THREE"),
        ({"begins": "^Once", "ends": "^Contents"}, "^Contents"),
        ({"begins": "^Once", "ends": "^more", "chapters": "^CHAPTER"}, "^CHAPTER"),
    ],
)
def test_an_expression_that_is_not_there_is_named(tmp_path: Path, said: dict[str, str], missing: str) -> None:
    with pytest.raises(PipelineError, match="not in the file") as caught:
        cut(tmp_path, book_txt=said)
    assert missing in str(caught.value) and "all.txt" in str(caught.value)
