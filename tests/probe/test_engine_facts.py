"""Container engines and their programs, asked without starting anything slow."""

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_host import RecordedHost

from envlock.facts import FAILED, NO_PERMISSION, NOT_SUPPORTED, Observed, value
from envlock.probe import engine
from envlock.probe.host import Host

SOCKET = "/var/run/docker.sock"


def response(document: object, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n"
    return head.encode() + json.dumps(document).encode()


DOCKER = response(
    {
        "Version": "20.10.24",
        "Components": [
            {"Name": "Engine", "Version": "20.10.24"},
            {"Name": "containerd", "Version": "1.6.20"},
            {"Name": "runc", "Version": "1.1.5"},
        ],
    }
)
PODMAN = response(
    {
        "Version": "4.3.1",
        "Components": [
            {"Name": "Podman Engine", "Version": "4.3.1"},
            {"Name": "OCI Runtime (crun)", "Version": "crun version 1.8.1\ncommit: x"},
        ],
    }
)


def read(host: Host) -> dict[str, Observed]:
    return engine.begin(host)()


def test_docker_answers(tmp_path: Path) -> None:
    """The engine's answer gives its name, version and parts."""
    found = read(RecordedHost(tmp_path, {SOCKET: ""}, answers={SOCKET: DOCKER}))

    assert {key: seen.value for key, seen in found.items() if seen.has_value} == {
        "container.engine": "docker",
        "container.engine_version": "20.10.24",
        "container.containerd": "1.6.20",
        "container.runc": "1.1.5",
    }


def test_podman_answers(tmp_path: Path) -> None:
    """Podman's answer on its own socket is told from Docker's."""
    path = "/run/podman/podman.sock"
    found = read(RecordedHost(tmp_path, {path: ""}, answers={path: PODMAN}))

    assert found["container.engine"] == value("podman")
    assert found["container.runc"] == value("crun version 1.8.1")
    assert found["container.containerd"].outcome == NOT_SUPPORTED


def test_no_socket_is_no_engine(tmp_path: Path) -> None:
    """A host without a socket has no engine."""
    found = read(RecordedHost(tmp_path, {}))

    assert found["container.engine"].outcome == NOT_SUPPORTED
    assert found["container.engine"].detail == "no engine listens on a local socket"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (PermissionError(13, "Permission denied"), NO_PERMISSION),
        (ConnectionRefusedError(111, "Connection refused"), FAILED),
        (response({"Version": "1"}, "500 Internal Server Error"), FAILED),
        (response({}), FAILED),
        (response([]), FAILED),
        (b"HTTP/1.0 200 OK\r\n\r\nnot json", FAILED),
        (b"SSH-2.0-x", FAILED),
        (b"", FAILED),
    ],
)
def test_engine_that_does_not_answer_is_not_no_engine(tmp_path: Path, answer: bytes | OSError, outcome: str) -> None:
    """A socket that refuses, or answers nonsense, is an engine that could not be asked."""
    found = read(RecordedHost(tmp_path, {SOCKET: ""}, answers={SOCKET: answer}))

    assert {found[key].outcome for key in ("container.engine", "container.engine_version")} == {outcome}


def test_next_socket_is_asked_when_the_first_fails(tmp_path: Path) -> None:
    """One engine that is down does not hide another that is up."""
    path = "/run/podman/podman.sock"
    host = RecordedHost(
        tmp_path, {SOCKET: "", path: ""}, answers={SOCKET: ConnectionRefusedError(111, "refused"), path: PODMAN}
    )

    assert read(host)["container.engine"] == value("podman")


def test_users_own_socket_comes_first(tmp_path: Path) -> None:
    """DOCKER_HOST names the socket; an engine on another host is no fact of this one."""
    host = RecordedHost(tmp_path, {}, variables={"DOCKER_HOST": "unix:///a.sock", "XDG_RUNTIME_DIR": "/run/user/1"})
    remote = RecordedHost(tmp_path, {}, variables={"DOCKER_HOST": "tcp://other:2375"})

    assert engine.sockets(host) == (
        "/a.sock",
        SOCKET,
        "/run/podman/podman.sock",
        "/run/user/1/docker.sock",
        "/run/user/1/podman/podman.sock",
    )
    assert engine.sockets(remote) == (SOCKET, "/run/podman/podman.sock")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Docker version 28.2.2, build e6534b4\n", "28.2.2"),
        ("Docker version 20.10.24+dfsg1, build 297e128\n", "20.10.24+dfsg1"),
        ("podman version 4.3.1\n", "4.3.1"),
    ],
)
def test_version_of_the_client(text: str, version: str) -> None:
    """The client's version is the word after `version`, without the comma."""
    assert version == engine.client_version(text.split()[0].lower(), text)


def test_podman_under_the_name_of_docker_is_no_docker(tmp_path: Path) -> None:
    """A program that says it is podman is not a docker client."""
    host = RecordedHost(tmp_path, {}, outputs={"docker": "podman version 4.3.1\n"})

    assert read(host)["container.docker_client"].outcome == NOT_SUPPORTED


def test_client_that_fails_is_failed(tmp_path: Path) -> None:
    """A client that is there and does not say its version is a failure; one that is not there is none."""
    host = RecordedHost(tmp_path, {}, outputs={"docker": "error: `docker` gave no answer within 2 s"})
    found = read(host)

    assert found["container.docker_client"].outcome == FAILED
    assert found["container.docker_client"].detail == "`docker` gave no answer within 2 s"
    assert found["container.podman_client"].outcome == NOT_SUPPORTED


def serve(path: Path, answer: Callable[[socket.socket], None]) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(1)

    def run() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            answer(connection)

    threading.Thread(target=run, daemon=True).start()
    return server


def test_answer_in_pieces_is_whole(tmp_path: Path) -> None:
    """An answer that arrives in pieces is put together."""

    def answer(connection: socket.socket) -> None:
        for byte in DOCKER:
            connection.sendall(bytes([byte]))

    with serve(tmp_path / "s", answer):
        assert engine.send(str(tmp_path / "s"), b"x", 5)() == DOCKER


def test_engine_that_hangs_is_given_up(tmp_path: Path) -> None:
    """A socket that accepts and never answers costs the deadline and no more."""
    with serve(tmp_path / "s", lambda connection: time.sleep(3)):
        receive = engine.send(str(tmp_path / "s"), b"x", 0.2)
        began = time.monotonic()
        with pytest.raises(OSError, match=r"no answer within 0\.2 s"):
            receive()

    assert time.monotonic() - began < 1


def test_socket_without_engine_is_refused(tmp_path: Path) -> None:
    """A socket file that nobody listens on raises at once."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))

    with pytest.raises(ConnectionRefusedError):
        engine.send(str(tmp_path / "s"), b"x", 1)


@pytest.mark.engine
def test_real_engine_answers() -> None:
    """The engine that the tests run with is named with its version."""
    from envlock.probe import probe

    found = probe(only="container.").host

    assert found["container.engine"].has_value
    assert found["container.engine_version"].has_value
