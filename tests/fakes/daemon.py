"""A container engine that fails in chosen ways: a real HTTP server on a unix socket.

It answers `/version` and `/info` like Docker 20.10, 404 to everything else, and to what a
test sets with `on` whatever the test says. It holds no images and runs nothing.
"""

import contextlib
import json
import re
import shutil
import socketserver
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

VERSION = {
    "Version": "20.10.24",
    "ApiVersion": "1.41",
    "MinAPIVersion": "1.12",
    "Components": [{"Name": "Engine", "Version": "20.10.24"}],
}
INFO = {"Driver": "overlay2", "DriverStatus": [["Backing Filesystem", "extfs"]], "CgroupVersion": "2"}


class Request:
    """One request as it came, and the ways to answer it."""

    def __init__(self, handler: "_Handler", body: bytes) -> None:
        self.handler = handler
        self.method = handler.command
        parts = urlsplit(handler.path)
        self.path = re.sub(r"^/v\d+\.\d+", "", parts.path)
        self.query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        self.headers = dict(handler.headers.items())
        self.body = body

    def json(self, value: Any, status: int = 200) -> None:
        self.raw(json.dumps(value).encode(), status)

    def raw(self, data: bytes, status: int = 200) -> None:
        self.handler.send_response(status)
        self.handler.send_header("Content-Length", str(len(data)))
        self.handler.end_headers()
        self.handler.wfile.write(data)

    def begin_chunks(self) -> None:
        self.handler.send_response(200)
        self.handler.send_header("Transfer-Encoding", "chunked")
        self.handler.end_headers()

    def chunk(self, data: bytes) -> None:
        self.handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.handler.wfile.flush()

    def end_chunks(self) -> None:
        self.handler.wfile.write(b"0\r\n\r\n")

    def write(self, data: bytes) -> None:
        """Write bytes as they are: half a status line, a chunk that is cut off."""
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def cut(self) -> None:
        """Close the connection in the middle."""
        self.handler.close_connection = True

    def lines(self, *messages: dict[str, Any]) -> None:
        """Take the upload, if there is one, and answer with progress messages, one a line."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            read_upload(self)
        self.begin_chunks()
        for message in messages:
            self.chunk(json.dumps(message).encode() + b"\r\n")
        self.end_chunks()


Answer = Callable[[Request], object]


class FakeDaemon:
    """The server; use it as a context manager. `seen` holds the requests in order."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="envlock-fake-"))  # a socket's path is at most 107 bytes
        self.socket = self._folder / "docker.sock"
        self.url = f"unix://{self.socket}"
        self.environ = {"DOCKER_HOST": self.url}
        self.seen: list[Request] = []
        self.stopping = threading.Event()
        self._answers: list[tuple[str, re.Pattern[str], Answer]] = []
        self.on("GET", "/version", lambda request: request.json(VERSION))
        self.on("GET", "/info", lambda request: request.json(INFO))

    def on(self, method: str, path: str, answer: Answer) -> None:
        """Answer requests whose path matches `path` (a pattern, without the API version) with `answer`."""
        self._answers.insert(0, (method, re.compile(path), answer))

    def __enter__(self) -> "FakeDaemon":
        self._server = _Server(str(self.socket), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self._folder)

    def wait(self, seconds: float) -> bool:
        """Wait, but not past the end of the test; true when it is over."""
        return self.stopping.wait(seconds)

    def answer(self, request: Request) -> None:
        self.seen.append(request)
        for method, pattern, answer in self._answers:
            if method == request.method and pattern.fullmatch(request.path):
                answer(request)
                return
        request.json({"message": f"no such thing: {request.path}"}, 404)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    fake: FakeDaemon

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _handle(self) -> None:
        fake = cast("_Server", self.server).fake
        if fake.stopping.is_set():
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # An upload is read by the answer that wants it: one that does not is a fault too.
            wants_body = self.headers.get("Transfer-Encoding") != "chunked"
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) if wants_body else b""
            fake.answer(Request(self, body))

    do_GET = do_POST = do_DELETE = do_HEAD = _handle


def read_upload(request: Request) -> bytes:
    """Return the whole chunked upload of a request."""
    parts = []
    while size := int(request.handler.rfile.readline(), 16):
        parts.append(request.handler.rfile.read(size))
        request.handler.rfile.readline()
    request.handler.rfile.readline()
    return b"".join(parts)
