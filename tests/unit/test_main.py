"""The command line: stages with their logs, exit statuses, errors."""

import errno
import importlib
import io
import json
import logging
import shutil
import signal
import sys
import threading
import time
import types

import pytest
from tokenizers import Regex, pre_tokenizers

from pipeline_src import __main__ as command
from pipeline_src import stages
from pipeline_src.base.errors import Interrupted, PipelineError
from pipeline_src.engine.dependencies import CHECKS
from pipeline_src.engine.fingerprint import fingerprint
from pipeline_src.study.settled import TABLE
from tests.children import kept_handlers
from tests.studies import write_params


@pytest.fixture
def study(tmp_path, monkeypatch, root):
    write_params(tmp_path)
    shutil.copy(root / "dvc.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def set_stage(monkeypatch, run, name="tokenize", blocks=("corpus",), **fields) -> None:
    """Replace a stage by a function."""
    module = types.ModuleType("stage_of_test")
    module.run = run
    monkeypatch.setitem(sys.modules, "stage_of_test", module)
    monkeypatch.setitem(command.STAGES, name, stages.Stage("stage_of_test", "", blocks, **fields))
    # This module has no file.
    monkeypatch.setattr("pipeline_src.code.covered_files", lambda module: ([], []))


def fail_with(error: BaseException):
    def run(**_):
        raise error

    return run


def test_stage_receives_sections_and_writes_log(study, monkeypatch):
    seen = []
    set_stage(monkeypatch, lambda **given: seen.append(given))
    assert command.main(["tokenize"]) == 0
    assert seen[0]["corpus"].sources["books"].entry == "shakespeare-sample"
    assert "done in" in (study / "logs/tokenize/all.log").read_text()
    assert json.loads((study / "logs/tokenize/all.run.json").read_text())["seconds"] >= 0


@pytest.mark.parametrize(
    ("fields", "words", "given"),
    [
        ({"on_beam": True}, [], {"beam_args": ("--runner=FlinkRunner",)}),
        ({"options": stages.STAGES["report"].options}, [], {}),
        (
            {"options": stages.STAGES["report"].options},
            ["--experiments", "a", "b", "--price", "2.5"],
            {"experiments": ["a", "b"], "price": 2.5},
        ),
    ],
)
def test_stage_receives_options_and_machine_yaml(study, monkeypatch, fields, words, given):
    (study / "machine.yaml").write_text("beam_args: [--runner=FlinkRunner]\n")
    seen = []
    set_stage(monkeypatch, lambda **given: seen.append(given), blocks=(), **fields)
    assert command.main(["tokenize", *words]) == 0
    assert seen == [given]


def test_stages_on_beam_are_the_text_stages():
    assert [name for name, stage in command.STAGES.items() if stage.on_beam] == ["clean", "tokenize"]


@pytest.mark.parametrize("under_dvc", [True, False])
def test_stage_params_edited_while_it_runs_fail_it_under_dvc(study, monkeypatch, capsys, under_dvc):
    def edit(**_):
        text = (study / "params.yaml").read_text()
        (study / "params.yaml").write_text(text.replace("min_words: 1000", "min_words: 7"))

    set_stage(monkeypatch, edit)
    if under_dvc:
        monkeypatch.setenv("DVC_STAGE", "tokenize")
    assert command.main(["tokenize"]) == (2 if under_dvc else 0)
    assert ("params.yaml changed while the stage ran" in capsys.readouterr().err) is under_dvc
    # After the stage it checks nothing.
    CHECKS.before_finishing()
    assert ("params.yaml changed" in (study / "logs/tokenize/all.log").read_text()) is under_dvc
    assert (study / "logs/tokenize/all.run.json").exists() is not under_dvc


@pytest.mark.parametrize("moment", ["start", "end"])
def test_stage_waits_for_params_while_dvc_makes_an_experiment(study, monkeypatch, capsys, moment):
    params, seen = (study / "params.yaml").read_text(), []
    # It depends on params.yaml.
    monkeypatch.setenv("DVC_STAGE", "report")

    def put_back():
        time.sleep(1)
        (study / "params.yaml").write_text(params)
        (study / TABLE).write_text("{}")

    def make_experiment():
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        TABLE.write_text(json.dumps({"write": {"workspace": {}}}))
        (study / "params.yaml").write_text(params.replace("mask_prob: 0.15", "mask_prob: 0.4"))
        threading.Thread(target=put_back).start()

    def run(mask_prob):
        seen.append(mask_prob)
        if moment == "end":
            make_experiment()

    set_stage(monkeypatch, run, "report", ("mask_prob",))
    if moment == "start":
        make_experiment()
    assert command.main(["report"]) == 0, capsys.readouterr().err
    assert seen == [0.15]


@pytest.mark.parametrize("is_edited", [False, True])
def test_stage_code_that_differs_from_recorded_fingerprint_is_rejected(study, monkeypatch, capsys, is_edited):
    (study / "code").mkdir()
    module = command.STAGES["tokenize"].module
    (study / "code/tokenize").write_text(f"{'0123456789abcdef' if is_edited else fingerprint(module)}\n")
    monkeypatch.setenv("DVC_STAGE", "tokenize")
    monkeypatch.setattr(importlib.import_module(module), "run", lambda **_: None)
    assert command.main(["tokenize"]) == (2 if is_edited else 0)
    assert ("the code was edited since this run began: tokenize" in capsys.readouterr().err) is is_edited


def test_code_writes_fingerprint_of_every_stage_and_member(study):
    assert command.main(["code"]) == 0
    assert (study / "code/pretrain").read_text().strip() == fingerprint("pipeline_src.pretrain.pretrain")
    names = {path.relative_to(study / "code").as_posix() for path in (study / "code").rglob("*") if path.is_file()}
    assert {*command.STAGES} - {"code"} | {"models/deberta", "objectives/mlm"} <= names


def test_stage_pipeline_error_is_printed_once(study, monkeypatch, capsys):
    set_stage(monkeypatch, fail_with(PipelineError("book is not UTF-8", "a.txt", where="byte 7", hint="re-encode it")))
    assert command.main(["tokenize"]) == 2
    stderr = capsys.readouterr().err
    assert stderr.count("book is not UTF-8: a.txt") == 1 and "hint: re-encode it" in stderr
    assert "Traceback" not in stderr
    assert "book is not UTF-8" in (study / "logs/tokenize/all.log").read_text()
    assert not (study / "logs/tokenize/all.run.json").exists()


def test_stage_full_disk_is_explained_and_bug_is_raised(study, monkeypatch, capsys):
    set_stage(monkeypatch, fail_with(OSError(errno.ENOSPC, "No space left on device", "data/text/books")))
    assert command.main(["tokenize"]) == 2
    assert "no space left on the disk: data/text/books" in capsys.readouterr().err
    set_stage(monkeypatch, fail_with(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        command.main(["tokenize"])
    log = (study / "logs/tokenize/all.log").read_text()
    assert log.count("Traceback") == 1 and "ZeroDivisionError" in log
    assert log.index("no space left on the disk") < log.index("Traceback")


@pytest.mark.parametrize(
    ("error", "status"), [(Interrupted("stopped by SIGTERM after step 5"), 75), (KeyboardInterrupt(), 130)]
)
def test_stage_stopped_by_signal_ignores_further_signals(study, monkeypatch, capsys, error, status):
    set_stage(monkeypatch, fail_with(error))
    with kept_handlers():
        assert command.main(["tokenize"]) == status
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            assert signal.getsignal(number) is signal.SIG_IGN
    assert "run the same command again to continue" in capsys.readouterr().err


def test_stage_closed_terminal_keeps_exit_status(study, monkeypatch):
    class Closed(io.StringIO):
        def write(self, _):
            raise OSError(errno.EIO, "Input/output error")

    def stop(**_):
        logging.getLogger("pipeline_src").info("the loss so far")
        raise Interrupted("stopped by SIGHUP")

    set_stage(monkeypatch, stop)
    monkeypatch.setattr(sys, "stderr", Closed())
    with kept_handlers():
        assert command.main(["tokenize"]) == Interrupted.STATUS
    assert "the loss so far" in (study / "logs/tokenize/all.log").read_text()


def test_stage_broken_pipe_is_an_error(study, monkeypatch):
    set_stage(monkeypatch, fail_with(BrokenPipeError(errno.EPIPE, "Broken pipe")))
    with kept_handlers(), pytest.raises(BrokenPipeError):
        command.main(["tokenize"])


def test_stage_panic_of_rust_library_is_reported_as_pipeline_error(study, monkeypatch, capsys):
    def split(**_):
        # Oniguruma gives up after ten million steps, in less than a second.
        pre_tokenizers.Split(Regex("(a+)+$"), "isolated").pre_tokenize_str("a" * 30 + "b")

    set_stage(monkeypatch, split)
    assert command.main(["tokenize"]) == 2
    assert "a Rust library panicked: Onig: Regex search error: retry-limit" in capsys.readouterr().err


def test_stage_log_of_stopped_run_is_continued(study, monkeypatch):
    log = study / "logs/tokenize/all.log"
    set_stage(monkeypatch, fail_with(Interrupted("stopped by SIGTERM after step 5")))
    with kept_handlers():
        assert command.main(["tokenize"]) == Interrupted.STATUS
    set_stage(monkeypatch, lambda **_: None)
    assert command.main(["tokenize"]) == 0
    assert log.read_text().index("after step 5") < log.read_text().index("done in")
    assert command.main(["tokenize"]) == 0
    assert "after step 5" not in log.read_text()


def test_stage_source_is_read_from_dvc_stage_name(study, monkeypatch):
    seen = []
    set_stage(monkeypatch, lambda **given: seen.append(given["source"]), "clean", items=("source",))
    for written in ("books", "clean@books", "../dvc.yaml:clean@books"):
        assert command.main(["clean", "--source", written]) == 0
    assert seen == ["books"] * 3 and (study / "logs/clean/books.log").exists()
    assert command.main(["clean", "--source", "clean@x@books"]) == 2 and len(seen) == 3
