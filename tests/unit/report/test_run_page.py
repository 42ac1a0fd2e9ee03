"""The page of what a run took."""

from hashlib import md5

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, write_json
from pipeline_src.report.results import read_results
from pipeline_src.report.run_page import check_price, data_hashes, measured_phases, render_run
from tests.unit.report.conftest import Page

LOG = {
    **{"flops": 100, "seconds": 3753.0, "training_seconds": 59.0, "tokens_per_second": 12_345.6, "mfu": 0.4123},
    **{"peak_memory": 812e6, "processes": 2, "peak_flops": 1.978e15, "peak_source": "datasheet, 2024"},
}


def write_costs(results, **more) -> None:
    """Write costs of both phases, and a log of each."""
    for phase in ("phase1", "phase2"):
        path = results / "pretrain" / f"{phase}.json"
        cost = {"steps": 10, "tokens": 4000, "flops": 100, "normalised_computation": 6.4e9}
        write_json(path, read_json(path) | {"cost": cost})
        write_json(results.parent / "logs/pretrain" / f"{phase}.cost.json", LOG | more)
        run = {"seconds": 12.5, "cpu_seconds": 11.0, "max_rss_mb": 812.4, "started": "2026-01-01T00:00:00+00:00"}
        write_json(results.parent / "logs/pretrain" / f"{phase}.run.json", run)


def page_of(price: float = 1.0) -> str:
    return Page(render_run(read_results(), price)).text


def test_run_page_shows_time_memory_price_and_settings(results):
    write_costs(results, compile_seconds=195.0, machine={"attention": "auto", "microbatch_tokens": 16384})
    text = page_of(price=2.5)
    for shown in (
        "1:02:33",
        "59 s",
        "12,346",
        "41.2 %",
        "812",
        "1,978",
        "steps in which torch compiled took",
    ):
        assert shown in text, shown
    assert "Price of pretraining: 10.43, at 2.50 an hour" in text  # 2 x 3753 s x 2 processes
    assert "attention auto, microbatch tokens 16384." in text and "pretrain 2 25 s 22 s 812" in text


def test_run_page_leaves_out_logs_of_another_run(results):
    write_costs(results)
    write_json(results.parent / "logs/pretrain/phase2.cost.json", LOG | {"flops": 77})
    assert list(measured_phases(read_results())) == ["phase1"]


def test_run_page_shows_the_throughput_that_was_tracked(results):
    write_costs(results)
    assert "Throughput" not in page_of()
    tracked = results.parent / "logs/dvclive/phase1/plots/metrics/tokens_per_second.tsv"
    tracked.parent.mkdir(parents=True)
    tracked.write_text("step\ttokens_per_second\n1\t100\n2\t110\n")
    assert "Throughput" in page_of()


@pytest.mark.parametrize(
    ("source", "known"), [("float32 product measured on this machine", False), ("datasheet", True)]
)
def test_run_page_shows_utilisation_of_gpus_alone(results, source, known):
    write_costs(results, peak_source=source, mfu=1.25)
    assert ("125.0 %" in page_of()) == known


def test_run_page_without_logs_says_so(results):
    assert "This machine has no logs of these results." in page_of()


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_check_price_of_no_price_is_an_error(price):
    with pytest.raises(PipelineError, match="not a price"):
        check_price(price, "--price")


def test_data_hashes_are_those_of_these_results(results):
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
    assert [output["path"] for output in data_hashes()] == ["results/scores.json", "results/corpus.json", "data/tokens"]
    assert "5d41402abc.dir" in page_of()
