"""Programs without their start, which is most of what a short one takes.

A server has imported what the programs import. Each program is a fork of it: a process of its own, with the pid,
working directory, environment, arguments, output and exit status that it would have, which can be killed as one.
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
from typing import Any

STATUS = struct.Struct("i")  # through a pipe of each program's own: its pid, and when it has ended, its exit status
LARGEST = 1 << 17  # bytes of a request


class Forked(subprocess.Popen[str]):
    """A program that a server runs, as ``subprocess.Popen`` would show it."""

    def __init__(self, server: socket.socket, request: Mapping[str, Any]) -> None:
        output, command_output = os.pipe()
        self._status, command_status = os.pipe()
        socket.send_fds(server, [json.dumps(request).encode()], [command_output, command_status])
        os.close(command_output)
        os.close(command_status)
        self.args = request["command"]
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


class Forks:
    """A server, started with the first program, that ends with this process.

    Args:
        programs: name of each -> the function that it calls, as ``module:function``.
        imports: modules to import beforehand.
        environment: further variables of the server, such as a library reads as it is imported.
    """

    def __init__(self, programs: Mapping[str, str], imports: Sequence[str], **environment: str) -> None:
        self.programs = programs
        self._imports, self._environment = imports, environment
        self._server: socket.socket | None = None

    def start(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], session: bool = False
    ) -> Forked:
        """Start a program with arguments; with ``session``, in a process group of its own."""
        self._server = self._server or self._started()
        request = {"command": [str(word) for word in command], "folder": str(folder), "environment": environment}
        return Forked(self._server, request | {"calls": self.programs[command[0]], "session": session})

    def _started(self) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", str(its.fileno()), *self._imports],
            cwd=Path(__file__).resolve().parents[1], env=os.environ | self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, pass_fds=[its.fileno()],
        )  # fmt: skip
        its.close()
        atexit.register(server.wait)
        atexit.register(ours.close)
        return ours


def serve(requests: socket.socket) -> tuple[Mapping[str, Any], list[int]] | None:
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


def become(request: Mapping[str, Any], files: Sequence[int]) -> None:
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
    name, *arguments = request["command"]
    program = Path(sys.executable).with_name(name)
    sys.argv = [str(program), *arguments]
    sys.path[0] = str(program.parent)
    try:
        module, function = request["calls"].split(":")
        status = getattr(importlib.import_module(module), function)()
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
    """Import what is named after the socket, then serve."""
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()
    forked = serve(socket.socket(fileno=int(sys.argv[1])))
    if forked:
        become(*forked)


if __name__ == "__main__":
    main()
