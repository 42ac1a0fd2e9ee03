"""Tagging through the whole stage, with the encoder trained and with it frozen."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.kinds import make_task
from tests.unit.finetune.conftest import fine_tune, predictions, recorded_runs

TOWNS, PEOPLE = ("london", "rome", "paris"), ("john", "mary", "anne")


def write_entities(root: Path) -> None:
    """Write CoNLL-2003's files with towns and people, and cut those of POS, over which an LSTM takes its time."""
    folder = root / "data/tasks/ner"
    folder.mkdir()
    lines = [f"{who} -X- -X- B-PER\nsaw -X- -X- O\n{town} -X- -X- B-LOC\n" for who in PEOPLE for town in TOWNS]
    for name, times in (("train", 60), ("valid", 3), ("test", 3)):
        (folder / f"{name}.txt").write_text("\n".join(times * lines))
    for split, sentences in (("train", 400), ("dev", 100)):
        file = root / f"data/tasks/pos/en_ewt-ud-{split}.conllu"
        file.write_text("\n\n".join(file.read_text(encoding="utf-8").split("\n\n")[:sentences]) + "\n\n")


@pytest.fixture(scope="module")
def inputs(make_study) -> Path:
    """A random encoder of two layers and both tagging tasks."""
    return make_study(("pos",), layers=2, change=write_entities)


def test_finetune_ner_predicts_every_sentence_of_both_eval_sets(study):
    folder = fine_tune("ner", learning_rates=2e-3, epochs=2, batch_sizes=32)
    task = make_task(load_spec("ner"))
    (best,) = recorded_runs("ner")
    for row, eval_set in task.spec.scores.items():
        examples = task.read(study / "data/tasks/ner" / eval_set.file, row)
        result = task.score(row, examples, predictions("ner", row))
        assert result["entity_f1"] > 40
        if row == "ner":
            assert result == pytest.approx(best["dev"])
    transformers = pytest.importorskip("transformers")
    peer, info = transformers.AutoModelForTokenClassification.from_pretrained(folder, output_loading_info=True)
    assert type(peer) is transformers.BertForTokenClassification and peer.num_labels == 9
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]


def test_finetune_frozen_encoder_is_saved_unchanged(study):
    folder = fine_tune("pos", feature_layers="weighted_all", learning_rates=2e-3, batch_sizes=8)
    before = load_file("models/pretrained/phase2/model.safetensors")
    after = load_file(folder / "model.safetensors")
    shared = [name for name in after if name.startswith("bert.")]
    assert len(shared) == 37 and all(torch.equal(after[name], before[name]) for name in shared)
    (best,) = recorded_runs("pos")
    assert best["dev"]["accuracy"] > 40  # the most frequent tag has a fifth
