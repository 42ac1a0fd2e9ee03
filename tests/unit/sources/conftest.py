"""A web server on this machine that can truncate, reject and count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pytest

from pipeline_src.sources import https
from tests.servers import serve


@dataclass
class Web:
    """The server's files and the requests for them.

    Attributes:
        ends_after: path -> bytes sent before the connection is cut, one entry used up per request.
        statuses: path -> HTTP statuses answered first, one used up per request.
        ranges: whether ``Range`` is honoured.
        requests: (path, Range header).
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    ends_after: dict[str, list[int]] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    ranges: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    def url(self, path: str) -> str:
        return self.address + path


@pytest.fixture
def web() -> Iterator[Web]:
    state = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            range_header = self.headers.get("Range")
            state.requests.append((self.path, range_header))
            if state.statuses.get(self.path):
                return self.send_error(state.statuses[self.path].pop(0))
            content = state.files.get(self.path)
            if content is None:
                return self.send_error(404)
            start = int(re.match(r"bytes=(\d+)-", range_header)[1]) if range_header and state.ranges else 0
            if start and start >= len(content):
                return self.send_error(416)
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            body = content[start:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if state.ends_after.get(self.path):
                body = body[: state.ends_after[self.path].pop(0)]
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with serve(Handler) as server:
        state.address = f"http://127.0.0.1:{server.server_port}"
        yield state


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "MAX_WAIT", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
