"""Experiments of DVC side by side, ablations next to the paper's, and means over seeds."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo
from scipy import stats

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, write_json
from pipeline_src.report import report
from pipeline_src.report.columns import score_rows
from pipeline_src.report.comparison import (
    OURS,
    differing,
    find_ablations,
    group,
    lines_of,
    picture,
    read_tables,
    render_comparison,
)
from pipeline_src.report.experiments import (
    Experiment,
    Folders,
    compared_with,
    differences,
    dotted,
    read_experiment,
    resolve,
)
from pipeline_src.tasks.spec import load_spec, task_names
from tests.unit.report.conftest import Page, score_row, write_scores

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org")


def study(results, pairs: str, mnli: float, task_rules: list[str]) -> None:
    """Results, summary and parameters in the workspace."""
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
    for name, value in (
        ("GIT_AUTHOR_NAME", "t"),
        ("GIT_AUTHOR_EMAIL", "t@x.org"),
        ("GIT_COMMITTER_NAME", "t"),
        ("GIT_COMMITTER_EMAIL", "t@x.org"),
    ):
        monkeypatch.setenv(name, value)
    subprocess.run(["git", "init", "-q", "."], check=True)
    repo = Repo.init(".")
    shutil.copytree(root / "workflow" / "ablations", results.parent / "workflow" / "ablations")
    stage = {"cmd": "true", "outs": ["results/scores.json"], "metrics": [{"results/summary.json": {"cache": False}}]}
    (results.parent / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"evaluate": stage}}))
    study(results, "nsp", 84.0, [])
    repo.commit(force=True)
    subprocess.run(["git", "add", "-A", "."], check=True)
    subprocess.run(["git", *IDENTITY, "commit", "-qm", "first"], check=True)
    for name, pairs, mnli in (("base", "nsp", 84.2), ("table5-no-nsp", "none", 83.1)):
        study(results, pairs, mnli, [])
        repo.experiments.save(name=name, force=True)
    repo.close()
    study(results, "nsp", 12.0, [])
    return results


def test_run_experiments_are_read_without_a_checkout(experiments, root, pictures):
    report.run(experiments=("base", "table5-no-nsp", "workspace"))
    page = (experiments / "comparison.html").read_text(encoding="utf-8")
    parsed = Page(page)
    text = parsed.text
    assert not parsed.open and not parsed.fetched and "84.4 ± 0.3" in text and "83.3 ± 0.3" in text and "12.2" in text
    assert "examples.pair_objective" in text and "pretrain.objective" not in text
    assert not (experiments / "report.html").exists() and read_json(experiments / "summary.json")["glue"] == 12.0


def test_find_ablations_pairs_experiments_with_the_papers(experiments):
    studies = [read_experiment("base"), read_experiment("table5-no-nsp")]
    found = find_ablations(studies)
    assert [one.title for one in found] == ["MNLI, accuracy", "SST2, accuracy"] and not found[0].synthetic
    variants = found[0].variants
    assert [one.name for one in variants] == ["study", "table5-no-nsp", "table5-ltr", "table5-ltr-bilstm"]
    ours = [variant.row.mean if variant.row else None for variant in variants]
    assert ours == pytest.approx([84.4, 83.3, None, None])
    assert [variant.paper for variant in variants] == [84.4, 83.9, 82.1, 82.1]
    assert find_ablations(studies[:1]) == [] and "No two of these" in render_comparison(studies[:1])
    assert find_ablations(studies[1:]) == []


def test_read_tables_have_scores_of_the_catalogue(root, monkeypatch):
    """All figures but perplexities, which are of other text, and averages, which the summary has, stand by a score."""
    monkeypatch.chdir(root)
    known = {
        (name, metric)
        for task in task_names()
        for name, row in load_spec(task).scores.items()
        for metric in row.metrics
    }
    for table in read_tables():
        for key, metric in table["metrics"].items():
            names = {(key.removesuffix("_m"), ours) for ours in OURS.get(metric, ())}
            assert metric in ("perplexity", "average") or names & known, (table["source"], key)
    assert len(read_tables()) == 8


def test_comparison_synthetic_scores_are_marked(results):
    study(results, "nsp", 80.0, ["mnli", "sst2"])
    page = render_comparison([read_experiment("workspace")])
    assert page.count(">synthetic<") == 2


def test_read_experiment_missing_is_one_error(experiments):
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


def test_resolve_outside_of_git_is_one_error(results, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(results.parent.parent))
    with pytest.raises(PipelineError, match="not a git repository"):
        resolve("base")


def test_read_experiment_of_a_revision(experiments):
    assert read_experiment("HEAD").row("mnli", "accuracy").mean == pytest.approx(84.2)


def test_dotted_flattens_blocks():
    assert dotted({"a": {"b": {"c": 1}, "d": {}}, "e": [2]}) == {"a.b.c": 1, "a.d": {}, "e": [2]}


def test_differing_lists_no_equal_parameters(results):
    study(results, "nsp", 80.0, [])
    one = read_experiment("workspace")
    study(results, "none", 80.0, [])
    assert differing([one, read_experiment("workspace")]) == [("examples.pair_objective", ["nsp", "none"])]


QUESTIONS = 60


def answered(folder, right: int, seed: int = 1) -> None:
    """A task of the user's own kind of files: its development set, and an experiment's answers, the first right."""
    lines = [f"{number}\t{number % 2}\t\tsentence {number}" for number in range(QUESTIONS)]
    (folder / "data/tasks/cola").mkdir(parents=True, exist_ok=True)
    (folder / "data/tasks/cola/dev.tsv").write_text("\n".join(lines) + "\n")
    place = folder / f"results/predictions/cola/{seed}/predicted/pretrained"
    place.mkdir(parents=True, exist_ok=True)
    rows = [{"id": str(number), "prediction": str((number + (number >= right)) % 2)} for number in range(QUESTIONS)]
    (place / "cola.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def of_answers(name: str, commit: str | None = None) -> Experiment:
    scores = {"synthetic": False, "rules": {}, "rows": [score_row("cola", "matthews", 50.0)]}
    return Experiment(name, {}, score_rows(scores), {"finetune.seeds": [1]}, commit)


def test_compared_with_tests_the_same_examples(results, monkeypatch):
    """One lies in the workspace, the other is fetched from the cache; what a cache lacks is a dash and no error."""
    answered(results.parent, 60)

    class Cache:
        def __init__(self, rev: str) -> None:
            self.right = {"alike": 58, "worse": 30, "gone": None}[rev]

        def get(self, path: str, target: str, recursive: bool) -> None:
            if self.right is None:
                raise OSError("not in the cache")
            root = Path(target[: -len(path)])
            answered(root, self.right)

    monkeypatch.setattr("dvc.api.DVCFileSystem", Cache)
    first = of_answers("workspace")
    alike, worse, gone = (compared_with(first, of_answers(name, name)) for name in ("alike", "worse", "gone"))
    assert not gone and set(alike) == set(worse) == {("cola", "matthews")}
    assert worse[("cola", "matthews")]["significant"] and worse[("cola", "matthews")]["difference"] < -50
    found = alike[("cola", "matthews")]
    assert not found["significant"] and found["p"] > 0.05 and found["examples_needed"] > QUESTIONS
    page = render_comparison([first, of_answers("alike", "alike"), of_answers("worse", "worse")])
    assert re.search(r"not significant \(\d+ examples needed\)", page) and page.count(": worse") == 1


def test_differences_of_other_examples_are_none(results):
    answered(results.parent, 60)
    first = of_answers("workspace")
    other = Folders(of_answers("other", "commit"), results.parent / "other")
    answered(results.parent / "other", 50)
    (results.parent / "other/data/tasks/cola/dev.tsv").write_text("0\t1\t\tanother sentence\n")
    assert differences("cola", "cola", "dev.tsv", [other, Folders(first, results.parent / "first")]) == {}


BERT, ALBERT = [61.0, 63.0, 62.0], [58.0, 60.5, 58.0]


def experiment(name: str, seed: int, architecture: str, score: float, gap: float | None = 1.0) -> Experiment:
    """A study with one score, and a gap where it has one."""
    summary = {"from_corpus": score} | ({} if gap is None else {"mlm_gap": gap})
    scores = {"rows": [score_row("mnli", "accuracy", score)], "synthetic": False, "rules": {}}
    params = {"seed": seed, "model.architecture": architecture, "pretrain.keep_checkpoint_steps": [seed]}
    return Experiment(name, summary, score_rows(scores), params)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch, root):
    """Not in the project's own folder, which may hold the results of a finished study; with its ablations' tables."""
    (tmp_path / "workflow").symlink_to(root / "workflow")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def family(elsewhere) -> list[Experiment]:
    """Two members, three seeds each, and one more with one seed and no gap."""
    return [
        experiment("workspace", 1, "bert", BERT[0]),
        *(experiment(f"family-bert-{seed}", seed, "bert", BERT[seed - 1]) for seed in (3, 2)),
        *(experiment(f"family-albert-{seed}", seed, "albert", ALBERT[seed - 1]) for seed in (1, 2, 3)),
        experiment("family-electra-1", 1, "electra", 70.0, gap=None),
    ]


def test_group_ignores_the_seed_alone(family):
    members = group(family)
    assert [(one.name, one.seeds) for one in members] == [
        ("family-bert", (1, 2, 3)), ("family-albert", (1, 2, 3)), ("family-electra-1", (1,)),
    ]  # fmt: skip
    assert [one.name for one in group(family[:2])] == ["family-bert"]


def test_lines_of_means_and_differences_are_scipys(family):
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
    assert lines["nats better than unigram counts at [MASK]"].cells[2] is None


def test_comparison_difference_within_its_interval_is_not_significant(family):
    line = next(line for line in lines_of(group(family)) if line.metric)
    assert line.cells[1].significant is True  # 3, 2.5 and 4 points
    noisy = [*family[:3], *(experiment(f"x-{seed}", seed, "x", BERT[seed - 1] + (-2) ** seed) for seed in (1, 2, 3))]
    text = Page(render_comparison(noisy)).text
    assert ": not significant" in text and "-2.0 ± " in text


def test_comparison_page_shows_members(family):
    page = render_comparison(family)
    parsed = Page(page)
    assert not parsed.open and "Mean over seeds, with its interval" in page
    assert "62.0 ± 2.5" in parsed.text and "58.8 ± 3.6" in parsed.text and "-3.2 ± 1.9" in parsed.text


def test_comparison_without_two_seeds_averages_nothing(family):
    assert "No two of these experiments differ in their seed alone" in render_comparison(family[2:4])
    assert picture(group(family[2:4]), []) == ""


def test_group_counts_equal_runs_once(elsewhere):
    runs = [
        experiment("workspace", 1, "bert", 61.0), experiment("a-1", 1, "bert", 61.0),
        experiment("b-1", 1, "albert", 58.0), experiment("b-1-again", 1, "albert", 58.0),
    ]  # fmt: skip
    members = group(runs)
    assert [one.seeds for one in members] == [(1,), (1,)]
    assert not any(cell.significant for cell in lines_of(members)[0].cells)
    assert "No two of these experiments differ in their seed alone" in render_comparison(runs)
