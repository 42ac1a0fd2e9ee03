"""Call a program's ``main`` in a child process that does not start from nothing.

The children come from a fork server of the standard library's multiprocessing, which has imported what takes seconds.
Each is a process of its own, with its own working directory, environment, arguments and output, and can be killed.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
MAINS = {"snakemake": "snakemake.cli:main", "dvc": "dvc.cli:main"}  # of programs that are installed
# what the engines import sooner or later, and nothing of this project, which a test may edit
ENGINES = """
snakemake.cli snakemake.report.html_reporter snakemake.storage snakemake_executor_plugin_slurm
dvc.cli dvc.cli.parser dvc.daemon dvc.render dvc.repo dvc.repo.brancher dvc.repo.datasets dvc.repo.graph
dvc.repo.index dvc.repo.open_repo dvc.repo.plots dvc.repo.stage dvc.repo.trie dvc.repo.worktree dvc.ui.pager
dvc.ui.table dvc.utils.hydra dvc.utils.strictyaml dvc.repo.experiments.executor.local
dvc.repo.experiments.queue.celery dvc.repo.experiments.queue.tempdir dvc.repo.experiments.queue.workspace
dvc.repo.experiments.run dvc.repo.experiments.save dvc.repo.experiments.show dvc_data.index.checkout
dulwich.porcelain fsspec.implementations.memory networkx platformdirs.api pydantic pygit2 pyparsing rich.console
rich.table scmrepo.git smart_open.local_file
""".split()
TRAININGS = [
    *("tests.unit.training.fake_gpu", "tests.unit.pretrain.small", "torch._dynamo"),
    *("torch._dynamo.backends.debugging", "torch._meta_registrations"),
]
SERVERS = {True: forkserver.ForkServer(), False: forkserver.ForkServer()}  # of installed programs, of trainings
SERVERS[True].set_forkserver_preload(ENGINES)
SERVERS[False].set_forkserver_preload(TRAININGS)
SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # a fork has one


class Child:
    """A call of ``module:function`` in a child process, with the interface of ``subprocess.Popen``.

    Args:
        calls: the function, or the name of an installed program.
        arguments: its ``sys.argv[1:]``.
        folder: its working directory.
        environment: all of its variables.
        session: whether it leads a process group.
    """

    def __init__(
        self, calls: str, arguments: Sequence[object], folder: Path, environment: Mapping[str, str], session: bool
    ) -> None:
        self.args = [calls, *map(str, arguments)]
        self._output = tempfile.NamedTemporaryFile()
        given = (self.args, str(folder), dict(environment), session, self._output.name)
        self._process = get_context("forkserver").Process(target=_call, args=given)
        with (
            mock.patch.object(forkserver, "connect_to_new_process", SERVERS[calls in MAINS].connect_to_new_process),
            mock.patch.dict(os.environ, SINGLE_THREADED | {"PYTHONPATH": str(ROOT)}),  # of the server
        ):
            self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    poll = returncode.fget

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, None]:
        """Return its output and that of its own processes."""
        self.wait(timeout)
        self._output.seek(0)
        return self._output.read().decode(), None


def _call(args: list[str], folder: str, environment: dict[str, str], session: bool, output: str) -> None:
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    if session:
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in environment
    calls, *sys.argv[1:] = args
    if calls in MAINS:  # whose folder may hold another copy of this project
        sys.argv[0] = str(Path(sys.executable).with_name(calls))
        sys.path[:] = [path for path in sys.path if path and Path(path).resolve() != ROOT]
    module, _, function = MAINS.get(calls, calls).partition(":")
    sys.exit(getattr(importlib.import_module(module), function)())


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Put the handlers back that the block changes."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
