"""The page report.html as a reader sees it."""

import re

import pytest

from pipeline_src.common.files import read_json, write_json
from pipeline_src.report.figures import new_axes, svg
from pipeline_src.report.page import arithmetic, comparisons, filled_masks, render_page
from pipeline_src.report.results import read_results, summarise
from pipeline_src.report.table import render_markdown
from tests.unit.report.conftest import ROWS, Page, score_row, write_scores
from tests.unit.report.test_columns import GAIN, LOSS, NOISE, baselines
from tests.unit.report.test_run_page import write_costs


def page_of() -> str:
    results = read_results()
    return render_page(results, summarise(results))


def test_page_is_complete_and_fetches_nothing(results, pictures):
    page = page_of()
    parsed = Page(page)
    assert not parsed.fetched and not parsed.open and "@import" not in page and "<script" not in page
    assert page.count("<svg") == page.count('<svg role="img" aria-label="') == 7
    assert "A &lt;rule&gt;." in page and "with &lt;b&gt;with" not in page and "&lt;b&gt;with&lt;/b&gt;" in page
    shown = ("redirect 3", "table 7", "50.0 ± 1.3", "In 1984", "It was 1984", "broken rows 12", "25.0 %", "98.7 %")
    assert [text for text in shown if text not in parsed.text] == []


def test_page_ids_are_unique_and_headers_have_a_scope(results, pictures):
    page = page_of()
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids) and not re.search(r"<th(?! scope=)[ >]", page)
    assert set(re.findall(r'<a href="([^#"][^"]*)"', page)) == {"run.html"}


def test_page_strings_of_results_are_text(results, pictures):
    evil = '<img src=x onerror=alert(1)>|`a` \\1 & "'
    row = score_row("rte", "accuracy", 40.0) | {"title": evil, "file": evil, "metric": evil, "eval_set": "rte"}
    write_scores(results, [row], [], further=["rte"])
    corpus = read_json(results / "corpus.json")
    corpus["parts"] = {evil: corpus["parts"]["wikipedia"]}
    write_json(results / "corpus.json", corpus)
    long = read_json(results / "pretrain" / "phase2.json")
    write_json(results / "pretrain" / "phase2.json", long | {"validation": {evil: 1.0}})
    page = page_of()
    assert "<img" not in page and "&lt;img" in page and not Page(page).open
    markdown = render_markdown(read_results())
    assert "<img" not in markdown and "&lt;img" in markdown
    svg(new_axes(), evil, evil)


def test_page_of_official_scores_names_no_synthetic_task(results, pictures):
    write_scores(results, ROWS, [])
    assert "synthetic" not in page_of().replace(".tag", "").lower()


def test_page_without_next_sentences_has_no_plot_of_them(results):
    for phase in ("phase1", "phase2"):
        pretrain = read_json(results / "pretrain" / f"{phase}.json")
        figures = {name: value for name, value in pretrain["validation"].items() if not name.startswith("nsp")}
        write_json(results / "pretrain" / f"{phase}.json", pretrain | {"validation": figures})
        lines = ["step\tloss\tmlm_loss\tnsp_accuracy", *(f"{i}\t7.{i}\t6.{i}\t" for i in range(5))]
        (results / "pretrain" / f"{phase}.tsv").write_text("\n".join(lines) + "\n")
    assert "Accuracy of next sentences</text>" not in page_of()
    assert "nsp_accuracy" not in summarise(read_results())


@pytest.mark.parametrize("phase", ["phase1", "phase2"])
def test_page_of_a_phase_without_steps_has_its_plots(results, pictures, phase):
    path = results / "pretrain" / f"{phase}.json"
    write_json(path, read_json(path) | {"steps": 0})
    curve = path.with_suffix(".tsv")
    curve.write_text(curve.read_text().splitlines()[0] + "\n")
    assert page_of().count("<svg") == 7


def test_page_of_a_continued_model_shows_gain_and_forgetting(results):
    path = results / "pretrain/phase2.json"
    books = [{"step": step, "mlm_loss": loss} for step, loss in ((10, 4.2), (1_200, 3.75), (1_400, 3.71), (1_500, 3.7))]
    general = [{"step": one["step"], "mlm_loss": loss} for one, loss in zip(books, (4.5, 4.4, 4.6, 4.75), strict=True)]
    write_json(path, read_json(path) | {"source_losses": {"books": books, "wikipedia": general}})
    text = Page(page_of()).text
    assert "step 10" in text and "3.750" in text and "-0.500" in text and "+0.250" in text
    assert "books: nine tenths of the fall by step 1,200; wikipedia: forgotten" in text


def test_page_of_weighted_sources_shows_shares_and_losses(results):
    path, corpus = results / "pretrain/phase2.json", read_json(results / "corpus.json")
    losses = {
        name: [{"step": 10, "mlm_loss": loss}, {"step": 1_500, "mlm_loss": 3.7}]
        for name, loss in (("it", 7.2), ("ltg", 7.4))
    }
    write_json(path, read_json(path) | {"by_source": losses})
    mixed = {"share": 0.375, "examples": 4321, "passes": 17, "passes_alone": 5, "left_out": 89}
    for phase in ("phase1", "phase2"):
        corpus["examples"][phase]["sources"] = {"it": mixed, "ltg": mixed}
    write_json(results / "corpus.json", corpus)
    text = Page(page_of()).text
    assert "Loss by source, phase2" in text and "7.400" in text and "-3.500" in text and "Going on from" not in text
    assert all(shown in text for shown in ("Training examples by source", "37.5", "4,321", "17", "89"))


def test_page_of_older_results_leaves_out_what_they_lack(results):
    corpus = read_json(results / "corpus.json")
    write_json(results / "corpus.json", {name: corpus[name] for name in corpus if name != "passages"})
    for path in (results / "tasks").iterdir():
        path.unlink()
    page = page_of()
    assert "Cleaned passages" not in page and "Confusion" not in page and not Page(page).open


def test_page_dollar_is_a_dollar_and_no_script_runs(results):
    axes = new_axes()
    axes.set(title="Cost in $ and US$ \\frac")
    assert "US$" in svg(axes, "dollar", "a dollar")
    assert "Content-Security-Policy" in page_of() and "default-src &#39;none&#39;" not in page_of()


def test_page_of_a_mixed_study_marks_each_score_by_its_own_data(results):
    mine = [score_row("mine", "accuracy", 77.0), score_row("mine", "f1", 66.0, main=False)]
    rules = sorted({row["task"] for row in ROWS if row["task"] != "swag"})
    write_scores(results, [*ROWS, *mine], rules, further=["mine"])
    page = page_of()
    assert "The scores of RTE, MRPC, WNLI, SQUAD1 are of synthetic tasks" in page
    real, synthetic = re.findall(r'<figure class="tall">(.*?)</figure>', page)
    assert "MINE, accuracy</text>" in real and "RTE" not in real
    assert "RTE, accuracy</text>" in synthetic and "synthetic tasks" in synthetic and "MINE" not in synthetic
    assert "<dt>MINE</dt><dd>77.0</dd>" in page
    folded = page.index("<summary>6 scores of synthetic tasks</summary>")
    assert page.index('<th scope="row">MINE<br>') < folded < page.index('<th scope="row">RTE<br>')


def test_page_names_the_tasks_in_which_the_model_is_better_or_worse(results):
    rows = [
        score_row("ner", "entity_f1", 70.0, baselines=baselines(GAIN)),
        score_row("sst2", "accuracy", 40.0, baselines=baselines(LOSS)),
        score_row("wnli", "accuracy", 60.0, baselines=baselines(NOISE)),
    ]
    write_scores(results, rows, [], further=["ner"])
    text = Page(page_of()).text
    verdicts = "in NER. Worse than {0} in SST2. No significant difference from {0} in WNLI."
    for baseline in ("random weights", "counting words"):
        assert f"Better than {baseline} {verdicts.format(baseline)}" in text
    assert "-15.0 (-20.0 to -10.0) worse" in text and "+1.0 (-1.0 to 3.0) not significant (1,287 examples" in text


def test_page_names_synthetic_tasks_only_if_there_are_no_others(results):
    rows = [score_row(task, "accuracy", 70.0, baselines=baselines(GAIN)) for task in ("rte", "mine")]
    write_scores(results, rows, ["rte"])
    assert comparisons(read_results().rows)["random weights"]["better"] == ["MINE"]
    write_scores(results, rows, ["rte", "mine"])
    assert comparisons(read_results().rows)["random weights"]["better"] == ["RTE", "MINE"]


def test_page_computation_is_next_to_the_papers(results):
    assert arithmetic(read_results()) == [] and "1.408e19" not in page_of()
    write_costs(results)
    text = Page(page_of()).text
    assert "phase1 1,000,000 10 4,000 1.000e2 6.400e9 this study" in text
    assert "both phases 1,000,000 20 8,000 2.000e2 1.280e10 this study" in text
    assert "BERT-base, as published 110,000,000 1,000,000 – – 1.408e19 BERT, section 3" in text
    assert "BERT-base, by phase 110,000,000 1,000,000 – – 4.686e18 BERT, section 3" in text


def test_filled_masks_are_of_steps_from_the_first_to_the_last():
    answers = [{"step": step, "text": "On 3 May [MASK] fell."} for step in range(100, 1000, 100)]
    (shown,) = filled_masks({"fill_mask": answers})
    assert [answer["step"] for answer in shown] == [100, 300, 500, 700, 900]
    assert filled_masks({"fill_mask": answers[:2]}) == [answers[:2]] and filled_masks({}) == []


def test_page_shows_what_the_model_fills_in(results):
    path = results / "pretrain" / "phase2.json"
    asked = {"text": "On 3 May [MASK] fell.", "answer": "snow", "candidates": [[["rain", 0.25], ["he", 0.125]]]}
    write_json(path, read_json(path) | {"fill_mask": [asked | {"step": 100}]})
    text = Page(page_of()).text
    assert "was snow; it says rain 25.0 %, he 12.5 %" in text and "100 rain 25.0 % · he 12.5 %" in text
