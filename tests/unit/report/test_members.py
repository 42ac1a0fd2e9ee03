"""Experiments that differ in their seed alone, as one."""

from html import unescape

import pytest
from scipy import stats

from pipeline_src.report.comparison import read_tables, render_comparison
from pipeline_src.report.experiments import Experiment
from pipeline_src.report.members import group, lines_of, picture
from pipeline_src.report.traced import JsonRef
from tests.unit.report.conftest import Page, score_row
from tests.unit.report.test_numbers import audit

BERT, ALBERT = [61.0, 63.0, 62.0], [58.0, 60.5, 58.0]


def experiment(name: str, seed: int, architecture: str, score: float, gap: float | None = 1.0) -> Experiment:
    """A study with one score, and a gap where it has one."""
    summary = {"from_corpus": score} | ({} if gap is None else {"mlm_gap": gap})
    scores = {"rows": [score_row("mnli", "accuracy", score)], "rules": {}}
    params = {"seed": seed, "model.architecture": architecture, "pretrain.keep_steps": [seed]}
    return Experiment(
        name, JsonRef(summary, f"{name}:results/summary.json"), JsonRef(scores, f"{name}:results/scores.json"), params
    )


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch, root):
    """Not in the project's own folder, which may hold the results of a finished study; with its ablations' tables."""
    (tmp_path / "workflow").symlink_to(root / "workflow")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def family() -> list[Experiment]:
    """Two members, three seeds each, and one more with one seed and no gap."""
    return [
        experiment("workspace", 1, "bert", BERT[0]),
        *(experiment(f"family-bert-{seed}", seed, "bert", BERT[seed - 1]) for seed in (3, 2)),
        *(experiment(f"family-albert-{seed}", seed, "albert", ALBERT[seed - 1]) for seed in (1, 2, 3)),
        experiment("family-electra-1", 1, "electra", 70.0, gap=None),
    ]


def test_members_are_told_by_all_but_their_seed(family):
    members = group(family)
    assert [(one.name, one.seeds) for one in members] == [
        ("family-bert", (1, 2, 3)), ("family-albert", (1, 2, 3)), ("family-electra-1", (1,)),
    ]  # fmt: skip
    assert [one.name for one in group(family[:2])] == ["family-bert"]


def test_means_and_differences_are_scipys(family):
    lines = {line.title if isinstance(line.title, str) else line.metric: line for line in lines_of(group(family))}
    bert, albert, electra = lines["accuracy"].cells
    low, high = stats.t.interval(0.95, 2, stats.tmean(BERT), stats.sem(BERT))
    assert bert.mean.value == pytest.approx(62.0) and bert.error.value == pytest.approx((high - low) / 2)
    assert bert.difference is None and bert.told is None
    paired = stats.ttest_rel(ALBERT, BERT).confidence_interval(0.95)
    assert albert.difference.value == pytest.approx((paired.low + paired.high) / 2)
    assert albert.noise.value == pytest.approx((paired.high - paired.low) / 2)
    assert albert.told == (stats.ttest_rel(ALBERT, BERT).pvalue < 0.05)
    assert electra.mean.value == 70.0 and electra.error is None and electra.difference is None
    assert lines["nats better than unigram counts at [MASK]"].cells[2] is None


def test_a_difference_inside_the_noise_is_called_so(family):
    line = next(line for line in lines_of(group(family)) if line.metric)
    assert line.cells[1].told is True  # 3, 2.5 and 4 points
    noisy = [*family[:3], *(experiment(f"x-{seed}", seed, "x", BERT[seed - 1] + (-2) ** seed) for seed in (1, 2, 3))]
    text = unescape("".join(words for words, _ in Page(render_comparison(noisy)).texts))
    assert ": noise" in text and "-2.0 ± " in text


def test_the_page_shows_them_with_their_sources(family, root, monkeypatch):
    page = render_comparison(family)
    parsed = Page(page)
    assert not parsed.open and "Mean over seeds, with its interval" in page
    found = {ref.document: ref.value for one in family for ref in (one.summary, one.scores)}
    found |= {table.document: table.value for table in read_tables()}
    assert audit(page, found) > 30


def test_without_two_seeds_there_is_nothing_to_average(family, root, monkeypatch):
    assert "No two of these experiments differ in their seed alone" in render_comparison(family[2:4])
    assert picture(group(family[2:4]), []) == ""


def test_a_run_that_is_named_twice_counts_once():
    runs = [
        experiment("workspace", 1, "bert", 61.0), experiment("a-1", 1, "bert", 61.0),
        experiment("b-1", 1, "albert", 58.0), experiment("b-1-again", 1, "albert", 58.0),
    ]  # fmt: skip
    members = group(runs)
    assert [one.seeds for one in members] == [(1,), (1,)]
    assert not any(cell.told for cell in lines_of(members)[0].cells)
    assert "No two of these experiments differ in their seed alone" in render_comparison(runs)
