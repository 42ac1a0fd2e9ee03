"""Experiments of DVC side by side, ablations next to the paper's, and means over seeds."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo
from scipy import stats

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.report import report
from pipeline_src.report.columns import score_rows
from pipeline_src.report.comparison import (
    METRIC_KEYS,
    find_ablations,
    group,
    lines_of,
    read_tables,
    render_comparison,
)
from pipeline_src.report.experiments import (
    Experiment,
    Folders,
    compared_with,
    differences,
    read_experiment,
    resolve,
)
from pipeline_src.report.results import SUMMARY
from pipeline_src.study.task_spec import load_spec, task_names
from tests.unit.report.conftest import Page, score_row, write_scores


def study(results, pairs: str, mnli: float, task_rules: list[str]) -> None:
    """Write results, summary and parameters into the workspace."""
    rows = [
        score_row("mnli", "accuracy", mnli, mnli + 0.4),
        score_row("sst2", "accuracy", 92.0),
        score_row("rte", "accuracy", 61.0),
    ]
    write_scores(results, rows, task_rules)
    write_json(results / "summary.json", {"mlm_loss": 6.1, "mlm_gap": 0.5, "glue": mnli})
    params = {
        "examples": {"pair_objective": pairs},
        "pretrain": {"objective": "mlm"},
        "model": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": None},
    }
    (results.parent / "params.yaml").write_text(yaml.safe_dump(params))


@pytest.fixture
def experiments(results, monkeypatch, root):
    """A repository with the experiments `base` and `table5-no-nsp`, and a third study in the workspace."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "t")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.org")
    subprocess.run(["git", "init", "-q", "."], check=True)
    repo = Repo.init(".")
    shutil.copytree(root / "workflow" / "ablations", results.parent / "workflow" / "ablations")
    stage = {"cmd": "true", "outs": ["results/scores.json"], "metrics": [{"results/summary.json": {"cache": False}}]}
    (results.parent / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"evaluate": stage}}))
    study(results, "nsp", 84.0, [])
    repo.commit(force=True)
    subprocess.run(["git", "add", "-A", "."], check=True)
    subprocess.run(["git", "commit", "-qm", "first"], check=True)
    for name, pairs, mnli in (("base", "nsp", 84.2), ("table5-no-nsp", "none", 83.1)):
        study(results, pairs, mnli, [])
        repo.experiments.save(name=name, force=True)
    repo.close()
    study(results, "nsp", 12.0, [])
    return results


def test_report_reads_experiments_without_checkout(experiments, root, pictures):
    report.run(experiments=("base", "table5-no-nsp", "workspace"))
    page = (experiments / "comparison.html").read_text(encoding="utf-8")
    parsed = Page(page)
    text = parsed.text
    assert not parsed.open and not parsed.fetched and "84.4 ± 0.3" in text and "83.3 ± 0.3" in text and "12.2" in text
    curves = re.search(r'<section id="curves".*?</section>', page, re.DOTALL)[0]
    assert all(f">{name}</text>" in curves for name in ("base", "table5-no-nsp", "workspace"))
    assert "examples.pair_objective" in text and "pretrain.objective" not in text
    assert not (experiments / "report.html").exists() and read_json(experiments / "summary.json")["glue"] == 12.0


def test_find_ablations_matches_experiments_with_variants_of_paper(experiments):
    studies = [read_experiment("HEAD"), read_experiment("table5-no-nsp")]
    ablations = find_ablations(studies)
    assert [ablation.title for ablation in ablations] == ["MNLI, accuracy", "SST2, accuracy"]
    variants = ablations[0].variants
    assert [variant.name for variant in variants] == ["study", "table5-no-nsp", "table5-ltr", "table5-ltr-bilstm"]
    scores = [variant.row.mean if variant.row else None for variant in variants]
    assert scores == pytest.approx([84.2, 83.3, None, None]) and not ablations[0].synthetic
    assert [variant.paper for variant in variants] == [84.4, 83.9, 82.1, 82.1]
    assert find_ablations(studies[:1]) == [] and "Ablations" not in render_comparison(studies[:1])
    assert find_ablations(studies[1:]) == []


def test_read_tables_use_scores_of_the_catalogue(root, monkeypatch):
    """Except for perplexities, which are measured on another text, and averages, which the summary has."""
    monkeypatch.chdir(root)
    eval_sets = (item for task in task_names() for item in load_spec(task).scores.items())
    known = {(name, metric) for name, eval_set in eval_sets for metric in eval_set.metrics}
    for table in read_tables():
        for key, metric in table["metrics"].items():
            names = {(key.removesuffix("_m"), metric_key) for metric_key in METRIC_KEYS.get(metric, ())}
            assert metric in ("perplexity", "average") or names & known, (table["source"], key)
    assert len(read_tables()) == 8


def test_comparison_synthetic_scores_are_marked(results):
    study(results, "nsp", 80.0, ["mnli", "sst2"])
    page = render_comparison([read_experiment("workspace")])
    assert page.count(">synthetic<") == 2


def test_read_experiment_unknown_name_is_rejected(experiments):
    with pytest.raises(PipelineError, match="no such experiment: nowhere"):
        resolve("nowhere")
    with pytest.raises(PipelineError, match="no such experiment: --all"):
        resolve("--all")
    cached = [path for path in (experiments.parent / ".dvc" / "cache").rglob("*") if path.is_file()]
    for path in cached:
        path.chmod(0o644)
        path.unlink()
    with pytest.raises(PipelineError, match="no results of the experiment: base"):
        read_experiment("base")


def test_resolve_outside_git_is_rejected(results, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(results.parent.parent))
    with pytest.raises(PipelineError, match="not a git repository"):
        resolve("base")


NUM_EXAMPLES = 60


def write_predictions(root: Path, num_correct: int) -> None:
    """Write CoLA's development set, and predictions of which the first are correct."""
    lines = [f"{number}\t{number % 2}\t\tsentence {number}\n" for number in range(NUM_EXAMPLES)]
    labels = [(number + (number >= num_correct)) % 2 for number in range(NUM_EXAMPLES)]
    predictions = [f"{json.dumps({'id': str(i), 'prediction': str(label)})}\n" for i, label in enumerate(labels)]
    files = {
        "data/tasks/cola/dev.tsv": lines,
        "results/predictions/cola/1/predicted/pretrained/cola.jsonl": predictions,
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("".join(content))


def with_cola(name: str, commit: str | None = None) -> Experiment:
    scores = {"rules": {}, "rows": [score_row("cola", "matthews", 50.0)]}
    return Experiment(name, {}, score_rows(scores), {"finetune.seeds": [1]}, commit)


def test_compared_with_tests_difference_on_same_examples(results, monkeypatch):
    """One experiment is in the workspace, the other in the cache. Missing predictions give a dash and no error."""
    write_predictions(results.parent, 60)

    class Cache:
        def __init__(self, rev: str) -> None:
            self.num_correct = {"alike": 58, "worse": 30, "missing": None}[rev]

        def get(self, path: str, target: str, recursive: bool) -> None:
            if self.num_correct is None:
                raise OSError("not in the cache")
            write_predictions(Path(target[: -len(path)]), self.num_correct)

    monkeypatch.setattr("dvc.api.DVCFileSystem", Cache)
    first, key = with_cola("workspace"), ("cola", "matthews")
    alike, worse, missing = (compared_with(first, with_cola(name, name)) for name in ("alike", "worse", "missing"))
    assert not missing and set(alike) == set(worse) == {key}
    assert worse[key]["significant"] and worse[key]["difference"] < -50
    assert not alike[key]["significant"] and alike[key]["p"] > 0.05 and alike[key]["examples_needed"] > NUM_EXAMPLES
    page = render_comparison([first, with_cola("alike", "alike"), with_cola("worse", "worse")])
    assert re.search(r"not significant \(\d+ examples needed\)", page) and page.count(": worse") == 1


def test_differences_on_different_examples_are_empty(results):
    write_predictions(results.parent, 60)
    second = results.parent / "second"
    write_predictions(second, 50)
    (second / "data/tasks/cola/dev.tsv").write_text("0\t1\t\tanother sentence\n")
    sides = [Folders(with_cola("second", "commit"), second), Folders(with_cola("workspace"), results.parent / "first")]
    assert differences("cola", "cola", "dev.tsv", sides) == {}


BERT, ALBERT = [61.0, 63.0, 62.0], [58.0, 60.5, 58.0]


def experiment(name: str, seed: int, architecture: str, score: float, gap: float | None = 1.0) -> Experiment:
    summary = {"from_corpus": score} | ({} if gap is None else {"mlm_gap": gap})
    scores = {"rows": [score_row("mnli", "accuracy", score)], "rules": {}}
    params = {"seed": seed, "model.architecture": architecture, "pretrain.keep_checkpoint_steps": [seed]}
    return Experiment(name, summary, score_rows(scores), params)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch, root):
    """A folder without results of a study, with the tables of ablations."""
    (tmp_path / "workflow").symlink_to(root / "workflow")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def family(elsewhere) -> list[Experiment]:
    """Two members of three seeds each, and one of one seed without a gap."""
    return [
        experiment("workspace", 1, "bert", BERT[0]),
        *(experiment(f"family-bert-{seed}", seed, "bert", BERT[seed - 1]) for seed in (3, 2)),
        *(experiment(f"family-albert-{seed}", seed, "albert", ALBERT[seed - 1]) for seed in (1, 2, 3)),
        experiment("family-electra-1", 1, "electra", 70.0, gap=None),
    ]


def test_group_ignores_only_the_seed(family):
    members = group(family)
    assert [(member.name, member.seeds) for member in members] == [
        ("family-bert", (1, 2, 3)),
        ("family-albert", (1, 2, 3)),
        ("family-electra-1", (1,)),
    ]
    assert [member.name for member in group(family[:2])] == ["family-bert"]


def test_lines_of_means_and_differences_equal_scipy(family):
    lines = {line.metric or line.title: line for line in lines_of(group(family))}
    bert, albert, electra = lines["accuracy"].cells
    low, high = stats.t.interval(0.95, 2, stats.tmean(BERT), stats.sem(BERT))
    assert bert.mean == pytest.approx(62.0) and bert.error == pytest.approx((high - low) / 2)
    assert bert.difference is None and bert.significant is None
    paired = stats.ttest_rel(ALBERT, BERT).confidence_interval(0.95)
    assert albert.difference == pytest.approx((paired.low + paired.high) / 2)
    assert albert.difference_error == pytest.approx((paired.high - paired.low) / 2)
    assert albert.significant == (stats.ttest_rel(ALBERT, BERT).pvalue < 0.05)
    assert electra.mean == 70.0 and electra.error is None and electra.difference is None
    assert lines[SUMMARY["mlm_gap"][0]].cells[2] is None


def test_cell_difference_within_its_interval_is_not_significant(family):
    line = next(line for line in lines_of(group(family)) if line.metric)
    assert line.cells[1].significant is True  # 3, 2.5 and 4 points
    noisy = [*family[:3], *(experiment(f"x-{seed}", seed, "x", BERT[seed - 1] + (-2) ** seed) for seed in (1, 2, 3))]
    text = Page(render_comparison(noisy)).text
    assert re.search(r"-2\.0 \(-[\d.]+ to [\d.]+\): not significant", text)


def test_comparison_page_shows_members(family):
    parsed = Page(render_comparison(family))
    assert not parsed.open and "Mean over seeds with its 95 % interval" in parsed.text
    assert "62.0 59.5 to 64.5" in parsed.text and "58.8 55.2 to 62.4" in parsed.text
    assert "-3.2 (-5.1 to -1.3)" in parsed.text and "±" not in parsed.text.split("Figures")[1]


def test_group_counts_equal_runs_once(elsewhere):
    runs = [
        experiment("workspace", 1, "bert", 61.0),
        experiment("a-1", 1, "bert", 61.0),
        experiment("b-1", 1, "albert", 58.0),
        experiment("b-1-again", 1, "albert", 58.0),
    ]
    members = group(runs)
    assert [member.seeds for member in members] == [(1,), (1,)]
    assert not any(cell.significant for cell in lines_of(members)[0].cells)
    assert "Means over seeds" not in render_comparison(runs)


def test_comparison_sections_all_have_content(results):
    study(results, "nsp", 80.0, [])
    page = render_comparison([dataclasses.replace(read_experiment("workspace"), curves={})])
    assert re.findall(r'<section id="(\w+)"', page) == ["figures", "side_by_side"]
