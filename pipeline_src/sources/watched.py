"""Connections that are ended where too little comes over them, or the time is up, also in the middle of a read.

A timeout of a socket counts from byte to byte: a server that sends one at a time can stretch a header, or the length of
a chunk, without end.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
import urllib.request
from contextlib import suppress
from types import TracebackType
from typing import Any


class Watch:
    """Watches one connection while it is entered; a thread of its own looks at it.

    Args:
        window, least: seconds in which so many bytes must come.
        ends: when all is to be over, by ``time.monotonic``.

    Attributes:
        come: bytes so far, counted by whom reads.
        too_slow: what was amiss, once the connection was ended for too few bytes.
    """

    def __init__(self, window: float, least: int, ends: float) -> None:
        self.window, self.least, self.ends = window, least, ends
        self.come = 0
        self.too_slow = ""
        self._socket: socket.socket | None = None
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.ends

    @property
    def ended(self) -> bool:
        """Whether the connection was ended, so that what was read last may be cut short."""
        return bool(self.too_slow)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def handlers(self) -> list[urllib.request.BaseHandler]:
        """For ``urllib.request.build_opener``: they open connections that this watches."""
        return [_handler(kind, self) for kind in (urllib.request.HTTPHandler, urllib.request.HTTPSHandler)]

    def follow(self, connected: socket.socket) -> None:
        """Watch this connection."""
        with self._lock:
            self._socket = connected
            if self.ended:
                self._end()

    def _look(self) -> None:
        seen = 0
        while not self._over.wait(max(0.0, min(self.window, self.ends - time.monotonic()))):
            if not self.late and self.come >= seen + self.least:
                seen = self.come
                continue
            with self._lock:
                self.too_slow = f"{self.come - seen:,} bytes in {self.window:g} s"
                self._end()
            return

    def _end(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _handler(kind: Any, watch: Watch) -> urllib.request.BaseHandler:
    class Handler(kind):  # type: ignore[misc]
        def do_open(self, connection: Any, request: Any, **options: Any) -> Any:
            return super().do_open(_watched(connection, watch), request, **options)

    handler: urllib.request.BaseHandler = Handler()
    return handler


def _watched(kind: Any, watch: Watch) -> type[http.client.HTTPConnection]:
    class Connection(kind):  # type: ignore[misc]
        def connect(self) -> None:
            super().connect()
            watch.follow(self.sock)

    return Connection
