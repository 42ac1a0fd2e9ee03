"""The report: everything from JSON, synthetic scores called so wherever they stand."""

import re
from html.parser import HTMLParser

import pytest

from pipeline_src.errors import PipelineError
from pipeline_src.files import read_json, write_json
from pipeline_src.report import report
from pipeline_src.report.cost import PUBLISHED, PUBLISHED_STEPS, arithmetic_rows, measured_rows, scientific
from pipeline_src.report.figures import heldout_curve
from pipeline_src.report.results import glue_average, main_scores, read_results, summarise
from pipeline_src.report.table import text_table


def score_row(task: str, metric: str, mean: float, main: bool = True, **more) -> dict:
    return {
        "task": task,
        "row": task,
        "title": task.upper(),
        "file": "dev.tsv",
        "metric": metric,
        "main": main,
        "examples": 500,
        "values": [mean],
        "mean": mean,
        "deviation": None,
        "chance": 50.0,
        "random_weights": 61.5,
        **more,
    }


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results"
    heldout = {
        "mlm_loss": 6.1,
        "mlm_perplexity": 445.9,
        "mlm_accuracy": 0.12,
        "mask_loss": 6.3,
        "unigram_loss": 6.9,
        "gap": 0.6,
        "nsp_loss": 0.66,
        "nsp_accuracy": 0.61,
        "nsp_majority": 0.57,
        "examples": 10,
        "predictions": 100,
    }
    for phase, first in (("short", 1), ("long", 11)):
        pretrain = {
            "phase": phase,
            "steps": 10,
            "steps_before": first - 1,
            "parameters": 1_000_000,
            "mask_prob": 0.15,
            "config": {"num_hidden_layers": 2, "hidden_size": 128},
            "heldout": heldout,
        }
        write_json(folder / "pretrain" / f"{phase}.json", pretrain)
        lines = ["step\tloss\tmlm_loss\tnsp_accuracy", *(f"{first + i}\t7.{i}\t6.{i}\t0.7" for i in range(5))]
        (folder / "pretrain" / f"{phase}.tsv").write_text("\n".join(lines) + "\n")
    bins = {"up_to": [32.0, 64.0], "examples": [10, 90]}
    split = {"examples": 100, "tokens": 6400, "random_next": 0.55, "fill": 0.98, "lengths": bins}
    lengths = {"short": 64, "long": 128}
    examples = {
        phase: {"length": length, "next_sentence": True, "train": split, "heldout": split}
        for phase, length in lengths.items()
    }
    overlap = {"squad1/dev-v1.1.json": {"texts": 48, "found": 12, "share": 0.25, "runs": 900, "share_of_runs": None}}
    counts = {"documents": 9, "sentences": 90, "tokens": 900}
    part = {
        "documents": 10,
        "words": 800,
        "bytes": 5000,
        "dropped": {"redirect": 3},
        "dropped_inside": {"table": 7},
        "train": counts,
        "heldout": counts,
    }
    vocabulary = {"entries": 8192, "coverage": 0.999, "pieces_per_word": 1.2}
    corpus = {"parts": {"wikipedia-a": part}, "vocabulary": vocabulary, "dropped": {}}
    write_json(folder / "corpus.json", corpus | {"examples": examples, "overlap": overlap})
    rows = [
        score_row("rte", "accuracy", 80.0),
        score_row("mrpc", "accuracy", 70.0),
        score_row("mrpc", "f1", 90.0, main=False),
        score_row("wnli", "accuracy", 10.0),
        score_row("squad1", "em", 40.0),
        score_row("squad1", "f1", 50.0, main=False, deviation=1.25),
        score_row("swag", "accuracy", 30.0, random_weights=None),
    ]
    rules = {row["task"]: "A <rule>." for row in rows}
    scores = {"synthetic": True, "task_source": "synthetic", "rules": rules, "rows": rows}
    write_json(folder / "scores.json", scores)
    return folder


class Page(HTMLParser):
    """Collects what a browser would fetch, and checks that elements close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.fetched += [value for name, value in attributes if name in ("src", "href") and not value.startswith("#")]
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(results):
    report.run()
    page = (results / "report.html").read_text(encoding="utf-8")
    parsed = Page(page)
    assert not parsed.fetched and not parsed.open and "@import" not in page
    assert page.count("<svg") == 3 and 'role="img"' in page
    assert "squad1/dev-v1.1.json" in page and "25.0 %" in page
    assert "A &lt;rule&gt;." in page and "redirect 3" in page and "table 7" in page and "50.0 ± 1.2" in page


def test_synthetic_scores_are_called_so_everywhere(results):
    report.run()
    for name in ("report.html", "report.md"):
        assert "synthetic" in (results / name).read_text(encoding="utf-8").lower()
    for row in (results / "report.md").read_text(encoding="utf-8").splitlines():
        if re.match(r"\| (RTE|MRPC|SQUAD)", row):
            assert "(synthetic)" in row
    summary = read_json(results / "summary.json")
    assert set(summary) == {
        "mlm_loss",
        "mlm_gap",
        "nsp_accuracy",
        "synthetic_glue",
        "synthetic_squad1",
        "synthetic_swag",
    }


def test_a_task_of_ones_own_among_them_is_not(results):
    scores = read_json(results / "scores.json")
    scores["rows"] += [score_row("mine", "accuracy", 77.0), score_row("mine", "f1", 66.0, main=False)]
    write_json(results / "scores.json", scores)
    report.run()
    text = (results / "report.md").read_text(encoding="utf-8")
    assert re.search(r"\| MINE +\| accuracy +\| +77.0", text) and re.search(r"\| RTE \(synthetic\)", text)
    assert "but those of MINE are of synthetic tasks" in (results / "report.html").read_text(encoding="utf-8")


def test_official_scores_are_not(results):
    scores = read_json(results / "scores.json")
    write_json(results / "scores.json", {**scores, "synthetic": False, "rules": {}, "task_source": "official"})
    report.run()
    assert "synthetic" not in (results / "report.html").read_text(encoding="utf-8").lower()
    assert "glue" in read_json(results / "summary.json")


def test_a_study_without_next_sentences_has_its_report_too(results):
    for phase in ("short", "long"):
        pretrain = read_json(results / "pretrain" / f"{phase}.json")
        figures = {name: value for name, value in pretrain["heldout"].items() if not name.startswith("nsp")}
        write_json(results / "pretrain" / f"{phase}.json", pretrain | {"heldout": figures})
        lines = ["step\tloss\tmlm_loss\tnsp_accuracy", *(f"{i}\t7.{i}\t6.{i}\t" for i in range(5))]
        (results / "pretrain" / f"{phase}.tsv").write_text("\n".join(lines) + "\n")
    report.run()
    assert "nsp_accuracy" not in read_json(results / "summary.json")
    assert "no next sentences" in (results / "report.md").read_text(encoding="utf-8")
    assert "Next sentence</text>" not in (results / "report.html").read_text(encoding="utf-8")


def test_glue_average_counts_as_the_paper_does(results):
    found = read_results(results)
    assert main_scores(found.scores)["mrpc"] == 80.0  # mean of accuracy and F1
    assert glue_average(found.scores) == 80.0  # WNLI left out
    assert len(summarise(found)) <= 8
    assert glue_average({"rows": []}) is None


def test_scores_for_plots(results):
    report.run()
    lines = (results / "scores.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "score\tsplit\tmetric\tvalue\tchance" and lines[1] == "RTE\tdev.tsv\taccuracy\t80.0000\t50.0000"


def test_a_missing_result_is_one_clear_error_and_leaves_the_old_report(results):
    report.run()
    (results / "corpus.json").unlink()
    old = (results / "report.html").read_bytes()
    with pytest.raises(PipelineError, match="corpus.json"):
        report.run()
    assert (results / "report.html").read_bytes() == old


def test_numbers_line_up():
    text = text_table(("task", "score"), [("a", "5.0"), ("long", "100.0")])
    assert text.splitlines() == [
        "| task | score |",
        "| ---- | ----: |",
        "| a    |   5.0 |",
        "| long | 100.0 |",
    ]


def add_cost(results):
    for phase, flops in (("short", 1_208_000), ("long", 2_000_000)):
        path = results / "pretrain" / f"{phase}.json"
        cost = {"steps": 10, "sequences": 320, "tokens": 4000, "predictions": 600, "flops": flops}
        write_json(path, read_json(path) | {"cost": cost | {"tokens_per_batch": 640, "normalised_computation": 6.4e9}})


def measured(flops: int, **more) -> dict:
    numbers = {"seconds": 3753.0, "training_seconds": 59.0, "tokens_per_second": 12_345.6, "mfu": 0.4123}
    machine = {"peak_memory": 812e6, "processes": 2, "peak_flops": 1.978e15, "peak_source": "datasheet"}
    return {"flops": flops, **numbers, **machine, "joules": 5e5, **more}


def test_what_training_took_stands_beside_the_paper(results):
    add_cost(results)
    logs = results.parent / "logs" / "pretrain"
    write_json(logs / "short.cost.json", measured(1_208_000))
    write_json(logs / "long.cost.json", measured(77))  # of another run than these results
    report.run()
    page = (results / "report.html").read_text(encoding="utf-8")
    assert not Page(page).open
    for shown in ("1.408e19", "4.352e19", "1.280e10", "3.208e6", "8,000", "445.9", "on this machine"):
        assert shown in page, shown
    rows = measured_rows(read_results(results))
    assert [row["name"] for row in rows] == ["short"]
    assert rows[0] | {"source": "", "name": ""} == {
        "name": "",
        "time": "1:02:33",
        "training": "59 s",
        "speed": "12,346",
        "mfu": "41.2 %",
        "energy": "0.14 kWh",
        "memory": "812",
        "peak": "1,978",
        "source": "",
        "processes": "2",
    }


def test_energy_that_was_not_read_is_a_dash(results):
    add_cost(results)
    write_json(results.parent / "logs" / "pretrain" / "short.cost.json", measured(1_208_000, joules=None))
    write_json(results.parent / "logs" / "pretrain" / "long.cost.json", measured(2_000_000, joules=2e4))
    assert [row["energy"] for row in measured_rows(read_results(results))] == ["–", "20.0 kJ"]


def test_results_without_costs_have_their_report_too(results):
    write_json(results.parent / "logs" / "pretrain" / "short.cost.json", measured(1_208_000))
    found = read_results(results)
    assert arithmetic_rows(found) == [] and measured_rows(found) == []
    report.run()
    assert "1.408e19" not in (results / "report.html").read_text(encoding="utf-8")


def test_published_computation_is_the_products_it_says(root):
    for name, (parameters, computation) in PUBLISHED.items():
        slots = PUBLISHED_STEPS * 128_000 if "published" in name else 256 * (900_000 * 128 + 100_000 * 512)
        assert scientific(parameters * slots) == scientific(computation)
    assert scientific(6.4e9) == "6.400e9" and scientific(0.5) == "5.000e-1"


def test_the_heldout_curve_joins_points_on_the_way_with_the_last(results):
    assert heldout_curve(read_results(results), "long", "mlm_loss") == {20: 6.1}
    path = results / "pretrain" / "long.tsv"
    lines = ["step\tmlm_loss\tnsp_accuracy\theldout_mlm_loss", "11\t7\t0.5\t", "12\t7\t0.5\t6.9", "20\t7\t0.5\t6.2"]
    path.write_text("\n".join(lines) + "\n")
    found = read_results(results)
    assert heldout_curve(found, "long", "mlm_loss") == {12: 6.9, 20: 6.1}  # the phase's own figure is the exact one
    assert heldout_curve(found, "long", "nsp_accuracy") == {20: 0.61}
    report.run()


def test_a_curve_without_next_sentence_accuracy_is_drawn_without(results):
    for phase in ("short", "long"):
        (results / "pretrain" / f"{phase}.tsv").write_text("step\tloss\tmlm_loss\n1\t7\t6\n2\t6\t5\n")
    report.run()
    assert "Next sentence</text>" not in (results / "report.html").read_text(encoding="utf-8")
