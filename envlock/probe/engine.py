"""Container engines: which one answers on this host, and which programs are installed.

The engine is asked over its local socket, by hand: one HTTP/1.0 request needs no HTTP
library, whose import takes longer than the answer.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from typing import Any, Callable, Dict

from envlock.facts import FAILED, NOT_SUPPORTED, Observed, absent
from envlock.probe.host import Absent, Host, observe

_REQUEST = b"GET /version HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
_LIMIT = 1 << 20
_ENGINE_FACTS = ("container.engine", "container.engine_version", "container.containerd", "container.runc")


def read(host: Host) -> Dict[str, Observed]:
    """Return the engine's and the clients' facts; the three are asked at the same time."""
    found: Dict[str, Observed] = {}
    threads = [
        threading.Thread(target=_ask_one, args=(found, keys, question), daemon=True)
        for keys, question in (
            (_ENGINE_FACTS, lambda: _engine(host)),
            (("container.docker_client",), lambda: {"container.docker_client": _client(host, "docker")}),
            (("container.podman_client",), lambda: {"container.podman_client": _client(host, "podman")}),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _ask_one(found: Dict[str, Observed], keys: tuple[str, ...], question: Callable[[], Dict[str, Observed]]) -> None:
    try:
        found.update(question())
    except Exception as error:  # a thread's exception would vanish, and the facts with it
        found.update(dict.fromkeys(keys, absent(FAILED, "", "{}: {}".format(type(error).__name__, error))))


def _client(host: Host, name: str) -> Observed:
    def version() -> str:
        if host.program(name) is None:
            raise Absent(NOT_SUPPORTED, "`{}` is not installed".format(name))
        text = host.output([name, "--version"])
        match = re.search(r"version (\S+?),?(\s|$)", text)
        if match is None:
            raise ValueError(text.strip()[:80])
        return match.group(1)

    return observe("`{} --version`".format(name), version)


def sockets(host: Host) -> tuple[str, ...]:
    """Return the local sockets an engine may listen on, the user's own choice first.

    An engine on another host (`DOCKER_HOST=tcp:…`, `ssh:…`) is no fact of this one.
    """
    chosen = host.variable("DOCKER_HOST") or ""
    paths = [chosen[len("unix://") :]] if chosen.startswith("unix://") else []
    paths += ["/var/run/docker.sock", "/run/podman/podman.sock"]
    folder = host.variable("XDG_RUNTIME_DIR")
    if folder:
        paths += [folder + "/docker.sock", folder + "/podman/podman.sock"]
    return tuple(paths)


def _engine(host: Host) -> Dict[str, Observed]:
    problem = absent(NOT_SUPPORTED, "local API socket", "no engine listens on a local socket")
    for path in sockets(host):
        answer: Dict[str, str] = {}

        def ask(path: str = path, answer: Dict[str, str] = answer) -> str:
            if not host.exists(path):
                raise Absent(NOT_SUPPORTED, "no engine listens on a local socket")
            answer.update(parse_version(host.ask(path, _REQUEST)))
            return answer["container.engine"]

        seen = observe(path, ask)
        if seen.has_value:
            return {key: _part(path, answer.get(key)) for key in _ENGINE_FACTS}
        if seen.outcome != NOT_SUPPORTED and problem.outcome == NOT_SUPPORTED:
            problem = seen
    return dict.fromkeys(_ENGINE_FACTS, problem)


def _part(path: str, text: str | None) -> Observed:
    if not text:
        return absent(NOT_SUPPORTED, path, "the engine does not name it")
    return observe(path, lambda: text)


def parse_version(response: bytes) -> Dict[str, str]:
    """Return the facts in an engine's HTTP answer to `GET /version`; `ValueError` when it is not one."""
    head, blank, body = response.partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0].decode("latin-1")
    if not blank or not re.match(r"HTTP/1\.[01] 200\b", status):
        raise ValueError("answered {!r}".format(status[:80]))
    document: Any = json.loads(body.decode("utf-8", "backslashreplace"))
    if not isinstance(document, dict) or not isinstance(document.get("Version"), str):
        raise ValueError("an answer without `Version`")
    found = {"container.engine": "docker", "container.engine_version": document["Version"]}
    for part in document.get("Components") or ():
        name, version = str(part.get("Name", "")), str(part.get("Version", "")).partition("\n")[0]
        if name.lower().startswith("podman"):
            found["container.engine"] = "podman"
        elif name == "containerd":
            found["container.containerd"] = version
        elif name in ("runc", "crun") or name.startswith("OCI Runtime"):
            found["container.runc"] = version
    return found


def exchange(path: str, request: bytes, deadline: float) -> bytes:
    """Send `request` to the socket at `path` and return all it answers; `OSError` past `deadline` seconds."""
    end = time.monotonic() + deadline
    received = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(deadline)
        connection.connect(path)
        connection.sendall(request)
        while len(received) < _LIMIT:
            left = end - time.monotonic()
            if left <= 0:
                raise OSError("no answer within {} s".format(deadline))
            connection.settimeout(left)
            try:
                chunk = connection.recv(65536)
            except socket.timeout:
                raise OSError("no answer within {} s".format(deadline)) from None
            if not chunk:
                return received
            received += chunk
    raise OSError("an endless answer")
