"""Results that were cut, edited or written by another version: one clear error, or a report."""

from __future__ import annotations

import json
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
from pipeline_src.report.results import fitting_results, of_shape
from tests.unit.report.conftest import sketch
from tests.unit.report.test_interpretation import write_interpretation

OTHER = st.sampled_from([None, True, -1, 3, 1.5, "", "text", [], [1], [[]], {}, {"a": 1}, [{"a": []}]])


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in inside for place in places(each, (*at, key)))]


def damaged(value: Any, place: tuple[str | int, ...], other: Any, gone: bool) -> Any:
    """A copy in which something else, or nothing, stands at a place."""
    if not place:
        return other
    value = deepcopy(value)
    inside = value
    for key in place[:-1]:
        inside = inside[key]
    if gone:
        del inside[place[-1]]
    else:
        inside[place[-1]] = other
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
def test_a_damaged_file_is_a_report_or_one_clear_error(looked_into: Path, data: st.DataObject) -> None:
    files = sorted([*looked_into.rglob("*.json"), *looked_into.parent.glob("logs/*/*.json")])
    files = [file for file in files if file.name not in ("summary.json", "filled_masks.json")]
    file = data.draw(st.sampled_from(files))
    whole = file.read_bytes()
    if data.draw(st.integers(0, 9)) == 0:
        file.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 3))])
    else:
        content = read_json(file)
        place = data.draw(st.sampled_from(places(content)))
        write_json(file, damaged(content, place, data.draw(OTHER), data.draw(st.booleans())))
    try:
        report.run()
        table.main(Namespace())
        read_experiment("workspace")
    except PipelineError as error:
        assert error.hint and error.where
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize(
    ("file", "place", "said"),
    [
        ("scores.json", ("rows", 0, "mean"), r"rows\[0\] lacks mean\n.*results/scores.json"),
        ("corpus.json", ("examples", "phase2", "length"), r"examples.phase2 lacks length\n.*results/corpus.json"),
        ("tasks/rte.json", ("errors", "rte", "confusion"), r"errors.rte lacks confusion\n.*results/tasks/rte.json"),
        ("interpretation/probes.json", ("pos", "model"), r"pos lacks model\n.*results/interpretation/probes.json"),
        ("pretrain/phase2.json", ("steps",), r"the file lacks steps\n.*results/pretrain/phase2.json"),
    ],
)
def test_the_error_names_file_and_place(looked_into: Path, file: str, place: tuple[str | int, ...], said: str) -> None:
    write_json(looked_into / file, damaged(read_json(looked_into / file), place, None, True))
    with pytest.raises(PipelineError, match=said):
        report.run()


def test_a_page_that_stumbles_names_the_code() -> None:
    with pytest.raises(PipelineError, match=r"(?s)no table can be made.*ZeroDivisionError.*read by results.py, line"):
        with fitting_results("table"):
            1 / 0  # noqa: B018


def test_what_is_read_is_as_it_was_written() -> None:
    content = {"synthetic": True, "rules": {}, "rows": [], "more": [{"a": [1, {"b": None}]}]}
    value = of_shape(content, "scores.json", "x")
    assert value == content and json.dumps(value) == json.dumps(content)
    assert value.get("absent") is None and "absent" not in value["more"][0]
