"""The map over a Beam runner: order, errors, large results, options, and files that are lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import distributed
import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.text import beam
from pipeline_src.text.beam import Workers, parse_options

# With a named runner, each item is an element; without one, a single element holds all.
NAMED = ("--runner=FnApiRunner",)
PROBLEMS = {
    "mistake": PipelineError("bad item", 2, where="here", hint="fix it"),
    "full disk": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "shard"),
}


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process would take seconds to start."""
    monkeypatch.setenv("PIPELINE_WORKERS", "1")


def square(number: int) -> int:
    return number * number


def fail(number: int, problem: str) -> int:
    if number >= 2:
        raise PROBLEMS[problem] if number == 2 else PipelineError("a later item", number, hint="fix it")
    return number


def repeat(number: int, text: bytes) -> bytes:
    return text * number


def note(number: int, file: Path) -> int:
    with open(file, "a") as calls:
        calls.write(f"{number}\n")
    return number


def miss(number: int) -> bytes:
    return Path(f"missing-{number}").read_bytes()


def stored(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize("beam_args", [(), NAMED])
def test_workers_map_keeps_order_and_removes_temporary_files(tmp_path: Path, beam_args: tuple[str, ...]) -> None:
    folder = tmp_path / "x [copy] *"
    with Workers(beam_args, folder) as workers:
        assert list(workers.map(square, range(20))) == [number**2 for number in range(20)]
        assert list(workers.map(square, [])) == []
        assert list(workers.map(square, [3], through_beam=False)) == [9]
    assert stored(folder) == []


@pytest.mark.parametrize("beam_args", [(), NAMED])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_workers_error_of_first_item_is_raised_unchanged(
    tmp_path: Path, beam_args: tuple[str, ...], problem: str
) -> None:
    with Workers(beam_args, tmp_path) as workers:
        results: Iterator[int] = workers.map(partial(fail, problem=problem), range(5))
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(type(PROBLEMS[problem])) as caught:
            next(results)
    assert str(caught.value) == str(PROBLEMS[problem])
    assert getattr(caught.value, "errno", None) == getattr(PROBLEMS[problem], "errno", None)
    assert stored(tmp_path) == []


def test_workers_second_map_uses_its_own_function(tmp_path: Path) -> None:
    # A process keeps the last function that it has read.
    with Workers(NAMED, tmp_path) as workers:
        for text in (b"a", b"b"):
            assert list(workers.map(partial(repeat, text=text), [0, 2])) == [b"", text * 2]


def test_workers_file_missing_on_a_worker_is_rejected(tmp_path: Path) -> None:
    with Workers(NAMED, tmp_path) as workers, pytest.raises(PipelineError) as caught:
        list(workers.map(miss, [7, 8]))
    assert (caught.value.what, caught.value.value) == ("the Beam runner lost output", "missing-7")


def test_workers_without_shared_disk_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Workers(NAMED, tmp_path) as workers:
        with monkeypatch.context() as patch, pytest.raises(PipelineError, match="lost output: .*functio"):
            patch.setattr(beam, "_write", lambda *_: None)
            list(workers.map(square, range(3)))
        results = workers.map(square, range(3))
        assert next(results) == 0
        next(path for path in tmp_path.glob(".results/*/1")).unlink()
        with pytest.raises(PipelineError, match="the Beam runner lost output: the result of item 1"):
            next(results)


@pytest.mark.parametrize(
    ("beam_args", "view", "values"),
    [
        (
            ["--runner=FlinkRunner", "--flink_master=host:8081", "--parallelism=32", "--environment_type=EXTERNAL"],
            "FlinkRunnerOptions",
            {"flink_master": "host:8081", "parallelism": 32},
        ),
        (["--runner=DaskRunner", "--dask_scheduler_file=F"], "DaskOptions", {"scheduler_file": "F"}),
    ],
)
def test_parse_options_of_other_runners_keeps_values(beam_args, view, values) -> None:
    from apache_beam.options import pipeline_options
    from apache_beam.runners.dask import dask_runner

    dask = "apache_beam.runners.dask.dask_runner.DaskRunner"
    options = parse_options([argument.replace("=DaskRunner", f"={dask}") for argument in beam_args])
    viewed = options.view_as(getattr(pipeline_options, view, None) or getattr(dask_runner, view))
    assert {name: getattr(viewed, name) for name in values} == values


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--flink_mster=host:8081", "unknown option of Beam or its runner: --flink_mster"),
        ("--parallelism=many", "invalid Beam option: argument --parallelism: invalid int value: 'many'"),
        ("--runner=Flunk", "the Beam runner is unknown or not installed: Flunk"),
        ("--runner=not_installed.Runner", "the Beam runner is unknown or not installed: not_installed.Runner"),
        ("--runner=os.Runner", "the Beam runner is unknown or not installed: os.Runner"),
        ("--runner=os.path", "the Beam runner is unknown or not installed: os.path"),
    ],
)
def test_parse_options_invalid_option_is_rejected(tmp_path, argument, message, capfd) -> None:
    with pytest.raises(PipelineError) as caught:
        Workers(["--runner=FnApiRunner", argument], tmp_path)
    assert str(caught.value).splitlines()[:2] == [message, "  where:  beam_args in machine.yaml"]
    assert capfd.readouterr().err == ""


def test_workers_of_a_killed_run_do_not_change_the_next_run(tmp_path: Path) -> None:
    with Workers((), tmp_path) as workers:
        earlier = workers.folder
    with Workers((), tmp_path) as workers:
        (workers.folder / "shard").write_text("new")
        # A worker that continues makes its folder again.
        earlier.mkdir()
        (earlier / "shard").write_text("old")
        assert workers.receive("shard").read_text() == "new"
    assert stored(tmp_path) == ["shard"]


def test_workers_on_dask_call_the_function_once_per_item(tmp_path: Path) -> None:
    dask = ["--runner=apache_beam.runners.dask.dask_runner.DaskRunner"]
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=False
    ) as cluster:
        with Workers([*dask, f"--dask_client_address={cluster.scheduler_address}"], tmp_path) as workers:
            assert list(workers.map(partial(note, file=tmp_path / "calls"), range(21))) == list(range(21))
        # Beam's client would continue to ask for the cluster.
        distributed.default_client().close()
    assert sorted(map(int, (tmp_path / "calls").read_text().split())) == list(range(21))


def test_workers_unreachable_cluster_is_rejected(tmp_path: Path) -> None:
    beam_args = ["--runner=apache_beam.runners.dask.dask_runner.DaskRunner", "--dask_connection_timeout=1"]
    with Workers([*beam_args, "--dask_client_address=tcp://127.0.0.1:1"], tmp_path) as workers:
        with pytest.raises(PipelineError, match=r"the Beam runner cannot be reached: .*127\.0\.0\.1:1"):
            list(workers.map(square, [1]))
