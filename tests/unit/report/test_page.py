"""The page report.html."""

import re
import shutil

import pytest

from pipeline_src.base.files import read_json, write_json
from pipeline_src.report.page import (
    RIGHT,
    arithmetic,
    changes,
    comparisons,
    filled_masks,
    parameters,
    render_page,
    right_of,
)
from pipeline_src.report.results import read_results, summarise
from pipeline_src.report.table import render_markdown
from pipeline_src.tasks.kinds import KINDS
from tests.unit.report.conftest import (
    GAIN,
    LOSS,
    NOISE,
    ROWS,
    VALIDATION,
    Page,
    baselines,
    glue_rows,
    score_row,
    update_json,
    write_costs,
    write_scores,
)


def page() -> str:
    results = read_results()
    return render_page(results, summarise(results))


def test_page_is_complete_and_fetches_nothing(results, pictures):
    html = page()
    parsed = Page(html)
    assert not parsed.fetched and not parsed.open and "@import" not in html and "<script" not in html
    assert html.count("<svg") == html.count('<svg role="img" aria-label="') == 7
    assert "Content-Security-Policy" in html and "default-src &#39;none&#39;" not in html
    assert "A &lt;rule&gt;." in html and "with &lt;b&gt;with" not in html and "&lt;b&gt;with&lt;/b&gt;" in html
    texts = ("redirect 3", "table 7", "50.0 ± 1.3", "In 1984", "It was 1984", "broken rows 12", "25.0 %", "98.7 %")
    assert [text for text in texts if text not in parsed.text] == []
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', html)) <= set(ids) and not re.search(r"<th(?! scope=)[ >]", html)
    assert set(re.findall(r'<a href="([^#"][^"]*)"', html)) == {"run.html"}


def test_page_strings_of_results_are_escaped(results, pictures):
    evil = '<img src=x onerror=alert(1)>|`a` \\1 & "'
    row = score_row("rte", "accuracy", 40.0) | {"title": evil, "file": evil, "metric": evil, "eval_set": "rte"}
    write_scores(results, [row], further=["rte"])
    update_json(results / "corpus.json", parts={evil: read_json(results / "corpus.json")["parts"]["wikipedia"]})
    update_json(results / "pretrain/phase2.json", validation={evil: 1.0})
    html = page()
    assert "<img" not in html and "&lt;img" in html and not Page(html).open
    markdown = render_markdown(read_results())
    assert "<img" not in markdown and "&lt;img" in markdown


@pytest.mark.parametrize(("dropped", "shown"), [({"too_short": 11}, True), ({"too_short": 10}, False), ({}, False)])
def test_page_names_source_whose_documents_are_mostly_too_short(results, pictures, dropped, shown):
    part = read_json(results / "corpus.json")["parts"]["wikipedia"]
    update_json(results / "corpus.json", parts={"zhwiki": part | {"dropped": dropped}})
    assert ("Most documents of zhwiki were dropped as too short: 11; 10 are left." in Page(page()).text) is shown


def test_page_of_official_scores_does_not_mention_synthetic_tasks(results):
    write_scores(results, ROWS)
    assert "synthetic" not in page().replace(".tag", "").lower()


def test_page_of_study_with_best_epochs_marks_the_average(results):
    write_scores(results, glue_rows(85.0), best_epoch=["rte"])
    assert "<dt>GLUE average (some chosen on their development sets)</dt>" in page()


def test_page_first_plot_has_no_unigram_baseline(pictures):
    """Unigram counts are measured at [MASK], the curve over all predicted tokens."""
    story = re.search(r"<figure>(.*?)</figure>", page(), re.DOTALL)[1]
    drawing, caption = story.split("</svg>")
    assert "unigram" not in drawing and "At [MASK] alone, the validation loss is 6.300 nats" in caption


@pytest.mark.parametrize(
    ("kind", "confusion", "name"),
    [
        ("tagging", {}, "token accuracy"),
        ("span", None, "F1"),
        ("classification", {}, "accuracy"),
        ("classification", None, "1 − |error| / range"),
        ("multilabel", None, "subset accuracy"),
        ("choice", None, "accuracy"),
        ("retrieval", None, "nDCG@10"),
    ],
)
def test_right_of_names_the_measure_of_each_task_kind(kind, confusion, name):
    assert right_of(kind, {"confusion": confusion}) == name


def test_page_table_by_length_names_its_measure(results):
    assert "Mean F1 by length of the text (synthetic)." in Page(page()).text  # SQuAD's


def test_page_of_label_sets_has_scores_of_each_label_and_no_confusion_matrix(results):
    write_scores(results, [score_row("topics", "micro_f1", 70.0)])
    details = read_json(results / "tasks/topics.json")
    details["errors"]["topics"]["confusion"] = None
    write_json(results / "tasks/topics.json", details | {"kind": "multilabel"})
    text = Page(page()).text
    assert "Mean subset accuracy by length of the text." in text and "95.24" not in text and "95.2" in text
    assert "micro F1" in text and "Confusion matrix" not in text


def test_right_of_covers_every_kind_of_task():
    assert RIGHT.keys() == KINDS.keys()


def test_boxes_show_named_intervals(results):
    rows = [score_row("word_swap", "accuracy", 60.0, interval=[57.0, 63.0])]
    write_scores(results, rows, from_corpus={"word_swap": ""})
    assert "<dd>60.0 <small>95 % interval<br>57.0 to 63.0</small></dd>" in page()


def test_page_lists_parameters_by_key_and_what_was_changed(results):
    study, sample = results.parent / "params.yaml", results.parent / "workflow/presets/sample.yaml"
    study.write_text("seed: 2\npretrain: {steps: {phase1: 400}, rates: [0.1, 0.2]}\n")
    assert "All 3 parameters seed 2" in Page(page()).text and "the preset" not in Page(page()).text
    sample.parent.mkdir(parents=True)
    sample.write_text("seed: 1\npretrain: {steps: {phase1: 400}, old: null}\n")
    assert parameters(study) == {"seed": "2", "pretrain.steps.phase1": "400", "pretrain.rates": "[0.1, 0.2]"}
    assert changes(parameters(study), parameters(sample)) == [
        ("seed", "2", "1"),
        ("pretrain.rates", "[0.1, 0.2]", "not there"),
        ("pretrain.old", "not there", "null"),
    ]
    text = Page(page()).text
    assert "seed 2 1" in text and "pretrain.steps.phase1 400" in text and "{" not in text.split("Parameters")[-1]
    shutil.copy(study, sample)
    assert "This is the preset sample , unchanged." in Page(page()).text.replace("sample,", "sample ,")


def test_page_without_next_sentence_task_has_no_plot_of_it(results):
    for phase in ("phase1", "phase2"):
        path = results / "pretrain" / f"{phase}.json"
        update_json(path, validation={k: v for k, v in VALIDATION.items() if not k.startswith("nsp")})
        lines = ["step\tloss\tmlm_loss\tnsp_accuracy", *(f"{i}\t7.{i}\t6.{i}\t" for i in range(5))]
        path.with_suffix(".tsv").write_text("\n".join(lines) + "\n")
    assert "Accuracy of next sentences</text>" not in page()
    assert "nsp_accuracy" not in summarise(read_results())


@pytest.mark.parametrize("phase", ["phase1", "phase2"])
def test_page_of_phase_without_steps_still_has_plots(results, pictures, phase):
    path = results / "pretrain" / f"{phase}.json"
    update_json(path, steps=0)
    curve = path.with_suffix(".tsv")
    curve.write_text(curve.read_text().splitlines()[0] + "\n")
    assert page().count("<svg") == 7


def test_page_of_continued_model_shows_gain_and_forgetting(results):
    losses = {
        name: [{"step": step, "mlm_loss": loss} for step, loss in zip((10, 1_200, 1_400, 1_500), values, strict=True)]
        for name, values in (("books", (4.2, 3.75, 3.71, 3.7)), ("wikipedia", (4.5, 4.4, 4.6, 4.75)))
    }
    update_json(results / "pretrain/phase2.json", source_losses=losses)
    text = Page(page()).text
    assert "step 10" in text and "3.750" in text and "-0.500" in text and "+0.250" in text
    assert "books: nine tenths of the fall by step 1,200; wikipedia: forgotten" in text


def test_page_of_weighted_sources_shows_shares_and_losses(results):
    losses = {"ltg": [{"step": 10, "mlm_loss": 7.4}, {"step": 1_500, "mlm_loss": 3.9}]}
    update_json(results / "pretrain/phase2.json", by_source=losses)
    examples = read_json(results / "corpus.json")["examples"]
    for counts in examples.values():
        counts["sources"] = {"it": {"share": 0.375, "examples": 4321, "passes": 17, "passes_alone": 5, "left_out": 89}}
    update_json(results / "corpus.json", examples=examples)
    text = Page(page()).text
    assert "Loss by source, phase2" in text and "7.400" in text and "-3.500" in text and "Going on from" not in text
    assert "phase1 it 37.5 % 4,321 17 5 89" in text


def test_page_shows_scores_by_class(results):
    text = Page(page()).text
    assert "Class Examples Precision Recall F1 0 43 95.2 93.0 94.1 1 57 – 96.5 95.7" in text


def test_page_of_older_results_omits_missing_parts(results):
    corpus = read_json(results / "corpus.json")
    write_json(results / "corpus.json", {name: corpus[name] for name in corpus if name != "passages"})
    for path in (results / "tasks").iterdir():
        path.unlink()
    html = page()
    assert "Cleaned passages" not in html and "Confusion" not in html and not Page(html).open


def test_page_of_a_mixed_study_marks_each_score_by_its_data(results):
    extra = [score_row("mine", "accuracy", 77.0), score_row("mine", "f1", 66.0, main=False)]
    write_scores(results, [*ROWS, *extra], ["rte", "mrpc", "wnli", "squad1"], further=["mine"])
    html = page()
    assert "The scores of RTE, MRPC, WNLI, SQUAD1 are of synthetic tasks" in html
    real, synthetic = re.findall(r'<figure class="tall">(.*?)</figure>', html)
    assert "MINE, accuracy</text>" in real and "RTE" not in real
    assert "RTE, accuracy</text>" in synthetic and "synthetic tasks" in synthetic and "MINE" not in synthetic
    assert "<dt>MINE</dt><dd>77.0</dd>" in html
    folded = html.index("<summary>6 scores of synthetic tasks</summary>")
    assert html.index('<th scope="row">MINE<br>') < folded < html.index('<th scope="row">RTE<br>')


def test_page_names_the_tasks_in_which_the_model_is_better_or_worse(results):
    differences = {"ner": GAIN, "sst2": LOSS, "wnli": NOISE}
    rows = [score_row(task, "accuracy", 70.0, baselines=baselines(test)) for task, test in differences.items()]
    write_scores(results, rows, further=["ner"])
    text = Page(page()).text
    verdicts = "(one seed) in NER. Worse than {0} (one seed) in SST2. No significant difference from {0} in WNLI."
    for baseline in ("random weights", "the bag of words"):
        assert f"Better than {baseline} {verdicts.format(baseline)}" in text
    assert "+15.0 (10.0 to 20.0) (one seed)" in text and "-15.0 (-20.0 to -10.0) worse (one seed)" in text
    assert "+1.0 (-1.0 to 3.0) not significant (1,287 examples" in text


@pytest.mark.parametrize(("rules", "better"), [(["rte"], ["MINE"]), (["rte", "mine"], ["RTE", "MINE"])])
def test_comparisons_use_synthetic_tasks_only_without_real_tasks(results, rules, better):
    write_scores(results, [score_row(task, "f1", 70.0, baselines=baselines(GAIN)) for task in ("rte", "mine")], rules)
    assert comparisons(read_results().rows)["random weights"]["better"] == better


def test_page_shows_training_cost_of_study_and_paper(results):
    assert arithmetic(read_results()) == [] and "1.408e19" not in page()
    write_costs(results)
    text = Page(page()).text
    assert "phase1 1,000,000 10 4,000 1.000e2 6.400e9 this study" in text
    assert "both phases 1,000,000 20 8,000 2.000e2 1.280e10 this study" in text
    assert "BERT-base, as published 110,000,000 1,000,000 – – 1.408e19 BERT, section 3" in text
    assert "BERT-base, by phase 110,000,000 1,000,000 – – 4.686e18 BERT, section 3" in text


def test_filled_masks_include_first_and_last_step():
    answers = [{"step": step, "text": "On 3 May [MASK] fell."} for step in range(100, 1000, 100)]
    (selected,) = filled_masks({"fill_mask": answers})
    assert [answer["step"] for answer in selected] == [100, 300, 500, 700, 900]
    assert filled_masks({"fill_mask": answers[:2]}) == [answers[:2]] and filled_masks({}) == []


def test_page_shows_filled_masks(results):
    answer = {"text": "On 3 May [MASK] fell.", "answer": "snow", "candidates": [[["rain", 0.25], ["he", 0.125]]]}
    update_json(results / "pretrain/phase2.json", fill_mask=[answer | {"step": 100}])
    text = Page(page()).text
    assert "was snow; it says rain 25.0 %, he 12.5 %" in text and "100 rain 25.0 % · he 12.5 %" in text
