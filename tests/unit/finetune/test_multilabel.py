"""The documented task with several labels a text, through the stages `finetune` and `evaluate`."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline_src.base.files import read_json
from pipeline_src.evaluate.evaluate import run as evaluate
from pipeline_src.finetune.predict import load
from pipeline_src.study.machine import DEFAULT_MACHINE, TrainingMachine
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.kinds import make_task
from tests.unit.finetune.conftest import fine_tune, make_params, predictions, recorded_runs

WORDS = {"sport": ("goal", "club", "match"), "money": ("bank", "price", "sold"), "music": ("song", "band", "choir")}
RARE = {"sport": 0.4, "money": 0.3, "music": 0.15}
RECIPE = {"learning_rates": 2e-3, "epochs": 3, "batch_sizes": 16, "max_length": 24}


def write_texts(file: Path, count: int, seed: int) -> None:
    """A text has a word of each of its topics, and others. Except in the first set, one text in 20 lacks its labels."""
    chance = random.Random(seed)
    lines = []
    for _ in range(count):
        topics = [topic for topic, share in RARE.items() if chance.random() < share]
        words = [chance.choice(WORDS[topic]) for topic in topics] + ["the", "new", "town"]
        chance.shuffle(words)
        topics = topics if chance.random() < 0.95 or seed == 0 else []
        lines.append(json.dumps({"text": " ".join(words), "topics": topics}) + "\n")
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text("".join(lines))


def write_topics(root: Path) -> None:
    for seed, (name, count) in enumerate({"train": 600, "dev": 150, "more": 100}.items()):
        write_texts(root / f"data/tasks/topics/{name}.jsonl", count, seed)


@pytest.fixture(scope="module")
def inputs(make_study: Callable[..., Path]) -> Path:
    return make_study((), layers=1, change=write_topics)


@pytest.fixture
def topics(study: Path, catalogue: Path, root: Path) -> str:
    """The task of docs/tasks.md, with a second evaluation set."""
    page = (root / "docs/tasks.md").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^```yaml\n(kind: multilabel.*?)^```", page, re.MULTILINE | re.DOTALL)
    more = "  more: {title: More topics, file: more.jsonl, metrics: [micro_f1]}"
    entry = re.sub(r"scores: \{(topics: .*)\}\n", rf"scores:\n  \1\n{more}\n", entry)
    (catalogue / "tasks/topics.yaml").write_text(entry)
    return "topics"


def test_finetune_multilabel_scores_and_threshold_are_in_every_output(topics: str) -> None:
    recipe = {**RECIPE, "epochs": 8, "random_baseline": True, "label_counts": [60], "select": "best"}
    folder = fine_tune(topics, **recipe)
    best, random_weights = recorded_runs(topics)
    threshold = best["dev"]["threshold"]
    assert min(best["main"], random_weights["main"]) > 80 and best["main"] == best["dev"]["micro_f1"]
    for name, weights in (("topics", "pretrained"), ("more", "pretrained"), ("topics", "random")):
        used = random_weights["dev"]["threshold"] if weights == "random" else threshold
        assert {row["threshold"] for row in predictions(topics, name, weights=weights)} == {used}

    config = read_json(folder / "config.json")
    assert config["problem_type"] == "multi_label_classification" and config["finetune"]["threshold"] == threshold
    assert "micro_f1" in (folder / "README.md").read_text()

    evaluate(task_source="synthetic", tasks=(topics,), finetune=make_params(**recipe))
    scores = read_json("results/scores.json")
    rows = {(row["eval_set"], row["metric"]): row for row in scores["rows"]}
    main = rows["topics", "micro_f1"]
    assert len(rows) == 4 and main["mean"] == best["dev"]["micro_f1"]
    assert 0 < main["majority_baseline"] < main["baselines"]["bag_of_words"]["score"]
    assert main["baselines"].keys() == {"random_weights", "bag_of_words"}
    assert main["baselines"]["bag_of_words"]["score"] > 80
    assert main["interval"][0] < main["mean"] <= main["interval"][1]
    (part,) = scores["few_labels"]
    assert part["labels"] == 60 and part["baselines"].keys() == {"random_weights", "bag_of_words"}
    details = read_json("results/tasks/topics.json")
    assert details["figures"]["topics"]["threshold"] == details["figures"]["more"]["threshold"] == [threshold]
    assert details["figures"]["topics"]["micro_f1_at_half"] == [best["dev"]["micro_f1_at_half"]]
    errors = details["errors"]["topics"]
    assert [row["label"] for row in errors["classes"]] == list(WORDS) and errors["confusion"] is None
    assert read_json("results/submissions/contents.json")["files"] == []


def test_predictor_repeats_stage_and_transformers(topics: str) -> None:
    transformers = pytest.importorskip("transformers")
    predictor = load(fine_tune(topics, **RECIPE))
    examples = predictor.read(f"data/tasks/{topics}/dev.jsonl")
    rows = predictor(examples)
    assert rows == predictions(topics)
    folder = f"models/finetuned/{topics}/1/kept-model"
    peer = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [example.texts[0] for example in examples]
    with torch.no_grad():
        probabilities = peer(**tokenizer(texts, padding=True, return_tensors="pt")).logits.sigmoid()
    for row, expected in zip(rows, probabilities.tolist(), strict=True):
        assert list(row["probabilities"]) == list(peer.config.id2label.values())
        assert list(row["probabilities"].values()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "changes",
    [{"pooling": "first_last"}, {"feature_layers": "last"}, {"bilstm": True}],
    ids=["first_last", "frozen", "bilstm"],
)
def test_predictor_of_every_head_repeats_stage(topics: str, changes: dict[str, Any]) -> None:
    predictor = load(fine_tune(topics, **RECIPE | {"epochs": 1}, **changes))
    assert predictor(predictor.read(f"data/tasks/{topics}/dev.jsonl")) == predictions(topics)


def test_finetune_two_texts_apart(topics: str, catalogue: Path) -> None:
    file = catalogue / "tasks/topics.yaml"
    file.write_text(file.read_text().replace("texts: [text]", "texts: [text, text]"))
    load_spec.cache_clear()
    predictor = load(fine_tune(topics, **RECIPE | {"epochs": 1}, pair_head="bi_encoder"))
    assert predictor.settings.bi_encoder is not None
    assert predictor(predictor.read(f"data/tasks/{topics}/dev.jsonl")) == predictions(topics)


def test_finetune_microbatches_do_not_change_losses(topics: str) -> None:
    losses = []
    for tokens in (64, 16_384):
        machine = DEFAULT_MACHINE.model_copy(update={"finetune": TrainingMachine(microbatch_tokens=tokens)})
        fine_tune(topics, machine=machine, **RECIPE | {"epochs": 1}, dropout=0.0)
        losses.append(recorded_runs(topics)[0]["train_loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_training_labels_are_read_in_order_of_the_task(topics: str) -> None:
    task = make_task(load_spec(topics))
    lines = Path("data/tasks/topics/train.jsonl").read_text().splitlines()
    expected = [[topic in json.loads(line)["topics"] for topic in WORDS] for line in lines]
    assert np.array_equal([example.label for example in task.read("data/tasks/topics/train.jsonl")], expected)
