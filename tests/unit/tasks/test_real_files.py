"""The loaders on real files in their makers' layouts, which are not part of the project."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from pipeline_src.tasks.handlers import HANDLERS
from pipeline_src.tasks.spec import load_spec

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real task files are not on this machine")


@pytest.mark.parametrize(
    ("task", "file", "rows"),
    [
        ("cola", "glue/CoLA/train.tsv", 8551),
        ("cola", "glue/CoLA/dev.tsv", 1043),
        ("sst2", "glue/SST-2/dev.tsv", 872),
        ("mrpc", "glue/MRPC/train.tsv", 3668),
        ("mrpc", "glue/MRPC/dev.tsv", 408),
        ("stsb", "glue/STS-B/dev.tsv", 1500),
        ("rte", "glue/RTE/train.tsv", 2490),
        ("rte", "glue/RTE/dev.tsv", 277),
        ("wnli", "glue/WNLI/train.tsv", 635),
        ("wnli", "glue/WNLI/dev.tsv", 71),
        ("qnli", "glue/QNLI/dev.tsv", 5463),
        ("qqp", "glue/QQP/train_sample.tsv", 8999),
        ("mnli", "glue/MNLI/train_sample.tsv", 8999),
        ("swag", "swag/allennlp-swag.csv", None),
        ("swag", "swag/hf-regular/train.csv", None),
    ],
)
def test_no_row_is_lost(task: str, file: str, rows: int | None):
    spec = load_spec(task)
    examples = HANDLERS[spec.kind].read(spec, DATA / file)
    assert len(examples) == rows if rows else examples


def test_squad(tmp_path: Path):
    path = tmp_path / "dev-v1.1.json"
    path.write_bytes(lzma.decompress((DATA / "squad" / "dev-v1.1.rebuilt.json.xz").read_bytes()))
    spec = load_spec("squad1")
    examples = HANDLERS["span"].read(spec, path)
    assert len(examples) == 10_570
    gold = [{"id": example.id, "prediction": example.answers[-1].text} for example in examples]
    scores = HANDLERS["span"].score(spec, "squad1", examples, gold)
    assert scores["em"] == 100.0
    assert (100 - scores["f1"]) / 100 * len(examples) < 1.01  # one answer is an article alone: F1 0, EM 1
