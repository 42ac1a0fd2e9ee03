"""A server on this machine that sends given bytes as its reply, whatever is asked."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def replying(replies: Sequence[bytes], pause: float = 0.0) -> Iterator[str]:
    """Yield an address that answers each connection with the next of ``replies``, the last one again and again.

    With a ``pause``, in seconds, they come byte by byte.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        waiting = list(replies)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.settimeout(5)
                        connection.recv(65536)
                        data = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                        step = 1 if pause else max(1, len(data))
                        for start in range(0, len(data), step):
                            connection.sendall(data[start : start + step])
                            time.sleep(pause)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/a"
        finally:  # a server that is only closed leaves its thread waiting for ever
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def reply(status: str = "200 OK", body: bytes = b"", **headers: str) -> bytes:
    """A reply of HTTP; ``Content_Length`` and the like as keywords."""
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1", "replace") + body
