"""Steps at equal compute: other architectures and objectives, by the arithmetic that training itself credits."""

import pytest
import torch
import yaml

from pipeline_src.models.bert import BertConfig
from pipeline_src.models.flops import Workload
from pipeline_src.models.hub import save_tensors
from pipeline_src.params.study import check_study
from pipeline_src.tools.ablations.equal_compute import equal_steps, flops
from pipeline_src.tools.ablations.tables import apply, read_table

SHORT, LONG = 3600, 1200  # steps of the study


@pytest.fixture(scope="module")
def raw(root):
    """The sample study, at steps of this file's own."""
    sample = yaml.safe_load((root / "workflow/presets/sample.yaml").read_text(encoding="utf-8"))
    sample["pretrain"] |= {"steps": {"short": SHORT, "long": LONG}, "keep_steps": []}
    return sample


def test_a_study_costs_what_the_formula_of_bert_says(raw):
    """2 x 128, full sequences of 64 and 128 tokens, one in seven predicted; [CLS] beside them is in use."""
    expected = 0
    for length, steps in ((64, SHORT), (128, LONG)):
        tokens, predicted = 32 * length, round(0.15 * 32 * length)
        rows = predicted + 32
        block = 6 * 12 * 128**2 * tokens + 12 * 128 * length * tokens
        last = 6 * (2 * 128**2 * tokens + 10 * 128**2 * rows) + 12 * 128 * length * rows
        expected += steps * (block + last + 6 * (128**2 + 128 * 4096) * predicted)
    assert flops(check_study(raw)) == expected


@pytest.mark.parametrize("table", ["ladder", "family", "taught"])
def test_every_row_costs_what_the_study_does_or_says_its_steps(root, raw, table):
    study, steps = check_study(raw), []
    for one in read_table(table, raw, root / "workflow/ablations").experiments:
        changed = check_study(apply(one.changes, raw))
        if one.changes["pretrain.steps.long"]:
            assert flops(changed, teacher=study) == pytest.approx(flops(study), rel=2e-3), one.name
        else:
            assert one.changes["finetune.model"] == "models/word_vectors"
        steps.append(one.changes["pretrain.steps.short"])
    assert len(set(steps)) > (4 if table != "taught" else 1)  # members differ in what a step costs


@pytest.mark.parametrize("objective", ["distilled", "layers"])
def test_a_teachers_forward_pass_is_a_third_of_its_training(raw, objective, tmp_path):
    """Of the study's own model where the folder is not there; else of the sizes that it says."""
    study = check_study(raw)
    changes = {"pretrain.objective": objective, "pretrain.teacher": str(tmp_path), "examples.pairs": "none"}
    taught = check_study(apply(changes | {"model.layers": 1}, raw))

    def all_tokens(layers: int, width: int) -> float:
        config, total = BertConfig(4096, width, layers, 2, 4 * width), 0
        for length, steps in ((64, SHORT), (128, LONG)):
            tokens = 32 * length
            predicted = tokens if objective == "distilled" else 0
            total += steps * config.training_flops(
                Workload(32, tokens, tokens * length, predicted, tokens, tokens * length)
            )
        return total

    own = all_tokens(1, 128)
    tokens = 32 * (64 * SHORT + 128 * LONG)

    def projection(width: int) -> int:
        return 6 * 128 * width * 2 * tokens if objective == "layers" else 0

    expected = own + projection(128) + all_tokens(2, 128) / 3
    assert flops(taught, teacher=study) == pytest.approx(expected, rel=1e-6)
    larger = BertConfig(4096, 256 if objective == "layers" else 128, 4, 2, 512)
    save_tensors(tmp_path, {"any": torch.zeros(1)}, larger, "BertForPreTraining")
    assert flops(taught, teacher=study) > 1.1 * expected


def test_steps_keep_their_shares(raw):
    study = check_study(raw)
    half = check_study(apply({"pretrain.batch": 64}, raw))
    assert equal_steps(half, study) == {
        "pretrain.steps.short": SHORT // 2, "pretrain.steps.long": LONG // 2, "pretrain.warmup": 75
    }  # fmt: skip


def test_a_phase_that_is_left_out_stays_out(raw):
    study = check_study(apply({"pretrain.steps.long": 0}, raw))
    changed = check_study(apply({"pretrain.steps.long": 0, "pretrain.batch": 64}, raw))
    steps = equal_steps(changed, study)["pretrain.steps.long"]
    assert steps == 0
    assert not isinstance(steps, bool)  # `-S pretrain.steps.long=false` is no number
