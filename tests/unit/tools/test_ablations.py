"""What the tool asks of DVC, with a queue of the test's own in DVC's place."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from dvc.utils.hydra import apply_overrides

from pipeline_src import __main__ as command_line
from pipeline_src.common.errors import PipelineError
from pipeline_src.config.study import Study, check_study
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.flops import Workload
from pipeline_src.models.hub import save_tensors
from pipeline_src.tools import ablations
from pipeline_src.tools.ablations import FOLDER, Table, apply, equal_steps, flops, read_table, table_names
from pipeline_src.tools.preset import preset_text

ROOT = Path(__file__).resolve().parents[3]


class Queue:
    """DVC's: an experiment that is queued when the queue is run is done then, or has failed."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.done: list[str] = []
        self.fails: set[str] = set()
        self.asked: list[str] = []

    def dvc(self, *words: str, quiet: bool = False, check: bool = True) -> str:
        if words[:2] == ("exp", "list"):
            return "\n".join(self.done)
        if words[:2] == ("queue", "status"):
            return "\n".join(
                ["Task Name Created Status", *(f"{id(n):x} {n} 10:00 {s}" for n, s in self.states.items())]
            )
        if words[:3] == ("exp", "run", "--queue"):
            self.asked.append(words[4])
            self.states[words[4]] = "Queued"
        elif words[:3] == ("exp", "run", "--run-all"):
            self.asked.append(f"run {words[4]}")
            for name, state in self.states.items():
                if state in ("Queued", "Running"):
                    self.states[name] = "Failed" if name in self.fails else "Success"
            self.done += [name for name, state in self.states.items() if state == "Success" and name not in self.done]
        return ""


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "params.yaml").write_text((ROOT / "workflow/presets/sample.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    queue = Queue()
    monkeypatch.setattr(ablations, "dvc", queue.dvc)
    return queue


def test_what_takes_over_a_model_is_queued_when_that_is_there(queue: Queue) -> None:
    assert command_line.main(["ablations", "table5"]) == 0
    assert queue.asked == ["table5-no-nsp", "table5-ltr", "run 2", "table5-ltr-bilstm", "run 2"]


def test_queueing_alone_starts_none(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["ablations", "table5", "--queue", "-j", "3"]) == 0
    assert queue.asked == ["table5-no-nsp", "table5-ltr", "table5-ltr-bilstm"]
    assert "dvc queue start -j 3; -j 1, for some share a pretraining" in capsys.readouterr().out


def test_the_same_command_goes_on_where_one_failed(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.fails = {"table5-ltr"}
    assert command_line.main(["ablations", "table5", "-j", "1"]) == 2
    assert "table5-ltr-bilstm" not in queue.asked  # it would train the same model again
    assert "`dvc queue logs table5-ltr` shows why" in capsys.readouterr().err
    queue.fails, queue.asked = set(), []
    assert command_line.main(["ablations", "table5", "-j", "1"]) == 0
    assert queue.asked == ["table5-ltr", "run 1", "table5-ltr-bilstm", "run 1"]


def test_what_waits_already_is_not_queued_twice(queue: Queue) -> None:
    queue.states = {"rates-05": "Running", "rates-10": "Success"}  # the second on an earlier commit
    queue.done = []
    assert command_line.main(["ablations", "rates", "--queue", "--only", "rates-05", "rates-10"]) == 0
    assert queue.asked == ["rates-10"]


def test_dvcs_queue_is_read_from_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dvc.yaml").write_text("stages: {count: {cmd: echo, params: [steps]}}\n")
    (tmp_path / "params.yaml").write_text("steps: 1\n")
    for command in (
        "git init -q", "dvc init -q", "git add .",
        "git -c user.name=a -c user.email=a@b commit -qm study", "dvc exp run -q --queue -n more -S steps=2",
    ):  # fmt: skip
        subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert ablations.unfinished() == {"more"} and ablations.finished() == set()


def test_all_tables_are_run_where_none_is_named(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    """But for what has no teacher yet, which is said."""
    assert command_line.main(["ablations", "--preset", "test"]) == 0
    assert len(queue.done) == 3 + 5 + 5 + 16 + 5 + 23 + 9 + 5
    assert capsys.readouterr().out.count("left out, there is no teacher in models/teacher/pretrained/phase2") == 6
    assert "test:" in Path("params.yaml").read_text().splitlines()[0]  # the study that was asked for stands there


def test_a_missing_teacher_is_named_before_anything_is_queued(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["ablations", "taught", "--queue"]) == 2
    said = capsys.readouterr().err
    assert "no teacher here: models/teacher/pretrained/phase2" in said and "docs/family.md" in said and not queue.asked
    Path("models/teacher/pretrained/phase2").mkdir(parents=True)
    assert command_line.main(["ablations", "taught", "--queue"]) == 0
    assert len(queue.asked) == 6


TABLES = table_names(ROOT / FOLDER)
REFERENCE = ROOT.parent / "shared/reference/paper_tables.yaml"
FAMILY = REFERENCE.with_name("family_tables.yaml")
PAPER_SIZES = {  # layers, width, heads: table 6
    "table6-quarter-depth": (3, 768, 12),
    "table6-half-depth-few-heads": (6, 768, 3),
    "table6-half-depth": (6, 768, 12),
    "table6-wide": (12, 1024, 16),
    "table6-wide-double-depth": (24, 1024, 16),
}
THOUSANDS = [30, 50, 100, 200, 400, 600, 800, 1000]  # steps of figure 5


def preset(name: str) -> dict[str, Any]:
    return yaml.safe_load(preset_text(name, ROOT / "workflow/presets"))


def table(name: str, scale: str = "bert-base") -> Table:
    return read_table(name, preset(scale), ROOT / FOLDER)


def studies(name: str, scale: str = "bert-base") -> dict[str, Study]:
    found = table(name, scale).experiments
    return {one.name: check_study(apply(one.changes, preset(scale))) for one in found}


def test_every_ablation_of_the_paper_is_there() -> None:
    assert set(TABLES) == {"table5", "table6", "table8", "figure5", "rates", "ladder", "family", "electra5", "taught"}


@pytest.mark.parametrize("scale", ["sample", "bert-base", "test"])
@pytest.mark.parametrize("name", TABLES)
def test_every_experiment_is_a_study_of_known_parameters(name: str, scale: str) -> None:
    params = preset(scale)
    for one in table(name, scale).experiments:
        assert one.name.startswith(f"{name}-")
        assert all(ablations.present(key, params) for key in one.changes), one.changes
        assert scale == "test" or apply(one.changes, params) != params, one.name


@pytest.mark.parametrize("name", TABLES)
def test_at_the_papers_scale_no_two_experiments_are_the_same(name: str) -> None:
    changed = [study.model_dump_json() for study in studies(name).values()]
    assert len(set(changed) | {check_study(preset("bert-base")).model_dump_json()}) == len(changed) + 1


def test_sizes_are_the_papers() -> None:
    found = {
        name: (
            study.model.num_hidden_layers,
            study.model.hidden_size,
            study.model.num_attention_heads or study.model.hidden_size // 64,
        )
        for name, study in studies("table6").items()
    }
    assert found == PAPER_SIZES


def test_steps_are_the_papers_and_are_kept() -> None:
    for name, study in studies("figure5").items():
        step = 10 * int(name[-3:])
        folder = f"models/pretrained/phase1/steps/{step}000" if step < 1000 else "models/pretrained/phase2"
        assert study.finetune.model == folder
        assert study.pretrain.keep_checkpoint_steps == tuple(1000 * kept for kept in THOUSANDS[:-1])
    assert [10 * int(one.name[-3:]) for one in table("figure5").experiments] == 2 * THOUSANDS


def test_a_step_of_the_second_phase_lies_in_its_folder() -> None:
    found = {name: study.finetune.model for name, study in studies("figure5", "test").items()}
    assert found["figure5-masked-060"] == "models/pretrained/phase1/steps/18"  # 20 steps, then 10
    assert found["figure5-masked-080"] == "models/pretrained/phase2/steps/24"


@pytest.mark.parametrize("name", TABLES)
def test_dvc_reads_every_override_as_it_is_meant(name: str, tmp_path: Path) -> None:
    params = preset("bert-base")
    for one in table(name).experiments:
        path = tmp_path / "params.yaml"
        path.write_text(yaml.safe_dump(params))
        words = ablations.command(one, params)
        assert words[:5] == ["exp", "run", "--queue", "-n", one.name]
        apply_overrides(path, words[6::2])
        assert check_study(yaml.safe_load(path.read_text())) == check_study(apply(one.changes, params))


def test_none_pretrains_what_another_pretrains_beside_it() -> None:
    first, second = ablations.waves(table("table5").experiments)
    assert [one.name for one in first] == ["table5-no-nsp", "table5-ltr"]
    assert [one.name for one in second] == ["table5-ltr-bilstm"]
    first, second = ablations.waves(table("figure5").experiments)
    assert len(first) == 2 and len(second) == 14
    assert len(ablations.waves(table("table8").experiments)) == 1


@pytest.mark.skipif(not REFERENCE.exists(), reason="the figures of the paper are not beside this checkout")
def test_figures_are_the_papers() -> None:
    paper = yaml.safe_load(REFERENCE.read_text())["bert"]
    five, six, eight, figure = (
        next(block for key, block in paper.items() if key.startswith(f"{name}_"))
        for name in ("table5", "table6", "table8", "figure5")
    )
    assert {block["verified"] for block in (five, six, eight, figure)} == {"text"}

    ours = table("table5")
    expected = [five["rows"][row] for row in ("bert_base", "no_nsp", "ltr_no_nsp", "ltr_no_nsp_bilstm")]
    expected = [{key.replace("squad", "squad1"): value for key, value in row.items()} for row in expected]
    assert [ours.study, *(one.paper for one in ours.experiments)] == expected

    ours = table("table6")
    sizes = {**PAPER_SIZES, None: (12, 768, 12)}
    for name, figures in [(None, ours.study), *((one.name, one.paper) for one in ours.experiments)]:
        row = next(row for row in six["rows"] if (row["L"], row["H"], row["A"]) == sizes[name])
        assert list(figures.values()) == [row[key] for key in ("mlm_ppl", "mnli_m", "mrpc", "sst2")]

    for (name, study), one in zip(studies("table8").items(), table("table8").experiments, strict=True):
        how = study.pretrain.masking
        shares = [round(100 * share) for share in (how.mask_ratio, how.keep_ratio, how.random_ratio)]
        row = next(row for row in eight["rows"] if [row["mask"], row["same"], row["rnd"]] == shares)
        assert one.paper == {"mnli": row["mnli"], "ner": row["ner_finetune"]}, name
    assert table("table8").study == {"mnli": eight["rows"][0]["mnli"], "ner": eight["rows"][0]["ner_finetune"]}

    assert figure["steps_k"] == THOUSANDS
    assert [one.paper["mnli"] for one in table("figure5").experiments] == figure["mlm"] + figure["ltr"]


@pytest.mark.skipif(not FAMILY.exists(), reason="the figures of the paper are not beside this checkout")
def test_figures_of_electra_are_its_papers() -> None:
    published = yaml.safe_load(FAMILY.read_text())["comparisons"]
    (rows,) = (one["rows"] for one in published if one["source"] == "electra-paper, table 5")
    by_name = {row["what"]: row["glue"] for row in rows}
    names = ["BERT", "ELECTRA", "ELECTRA 15 % (loss on the masked alone)", "Replace MLM", "All-Tokens MLM"]
    assert [one.paper["glue"] for one in table("electra5").experiments] == [by_name[name] for name in names]


def test_a_name_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(PipelineError, match=r"(?s)no such table.*tab5.*table5"):
        read_table("tab5", preset("sample"), ROOT / FOLDER)
    with pytest.raises(PipelineError, match=r"(?s)no such experiment: table5-nsp.*table5-no-nsp"):
        ablations.chosen(list(table("table5").experiments), ["table5-nsp"])


def test_a_mistake_in_a_file_names_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("{title: t, source: null, experiments: {mine-a: {set: {mask_porb: 0.2}}}}")
    with pytest.raises(PipelineError, match=r"(?s)mask_porb.*mine-a"):
        read_table("mine", preset("sample"), tmp_path)


def test_printing_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from pipeline_src.__main__ import main

    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "params.yaml").write_text((ROOT / "workflow/presets/sample.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    assert main(["ablations", "table5", "--print", "--preset", "bert-base"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("dvc exp run --queue -n table5-") == 3 and "mnli_m 83.9" in shown and "table 5" in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["params.yaml", "workflow"]
    assert main(["ablations", "table5", "--print", "--preset", "huge"]) == 2


SHORT, LONG = 3600, 1200  # steps of the study


@pytest.fixture(scope="module")
def raw(root):
    """The sample study, at steps of this file's own."""
    sample = yaml.safe_load((root / "workflow/presets/sample.yaml").read_text(encoding="utf-8"))
    sample["pretrain"] |= {"steps": {"phase1": SHORT, "phase2": LONG}, "keep_checkpoint_steps": []}
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
        if one.changes["pretrain.steps.phase2"]:
            assert flops(changed, teacher=study) == pytest.approx(flops(study), rel=2e-3), one.name
        else:
            assert one.changes["finetune.model"] == "models/word_vectors"
        steps.append(one.changes["pretrain.steps.phase1"])
    assert len(set(steps)) > (4 if table != "taught" else 1)  # members differ in what a step costs


@pytest.mark.parametrize("objective", ["distilbert", "tinybert"])
def test_a_teachers_forward_pass_is_a_third_of_its_training(raw, objective, tmp_path):
    """Of the study's own model where the folder is not there; else of the sizes that it says."""
    study = check_study(raw)
    changes = {"pretrain.objective": objective, "pretrain.teacher": str(tmp_path), "examples.pair_objective": "none"}
    taught = check_study(apply(changes | {"model.num_hidden_layers": 1}, raw))

    def all_tokens(layers: int, width: int) -> float:
        config, total = BertConfig(4096, width, layers, 2, 4 * width), 0
        for length, steps in ((64, SHORT), (128, LONG)):
            tokens = 32 * length
            predicted = tokens if objective == "distilbert" else 0
            total += steps * config.training_flops(
                Workload(32, tokens, tokens * length, predicted, tokens, tokens * length)
            )
        return total

    own = all_tokens(1, 128)
    tokens = 32 * (64 * SHORT + 128 * LONG)

    def projection(width: int) -> int:
        return 6 * 128 * width * 2 * tokens if objective == "tinybert" else 0

    expected = own + projection(128) + all_tokens(2, 128) / 3
    assert flops(taught, teacher=study) == pytest.approx(expected, rel=1e-6)
    larger = BertConfig(4096, 256 if objective == "tinybert" else 128, 4, 2, 512)
    save_tensors(tmp_path, {"any": torch.zeros(1)}, larger, "BertForPreTraining")
    assert flops(taught, teacher=study) > 1.1 * expected


def test_steps_keep_their_shares(raw):
    study = check_study(raw)
    half = check_study(apply({"pretrain.train_batch_size": 64}, raw))
    assert equal_steps(half, study) == {
        "pretrain.steps.phase1": SHORT // 2, "pretrain.steps.phase2": LONG // 2, "pretrain.warmup_steps": 75
    }  # fmt: skip
    falling = check_study(apply({"pretrain.decay_steps": 100, "pretrain.train_batch_size": 64}, raw))
    assert equal_steps(falling, study)["pretrain.decay_steps"] == 50


def test_a_phase_that_is_left_out_stays_out(raw):
    study = check_study(apply({"pretrain.steps.phase2": 0}, raw))
    changed = check_study(apply({"pretrain.steps.phase2": 0, "pretrain.train_batch_size": 64}, raw))
    steps = equal_steps(changed, study)["pretrain.steps.phase2"]
    assert steps == 0
    assert not isinstance(steps, bool)  # `-S pretrain.steps.phase2=false` is no number
