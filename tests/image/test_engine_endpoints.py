"""Where an engine is looked for, and what a person reads when none answers."""

import hashlib
import json
from pathlib import Path

import pytest
from fakes.daemon import FakeDaemon

from envlock.errors import EngineError
from envlock.image.endpoints import Endpoint, candidates, redacted
from envlock.image.engine import connect


def write_context(folder: Path, name: str, document: object, current: str | None = None) -> dict[str, str]:
    meta = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(document if isinstance(document, str) else json.dumps(document))
    if current is not None:
        (folder / "config.json").write_text(json.dumps({"currentContext": current}))
    return {"DOCKER_CONFIG": str(folder)}


def test_without_a_name_dockers_and_podmans_sockets_are_tried_in_order() -> None:
    """Rootful before rootless, Docker before Podman."""
    found = [endpoint.url for endpoint in candidates({"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/none"})]

    assert found == [
        "unix:///var/run/docker.sock",
        "unix:///run/user/7/docker.sock",
        "unix:///run/podman/podman.sock",
        "unix:///run/user/7/podman/podman.sock",
    ]


def test_docker_host_is_the_only_candidate() -> None:
    """An engine that a person named is never replaced by another one."""
    assert candidates({"DOCKER_HOST": "tcp://10.0.0.1:2376"}) == (
        Endpoint(source="DOCKER_HOST", url="tcp://10.0.0.1:2376"),
    )


def test_docker_host_with_tls_names_the_certificates(tmp_path: Path) -> None:
    """DOCKER_TLS_VERIFY and DOCKER_CERT_PATH mean what they mean for docker; a missing file is none."""
    (tmp_path / "ca.pem").write_text("x")
    (found,) = candidates({"DOCKER_HOST": "tcp://a:1", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)})

    assert found.tls is not None
    assert (found.tls.ca, found.tls.cert, found.tls.verify) == (tmp_path / "ca.pem", None, True)


def test_the_current_context_is_read_from_dockers_own_files(tmp_path: Path) -> None:
    """config.json names it, contexts/meta holds its address, contexts/tls its certificates."""
    environ = write_context(tmp_path, "farm", {"Endpoints": {"docker": {"Host": "ssh://ci@build"}}}, current="farm")
    tls = tmp_path / "contexts" / "tls" / hashlib.sha256(b"farm").hexdigest() / "docker"
    tls.mkdir(parents=True)
    (tls / "ca.pem").write_text("x")

    (found,) = candidates(environ)

    assert (found.source, found.url, found.kind) == ("docker context `farm`", "ssh://ci@build", "ssh")
    assert found.tls is not None
    assert found.tls.verify


def test_a_context_leads_to_its_engine(tmp_path: Path) -> None:
    """DOCKER_CONTEXT is followed to the engine that answers there."""
    with FakeDaemon() as daemon:
        environ = write_context(tmp_path, "mine", {"Endpoints": {"docker": {"Host": daemon.url}}})

        assert connect({**environ, "DOCKER_CONTEXT": "mine"}).info.name == "Docker"


@pytest.mark.parametrize("name", ["default", ""])
def test_the_default_context_means_the_sockets(tmp_path: Path, name: str) -> None:
    """Its name in config.json changes nothing."""
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": name}))

    assert candidates({"DOCKER_CONFIG": str(tmp_path)})[0].url == "unix:///var/run/docker.sock"


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"DOCKER_HOST": "10.0.0.1"}, "DOCKER_HOST: not an address of an engine: '10.0.0.1'"),
        ({"DOCKER_HOST": "fd://"}, "DOCKER_HOST: not an address of an engine: 'fd://'"),
        ({"DOCKER_CONTEXT": "gone", "HOME": "/none"}, "DOCKER_CONTEXT `gone`: there is no such docker context"),
        ({"DOCKER_CONTEXT": "gone"}, "DOCKER_CONTEXT: names a docker context, but there is no home folder"),
    ],
)
def test_a_name_that_cannot_be_used_is_told_with_its_source(environ: dict[str, str], says: str) -> None:
    """The message begins with what named it."""
    with pytest.raises(EngineError) as caught:
        candidates(environ)

    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("document", ["{", "[]", '{"Endpoints": {}}', '{"Endpoints": {"docker": {"Host": 7}}}', "\x00"])
def test_a_broken_context_is_an_error_in_words(tmp_path: Path, document: str) -> None:
    """Whatever stands in docker's files, there is no traceback."""
    with pytest.raises(EngineError):
        candidates(write_context(tmp_path, "bad", document, current="bad"))


def test_when_nothing_answers_every_place_is_listed_with_its_reason(tmp_path: Path) -> None:
    """And the hint says what to install."""
    with pytest.raises(EngineError) as caught:
        connect({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})

    assert str(caught.value) == (
        f"no container engine answers; tried\n  DOCKER_HOST (unix://{tmp_path}/none.sock): no answer: no such socket"
    )
    assert "apt-get install docker.io" in str(caught.value.hint)


def test_a_tcp_engine_that_is_not_there_is_told_so() -> None:
    """Connection refused, in words; the password in the address is not shown."""
    with pytest.raises(EngineError) as caught:
        connect({"DOCKER_HOST": "tcp://user:hunter2@127.0.0.1:1"})

    assert "hunter2" not in str(caught.value)
    assert "connection refused" in str(caught.value) or "cannot be used" in str(caught.value)


def test_a_socket_that_may_not_be_used_is_told_so(tmp_path: Path) -> None:
    """A folder in the place of a socket: the system's own words."""
    with pytest.raises(EngineError) as caught:
        connect({"DOCKER_HOST": f"unix://{tmp_path}"})

    assert caught.value.exit_code == 3


def test_credentials_in_an_address_are_hidden() -> None:
    """Wherever an address is printed."""
    assert redacted("GET https://user:secret@host:1/x and tcp://a@b") == "GET https://***@host:1/x and tcp://***@b"
