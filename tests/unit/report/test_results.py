"""Results as read, their summary, and errors of results that were cut, edited or written by another version."""

from __future__ import annotations

from argparse import Namespace
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, write_json
from pipeline_src.report import interpretation, report, table
from pipeline_src.report.experiments import read_experiment
from pipeline_src.report.results import fitting_results, read_results, summarise
from tests.unit.report.conftest import ROWS, score_row, sketch, write_scores
from tests.unit.report.test_interpretation import write_interpretation

OTHER = st.sampled_from([None, True, -1, 3, 1.5, "", "text", [], [1], [[]], {}, {"a": 1}, [{"a": []}]])


def test_summarise_is_short_and_flat(results):
    more = [score_row("squad2", "f1", 1.0), score_row("ner", "entity_f1", 2.0)]
    write_scores(results, [*ROWS, *more], ["rte"], further=["ner"])
    summary = summarise(read_results())
    losses, glue = ["mlm_loss", "mlm_gap", "nsp_accuracy"], ["synthetic_glue"]
    assert list(summary) == [*losses, *glue, "squad1", "swag", "squad2", "ner"] and summary["ner"] == 2.0
    assert all(isinstance(value, float) for value in summary.values())


def test_summarise_task_named_like_a_figure_is_own(results):
    names = ("glue", "squad1", "a", "own_glue")
    rows = [score_row(f"my_{name}", "accuracy", 70.0 + at, eval_set=name) for at, name in enumerate(names)]
    rows += [score_row(f"task{number}", "accuracy", float(number)) for number in range(9)]
    write_scores(results, [*ROWS, *rows], ["rte", "mrpc", "wnli", "swag"], further=[row["task"] for row in rows])
    summary = summarise(read_results())
    assert (summary["own_glue"], summary["own_squad1"], summary["a"]) == (70.0, 71.0, 72.0)
    assert summary["own_own_glue"] == 73.0 and summary["task8"] == 8.0 and summary["synthetic_glue"] == 85.0


def test_summarise_tasks_from_the_corpus_are_averaged_with_their_error(results):
    rows = [
        score_row("swapped", "accuracy", 60.0, interval=[57.0, 63.0]),
        score_row("cloze", "f1", 20.0, interval=[16.0, 24.0]),
        score_row("cloze", "em", 10.0, main=False),
    ]
    write_scores(results, rows, [])
    write_json(
        results / "scores.json", read_json(results / "scores.json") | {"from_corpus": {"swapped": "", "cloze": ""}}
    )
    summary = summarise(read_results())
    assert summary["from_corpus"] == 40.0 and summary["from_corpus_error"] == 2.5


def test_read_results_missing_file_is_one_error(results):
    (results / "corpus.json").unlink()
    with pytest.raises(PipelineError, match="corpus.json"):
        read_results()


def test_read_results_damaged_curve_is_one_error(results):
    (results / "pretrain" / "phase2.tsv").write_text("step\tloss\n1\tmuch\n")
    with pytest.raises(PipelineError, match="not a table of numbers"):
        read_results()


def paths_of(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every position in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, inner in inside for path in paths_of(inner, (*at, key)))]


def damaged(value: Any, path: tuple[str | int, ...], other: Any, gone: bool) -> Any:
    """A copy with another value, or none, at a position."""
    if not path:
        return other
    value = deepcopy(value)
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    if gone:
        del inside[path[-1]]
    else:
        inside[path[-1]] = other
    return value


@pytest.fixture
def looked_into(results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of a study that was looked into; its pictures are sketched."""
    monkeypatch.setattr(interpretation, "svg", sketch)
    write_interpretation(results)
    (results.parent / "params.yaml").write_text("seed: 1\n")
    for name in ("phase1", "phase2"):
        cost = {"flops": 5, "seconds": 2.0, "processes": 1}
        write_json(results.parent / f"logs/pretrain/{name}.cost.json", cost)
    return results


@given(data=st.data())
@settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a page takes a quarter of a second
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_damaged_file_is_a_report_or_one_error(looked_into: Path, data: st.DataObject) -> None:
    files = sorted([*looked_into.rglob("*.json"), *looked_into.parent.glob("logs/*/*.json")])
    files = [file for file in files if file.name not in ("summary.json", "filled_masks.json")]
    file = data.draw(st.sampled_from(files))
    whole = file.read_bytes()
    if data.draw(st.integers(0, 9)) == 0:
        file.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 3))])
    else:
        content = read_json(file)
        path = data.draw(st.sampled_from(paths_of(content)))
        write_json(file, damaged(content, path, data.draw(OTHER), data.draw(st.booleans())))
    try:
        report.run()
        table.main(Namespace())
        read_experiment("workspace")
    except PipelineError as error:
        assert error.hint and error.where
    finally:
        file.write_bytes(whole)


def test_fitting_results_names_the_code_that_failed() -> None:
    with pytest.raises(PipelineError, match=r"(?s)no table can be made.*ZeroDivisionError.*read by results.py, line"):
        with fitting_results("table"):
            1 / 0  # noqa: B018


def test_fitting_results_names_the_value_that_a_template_lacks(looked_into: Path) -> None:
    corpus = read_json(looked_into / "corpus.json")
    del corpus["vocabulary"]["entries"]
    write_json(looked_into / "corpus.json", corpus)
    with pytest.raises(PipelineError, match="no attribute 'entries'"):
        report.run()
