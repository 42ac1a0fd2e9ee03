"""Texts that are longer than the window are read in windows, whose outputs are averaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline_src.finetune.finetune import TaskData
from pipeline_src.finetune.heads import LOSSES
from pipeline_src.finetune.predict import load
from pipeline_src.finetune.task_data import TaskBatch, make_batch, training_batches
from pipeline_src.finetune.task_trainer import TaskObjective, TaskTrainer, load_task_config, task_settings
from pipeline_src.study.machine import Machine
from pipeline_src.study.task_spec import load_spec
from tests.unit.finetune.conftest import MODEL, fine_tune, make_params, predictions

ENCODER = Path("models/pretrained/phase2")
# A window has 14 words, and a text up to 60.
WINDOW = {"max_length": 16, "window_stride": 12}
GOOD, BAD = "excellent", "terrible"


def plant(root: Path) -> None:
    """Write texts whose last word is the answer, after words that say nothing."""
    rng = np.random.default_rng(0)
    fillers = ["film", "story", "actor", "music"]
    for file, count in (("train.tsv", 200), ("dev.tsv", 40)):
        lines = ["sentence\tlabel"]
        for _ in range(count):
            words = rng.choice(fillers, rng.integers(30, 60)).tolist()
            label = int(rng.integers(2))
            lines.append(f"{' '.join(words)} {GOOD if label else BAD}\t{label}")
        (root / "data/tasks/sst2" / file).write_text("\n".join([*lines, ""]), encoding="utf-8")


@pytest.fixture(scope="module")
def inputs(make_study) -> Path:
    return make_study(("sst2", "mrpc"), layers=1, change=plant)


def trainer_and_data(task: str = "sst2", **recipe) -> tuple[TaskTrainer, TaskData]:
    params = make_params(**WINDOW | recipe)
    spec = load_spec(task)
    config = load_task_config(ENCODER, MODEL, params.defaults)
    settings = task_settings(spec, params.defaults, params, config)
    data = TaskData(spec, ENCODER, settings.max_length, settings.apart, settings.window_stride)
    trainer = TaskTrainer(settings, params.defaults, params, config, ENCODER, data.training(), 1, Machine())
    return trainer, data


def test_item_outputs_are_mean_of_every_windows_outputs(study):
    trainer, data = trainer_and_data()
    features = data.training()
    model = trainer.pretrained().eval()
    most = int(np.diff(features.windows).argmax())
    assert features.windows[most + 1] - features.windows[most] == 5
    batch = make_batch(features, np.array([most, 0]))
    (outputs, _) = model.item_outputs(batch)

    alone = []
    for sequence in range(features.windows[most], features.windows[most + 1]):
        tokens = torch.tensor(features.ids[slice(*features.cu_seqlens[[sequence, sequence + 1]])].astype(np.int64))
        alone.append(model(tokens, torch.zeros_like(tokens), torch.tensor([0, len(tokens)]))[0])
    torch.testing.assert_close(outputs, torch.stack(alone).mean(0), rtol=1e-6, atol=1e-6)


def gradients(objective: TaskObjective, batches: list[TaskBatch]) -> list[torch.Tensor]:
    objective.zero_grad()
    count = sum(batch.losses for batch in batches)
    for batch in batches:
        (objective(batch)["task"].loss / count).backward()
    return [parameter.grad.clone() for parameter in objective.parameters() if parameter.grad is not None]


def test_windows_gradient_is_same_for_any_number_of_microbatches(study):
    trainer, data = trainer_and_data()
    objective = TaskObjective(trainer.pretrained().eval(), LOSSES["sequence"])
    (whole,) = next(training_batches(data.training(), 8, 1, seed=1, microbatch_tokens=None))
    parts = next(training_batches(data.training(), 8, 1, seed=1, microbatch_tokens=150))
    assert len(parts) > 2 and sum(len(part.labels) for part in parts) == len(whole.labels) == 8
    for one, several in zip(gradients(objective, [whole]), gradients(objective, parts), strict=True):
        torch.testing.assert_close(one, several, rtol=1e-4, atol=1e-6)


def accuracy() -> float:
    gold = [line.rsplit("\t", 1)[1] for line in Path("data/tasks/sst2/dev.tsv").read_text().splitlines()[1:]]
    return float(np.mean([row["prediction"] == label for row, label in zip(predictions(), gold, strict=True)]))


def test_finetune_finds_answer_in_last_window_only_with_windows(study):
    recipe = {"learning_rates": 2e-3, "epochs": 12, "batch_sizes": 8, "max_length": 16}
    folder = fine_tune(window_stride=12, **recipe)
    assert accuracy() == 1.0
    # The folder alone predicts the same.
    predictor = load(folder)
    rows = predictor(predictor.read("data/tasks/sst2/dev.tsv"))
    assert [row["prediction"] for row in rows] == [row["prediction"] for row in predictions()]
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| window_stride | 12 |" in card

    fine_tune(**recipe)
    assert accuracy() < 0.75
    assert "window_stride" not in (folder / "README.md").read_text(encoding="utf-8")


def test_window_stride_has_no_effect_on_pairs_and_short_texts(study):
    settings = trainer_and_data("mrpc")[0].settings
    assert settings.window_stride is None
    long_enough = trainer_and_data(max_length=64, window_stride=40)[1].training()
    cut = trainer_and_data(max_length=64, window_stride=None)[1].training()
    assert np.array_equal(long_enough.ids, cut.ids) and np.array_equal(long_enough.cu_seqlens, cut.cu_seqlens)
    assert np.array_equal(long_enough.lengths, cut.lengths) and long_enough.items == cut.items


def test_config_of_fine_tuned_model_has_window_stride(study):
    folder = fine_tune(epochs=1, **WINDOW)
    assert json.loads((folder / "config.json").read_text())["finetune"]["window_stride"] == 12
