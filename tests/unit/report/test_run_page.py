"""The page run.html: time and cost of a run."""

from hashlib import md5

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import write_json
from pipeline_src.report.results import read_results
from pipeline_src.report.run_page import check_price, data_hashes, measured_phases, render_run
from tests.unit.report.conftest import LOG, Page, write_costs


def page_text(price: float | None = None) -> str:
    return Page(render_run(read_results(), price)).text


def test_render_run_shows_time_memory_price_and_settings(results):
    write_costs(results, compile_seconds=195.0, machine={"attention": "auto", "microbatch_tokens": 16384})
    text = page_text(price=2.5)
    figures = ("1:02:33", "59 s", "12,346", "41.2 %", "812", "1,978", "steps in which torch compiled took")
    assert [figure for figure in figures if figure not in text] == []
    assert "Price of pretraining: 10.43, at 2.50 an hour" in text  # 2 x 3753 s x 2 processes
    assert "attention auto, microbatch tokens 16384." in text and "pretrain 2 25 s 22 s 812" in text


def test_measured_phases_drop_logs_of_another_run(results):
    write_costs(results)
    write_json(results.parent / "logs/pretrain/phase2.cost.json", LOG | {"flops": 77})
    assert list(measured_phases(read_results())) == ["phase1"]


def test_render_run_plots_throughput_if_tracked(results):
    write_costs(results)
    assert "Throughput" not in page_text()
    curve = results.parent / "logs/dvclive/phase1/plots/metrics/tokens_per_second.tsv"
    curve.parent.mkdir(parents=True)
    curve.write_text("step\ttokens_per_second\n1\t100\n2\t110\n")
    assert "Throughput" in page_text()


@pytest.mark.parametrize(
    ("source", "known"), [("float32 product measured on this machine", False), ("datasheet", True)]
)
def test_render_run_shows_utilisation_only_for_known_peak(results, source, known):
    write_costs(results, peak_source=source, mfu=1.25)
    text = page_text()
    assert all((word in text) == known for word in ("125.0 %", "MFU", "Peak (TFLOP/s)", source))


def test_render_run_without_price_shows_no_price(results):
    write_costs(results)
    assert "Price of" not in page_text() and "Price of pretraining: 0, at 0 an hour" in page_text(price=0.0)


def test_render_run_without_logs_shows_a_note(results):
    assert "This machine has no logs of these results." in page_text()


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_check_price_invalid_price_is_rejected(price):
    with pytest.raises(PipelineError, match="invalid price"):
        check_price(price, "--price")


def test_data_hashes_belong_to_current_results(results):
    assert data_hashes() is None
    hashes = [md5((results / name).read_bytes()).hexdigest() for name in ("scores.json", "corpus.json")]

    def write_lock(scores: str, corpus: str) -> None:
        outputs = {"results/scores.json": scores, "results/corpus.json": corpus, "data/tokens": "5d41402abc.dir"}
        stages = (
            f"  s{i}: {{outs: [{{path: {path}, md5: {hash}}}]}}\n" for i, (path, hash) in enumerate(outputs.items())
        )
        (results.parent / "dvc.lock").write_text("stages:\n" + "".join(stages))

    for stale in (("HASH", hashes[1]), (hashes[0], "HASH")):
        write_lock(*stale)
        assert data_hashes() is None
    write_lock(*hashes)
    assert [output["path"] for output in data_hashes()] == ["results/scores.json", "results/corpus.json", "data/tokens"]
    assert "5d41402abc.dir" in page_text()


def test_data_hashes_of_empty_dvc_lock_are_none(results):
    (results.parent / "dvc.lock").write_text("")
    assert data_hashes() is None
