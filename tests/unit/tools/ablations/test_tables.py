"""The paper's ablations as changes to a study: valid on every scale, the paper's own numbers at the paper's scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from pipeline_src.common.errors import PipelineError
from pipeline_src.params.study import Study, check_study
from pipeline_src.tools.ablations import ablations
from pipeline_src.tools.ablations.tables import FOLDER, Table, apply, read_table, table_names

ROOT = Path(__file__).resolve().parents[4]
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
    return yaml.safe_load((ROOT / f"workflow/presets/{name}.yaml").read_text())


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
        assert all(ablations._present(key, params) for key in one.changes), one.changes
        assert scale == "test" or apply(one.changes, params) != params, one.name


@pytest.mark.parametrize("name", TABLES)
def test_at_the_papers_scale_no_two_experiments_are_the_same(name: str) -> None:
    changed = [study.model_dump_json() for study in studies(name).values()]
    assert len(set(changed) | {check_study(preset("bert-base")).model_dump_json()}) == len(changed) + 1


def test_sizes_are_the_papers() -> None:
    found = {
        name: (study.model.layers, study.model.hidden, study.model.heads or study.model.hidden // 64)
        for name, study in studies("table6").items()
    }
    assert found == PAPER_SIZES


def test_steps_are_the_papers_and_are_kept() -> None:
    for name, study in studies("figure5").items():
        step = 10 * int(name[-3:])
        folder = f"models/pretrained/short/steps/{step}000" if step < 1000 else "models/pretrained/long"
        assert study.finetune.model == folder
        assert study.pretrain.keep_steps == tuple(1000 * kept for kept in THOUSANDS[:-1])
    assert [10 * int(one.name[-3:]) for one in table("figure5").experiments] == 2 * THOUSANDS


def test_a_step_of_the_second_phase_lies_in_its_folder() -> None:
    found = {name: study.finetune.model for name, study in studies("figure5", "test").items()}
    assert found["figure5-masked-060"] == "models/pretrained/short/steps/18"  # 20 steps, then 10
    assert found["figure5-masked-080"] == "models/pretrained/long/steps/24"


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
        shares = [round(100 * share) for share in (how.mask, how.keep, how.random)]
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
        ablations._chosen(list(table("table5").experiments), ["table5-nsp"])


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
