"""Signals that request a stop."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipeline_src.__main__ import main
from pipeline_src.base.errors import Interrupted
from pipeline_src.training import stop
from pipeline_src.training.stop import SIGNALS, catch_stop_requests
from tests.children import kept_handlers


@pytest.mark.parametrize("number", SIGNALS)
def test_catch_stop_requests_signal_sets_request(number):
    before = signal.default_int_handler  # whatever a shell in the background has made of it
    selected = signal.signal(number, before)
    with catch_stop_requests() as stop_request:
        assert not stop_request
        os.kill(os.getpid(), number)
        assert stop_request
        message = str(stop_request.interrupted("training", 1200))
        assert number.name in message and "1,200" in message
    assert signal.signal(number, selected) is before


def test_catch_stop_requests_ignored_signal_stays_ignored():
    """For example, nohup ignores SIGHUP."""
    with kept_handlers():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with catch_stop_requests() as stop_request:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop_request


def test_stop_request_second_sigterm_ends_process():
    script = """
import os, signal, time
from pipeline_src.training import stop
with stop.catch_stop_requests():
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    stop.REPEAT_SECONDS = 0
    os.kill(os.getpid(), signal.SIGURG)
    print("alive", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("not reached", flush=True)
"""
    root = Path(stop.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert done.returncode == -signal.SIGTERM and done.stdout == "alive\n"


def test_catch_stop_requests_outside_main_thread_catches_nothing():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with catch_stop_requests() as stop_request:
            seen.append(bool(stop_request))

    thread = threading.Thread(target=work)
    thread.start(), thread.join()
    assert seen == [False] and signal.getsignal(signal.SIGTERM) is before


def test_main_interrupted_stage_exits_with_75(monkeypatch, capsys):
    def stopped(*_: object) -> None:
        raise Interrupted("pretraining, short stopped by SIGTERM after step 5; its checkpoint is saved")

    monkeypatch.setattr("pipeline_src.run.run_stage", stopped)
    with kept_handlers():
        assert main(["pretrain", "--phase", "phase1"]) == Interrupted.STATUS == 75
    assert "run the same command again to continue" in capsys.readouterr().err
