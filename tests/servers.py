"""Servers on this machine: one that sends given bytes as its reply, and one with the addresses of a hub."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest


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


TREE = re.compile(r"/api/(?P<kind>datasets|models)/(?P<repo>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)/?(?P<path>.*)")
INFO = re.compile(r"/api/(?P<kind>datasets|models)/(?P<repo>[^/]+/[^/]+)/revision/(?P<revision>[^/]+)")
FILE = re.compile(r"/(?P<kind>datasets/)?(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass
class Hub:
    """The server's repositories and the requests for their files.

    Attributes:
        files: (repository, revision) -> path -> content; of datasets ``datasets/OWNER/NAME``.
        token: what the header ``Authorization`` must hold; empty for anyone.
        small: suffixes of files that are kept in git, for which the hub has no sha256.
        ends_after: path -> bytes sent before the connection is cut, one entry used up per request.
        served: (path, first byte, bytes sent) of each request for a file.
    """

    files: Mapping[tuple[str, str], dict[str, bytes]]
    address: str = ""
    token: str = ""
    small: tuple[str, ...] = (".json", ".txt", ".md")
    ends_after: dict[str, list[int]] = field(default_factory=dict)
    served: list[tuple[str, int, int]] = field(default_factory=list)

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make huggingface_hub, which reads the environment when it is imported, use this server without a token."""
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "ENDPOINT", self.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", "no-token")
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{self.address}/{TEMPLATE}")
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)


TEMPLATE = "{repo_id}/resolve/{revision}/{filename}"


def commit_of(content: Mapping[str, bytes]) -> str:
    """Return the commit of a revision that has these files."""
    return hashlib.sha1(repr([(path, hash(content[path])) for path in sorted(content)]).encode()).hexdigest()


@contextmanager
def serving_hub(files: Mapping[tuple[str, str], dict[str, bytes]], **settings: object) -> Iterator[Hub]:
    """Yield a hub with ``files``; it serves changes of them, too."""
    hub = Hub(files, **settings)  # type: ignore[arg-type]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            match = TREE.fullmatch(path) or INFO.fullmatch(path) or FILE.fullmatch(path)
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                return self.refuse(401, "GatedRepo")
            if match is None:
                return self.refuse(404, "")
            prefix = "datasets/" if (match["kind"] or "").startswith("datasets") else ""
            repo = prefix + match["repo"]
            if repo not in {name for name, _ in hub.files}:
                return self.refuse(401, "RepoNotFound")
            revisions = {revision: files for (name, revision), files in hub.files.items() if name == repo}
            content = (revisions | {commit_of(files): files for files in revisions.values()}).get(match["revision"])
            if content is None:
                return self.refuse(404, "RevisionNotFound")
            if match.re is INFO:
                return self.send_json({"id": match["repo"], "sha": commit_of(content), "siblings": []})
            if path.startswith("/api/"):
                return self.list_tree(content, match["path"], "recursive=true" in self.path.lower())
            if match["path"] not in content:
                return self.refuse(404, "EntryNotFound")
            self.send_file(match["path"], content[match["path"]])

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def list_tree(self, content: dict[str, bytes], folder: str, recursive: bool) -> None:
            start = f"{folder}/" if folder else ""
            inside = {path: data for path, data in content.items() if path.startswith(start)}
            if folder and not inside:
                return self.refuse(404, "EntryNotFound")
            listed = []
            for path, data in inside.items():
                if "/" in path[len(start) :] and not recursive:
                    continue
                item = {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                if not path.endswith(hub.small):
                    item["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
                listed.append(item)
            folders = {start + path[len(start) :].partition("/")[0] for path in inside if "/" in path[len(start) :]}
            listed += [{"type": "directory", "path": path, "oid": "0" * 40} for path in sorted(folders)]
            self.send_json(listed)

        def send_json(self, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def send_file(self, path: str, data: bytes) -> None:
            match = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(match[1]) if match else 0
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - start))
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("X-Linked-Size", str(len(data)))
            self.end_headers()
            body = memoryview(data)[start:]
            if hub.ends_after.get(path):
                body = body[: hub.ends_after[path].pop(0)]
            self.wfile.write(body)
            hub.served.append((path, start, len(body)))

        def log_message(self, *_: object) -> None:
            pass

    with serve(Handler) as server:
        hub.address = f"http://127.0.0.1:{server.server_port}"
        yield hub


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    """Context manager that yields a server on a free port of this machine, which answers by ``handler``."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
