"""Amounts of work: against counts of the models, of the paper, and of a study that ran."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from pipeline_src.config.finetune import TaskHyperparameters
from pipeline_src.config.study import check_study
from pipeline_src.tasks.spec import task_names
from pipeline_src.tools.planning.cost import ModelCost, make_objective, workload
from pipeline_src.tools.planning.jobs import STAGES, Jobs, fill_ratio
from pipeline_src.tools.planning.sizes import SIZES, SYNTHETIC, WORD
from pipeline_src.tools.preset import preset_text

LENGTH = 128 * 0.94  # mean tokens of a sequence of at most 128


def nothing_ran(_: str) -> None:
    return None


@pytest.fixture
def study_of(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no manifests of a study that ran here

    def make(preset: str, **changes):
        raw = yaml.safe_load(preset_text(preset, root / "workflow/presets"))
        for key, value in changes.items():
            raw[key] = {**raw[key], **value} if isinstance(value, dict) else value
        return check_study(raw)

    return make


def jobs_of(study, stage):
    return STAGES[stage](Jobs(study, nothing_ran))


@pytest.mark.parametrize("preset", ["sample", "bert-base", "bert-large"])
def test_parameters_are_those_of_the_model_itself(study_of, preset):
    import torch

    from pipeline_src.models.bert import BertConfig, BertForPretraining

    sizes = ModelCost.of(study_of(preset))
    with torch.device("meta"):
        bert = BertForPretraining(
            BertConfig(
                hidden_size=sizes.hidden_size,
                num_hidden_layers=sizes.num_hidden_layers,
                num_attention_heads=sizes.hidden_size // 64,
                intermediate_size=sizes.intermediate_size,
                vocab_size=sizes.vocab_size,
                max_position_embeddings=sizes.positions,
            )
        )
    assert sizes.parameters == sum(p.numel() for p in bert.parameters())


@pytest.mark.parametrize(("preset", "published"), [("bert-base", 2.3e19), ("bert-large", 8.0e19)])
def test_full_sequences_cost_what_is_published(study_of, preset, published):
    """2.3e19 and 8.0e19 are of 42.6 G places (900,000 steps of 128, 100,000 of 512, 256 each), padding and all."""
    phases = [*jobs_of(study_of(preset), "pretrain_phase1"), *jobs_of(study_of(preset), "pretrain_phase2")]
    slots = sum(job.slot_flops for job in phases)
    assert slots == pytest.approx(published, rel=0.06)
    assert 0.7 * slots < sum(job.flops for job in phases) < 0.9 * slots
    assert sum(job.tokens for job in phases) == pytest.approx(0.77 * 42.6e9, rel=0.02)


def test_a_real_training_of_the_readme_is_met(study_of):
    """The training on 100 novels: 20,528,997 and 4,065,263 tokens, 7.570e13 and 1.958e13 FLOPs were counted.

    With every row of the last block; it computes those in use alone by now.
    """
    study = study_of(
        "sample",
        vocabulary={"vocab_size": 8192},
        examples={"max_seq_length": {"phase1": 128, "phase2": 512}},
        pretrain={"steps": {"phase1": 5400, "phase2": 300}},
    )
    (short,), (long,) = jobs_of(study, "pretrain_phase1"), jobs_of(study, "pretrain_phase2")
    assert short.tokens == pytest.approx(20_528_997, rel=0.1)
    every_row = ModelCost.of(study).flops(workload(short.tokens, LENGTH, 0.15 * short.tokens))
    assert every_row == pytest.approx(7.570e13, rel=0.1)
    assert short.flops == pytest.approx(0.73 * every_row, rel=0.02)
    assert long.tokens == pytest.approx(4_065_263, rel=0.35)  # books are longer than articles


def test_finetuning_counts_grid_restarts_weights_and_epochs(study_of):
    recipe = TaskHyperparameters(learning_rates=(0.001,), epochs=(1,), batch_sizes=(32,), max_length=64).model_dump(
        mode="json"
    )
    one = {"defaults": recipe, "per_task": {"cola": {}}, "seeds": [1]}
    many = {
        "defaults": {**recipe, "learning_rates": [0.001, 0.002, 0.003], "epochs": [1, 3], "random_baseline": True},
        "per_task": {"cola": {}},
        "seeds": [1, 2],
    }
    (single,) = jobs_of(study_of("sample", tasks=["cola"], finetune=one), "finetune")
    double = list(jobs_of(study_of("sample", tasks=["cola"], finetune=many), "finetune"))
    assert [job.item for job in double] == ["cola-1", "cola-2"]
    assert double[0].tokens == pytest.approx(single.tokens * 3 * (1 + 3) * 2)
    predicted = SYNTHETIC["cola"].labelled / SYNTHETIC["cola"].rows / 3
    assert double[0].flops / single.flops == pytest.approx(24 * (1 + predicted / 2) / (1 + predicted), rel=0.03)


@pytest.mark.parametrize(
    ("architecture", "objective", "pairs"),
    [("albert", "mlm", "sop"), ("modernbert", "mlm", "none"), ("electra", "electra", "none")],
)
def test_other_members_count_as_the_model_that_is_trained(study_of, architecture, objective, pairs):
    """Parameters and FLOPs that its own class counts, with ELECTRA's generator; ALBERT's blocks are one."""
    changes = {"architecture": architecture} | ({} if architecture == "modernbert" else {"embedding_size": 32})
    study = study_of("sample", model=changes, pretrain={"objective": objective}, examples={"pair_objective": pairs})
    (job,), bert = jobs_of(study, "pretrain_phase1"), ModelCost.of(study_of("sample"))
    learning, cost = make_objective(study), ModelCost.of(study)
    assert cost.parameters == sum(parameter.numel() for parameter in learning.parameters()) != bert.parameters
    assert cost.encoder_parameters != bert.encoder_parameters
    length, predictions = 64.0, 0.15 * job.tokens
    work = workload(job.tokens, length, predictions, predictions + job.tokens / length)
    assert job.flops == pytest.approx(learning.training_flops(work), rel=1e-6)


def test_a_teachers_forward_pass_counts_where_it_is_there(study_of, tmp_path):
    from pipeline_src.models.bert import BertConfig

    pretrain = {"objective": "distilbert", "teacher": str(tmp_path / "teacher")}
    (alone,) = jobs_of(study_of("sample", pretrain=pretrain), "pretrain_phase1")
    (tmp_path / "teacher").mkdir()
    study = study_of("sample")
    sizes = (study.vocabulary.vocab_size, study.model.hidden_size, 4, 2, 512)
    config = {"model_type": "bert", **BertConfig(*sizes).as_dict()}
    (tmp_path / "teacher/config.json").write_text(json.dumps(config))
    (taught,) = jobs_of(study_of("sample", pretrain=pretrain), "pretrain_phase1")
    assert taught.flops > 1.3 * alone.flops and taught.written == alone.written


def test_a_model_to_go_on_from_counts_with_its_own_sizes(study_of, tmp_path):
    from pipeline_src.models.bert import BertConfig

    config = {"model_type": "bert", **BertConfig(30_522, 256, 4, 4, 1024).as_dict()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    changes = {"vocabulary": {"kind": "given"}, "pretrain": {"init_from": str(tmp_path)}}
    (job,) = jobs_of(study_of("sample", **changes), "pretrain_phase1")
    (same,) = jobs_of(
        study_of("sample", vocabulary={"vocab_size": 30_522}, model={"num_hidden_layers": 4, "hidden_size": 256}),
        "pretrain_phase1",
    )
    assert job == same
    entry = {"vocabulary": {"kind": "given"}, "pretrain": {"init_from": "catalogue/models/minilm.yaml"}}
    (fetched,) = jobs_of(study_of("sample", **entry), "start_model")
    assert fetched.units == 83_506_384


def test_every_declared_task_has_its_sizes():
    assert set(SIZES["official"]) == set(SIZES["synthetic"]) == set(task_names())


def test_a_dump_is_counted_by_its_parts(study_of):
    study = study_of("bert-base")
    jobs, whole = Jobs(study, nothing_ran), Jobs(study, nothing_ran, whole_dump=True)
    (listed, _), (all_parts, books) = jobs.clean(), whole.clean()
    assert 50 * listed.units < all_parts.units == pytest.approx(25e9)
    assert (all_parts.item, books.item) == ("wikipedia", "books")
    assert whole.corpus.tokens() > 4e9  # two thousand five hundred million words were there in 2018
    assert any("--whole-dump" in note for note in jobs.corpus.notes)
    assert not any("--whole-dump" in note for note in whole.corpus.notes)


def test_known_sizes_replace_estimates(study_of):
    known = {"data/text/wikipedia/clean-text": 1_000_000, "data/text/books/clean-text": 3_000_000}
    known["data/examples"] = 77
    jobs = Jobs(study_of("sample"), known.get)
    assert jobs.corpus.text() == 4_000_000 + WORD * 1_000_000  # of the reviews, at most
    assert next(jobs.build_examples()).written == 77
    assert jobs.corpus.raw("wikipedia") == 1_695_871  # the catalogue's


def test_a_task_without_known_size_is_named_and_costs_nothing(study_of, monkeypatch):
    monkeypatch.delitem(SIZES["synthetic"], "cola")
    jobs = Jobs(study_of("sample", tasks=["cola", "rte"]), nothing_ran)
    assert jobs.unknown_tasks == ["cola"]
    assert [job.flops > 0 for job in jobs.finetune()] == [False, True]


def test_the_fill_ratio_lies_between_what_was_measured():
    assert fill_ratio(32) == fill_ratio(64) and fill_ratio(4096) == fill_ratio(512)
    assert fill_ratio(512) < fill_ratio(384) < fill_ratio(256) < fill_ratio(128)


def test_reading_the_workflow_imports_no_torch(root):
    """An import at the head of a module it reaches once made every start of Snakemake a second and a half slower."""
    program = "import sys, bridge, resources; print('torch' in sys.modules)"
    paths = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'workflow'}"}
    done = subprocess.run([sys.executable, "-c", program], env=paths, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    "preset", ["roberta-base", "albert-base", "electra-small", "deberta-base", "deberta-v3-small", "tinybert-4",
               "distilbert", "modernbert-base"]
)  # fmt: skip
def test_a_published_preset_is_planned_where_a_phase_has_no_steps_too(study_of, preset):
    study = study_of(preset)
    for phase in ("phase1", "phase2"):
        (job,) = jobs_of(study, f"pretrain_{phase}")
        assert (job.flops > 0) == (getattr(study.pretrain.steps, phase) > 0)
