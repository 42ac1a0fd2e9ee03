from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.sources import layouts
from pipeline_src.sources.layouts import DEV_SENTENCES, TABLE, arrange_imdb, arrange_mrpc, arrange_rotten_tomatoes

SENTENCES = DEV_SENTENCES + 3  # of each label


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    reviews = ['"A ""good"" film.<br /><br />See it, NaN times.",1,imdb', "Bad.,0,imdb"]
    sentences = [f'"{label}, no. {number} .",{label},rotten_tomatoes' for label in "10" for number in range(SENTENCES)]
    (tmp_path / TABLE).write_text("\n".join(["text,label,source", *reviews, *sentences]) + "\n")
    return tmp_path


def test_arrange_imdb_reviews_become_rows_of_text(folder: Path):
    arrange_imdb(folder)
    assert [path.name for path in folder.iterdir()] == ["reviews.jsonl"]
    rows = [json.loads(line) for line in (folder / "reviews.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows == [{"text": 'A "good" film.\n\nSee it, NaN times.'}, {"text": "Bad."}]


def test_arrange_rotten_tomatoes_last_of_each_label_are_dev(folder: Path):
    arrange_rotten_tomatoes(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["dev.tsv", "train.tsv"]
    train, dev = ((folder / name).read_text(encoding="utf-8").splitlines() for name in ("train.tsv", "dev.tsv"))
    assert train[0] == dev[0] == "text\tlabel"
    assert train[1:] == [f"{label}, no. {number} .\t{label}" for label in "10" for number in range(3)]
    assert dev[1:] == [f"{label}, no. {number} .\t{label}" for label in "10" for number in range(3, SENTENCES)]


@pytest.mark.parametrize("content", ["", "text,label\na,1\n", "label,source\n1,imdb\n", "text,source\na,other\n"])
def test_arrange_imdb_table_with_other_columns_is_rejected(tmp_path: Path, content: str):
    (tmp_path / TABLE).write_text(content)
    with pytest.raises(PipelineError, match="unexpected columns or rows in the movie review table"):
        arrange_imdb(tmp_path)


@pytest.mark.parametrize("arrange", layouts.LAYOUTS.values())
def test_layouts_leave_folder_with_other_files_unchanged(tmp_path: Path, arrange):
    (tmp_path / "train.tsv").write_text("arranged\n")
    arrange(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("train.tsv", "arranged\n")]


def test_arrange_mrpc_one_of_three_files_is_rejected(tmp_path: Path):
    (tmp_path / layouts.TEST).write_text(layouts.TEST_HEADER)
    with pytest.raises(PipelineError, match=f"a file of MRPC is missing: {layouts.TRAIN}"):
        arrange_mrpc(tmp_path)


def test_arrange_mrpc_split_equals_glue(tmp_path: Path):
    folder = Path(__file__).resolve().parents[3].parent / "shared/data/glue/MRPC"
    if not folder.exists():
        pytest.skip("the real MRPC files are not here")
    rows = [line.split("\t") for line in (folder / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    (tmp_path / layouts.DEV_IDS).write_text("".join(f"{row[1]}\t{row[2]}\n" for row in rows))
    (tmp_path / layouts.TEST).write_text("")
    (tmp_path / layouts.TRAIN).write_bytes((folder / layouts.TRAIN).read_bytes())
    arrange_mrpc(tmp_path)
    glue = (folder / "train.tsv").read_text(encoding="utf-8")
    assert (tmp_path / "train.tsv").read_text(encoding="utf-8").replace("\r", "") == glue.replace("\r", "")
    assert (tmp_path / "dev.tsv").read_text(encoding="utf-8").count("\n") == 1 + 408
