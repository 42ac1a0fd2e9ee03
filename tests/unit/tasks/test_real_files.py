"""Readers on official data files, which are not part of the repository."""

from __future__ import annotations

import csv
import io
import lzma
from collections import Counter
from pathlib import Path

import pytest

from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.kinds import make_task

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real task files are not on this machine")


LABELLED = {
    "glue/CoLA/train.tsv": ("cola", 8551),
    "glue/CoLA/dev.tsv": ("cola", 1043),
    "glue/SST-2/train.tsv": ("sst2", 67_349),
    "glue/SST-2/dev.tsv": ("sst2", 872),
    "glue/MRPC/train.tsv": ("mrpc", 3668),
    "glue/MRPC/dev.tsv": ("mrpc", 408),
    "glue/STS-B/dev.tsv": ("stsb", 1500),
    "glue/RTE/train.tsv": ("rte", 2490),
    "glue/RTE/dev.tsv": ("rte", 277),
    "glue/WNLI/train.tsv": ("wnli", 635),
    "glue/WNLI/dev.tsv": ("wnli", 71),
    "glue/QNLI/train_sample.tsv": ("qnli", 8999),
    "glue/QNLI/dev.tsv": ("qnli", 5463),
    "glue/QQP/train_sample.tsv": ("qqp", 8999),
    "glue/MNLI/train_sample.tsv": ("mnli", 8999),
    "swag/allennlp-swag.csv": ("swag", None),
    "swag/hf-regular/train.csv": ("swag", None),
    "swag/hf-regular/val.csv": ("swag", None),
}
UNLABELLED = {
    "glue/CoLA/test.tsv": ("cola", 1063),
    "glue/SST-2/test.tsv": ("sst2", 1821),
    "glue/RTE/test.tsv": ("rte", 3000),
    "glue/WNLI/test.tsv": ("wnli", 146),
    "swag/hf-regular/test.csv": ("swag", None),
}


def fields_of(path: Path) -> list[list[str]]:
    """Rows by another way than the project's: line feeds and tabs counted in bytes, or the csv module."""
    if path.suffix == ".csv":
        return list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"))))
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
    return [[field.decode() for field in line.split(b"\t")] for line in lines]


FILES = [(file, *about, False) for file, about in LABELLED.items()]
FILES += [(file, *about, True) for file, about in UNLABELLED.items()]


@pytest.mark.parametrize(("file", "task", "rows", "test"), FILES)
def test_read_examples_official_file_keeps_every_row_and_character(file: str, task: str, rows: int | None, test: bool):
    spec = load_spec(task)
    counts: Counter[str] = Counter()
    examples = make_task(spec).read(DATA / file, test=test, counts=counts)
    assert not counts and [example.id for example in examples] == [str(place) for place in range(len(examples))]
    raw = fields_of(DATA / file)
    layout = spec.layout(None, test)
    header = raw.pop(0) if layout.header else []
    assert len(examples) == len(raw) == (rows or len(raw)) > 0
    places = [header.index(column) if header else column - 1 for column in layout.columns.required]
    count = len(layout.columns.texts)
    for example, fields in zip(examples, raw, strict=True):
        texts = [fields[place] for place in places[:count]]
        if spec.kind == "choice":
            assert example.context == texts[0]
            endings = [fields[place] for place in places[count : count + 4]]
            assert list(example.endings) == [f"{texts[1]} {ending}".strip() for ending in endings]
        else:
            assert list(example.texts) == texts
        if test:
            assert example.label is None
        elif spec.labels:
            assert spec.labels[example.label] == fields[places[-1]]
        else:
            assert example.label == float(fields[places[-1]])


def test_squad_score_gold_answers_of_official_file_score_100(tmp_path: Path):
    path = tmp_path / "dev-v1.1.json"
    path.write_bytes(lzma.decompress((DATA / "squad" / "dev-v1.1.rebuilt.json.xz").read_bytes()))
    spec = load_spec("squad1")
    examples = make_task(spec).read(path)
    assert len(examples) == 10_570
    gold = [{"id": example.id, "prediction": example.answers[-1].text} for example in examples]
    scores = make_task(spec).score("squad1", examples, gold)
    assert scores["em"] == 100.0
    assert (100 - scores["f1"]) / 100 * len(examples) < 1.01  # one answer is only an article, whose F1 is 0
