"""The report: everything from results/, synthetic scores called so wherever they stand."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, write_json
from pipeline_src.report import cost, report
from pipeline_src.report.figures import label_panels, new_axes, svg, validation_curve
from pipeline_src.report.headline import headline
from pipeline_src.report.results import GLUE_AVERAGE, glue_average, read_results, summarise
from pipeline_src.report.table import average_line, text_table
from pipeline_src.report.traced import TEMPLATES
from tests.unit.report.conftest import ROWS, Page, score_row, write_scores


def page_of(results) -> str:
    report.run()
    return (results / "report.html").read_text(encoding="utf-8")


def test_the_page_is_whole_and_fetches_nothing(results, pictures):
    page = page_of(results)
    parsed = Page(page)
    assert not parsed.fetched and not parsed.open and "@import" not in page and "<script" not in page
    assert page.count("<svg") == page.count('<svg role="img" aria-label="') == 7
    assert "A &lt;rule&gt;." in page and "with &lt;b&gt;with" not in page and "&lt;b&gt;with&lt;/b&gt;" in page
    text = "".join(words for words, _ in parsed.texts)
    for shown in (
        "redirect 3",
        "table 7",
        "50.0 ± 1.3",
        "In 1984",
        "It was 1984",
        "broken rows 12",
        "25.0 %",
        "98.7 %",
    ):
        assert shown in text, shown


def test_ids_are_unique_and_tables_say_what_their_headers_head(results, pictures):
    page = page_of(results)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids) and not re.search(r"<th(?! scope=)[ >]", page)
    assert set(re.findall(r'<a href="([^#"][^"]*)"', page)) == {"run.html"}


def test_templates_name_no_class_of_the_code():
    code = (path.read_text(encoding="utf-8") for path in TEMPLATES.parents[1].rglob("*.py"))
    classes = {name for text in code for name in re.findall(r"^class ([A-Z][a-z]+[A-Z]\w+)", text, re.MULTILINE)}
    for path in TEMPLATES.iterdir():
        assert not classes & set(re.findall(r"\w+", path.read_text(encoding="utf-8"))), path.name


def test_synthetic_scores_are_called_so_everywhere(results):
    page = page_of(results)
    for row in re.findall(r"<tr[^>]*><th scope=\"row\">.*?</tr>", page):
        if re.search(r">(RTE|MRPC|WNLI|SQUAD1|SWAG|GLUE average)<", row):
            assert ">synthetic<" in row
    assert all("synthetic" in summary for summary in re.findall(r"<summary>.*?not fully correct", page))
    assert "score on the synthetic tasks" in page
    for row in (results / "report.md").read_text(encoding="utf-8").splitlines():
        if re.match(r"\| (RTE|MRPC|SQUAD)", row):
            assert "(synthetic)" in row
    for row in (results / "scores.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        assert "(synthetic)" in row
    summary = read_json(results / "summary.json")
    wanted = {"mlm_loss", "mlm_gap", "nsp_accuracy", "synthetic_glue", "synthetic_squad1", "synthetic_swag"}
    assert set(summary) == wanted


def test_in_a_mixed_study_each_score_is_marked_by_its_own_data(results):
    mine = [score_row("mine", "accuracy", 77.0), score_row("mine", "f1", 66.0, main=False)]
    rules = sorted({row["task"] for row in ROWS if row["task"] != "swag"})
    write_scores(results, [*ROWS, *mine], rules, further=["mine"])
    page = page_of(results)
    text = (results / "report.md").read_text(encoding="utf-8")
    assert re.search(r"\| MINE +\| accuracy +\| dev +\| +77.0", text) and re.search(r"\| RTE \(synthetic\)", text)
    assert "The scores of RTE, MRPC, WNLI, SQUAD1 are of synthetic tasks" in page
    real, synthetic = re.findall(r'<figure class="tall">(.*?)</figure>', page)
    assert "MINE, accuracy</text>" in real and "RTE" not in real
    assert "RTE, accuracy</text>" in synthetic and "synthetic tasks" in synthetic and "MINE" not in synthetic
    summary = read_json(results / "summary.json")
    assert set(summary) >= {"synthetic_glue", "synthetic_squad1", "swag"} and summary["mine"] == 77.0
    assert re.search(r"<dt><span[^>]*>MINE</span></dt><dd><span[^>]*>77.0<", page)
    folded = page.index("scores of synthetic tasks</summary>")
    assert page.index(">MINE</span><br>") < folded < page.index(">RTE</span><br>")
    table = text[: text.index("<details>")]
    assert "| MINE " in table and "| RTE (synthetic)" not in table


def test_a_task_of_ones_own_whose_name_is_a_figures_is_in_the_summary_too(results):
    names = ("glue", "squad1", "a", "own_glue")
    rows = [score_row(f"my_{name}", "accuracy", 70.0 + at, eval_set=name) for at, name in enumerate(names)]
    rows += [score_row(f"task{number}", "accuracy", float(number)) for number in range(9)]
    write_scores(results, [*ROWS, *rows], ["rte", "mrpc", "wnli", "swag"], further=[row["task"] for row in rows])
    summary = summarise(read_results())
    assert (summary["own_glue"], summary["own_squad1"], summary["a"]) == (70.0, 71.0, 72.0)
    assert summary["own_own_glue"] == 73.0 and summary["task8"] == 8.0 and summary["synthetic_glue"] == 85.0
    for path in (results / "tasks").iterdir():
        path.unlink()
    assert page_of(results).count("<dt>") == len(summary)


def test_what_is_significantly_worse_is_called_worse(results):
    against = {"interval": [-20.0, -10.0], "p": 0.001, "significant": True, "examples_needed": None}
    close = {"interval": [-1.0, 3.0], "p": 0.4, "significant": False, "examples_needed": 1287}
    rows = [
        score_row("rte", "accuracy", 40.0, baselines=baseline(against | {"difference": -15.0})),
        score_row("mrpc", "accuracy", 70.0, baselines=baseline(against | {"difference": 15.0})),
        score_row("wnli", "accuracy", 60.0, baselines=baseline(close | {"difference": 1.0})),
    ]
    write_scores(results, rows, [])
    text = re.sub(r"<[^>]*>", "", page_of(results))
    assert "Better than random weights in MRPC. Worse than random weights in RTE. No significant difference" in text
    assert "-15.0 worse (-20.0 to -10.0)" in text and "not significant (1,287 examples needed)" in text
    lines = (results / "report.md").read_text(encoding="utf-8").splitlines()
    verdicts = [line.split("|")[10].strip() for line in lines if re.match(r"\| (RTE|MRPC|WNLI)", line)]
    assert verdicts == ["worse", "yes", "not significant (1,287 examples needed)"]


def baseline(against: dict) -> dict:
    return {"random_weights": {"score": 55.0, "interval": [50.0, 60.0], "against": against}}


def test_strings_of_results_are_text_wherever_they_are_shown(results, pictures):
    evil = '<img src=x onerror=alert(1)>|`a` \\1 & "'
    row = score_row("rte", "accuracy", 40.0) | {"title": evil, "file": evil, "metric": evil, "eval_set": "rte"}
    write_scores(results, [row], [], further=["rte"])
    corpus = read_json(results / "corpus.json")
    corpus["parts"] = {evil: corpus["parts"]["wikipedia"]}
    write_json(results / "corpus.json", corpus)
    long = read_json(results / "pretrain" / "phase2.json")
    write_json(results / "pretrain" / "phase2.json", long | {"validation": {evil: 1.0}})
    page = page_of(results)
    assert "<img" not in page and "&lt;img" in page and not Page(page).open
    markdown = (results / "report.md").read_text(encoding="utf-8")
    assert "<img" not in markdown and "&lt;img" in markdown
    svg(new_axes(), evil, evil)


def test_utilisation_is_shown_of_gpus_alone(results):
    took = {"seconds": 3753.0, "training_seconds": 59.0, "tokens_per_second": 12.0, "mfu": 1.25, "processes": 2}
    took |= {"peak_memory": 1, "peak_flops": 1e12}
    for source, known in (("float32 matrix product measured on this machine", False), ("datasheet, H100", True)):
        for phase in ("phase1", "phase2"):
            path = results / "pretrain" / f"{phase}.json"
            counted = {"steps": 10, "tokens": 4, "flops": 100, "normalised_computation": 6.4e9}
            write_json(path, read_json(path) | {"cost": counted})
            log = {"flops": 100, "peak_source": source, **took}
            write_json(results.parent / "logs" / "pretrain" / f"{phase}.cost.json", log)
        report.run()
        assert ("125.0 %" in (results / "run.html").read_text(encoding="utf-8")) == known


def test_official_scores_are_not(results, pictures):
    write_scores(results, ROWS, [])
    assert "synthetic" not in page_of(results).replace(".tag", "").lower()
    assert "glue" in read_json(results / "summary.json")


def test_a_study_without_next_sentences_has_its_report_too(results):
    for phase in ("phase1", "phase2"):
        pretrain = read_json(results / "pretrain" / f"{phase}.json")
        figures = {name: value for name, value in pretrain["validation"].items() if not name.startswith("nsp")}
        write_json(results / "pretrain" / f"{phase}.json", pretrain | {"validation": figures})
        lines = ["step\tloss\tmlm_loss\tnsp_accuracy", *(f"{i}\t7.{i}\t6.{i}\t" for i in range(5))]
        (results / "pretrain" / f"{phase}.tsv").write_text("\n".join(lines) + "\n")
    assert "Accuracy of next sentences</text>" not in page_of(results)
    assert "nsp_accuracy" not in read_json(results / "summary.json")
    assert "no next sentences" in (results / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("phase", ["phase1", "phase2"])
def test_a_study_whose_phase_took_no_steps_has_its_report_too(results, pictures, phase):
    path = results / "pretrain" / f"{phase}.json"
    write_json(path, read_json(path) | {"steps": 0})
    curve = path.with_suffix(".tsv")
    curve.write_text(curve.read_text().splitlines()[0] + "\n")
    assert page_of(results).count("<svg") == 7


def test_a_study_that_went_on_from_a_model_shows_gain_and_forgetting(results):
    path = results / "pretrain/phase2.json"
    books = [{"step": step, "mlm_loss": loss} for step, loss in ((10, 4.2), (1_200, 3.75), (1_400, 3.71), (1_500, 3.7))]
    general = [{"step": one["step"], "mlm_loss": loss} for one, loss in zip(books, (4.5, 4.4, 4.6, 4.75), strict=True)]
    write_json(path, read_json(path) | {"going_on": {"books": books, "wikipedia": general}})
    text = " ".join("".join(words for words, _ in Page(page_of(results)).texts).split())
    assert "step 10" in text and "3.750" in text and "-0.500" in text and "+0.250" in text
    assert "books: nine tenths of the fall by step 1,200; wikipedia: forgotten" in text
    line = "books 4.200 -> 3.700 (-0.500, nine tenths by step 1,200); wikipedia 4.500 -> 4.750 (+0.250: forgotten)"
    assert f"Going on from another model, phase2: MLM loss on {line}" in (results / "report.md").read_text()


def test_where_a_phase_lies_next_to_measured_trainings(results):
    path = results / "pretrain/phase2.json"
    sentence = "0.60 nats below the unigram baseline after 8.19 M tokens: normal | [UNK] <b>"
    write_json(path, read_json(path) | {"diagnosis": {"sentence": sentence, "cause": None}})
    text = " ".join("".join(words for words, _ in Page(page_of(results)).texts).split())
    assert f"Is this normal? phase2: {sentence}." in text and "Is this normal? phase1" not in text
    said = sentence.replace("|", "\\|").replace("<", "&lt;")
    assert f"\n\nIs this normal? phase2: {said}.\n\n" in (results / "report.md").read_text()


def test_a_study_with_shares_of_its_sources_shows_them_and_the_loss_of_each(results):
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
    text = " ".join("".join(words for words, _ in Page(page_of(results)).texts).split())
    assert "Loss by source, phase2" in text and "7.400" in text and "-3.500" in text and "Going on from" not in text
    assert all(shown in text for shown in ("Training examples by source", "37.5", "4,321", "17", "89"))
    assert "By source, phase2: MLM loss on it 3.700; ltg 3.700" in (results / "report.md").read_text()


def test_results_of_an_older_release_have_their_report_too(results):
    corpus = read_json(results / "corpus.json")
    write_json(results / "corpus.json", {name: corpus[name] for name in corpus if name != "passages"})
    for path in (results / "tasks").iterdir():
        path.unlink()
    page = page_of(results)
    assert "Cleaned passages" not in page and "Confusion" not in page and not Page(page).open


def test_glue_average_counts_as_the_paper_does(results):
    found = read_results().ref("scores.json")
    assert glue_average(found).value == 85.0  # RTE and the F1 of MRPC; WNLI left out
    assert "85.0" in average_line(found.value) and "2 of the 9 scores" in average_line(found.value)
    average = headline(read_results()).average
    assert average.synthetic and average.published is None and average.test_server is None  # of a part of the scores
    empty = type(found)({"rows": [], "rules": {}}, "x")
    assert glue_average(empty) is None and average_line(empty.value).endswith("none")


def test_the_whole_average_stands_beside_the_papers_without_a_difference(results):
    rows = [score_row(row, metric, 80.0, 82.0) for row, metric in GLUE_AVERAGE.items()]
    write_scores(results, rows, [])
    average = headline(read_results()).average
    assert (average.mean.value, average.best.value) == (81.0, 82.0) and average.deviation.value == pytest.approx(2**0.5)
    assert average.test_server.value.value == 79.6 and average.published is None and average.difference is None


def test_the_summary_is_short_and_flat(results):
    more = [score_row("squad2", "f1", 1.0), score_row("ner", "entity_f1", 2.0)]
    write_scores(results, [*ROWS, *more], ["rte"], further=["ner"])
    summary = summarise(read_results())
    losses, glue = ["mlm_loss", "mlm_gap", "nsp_accuracy"], ["synthetic_glue"]
    assert list(summary) == [*losses, *glue, "squad1", "swag", "squad2", "ner"] and summary["ner"] == 2.0
    assert all(isinstance(value, float) for value in summary.values())


def test_tables_for_plots(results):
    report.run()
    lines = (results / "scores.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [
        "score\tsplit\tmetric\tvalue\tmajority_baseline",
        "RTE, accuracy (synthetic)\tdev.tsv\taccuracy\t80.0000\t50.0000",
    ]
    lines = (results / "confusion.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "score\tactual\tpredicted\tshare\tcount"
    assert "RTE (synthetic)\t0\t1\t0.0698\t3" in lines and not any("SQUAD" in line for line in lines)


def test_dvc_has_what_draws_confusion(root):
    template = read_json(root / ".dvc" / "plots" / "confusion_shares.json")
    fields = set(re.findall(r'"field": "(\w+)"', json.dumps(template))) - {"rev"}  # DVC's own
    assert fields == {"score", "actual", "predicted", "share", "count"}


def test_report_in_a_process_of_its_own_imports_nothing_heavy(results, root):
    """The command takes seconds, of which torch or Beam alone would take several."""
    shutil.copy(root / "workflow/presets/sample.yaml", results.parent / "params.yaml")
    program = (
        "import sys; from pipeline_src.__main__ import main; status = main(['report'])\n"
        "heavy = {'torch', 'transformers', 'pandas', 'apache_beam'} & set(sys.modules)\n"
        "sys.exit(status or ' '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (results / "report.html").exists()


def test_a_missing_result_is_one_clear_error_and_leaves_the_old_report(results):
    report.run()
    (results / "corpus.json").unlink()
    old = (results / "report.html").read_bytes()
    with pytest.raises(PipelineError, match="corpus.json"):
        report.run()
    assert (results / "report.html").read_bytes() == old


def test_a_damaged_curve_is_one_clear_error(results):
    (results / "pretrain" / "phase2.tsv").write_text("step\tloss\n1\tmuch\n")
    with pytest.raises(PipelineError, match="not a table of numbers"):
        read_results()


def test_numbers_line_up():
    text = text_table(("task", "score"), [("a", "5.0"), ("long", "100.0")])
    assert text.splitlines() == [
        "| task | score |",
        "| ---- | ----: |",
        "| a    |   5.0 |",
        "| long | 100.0 |",
    ]


def test_logs_of_another_run_are_left_out(results):
    took = {"seconds": 3753.0, "training_seconds": 59.0, "tokens_per_second": 12.0, "mfu": 0.4, "processes": 2}
    took |= {"peak_memory": 1, "peak_flops": 1e12, "peak_source": "datasheet"}
    for phase, flops in (("phase1", 100), ("phase2", 77)):
        path = results / "pretrain" / f"{phase}.json"
        counted = {"steps": 10, "tokens": 4, "flops": 100, "normalised_computation": 6.4e9}
        write_json(path, read_json(path) | {"cost": counted})
        write_json(results.parent / "logs" / "pretrain" / f"{phase}.cost.json", {"flops": flops, **took})
    found = cost.measured(read_results())
    assert [cost.phase_of(log) for log in found] == ["phase1"]
    report.run()
    page = (results / "run.html").read_text(encoding="utf-8")
    assert "1:02:33" in page and "Throughput</text>" not in page
    tracked = results.parent / "logs/dvclive/phase1/plots/metrics/tokens_per_second.tsv"
    tracked.parent.mkdir(parents=True)
    tracked.write_text("step\ttokens_per_second\n1\t100\n2\t110\n")
    report.run()
    assert "Throughput</text>" in (results / "run.html").read_text(encoding="utf-8")


def test_report_of_equal_results_has_equal_bytes_whatever_the_run_took(results):
    """So that `make study` leaves dvc.lock as it was committed."""
    made = []
    for seconds in (10.0, 77.0):
        logs = {"flops": 1, "seconds": seconds, "processes": 1}
        write_json(results.parent / "logs/pretrain/phase1.cost.json", logs)
        write_json(
            results.parent / "logs/tokenize/all.run.json",
            {"seconds": seconds, "cpu_seconds": 1.0, "max_rss_mb": 1.0, "started": "2026-01-01T00:00:00+00:00"},
        )
        report.run(price=seconds)
        written = {path.name: path.read_bytes() for path in results.iterdir() if path.is_file()}
        made.append((written.pop("run.html"), written))
    assert made[0][1] == made[1][1] and made[0][0] != made[1][0]


def test_results_without_costs_have_their_report_too(results):
    found = read_results()
    assert cost.arithmetic(found) == [] and cost.measured(found) == []
    assert "1.408e19" not in page_of(results)


def test_the_validation_curve_joins_points_on_the_way_with_the_last(results):
    assert validation_curve(read_results(), "phase2", "mlm_loss") == {20: 6.1}
    path = results / "pretrain" / "phase2.tsv"
    lines = ["step\tmlm_loss\tnsp_accuracy\tvalidation_mlm_loss", "11\t7\t0.5\t", "12\t7\t0.5\t6.9", "20\t7\t0.5\t6.2"]
    path.write_text("\n".join(lines) + "\n")
    found = read_results()
    assert validation_curve(found, "phase2", "mlm_loss") == {
        12: 6.9,
        20: 6.1,
    }  # the phase's own figure is the exact one
    assert validation_curve(found, "phase2", "nsp_accuracy") == {20: 0.61}
    report.run()


def test_hashes_are_shown_only_of_these_results(results):
    from hashlib import md5

    from pipeline_src.report.page import data_hashes

    assert data_hashes() is None
    scores, corpus = (md5((results / name).read_bytes()).hexdigest() for name in ("scores.json", "corpus.json"))

    def write_lock(scores: str, corpus: str) -> None:
        lock = "schema: '2.0'\nstages:\n"
        lock += f"  evaluate:\n    outs:\n    - {{path: results/scores.json, md5: {scores}, size: 7}}\n"
        lock += f"  corpus_statistics:\n    outs:\n    - {{path: results/corpus.json, md5: {corpus}, size: 8}}\n"
        lock += "  tokenize:\n    outs:\n    - {path: data/tokens, md5: 5d41402abc.dir, size: 12}\n"
        (results.parent / "dvc.lock").write_text(lock)

    for stale in (("HASH", corpus), (scores, "HASH")):
        write_lock(*stale)
        assert data_hashes() is None
    write_lock(scores, corpus)
    shown = ["results/scores.json", "results/corpus.json", "data/tokens"]
    assert [output.value["path"] for output in data_hashes()] == shown
    report.run()
    assert "5d41402abc.dir" in (results / "run.html").read_text(encoding="utf-8")


def test_a_dollar_in_a_title_is_a_dollar_and_the_page_runs_no_script(results):
    axes = new_axes()
    axes.set(title="Cost in $ and US$ \\frac")
    assert "US$" in svg(axes, "dollar", "a dollar")
    assert "Content-Security-Policy" in page_of(results) and "default-src &#39;none&#39;" not in page_of(results)


def test_the_verdict_of_an_official_study_names_further_tasks_and_the_papers(results):
    against = {"interval": [10.0, 20.0], "p": 0.001, "significant": True, "examples_needed": None}
    rows = [
        score_row(task, metric, 70.0, baselines=baseline(against | {"difference": difference}))
        for task, metric, difference in (
            ("ner", "entity_f1", 15.0),
            ("mnli", "accuracy", 9.0),
            ("sst2", "accuracy", -9.0),
        )
    ]
    write_scores(results, rows, [], further=["ner"])
    text = re.sub(r"<[^>]*>", "", page_of(results))
    assert "Better than random weights in NER, MNLI. Worse than random weights in SST2." in text


def test_what_a_label_is_worth_is_drawn_for_the_systems_that_there_are(pictures):
    path = pictures / "tasks/rte.json"
    scores = {40: (55.0, 52.0), 400: (66.0, 61.0), 1200: (80.0, 71.0)}
    curve = [
        {
            "examples": examples,
            "systems": {
                name: {"score": score, "interval": [score - 3, score + 3]}
                for name, score in zip(("pretrained", "bag_of_words"), found, strict=True)
            },
        }
        for examples, found in scores.items()
    ]
    write_json(path, read_json(path) | {"label_curve": curve})
    (picture,) = label_panels(read_results())
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    assert {"RTE", "40", "400", "1,200", "pretrained", "bag of words", "labelled examples to train on"} <= set(texts)
    assert "random weights" not in texts
