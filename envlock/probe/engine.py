"""Container engines: which one answers on this host, and which programs are installed.

The engine is asked over its local socket, by hand: one HTTP/1.0 request needs no HTTP
library, whose import takes longer than the answer.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any, Callable, Dict, Sequence, Tuple

from envlock.facts import NOT_SUPPORTED, Observed, absent
from envlock.probe.host import Absent, Host, deferred, observe

_REQUEST = b"GET /version HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
_LIMIT = 1 << 20
_NO_SOCKET = "no engine listens on a local socket"
_ENGINE_FACTS = ("container.engine", "container.engine_version", "container.containerd", "container.runc")


def begin(host: Host) -> Callable[[], Dict[str, Observed]]:
    """Start asking for the engine's and the clients' facts; the function returned waits for them.

    Without threads: while the answers are made, the caller reads files.
    """
    clients = {"container.{}_client".format(name): _client(host, name) for name in ("docker", "podman")}
    engine = _engine(host)
    return lambda: {**{key: wait() for key, wait in clients.items()}, **engine()}


def _client(host: Host, name: str) -> Callable[[], Observed]:
    def start() -> Callable[[], str]:
        if host.program(name) is None:
            raise Absent(NOT_SUPPORTED, "`{}` is not installed".format(name))
        return host.output([name, "--version"])

    output = deferred(start)
    return lambda: observe("`{} --version`".format(name), lambda: client_version(name, output()))


def client_version(name: str, text: str) -> str:
    """Return the version in what `docker --version` or `podman --version` prints.

    `Absent` when the program of that name is another one: podman-docker is podman.
    """
    if not text.lower().startswith(name + " version "):
        raise Absent(NOT_SUPPORTED, "`{}` is another program, it prints: {}".format(name, text.strip()[:60]))
    match = re.search(r"version (\S+?),?(\s|$)", text)
    if match is None:
        raise ValueError(text.strip()[:80])
    return match.group(1)


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


def _engine(host: Host) -> Callable[[], Dict[str, Observed]]:
    def start(path: str) -> Callable[[], bytes]:
        if not host.exists(path):
            raise Absent(NOT_SUPPORTED, _NO_SOCKET)
        return host.ask(path, _REQUEST)

    asked = [(path, deferred(lambda path=path: start(path))) for path in sockets(host)]  # type: ignore[misc]
    return lambda: _first_answer(asked)


def _first_answer(asked: Sequence[Tuple[str, Callable[[], bytes]]]) -> Dict[str, Observed]:
    """Return the facts of the first engine that answers, else the first problem that is more than absence."""
    problem = absent(NOT_SUPPORTED, "local API socket", _NO_SOCKET)
    for path, receive in asked:
        answer: Dict[str, str] = {}

        def name(receive: Callable[[], bytes] = receive, answer: Dict[str, str] = answer) -> str:
            answer.update(parse_version(receive()))
            return answer["container.engine"]

        seen = observe(path, name)
        if seen.has_value:
            return {key: _part(path, answer.get(key)) for key in _ENGINE_FACTS}
        if problem.outcome == NOT_SUPPORTED:
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


def send(path: str, request: bytes, deadline: float) -> Callable[[], bytes]:
    """Send `request` to the socket at `path`; the function returned gives all it answers.

    Both raise `OSError`, the latter when the answer is not whole `deadline` seconds after it is called.
    """
    import socket

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(deadline)
        connection.connect(path)
        connection.sendall(request)
    except OSError:
        connection.close()
        raise

    def receive() -> bytes:
        end = time.monotonic() + deadline
        received = b""
        with connection:
            while len(received) < _LIMIT:
                connection.settimeout(max(end - time.monotonic(), 0.001))
                try:
                    chunk = connection.recv(65536)
                except socket.timeout:
                    raise OSError("no answer within {} s".format(deadline)) from None
                if not chunk:
                    return received
                received += chunk
        raise OSError("an endless answer")

    return receive
