"""SQuAD's published evaluation scripts, in the copies of tf-models-official: every question and every total.

The two modules are loaded out of the wheel, which is neither installed nor kept in the repository.
"""

from __future__ import annotations

import json
import logging
import lzma
import sys
import types
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_src.sources.catalogue import Wheel
from pipeline_src.tasks import span
from pipeline_src.tasks.answers import score_answers
from pipeline_src.tasks.files.spec import load_spec
from pipeline_src.tasks.files.squad import Answer, Example
from pipeline_src.tasks.squad_scores import normalise_answer

PACKAGE = "tf-models-official==2.19.1"
WHEEL = Wheel(
    checksum="sha256:8890f0ebbedbc3b6359c81181d81a28b6f10f3989d95633f8eaab57097bd5037",
    bytes=2937762,
    platforms=("any",),
    python_version="3.11",
    implementation="py",
    abi="none",
)
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
ONE, TWO = load_spec("squad1"), load_spec("squad2")
RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="session")
def official(cached_wheel: Callable[..., Path]) -> dict[str, types.ModuleType]:
    """The evaluators, by version."""
    wheel = cached_wheel("tf-models-official", PACKAGE, WHEEL)
    modules = {}
    absl = types.ModuleType("absl")
    absl.logging = logging  # all that they need of it
    with zipfile.ZipFile(wheel) as archive, pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "absl", absl)
        for version in ("v1_1", "v2_0"):
            source = archive.read(f"official/nlp/tools/squad_evaluate_{version}.py")
            modules[version] = types.ModuleType(f"squad_evaluate_{version}")
            exec(compile(source, version, "exec"), modules[version].__dict__)
    return modules


def layout(examples: Sequence[Example]) -> list[dict[str, Any]]:
    """Examples as SQuAD's files have them."""
    questions = [
        {
            "id": example.id,
            "question": example.question,
            "answers": [{"text": answer.text, "answer_start": answer.start} for answer in example.answers],
            "is_impossible": not example.answers,
        }
        for example in examples
    ]
    contexts = [example.context for example in examples]
    return [{"paragraphs": [{"context": c, "qas": [q]} for c, q in zip(contexts, questions, strict=True)]}]


def compare_1_1(module: types.ModuleType, examples: Sequence[Example], texts: Sequence[str]) -> None:
    rows = [{"id": example.id, "prediction": text} for example, text in zip(examples, texts, strict=True)]
    values = score_answers(ONE, examples, rows).raw
    for number, (example, text) in enumerate(zip(examples, texts, strict=True)):
        golds = [answer.text for answer in example.answers]
        exact = module._metric_max_over_ground_truths(module._exact_match_score, text, golds)
        assert values["em"][number] == exact
        assert values["f1"][number] == module._metric_max_over_ground_truths(module._f1_score, text, golds)
    scores = span.score(ONE, "squad1", examples, rows)
    theirs = module.evaluate(layout(examples), {row["id"]: row["prediction"] for row in rows})
    assert scores["em"] / 100 == pytest.approx(theirs["exact_match"], abs=1e-12, rel=0)
    assert scores["f1"] / 100 == pytest.approx(theirs["final_f1"], abs=1e-12, rel=0)


def compare_2_0(
    module: types.ModuleType, examples: Sequence[Example], texts: Sequence[str], differences: Sequence[float]
) -> dict[str, float]:
    ids = [example.id for example in examples]
    rows = [
        {"id": name, "prediction": text, "null_score_difference": difference}
        for name, text, difference in zip(ids, texts, differences, strict=True)
    ]
    predictions, odds = dict(zip(ids, texts, strict=True)), dict(zip(ids, differences, strict=True))
    dataset = layout(examples)
    exact, f1 = module._get_raw_scores(dataset, predictions)
    answers = score_answers(TWO, examples, rows)
    assert answers.raw["em"].tolist() == list(exact.values())
    assert answers.raw["f1"].tolist() == list(f1.values())

    scores = span.score(TWO, "squad2", examples, rows)
    theirs = module.evaluate(dataset, predictions, odds)
    assert scores["threshold"] == theirs["final_f1_thresh"]
    assert scores["best_em_threshold"] == theirs["final_exact_thresh"]
    assert scores["f1"] / 100 == pytest.approx(theirs["final_f1"] / 100, abs=1e-12, rel=0)
    assert scores["best_em"] / 100 == pytest.approx(theirs["final_exact"] / 100, abs=1e-12, rel=0)
    has_answer = module._make_qid_to_has_ans(dataset)
    for name, raw in (("em", exact), ("f1", f1)):
        at_zero = module._apply_no_ans_threshold(raw, odds, has_answer, 0.0)
        assert scores[f"{name}_at_zero"] / 100 == pytest.approx(sum(at_zero.values()) / len(ids), abs=1e-12, rel=0)
    return scores


WORDS = "the a an The AN cat cat's Cat. naïve NAÏVE Straße İstanbul 10,000 U.S. – « 北京 e\u0301 \u00a0 ! ... ’".split(
    " "
)
TEXTS = st.one_of(
    st.just(""),
    st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    st.text(max_size=12),
    st.text(alphabet="ab the.,!?-'\" \n\t", max_size=12),
)
DIFFERENCES = st.one_of(st.integers(-3, 3).map(float), st.floats(-20, 20))


@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=4)), min_size=1, max_size=30))
@RELAXED
def test_1_1_on_random_texts(official, questions):
    examples = [
        Example(str(i), "?", "", tuple(Answer(text, 0) for text in golds)) for i, (_, golds) in enumerate(questions)
    ]
    compare_1_1(official["v1_1"], examples, [text for text, _ in questions])


@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=4), DIFFERENCES), min_size=1, max_size=40))
@RELAXED
def test_2_0_on_random_texts(official, questions):
    """Equal differences, texts without words and files where none is best to be answered are among these."""
    examples = [
        Example(str(i), "?", "", tuple(Answer(text, 0) for text in golds)) for i, (_, golds, _) in enumerate(questions)
    ]
    compare_2_0(official["v2_0"], examples, [text for text, _, _ in questions], [value for *_, value in questions])


def near(example: Example, rng: np.random.Generator) -> str:
    """A piece of the context that begins and ends some words off the answer's, as a model's would."""
    words = example.context.split(" ")
    if not example.answers or rng.random() < 0.2:
        first = int(rng.integers(len(words)))
        text = " ".join(words[first : first + int(rng.integers(1, 5))])
        return text if normalise_answer(text) else words[0] + " " + words[1]
    answer = example.answers[int(rng.integers(len(example.answers)))]
    first = len(example.context[: answer.start].split(" ")) - 1
    count = len(answer.text.split(" "))
    begin = max(0, first + int(rng.choice([-2, -1, 0, 0, 0, 0, 1])))
    return " ".join(words[begin : max(begin + 1, first + count + int(rng.choice([-1, 0, 0, 0, 0, 1, 3])))])


@pytest.fixture(scope="module")
def dev(tmp_path_factory) -> list[Example]:
    """The whole dev file of SQuAD 1.1."""
    file = DATA / "squad" / "dev-v1.1.rebuilt.json.xz"
    if not file.exists():
        pytest.skip("SQuAD's dev file is not on this machine")
    path = tmp_path_factory.mktemp("squad") / "dev.json"
    path.write_bytes(lzma.decompress(file.read_bytes()))
    return span.read(ONE, path)


def test_1_1_on_the_dev_file(official, dev):
    rng = np.random.default_rng(0)
    texts = [near(example, rng) for example in dev]
    compare_1_1(official["v1_1"], dev, texts)


def test_2_0_on_the_dev_file(official, dev, tmp_path):
    """Half of the questions are asked of another paragraph, which lacks the answer, as some of SQuAD 2.0's are."""
    rng = np.random.default_rng(1)
    asked = [
        example if rng.random() < 0.5 else Example(example.id, example.question, dev[number - 2000].context, ())
        for number, example in enumerate(dev)
    ]
    (tmp_path / "dev.json").write_text(json.dumps({"data": layout(asked)}), encoding="utf-8")
    examples = span.read(TWO, tmp_path / "dev.json")
    assert examples == asked
    texts = [near(example, rng) for example in examples]
    differences = [float(rng.normal(-2 if example.answers else 1, 3)) for example in examples]
    scores = compare_2_0(official["v2_0"], examples, texts, differences)
    assert -4 < scores["threshold"] < 4  # neither none nor all
    module, ids = official["v2_0"], [example.id for example in examples]

    files = span.submission(
        TWO,
        "squad2",
        examples,
        [
            {"id": name, "prediction": text, "null_score_difference": difference}
            for name, text, difference in zip(ids, texts, differences, strict=True)
        ],
    )
    given = json.loads(files["squad2_predictions.json"])
    assert json.loads(files["squad2_null_odds.json"]) == dict(zip(ids, differences, strict=True))
    theirs = module.evaluate(layout(examples), given)  # the threshold is in the texts
    for ours, name in (("f1", "f1"), ("em", "exact")):
        assert scores[ours] == pytest.approx(theirs[name], abs=1e-10, rel=0)
        for part in ("HasAns", "NoAns"):
            assert scores[f"{part}_{ours}"] == pytest.approx(theirs[f"{part}_{name}"], abs=1e-10, rel=0)


def test_2_0_on_rows_of_the_real_file(official, tmp_path):
    archive = DATA / "layout_samples" / "squad_v2_squad_v2_2.0.0_dummy_data.zip"
    if not archive.exists():
        pytest.skip("the rows of SQuAD 2.0 are not on this machine")
    with zipfile.ZipFile(archive) as rows:
        (tmp_path / "dev.json").write_bytes(rows.read("dummy_data/dev-v2.0.json"))
    examples = span.read(TWO, tmp_path / "dev.json")
    assert len(examples) == 2
    for texts in (["France", "the 10th century"], ["", "In the 10th and 11th centuries"], ["Rollo", ""]):
        for differences in ([-1.0, 2.0], [2.0, -1.0], [0.0, 0.0]):
            compare_2_0(official["v2_0"], examples, texts, differences)
