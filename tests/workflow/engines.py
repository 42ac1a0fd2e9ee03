"""Snakemake's and DVC's commands without their start, which is most of what a command on a toy study takes.

A server (``python -m tests.workflow.engines SOCKET``) has imported both engines, and nothing of this project. Each
command is a fork of it: a process of its own, with the pid, working directory, environment, arguments, output and exit
status that it would have as a program, which can be killed as one. One thing differs: Snakemake names as its "run
directory" that in which it was imported.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

ENGINES = {"snakemake": "snakemake.cli", "dvc": "dvc.cli"}
# What their commands import as they go along; what is not named here only takes its time.
IMPORTED = """
snakemake.cli snakemake.report.html_reporter snakemake.storage snakemake_executor_plugin_slurm
dvc.cli dvc.cli.parser dvc.daemon dvc.render dvc.repo dvc.repo.brancher dvc.repo.datasets dvc.repo.graph
dvc.repo.index dvc.repo.open_repo dvc.repo.plots dvc.repo.stage dvc.repo.trie dvc.repo.worktree dvc.ui.pager
dvc.ui.table dvc.utils.hydra dvc.utils.strictyaml dvc.repo.experiments.executor.local
dvc.repo.experiments.queue.celery dvc.repo.experiments.queue.tempdir dvc.repo.experiments.queue.workspace
dvc.repo.experiments.run dvc.repo.experiments.save dvc.repo.experiments.show dvc_data.index.checkout
dulwich.porcelain fsspec.implementations.memory networkx platformdirs.api pygit2 pyparsing rich.console rich.table
scmrepo.git smart_open.local_file
""".split()
STATUS = struct.Struct("i")  # through a pipe of each command's own: its pid, and when it has ended, its exit status
LARGEST = 1 << 17  # bytes of a request


class Forked(subprocess.Popen[str]):
    """A command that the server runs, as ``subprocess.Popen`` would show it."""

    def __init__(self, server: socket.socket, request: Mapping[str, object]) -> None:
        output, command_output = os.pipe()
        self._status, command_status = os.pipe()
        socket.send_fds(server, [json.dumps(request).encode()], [command_output, command_status])
        os.close(command_output)
        os.close(command_status)
        self.args = request["arguments"]
        self.returncode = None
        self._said = ""
        self._reader = threading.Thread(target=self._read, args=[output], daemon=True)
        self._reader.start()
        (self.pid,) = STATUS.unpack(os.read(self._status, STATUS.size))

    def _read(self, output: int) -> None:
        with open(output, encoding="utf-8") as file:
            self._said = file.read()

    def poll(self) -> int | None:
        """Its exit status, if it has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended."""
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout)
            (self.returncode,) = STATUS.unpack(os.read(self._status, STATUS.size))
            os.close(self._status)
        return self.returncode

    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, None]:
        """What it and all it started said, once they have ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._reader.join(timeout)
        if self._reader.is_alive():
            raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(None if deadline is None else max(0, deadline - time.monotonic()))
        return self._said, None


class Engines:
    """The server, started with the first command."""

    def __init__(self) -> None:
        self._server: socket.socket | None = None

    def start(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], session: bool = False
    ) -> Forked:
        """Start a command; with ``session``, in a process group of its own."""
        request = {"arguments": command, "folder": str(folder), "environment": environment, "session": session}
        return Forked(self._started(), request)

    def _started(self) -> socket.socket:
        if self._server is None:
            self._server, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # a process is forked from a single thread
            program = [sys.executable, "-m", "tests.workflow.engines", str(end.fileno())]
            root = Path(__file__).resolve().parents[2]
            server = subprocess.Popen(
                program, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                pass_fds=[end.fileno()],
            )  # fmt: skip
            end.close()
            atexit.register(server.wait)
            atexit.register(self._server.close)
        return self._server


def serve(requests: socket.socket) -> tuple[Mapping[str, object], list[int]] | None:
    """Fork for every request. Returns in the fork, with the request and its files; in the server, when all is over."""
    running = selectors.DefaultSelector()
    running.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in running.select():
            if key.fileobj is not requests:
                _, status = os.waitpid(key.data[0], 0)
                _tell(key.data[1], os.waitstatus_to_exitcode(status))
                running.unregister(key.fd)
                os.close(key.fd)
                os.close(key.data[1])
                continue
            message, files, _, _ = socket.recv_fds(requests, LARGEST, 2)
            if not message:
                return None
            pid = os.fork()
            if not pid:
                for other in list(running.get_map().values()):
                    os.close(other.fd)
                    if other.data:
                        os.close(other.data[1])
                requests.detach()
                running.close()
                return json.loads(message), files
            os.close(files[0])
            running.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, files[1]))


def _tell(pipe: int, number: int) -> None:
    try:
        os.write(pipe, STATUS.pack(number))
    except BrokenPipeError:
        pass  # nobody waits for it


def become(request: Mapping[str, object], files: Sequence[int]) -> None:
    """Be the program that the request names, in all it can see of itself, and end as it does."""
    output, status = files
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    _tell(status, os.getpid())
    os.close(status)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    name, *arguments = request["arguments"]
    program = Path(sys.executable).with_name(name)
    sys.argv = [str(program), *arguments]
    sys.path[0] = str(program.parent)
    try:
        status = importlib.import_module(ENGINES[name]).main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    _end(status)


def _end(status: object) -> None:
    """What the interpreter does at a program's end, but for taking apart all that was imported: a fifth of a second."""
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status or 0)


def main() -> None:
    """Import the engines, then serve."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    forked = serve(socket.socket(fileno=int(sys.argv[1])))
    if forked:
        become(*forked)


if __name__ == "__main__":
    main()
