"""Curves in several trackers, continued after a stop; what a library must be able to do is checked on fakes of it."""

import inspect
import json
import math
import os
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline_src.pretraining import tracking
from pipeline_src.pretraining.tracking import BACKENDS, DEFAULTS, PROJECT, Run, Tracker

PARAMS = {"seed": 1, "pretrain": {"train_batch_size": 32, "betas": [0.9, 0.98]}}
METRICS = Path("logs/dvclive/phase1/plots/metrics")
NAME = "phase1-abc123"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in DEFAULTS:
        monkeypatch.setenv(name, "")  # restored at the end, although the tracker sets it
        monkeypatch.delenv(name)


def tracker(first_step=0, *names):
    return Tracker(names or ("dvclive",), Run("phase1", "abc123", PARAMS, first_step))


def rows(name):
    return (METRICS / f"{name}.tsv").read_text(encoding="utf-8").splitlines()


def test_tracker_writes_dvclives_layout_alone_by_default():
    writer = tracker()
    writer.row(20, {"step": 20, "loss": 9.5, "mfu": 0.25})
    writer.row(40, {"step": 40, "loss": 1 / 3, "validation_mlm_loss": 8.0})
    writer.finish()
    assert rows("loss") == ["step\tloss", "20\t9.5", "40\t0.3333333333333333"]
    assert rows("mfu") == ["step\tmfu", "20\t0.25"]
    assert rows("validation_mlm_loss") == ["step\tvalidation_mlm_loss", "40\t8.0"]
    assert len(list(METRICS.iterdir())) == 3 and os.listdir("logs") == ["dvclive"]


def test_tracker_resumed_drops_rows_after_checkpoint():
    writer = tracker()
    for step in (20, 40, 60):
        writer.row(step, {"loss": step / 10})
    writer.row(60, {"validation_mlm_loss": 8.0})
    with open(METRICS / "loss.tsv", "a") as file:
        file.write("80\t7")  # killed within a row
    writer = tracker(40)
    assert rows("loss") == ["step\tloss", "20\t2.0", "40\t4.0"]
    writer.row(60, {"loss": 6.5})
    assert rows("loss") == ["step\tloss", "20\t2.0", "40\t4.0", "60\t6.5"]
    assert not (METRICS / "validation_mlm_loss.tsv").exists()


@pytest.mark.parametrize("content", ["", "step\tlo", "step\tloss\nbroken\n\x00\t1\n", "step\tloss\n20\t1\n30"])
def test_tracker_broken_file_is_continued(content):
    METRICS.mkdir(parents=True)
    (METRICS / "loss.tsv").write_text(content)
    tracker(25).row(40, {"loss": 3.0})
    assert rows("loss")[0] == "step\tloss" and rows("loss")[-1] == "40\t3.0"
    assert len(rows("loss")) <= 3


def test_tracker_infinite_value_is_written():
    tracker().row(1, {"loss": 2.0, "grad_norm": math.inf})
    assert rows("grad_norm") == ["step\tgrad_norm", "1\tinf"]


class Service:
    """A fake of a library: its runs by name, with config, rows, and how often each was opened and ended."""

    def __init__(self):
        self.runs, self.current, self.is_gone, self.calls = {}, None, False, []

    def open(self, name, config):
        self.current = self.runs.setdefault(name, {"config": config, "rows": [], "opened": 0, "ended": 0})
        self.current["opened"] += 1
        return SimpleNamespace(log=self.log, finish=self.finish)

    def log(self, values, step):
        self.calls.append(step)
        if self.is_gone:
            raise ConnectionError("no server")
        self.current["rows"].append((step, values))

    def finish(self):
        self.current["ended"] += 1


def wandb_module(service):
    def init(*, id, name, config, resume):
        assert name == id and resume == ("allow" if os.environ["WANDB_MODE"] == "online" else None)
        assert os.environ["WANDB_PROJECT"] == PROJECT and os.environ["WANDB_DIR"] == "logs"
        return service.open(id, config)

    return SimpleNamespace(init=init)


def mlflow_module(service):
    def search_runs(*, experiment_names, filter_string, output_format):
        assert experiment_names == [PROJECT] and output_format == "list"
        found = [name for name in service.runs if filter_string == f"run_name = '{name}'"]
        return [SimpleNamespace(info=SimpleNamespace(run_id=name)) for name in found]

    return SimpleNamespace(
        search_runs=search_runs,
        start_run=lambda run_id=None, run_name=None: service.open(run_id or run_name, {}),
        log_params=lambda params: service.current["config"].update(params),
        log_metrics=service.log,
        end_run=service.finish,
    )


def trackio_module(service):
    def init(project, name, *, config, resume):
        assert project == PROJECT and resume == "allow"
        return service.open(name, config)

    return SimpleNamespace(init=init)


MODULES = {"wandb": wandb_module, "mlflow": mlflow_module, "trackio": trackio_module}
FLAT = {"seed": 1, "pretrain.train_batch_size": 32, "pretrain.betas": [0.9, 0.98]}


@pytest.fixture(params=MODULES)
def library(request, monkeypatch):
    """A library's name, with a fake in its place."""
    service = Service()
    monkeypatch.setitem(sys.modules, request.param, MODULES[request.param](service))
    return request.param, service


@pytest.mark.parametrize("library", MODULES, indirect=True)
@pytest.mark.parametrize("mode", ["offline", "online"])
def test_tracker_resumed_run_goes_on_without_repeated_steps(library, mode, monkeypatch):
    name, service = library
    if mode == "online":
        monkeypatch.setenv("WANDB_MODE", mode)
    writer = tracker(0, "dvclive", name)
    for step in (20, 40, 60):
        writer.row(step, {"step": step, "loss": step / 10})
    writer = tracker(40, "dvclive", name)  # killed after step 60, and its last checkpoint is that of step 40
    writer.row(60, {"step": 60, "loss": 6.0})
    writer.row(80, {"step": 80, "loss": 8.0})
    writer.finish()
    assert service.runs.keys() == {NAME}
    run = service.runs[NAME]
    assert run["config"] == (FLAT if name == "mlflow" else PARAMS)
    assert run["rows"] == [(step, {"loss": step / 10}) for step in (20, 40, 60, 80)]
    assert (run["opened"], run["ended"]) == (2, 1)
    assert rows("loss")[1:] == [f"{step}\t{step / 10}" for step in (20, 40, 60, 80)]


@pytest.mark.parametrize("library", ["wandb"], indirect=True)
def test_tracker_other_training_is_another_run(library):
    tracker(0, "wandb").row(20, {"loss": 1.0})
    Tracker(("wandb",), Run("phase1", "def456", PARAMS, 0)).row(20, {"loss": 1.0})
    assert {name: len(run["rows"]) for name, run in library[1].runs.items()} == {NAME: 1, "phase1-def456": 1}


def test_tracker_server_that_is_gone_is_left_out_with_one_warning(library, caplog):
    name, service = library
    writer = tracker(0, name, "dvclive")
    writer.row(20, {"loss": 2.0})
    service.is_gone = True
    for step in (40, 60):
        writer.row(step, {"loss": step / 10})
    writer.finish()
    assert caplog.text.count(f"without {name}: ConnectionError: no server") == 1
    assert service.calls == [20, 40] and rows("loss")[-1] == "60\t6.0"
    service.is_gone = False
    tracker(20, name).row(40, {"loss": 4.0})  # resumed: the row that was lost is sent
    assert [step for step, _ in service.runs[NAME]["rows"]] == [20, 40]


def test_tracker_server_absent_at_the_start_stops_nothing(monkeypatch, caplog):
    def init(**_):
        raise RuntimeError("no key")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    tracker(0, "wandb", "dvclive").row(20, {"loss": 2.0})
    assert "without wandb: RuntimeError: no key" in caplog.text and len(rows("loss")) == 2


def test_tracker_unreadable_record_of_sent_steps_stops_nothing(library, caplog):
    path = Path("logs/tracking", f"{NAME}.json")
    path.parent.mkdir(parents=True)
    path.write_text('{"wandb": ')
    writer = tracker(0, library[0], "dvclive")
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("")  # no folder to write to
    writer.row(20, {"loss": 2.0})
    assert caplog.text.count(f"training goes on without {path}: ") == 2
    assert len(library[1].runs[NAME]["rows"]) == 1 and len(rows("loss")) == 2


def test_tracker_dvclives_own_failure_is_raised(monkeypatch):
    writer = tracker()
    monkeypatch.setattr(tracking.DVCLiveFiles, "log", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        writer.row(1, {"loss": 1.0})


def test_tracker_variables_of_the_user_are_kept(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://here")
    tracker()
    assert os.environ["MLFLOW_TRACKING_URI"] == "http://here" and os.environ["WANDB_MODE"] == "offline"


def test_tracker_tensorboard_reads_back_resumed_run():
    pytest.importorskip("tensorboard", reason="needs the extra `track`")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for first, steps in ((0, (20, 40, 60)), (40, (60, 80))):
        writer = tracker(first, "tensorboard")
        for step in steps:
            writer.row(step, {"loss": float(first + step)})
        writer.finish()
    events = EventAccumulator("logs/tensorboard/phase1")
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(20, 20), (40, 40), (60, 100), (80, 120)]


def test_tracker_trackio_store_reads_back_resumed_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when trackio is imported
    pytest.importorskip("trackio", reason="trackio is not installed")
    for first, steps in ((0, (20, 40, 60)), (40, (60, 80))):
        writer = tracker(first, "trackio")
        for step in steps:
            writer.row(step, {"loss": step / 10})
        writer.finish()
    with sqlite3.connect(tmp_path / f"trackio/{PROJECT}.db") as store:
        stored = store.execute("SELECT run_name, step, metrics FROM metrics ORDER BY step").fetchall()
    assert [(name, step, json.loads(values)) for name, step, values in stored] == [
        (NAME, step, {"loss": step / 10}) for step in (20, 40, 60, 80)
    ]


@pytest.mark.parametrize(
    ("module", "function", "arguments"),
    [
        ("wandb", "init", {"id", "name", "config", "resume"}),
        ("mlflow", "search_runs", {"experiment_names", "filter_string", "output_format"}),
        ("mlflow", "start_run", {"run_id", "run_name"}),
        ("mlflow", "log_metrics", {"metrics", "step"}),
        ("trackio", "init", {"project", "name", "config", "resume"}),
    ],
)
def test_fakes_take_arguments_of_the_libraries(module, function, arguments):
    library = pytest.importorskip(module, reason=f"{module} is not installed")
    assert arguments <= inspect.signature(getattr(library, function)).parameters.keys()


def test_backends_are_the_trackers_of_machine_yaml():
    from typing import get_args

    from pipeline_src.config.machine import TrackerName

    assert set(get_args(TrackerName)) == BACKENDS.keys()
