"""Learning a task from parts of its labels, from fine-tuning to the curve of the scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_src.evaluate.bag_of_words import predict
from pipeline_src.evaluate.predictions import read_task
from pipeline_src.evaluate.scores import few_labels_table, label_curve, score_table, score_task
from pipeline_src.finetune.task_data import TaskData
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.examples import labelled_part
from tests.unit.finetune.conftest import fine_tune

# sst2 has 1,600 examples.
COUNTS = (400, 40, 1600, 5000)


@pytest.fixture(scope="module")
def inputs(make_study) -> Path:
    return make_study(("sst2", "pos"), layers=1)


def test_label_curve_has_point_for_every_count_and_for_whole_file(study):
    recipe = {"learning_rates": (1e-5, 1e-3), "batch_sizes": 32, "max_length": 32}
    fine_tune("sst2", "3", random_baseline=True, label_counts=COUNTS, **recipe)
    folder = Path("results/predictions/sst2/3/predicted")
    spec = load_spec("sst2")
    parts = {f"{weights}-{count}-labels" for weights in ("pretrained", "random") for count in (40, 400)}
    assert {path.name for path in folder.iterdir()} == {"pretrained", "random", "run.json", *parts}
    assert {path.name for path in Path("data/baselines/sst2").iterdir()} == {"3", "3-40-labels", "3-400-labels"}
    files = read_task(spec, (3,), with_training=True, label_counts=COUNTS)
    best, results = score_task(files, bag_of_words=True)
    (scored,) = score_table(files, best, results)
    few_labels = few_labels_table(files, best, results["sst2"])
    points = label_curve(files, few_labels, scored)
    assert [point["examples"] for point in points] == [40, 400, 1600]
    assert all(point["systems"].keys() == {"pretrained", "random_weights", "bag_of_words"} for point in points)
    systems = points[-1]["systems"]
    assert systems["pretrained"] == {"score": scored["mean"], "interval": scored["interval"]}
    assert all(result["score"] == scored["baselines"][name]["score"] for name, result in list(systems.items())[1:])
    dev = files.eval_sets["sst2"].examples
    predicted = predict(spec, labelled_part("sst2", 3, files.training, 40), dev)
    expected = files.task.score("sst2", dev, predicted)["accuracy"]
    assert points[0]["systems"]["bag_of_words"]["score"] == pytest.approx(expected)
    assert [row["title"] for row in few_labels] == ["SST-2, 40 of 1,600 examples", "SST-2, 400 of 1,600 examples"]
    assert few_labels[0].keys() - scored.keys() == {"labels"}
    random = few_labels[0]["baselines"]["random_weights"]
    assert random["vs_baseline"]["difference"] == pytest.approx(few_labels[0]["mean"] - random["score"])


@pytest.mark.parametrize("task", ["sst2", "pos"])
def test_training_part_features_equal_features_of_its_examples(study, task):
    data = TaskData(load_spec(task), Path("models/pretrained/phase2"), 32)
    part = labelled_part(task, "1", data.task.read(data.folder / data.spec.train), 25)
    expected, result = data.task.features(part, data.tokenizer, 32), data.training_part(25, "1")
    assert len(part) == 25 and data.num_training_examples > 500
    assert result.ids.tolist() == expected.ids.tolist() and result.labels.tolist() == expected.labels.tolist()
