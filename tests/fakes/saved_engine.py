"""A container engine that holds images and can do nothing but save them.

It speaks the part of Docker's HTTP API that `check --image` needs, over a real Unix
socket: the version, the information, and an image's archive. The archive is whatever
the test gives, so that it can lie as a damaged engine would.
"""

import contextlib
import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    archives: dict[str, bytes]
    cut: int


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        path = unquote(self.path)
        if path.endswith("/version"):
            self._json(200, {"ApiVersion": "1.41", "Version": "20.10.0", "Os": "linux", "Arch": "amd64"})
        elif path.endswith("/info"):
            self._json(200, {"Driver": "overlay2", "CgroupVersion": "2"})
        elif path.endswith("/json") and path.split("/images/", 1)[-1].removesuffix("/json") in self.server.archives:
            self._json(200, {"Id": "sha256:" + "0" * 64})  # a claim, which nobody should believe
        elif path.endswith("/get"):
            self._save(path.split("/images/", 1)[1].removesuffix("/get"))
        else:
            self._json(404, {"message": f"no such path: {path}"})

    def _save(self, reference: str) -> None:
        archive = self.server.archives.get(reference)
        if archive is None:
            self._json(404, {"message": f"No such image: {reference}"})
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/x-tar")
        self.send_header("Content-Length", str(len(archive)))
        self.end_headers()
        self.wfile.write(archive[: len(archive) - self.server.cut])
        self.close_connection = True

    def _json(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def saved_engine(folder: Path, archives: dict[str, bytes], cut: int = 0) -> Iterator[str]:
    """Serve `archives` (by image reference) and give the DOCKER_HOST of it.

    With `cut` the engine dies that many bytes before the end of an archive.
    """
    path = folder / "engine.sock"
    with _Server(str(path), _Handler) as server:
        server.archives = archives
        server.cut = cut
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown()
            thread.join()
            path.unlink()
