"""The command line: help, exit statuses, logs, and no traceback for a user's mistake."""

import errno
import importlib
import io
import json
import shutil
import signal
import sys
import types

import pytest
from tokenizers import Regex, pre_tokenizers

from pipeline_src import __main__ as command
from pipeline_src import stages
from pipeline_src.common.dependencies import CHECKS
from pipeline_src.common.errors import Interrupted, PipelineError
from pipeline_src.common.fingerprint import fingerprint
from pipeline_src.tools.preset import preset_text
from tests.handlers import kept_handlers


@pytest.fixture
def study(tmp_path, monkeypatch, root):
    (tmp_path / "params.yaml").write_text(preset_text("test", root / "workflow/presets"))
    shutil.copy(root / "dvc.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_stage(monkeypatch, run) -> None:
    module = types.ModuleType("a_stage_of_the_test")
    module.run = run
    monkeypatch.setitem(sys.modules, "a_stage_of_the_test", module)
    monkeypatch.setitem(command.STAGES, "tokenize", stages.Stage("a_stage_of_the_test", "", ("corpus",)))
    monkeypatch.setattr("pipeline_src.code.covered_files", lambda module: ([], []))  # this module has no file


def test_help_names_every_stage_and_tool(capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(["--help"])
    shown = capsys.readouterr().out
    assert stop.value.code == 0
    assert all(name in shown for name in [*command.STAGES, *command.TOOLS])


def test_a_stage_gets_its_blocks_and_leaves_a_log(study, monkeypatch):
    seen = {}
    with_stage(monkeypatch, lambda **blocks: seen.update(blocks))
    assert command.main(["tokenize"]) == 0
    assert seen["corpus"].sources["books"].entry == "shakespeare-sample"
    assert "done in" in (study / "logs/tokenize/all.log").read_text()
    assert json.loads((study / "logs/tokenize/all.run.json").read_text())["seconds"] >= 0


def test_a_stage_takes_options_that_a_person_adds(study, monkeypatch):
    seen = []
    with_stage(monkeypatch, lambda **given: seen.append(given))
    options = {"experiments": stages.Option("", many=True), "price": stages.Option("", float)}
    monkeypatch.setitem(command.STAGES, "tokenize", stages.Stage("a_stage_of_the_test", "", options=options))
    assert (
        command.main(["tokenize"]) == 0 and command.main(["tokenize", "--experiments", "a", "b", "--price", "2.5"]) == 0
    )
    assert seen == [{}, {"experiments": ["a", "b"], "price": 2.5}]
    assert {"experiments", "price"} <= set(command.STAGES["report"].options)


@pytest.mark.parametrize("under_dvc", [True, False])
def test_params_that_change_under_a_stage_of_dvc_fail_it(study, monkeypatch, capsys, under_dvc):
    """DVC reads them when the stage ends, and would record them as those it ran with."""

    def edit(**_):
        text = (study / "params.yaml").read_text()
        (study / "params.yaml").write_text(text.replace("min_words: 1000", "min_words: 7"))

    with_stage(monkeypatch, edit)
    if under_dvc:
        monkeypatch.setenv("DVC_STAGE", "tokenize")
    assert command.main(["tokenize"]) == (2 if under_dvc else 0)
    assert ("params.yaml changed while the stage ran" in capsys.readouterr().err) is under_dvc
    CHECKS.before_finishing()  # of no stage any more
    assert ("params.yaml changed" in (study / "logs/tokenize/all.log").read_text()) is under_dvc
    assert (study / "logs/tokenize/all.run.json").exists() is not under_dvc


@pytest.mark.parametrize("recorded", ["as it is", "before an edit"])
def test_code_edited_before_a_stage_of_dvc_begins_stops_it(study, monkeypatch, capsys, recorded):
    """DVC would record what the edited code made under the fingerprint of the code before."""
    (study / "code").mkdir()
    module = command.STAGES["tokenize"].module
    print_of = fingerprint(module) if recorded == "as it is" else "0123456789abcdef"
    (study / "code/tokenize").write_text(f"{print_of}\n")
    monkeypatch.setenv("DVC_STAGE", "tokenize")
    monkeypatch.setattr(importlib.import_module(module), "run", lambda **_: None)
    assert command.main(["tokenize"]) == (0 if recorded == "as it is" else 2)
    assert ("the code was edited since this run began: tokenize" in capsys.readouterr().err) is (recorded != "as it is")


def test_the_stage_code_writes_a_fingerprint_for_every_stage_and_member(study):
    assert command.main(["code"]) == 0
    assert (study / "code/pretrain").read_text().strip() == fingerprint("pipeline_src.pretraining.pretrain")
    names = {path.relative_to(study / "code").as_posix() for path in (study / "code").rglob("*") if path.is_file()}
    assert {*command.STAGES} - {"code"} | {"models/deberta", "objectives/mlm"} <= names


def test_a_users_mistake_is_one_error_and_status_2(study, monkeypatch, capsys):
    def fail(**_):
        raise PipelineError("book is not UTF-8", "a.txt", where="byte 7", hint="re-encode it")

    with_stage(monkeypatch, fail)
    assert command.main(["tokenize"]) == 2
    shown = capsys.readouterr().err
    assert shown.count("book is not UTF-8: a.txt") == 1 and "hint: re-encode it" in shown
    assert "Traceback" not in shown
    assert "book is not UTF-8" in (study / "logs/tokenize/all.log").read_text()
    assert not (study / "logs/tokenize/all.run.json").exists()


def test_a_full_disk_is_a_clear_error_and_a_bug_is_not_hidden(study, monkeypatch, capsys):
    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device", "data/text/books")

    with_stage(monkeypatch, full)
    assert command.main(["tokenize"]) == 2
    assert "no space left on the disk: data/text/books" in capsys.readouterr().err

    def bug(**_):
        raise ZeroDivisionError

    with_stage(monkeypatch, bug)
    with pytest.raises(ZeroDivisionError):
        command.main(["tokenize"])
    log = (study / "logs/tokenize/all.log").read_text()
    assert log.count("Traceback") == 1 and "in bug\n" in log  # the mistake stays above, as one message
    assert log.index("no space left on the disk") < log.index("Traceback")


@pytest.mark.parametrize(
    ("error", "status"), [(Interrupted("stopped by SIGTERM after step 5"), 75), (KeyboardInterrupt(), 130)]
)
def test_what_ends_by_a_signal_hears_no_other(study, monkeypatch, capsys, error, status):
    """A launcher that ends all cannot change the status, nor a second Ctrl-C show a traceback."""
    with_stage(monkeypatch, lambda **_: (_ for _ in ()).throw(error))
    with kept_handlers():
        assert command.main(["tokenize"]) == status
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            assert signal.getsignal(number) is signal.SIG_IGN
    assert "run the same command again to continue" in capsys.readouterr().err


def test_a_closed_terminal_changes_no_status(study, monkeypatch):
    class Closed(io.StringIO):
        def write(self, _):
            raise OSError(errno.EIO, "Input/output error")

    with_stage(monkeypatch, lambda **_: (_ for _ in ()).throw(Interrupted("stopped by SIGHUP")))
    monkeypatch.setattr(sys, "stderr", Closed())
    with kept_handlers():
        assert command.main(["tokenize"]) == Interrupted.STATUS


def test_a_panic_of_a_library_in_rust_is_a_clear_error(study, monkeypatch, capsys):
    def split(**_):
        split = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
        split.pre_tokenize_str("a" * 30 + "b")  # Oniguruma gives up after ten million steps, in less than a second

    with_stage(monkeypatch, split)
    assert command.main(["tokenize"]) == 2
    said = capsys.readouterr().err
    assert "a library in Rust failed: Onig: Regex search error: retry-limit-in-match over" in said


def test_main_unrecognized_argument_prints_usage_of_its_command(capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(["fill-mask", "The", "house"])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and "pipeline_src fill-mask [-h]" in said and said.endswith("goes in quotes\n")


def test_a_stage_that_was_stopped_goes_on_in_its_log(study, monkeypatch, capsys):
    def stopped(**_):
        raise Interrupted("stopped by SIGTERM after step 5")

    with_stage(monkeypatch, stopped)
    with kept_handlers():
        assert command.main(["tokenize"]) == Interrupted.STATUS
    with_stage(monkeypatch, lambda **_: None)
    assert command.main(["tokenize"]) == 0
    log = (study / "logs/tokenize/all.log").read_text()
    assert log.index("after step 5") < log.index("done in") and "Traceback" not in log
    assert command.main(["tokenize"]) == 0
    assert "after step 5" not in (study / "logs/tokenize/all.log").read_text()


def test_wrong_params_stop_any_stage_before_its_code_is_imported(study, monkeypatch, capsys):
    text = (study / "params.yaml").read_text().replace("mask_prob: 0.15", "mask_prob: 1.5")
    (study / "params.yaml").write_text(text)
    assert command.main(["tokenize"]) == 2
    shown = capsys.readouterr().err
    assert "mask_prob = 1.5" in shown and "less than 1" in shown


def test_a_stage_of_one_source_takes_its_name_from_dvcs_name_of_the_stage(study, monkeypatch):
    seen = []
    module = types.ModuleType("a_stage_of_the_test")
    module.run = lambda **given: seen.append(given["source"])
    monkeypatch.setitem(sys.modules, "a_stage_of_the_test", module)
    declared = stages.Stage("a_stage_of_the_test", "", ("corpus",), ("source",))
    monkeypatch.setitem(command.STAGES, "clean", declared)
    for written in ("books", "clean@books", "../dvc.yaml:clean@books"):
        assert command.main(["clean", "--source", written]) == 0
    assert seen == ["books"] * 3 and (study / "logs/clean/books.log").exists()
    assert command.main(["clean", "--source", "clean@x@books"]) == 2 and len(seen) == 3
