"""Tasks made from the corpus: held-out evaluation text, balanced labels, and labels that agree with the text."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.evaluate.bag_of_words import predict
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks import download_tasks
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.made.from_corpus import RULES
from pipeline_src.text.documents import Document, in_validation_split, write_manifest, write_shard
from tests.studies import corpus_of

SEED, VALIDATION = 1, 0.3
WORDS = "whale harpoon captain vessel sister dinner letter general battle winter soldier carriage".split()


def prose(rng: np.random.Generator) -> str:
    """Paragraphs of sentences that are all different; every third has a name."""
    lines = []
    for _ in range(6):
        sentences = []
        for index in range(4):
            words = [
                *rng.permutation(WORDS)[:7],
                f"w{rng.integers(10**6)}".translate(str.maketrans("0123456789", "abcdefghij")),
            ]
            words[3] = "Ahab" if index % 3 == 0 else words[3]
            sentences.append(" ".join(words).capitalize().replace("ahab", "Ahab") + ".")
        lines.append(" ".join(sentences))
    return "\n".join(lines)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, dict[str, Document]]:
    """``data/tasks`` of all five, and the documents by id."""
    folder, rng = tmp_path_factory.mktemp("study"), np.random.default_rng(0)
    documents = {f"books:{number}": Document(f"books:{number}", "t", prose(rng)) for number in range(30)}
    (folder / "data/text/books/clean-text").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shard = write_shard(Path("data/text/books/clean-text/books-00000.jsonl"), documents.values())
        write_manifest(Path("data/text/books/clean-text"), [shard], {})
        make(tuple(RULES))
    return folder / "data/tasks", documents


def make(tasks, validation=VALIDATION):
    blocks = {"corpus": corpus_of("books", validation=validation), "interpretation": InterpretationParams()}
    download_tasks.run(seed=SEED, task_source="synthetic", tasks=tasks, **blocks)


def read(made, task: str, scored: bool = True) -> list:
    spec = load_spec(task)
    (name,) = spec.scores
    path = made[0] / task / (spec.scores[name].file if scored else spec.train)
    return make_task(spec).read(path, name if scored else None)


def text_of(documents, scored: bool) -> str:
    of = [item.text for item in documents.values() if in_validation_split(item.id, SEED, VALIDATION) == scored]
    return "\n".join(of).replace("\n", " ")


@pytest.mark.parametrize("scored", [True, False])
def test_from_corpus_evaluation_text_comes_from_validation_documents(made, scored):
    included, other = (text_of(made[1], side) for side in (scored, not scored))
    scored_texts = [example.texts[0] for example in read(made, "same_document", scored)]
    scored_texts += [ending for example in read(made, "next_sentence_choice", scored) for ending in example.endings]
    scored_texts += [example.texts[0] for example in read(made, "word_swap", scored) if example.label]
    scored_texts += [example.context for example in read(made, "cloze", scored)]
    assert len(scored_texts) > 60 and all(text in included and text not in other for text in scored_texts)


def test_from_corpus_labels_are_balanced(made):
    for task, classes in (("word_swap", 2), ("same_document", 2), ("next_sentence_choice", 4)):
        counts = Counter(int(example.label) for example in read(made, task))
        assert len(counts) == classes and max(counts.values()) - min(counts.values()) <= 1


def test_word_swap_negative_is_a_permuted_sentence(made):
    text = text_of(made[1], True)
    real = {" ".join(sorted(item.lower().split())) for item in re.findall(r"[^.]+\.", text)}
    wrong = [example.texts[0] for example in read(made, "word_swap") if not example.label]
    assert wrong and all(item not in text and " ".join(sorted(item.lower().split())) in real for item in wrong)


def test_next_sentence_choice_distractors_come_from_other_documents(made):
    for example in read(made, "next_sentence_choice"):
        home = made[1][example.group].text
        assert f"{example.context} {example.endings[example.label]}" in home
        assert sum(ending in home for ending in example.endings) == 1


def test_same_document_label_matches_documents(made):
    for example in read(made, "same_document"):
        first, second = (text in made[1][example.group].text for text in example.texts)
        assert first and second == bool(example.label)


def test_truecasing_words_are_lower_case(made):
    examples = read(made, "truecasing")
    assert all(word == word.lower() for example in examples for word in example.words)
    tagged = {word for example in examples for word, tag in zip(example.words, example.tags, strict=True) if tag != "O"}
    assert tagged == {"ahab"} and all(example.tags[0] == "O" for example in examples)


def test_cloze_answer_completes_the_question(made):
    for example in read(made, "cloze"):
        (answer,) = example.answers
        assert example.context[answer.start :].startswith(answer.text)
        assert answer.text not in example.question.split() and "what" in example.question.split()
        before, after = example.question.split("what")
        assert f"{before}{answer.text}{after}" in example.context


def test_from_corpus_same_seed_writes_same_bytes(made, monkeypatch):
    monkeypatch.chdir(made[0].parents[1])
    before = {path: path.read_bytes() for path in made[0].rglob("*") if path.is_file()}
    make(tuple(RULES))
    assert {path: path.read_bytes() for path in made[0].rglob("*") if path.is_file()} == before


def test_from_corpus_too_little_text_is_rejected(made, monkeypatch):
    monkeypatch.chdir(made[0].parents[1])
    with pytest.raises(
        PipelineError, match=r"not enough text for the task word_swap[\s\S]*dev file[\s\S]*corpus.validation"
    ):
        make(("word_swap",), validation=1e-9)
    assert len(list(made[0].iterdir())) == len(RULES)


@pytest.mark.parametrize("task", RULES)
def test_from_corpus_bag_of_words_predicts_every_example(made, task):
    spec, examples = load_spec(task), read(made, task)
    rows = predict(spec, read(made, task, scored=False), examples)
    scores = make_task(spec).score(task, examples, rows)
    assert len(rows) == len(examples) and all(0 <= value <= 100 for value in scores.values())
    if task == "truecasing":  # tags need no word order, so the baseline is good
        assert scores["entity_f1"] > 95
    if task == "word_swap":  # the words of a swapped sentence are its own
        assert scores["accuracy"] < 75
