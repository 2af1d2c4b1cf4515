"""Names of images, and a tag resolved against a real registry on loopback."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_fixtures import archive_of, chunks, tar_of

from envlock.digest import sha256
from envlock.errors import EngineError, UsageError
from envlock.image.engine import Engine
from envlock.image.registry import credentials, parse_reference

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("debian:12", ("", "debian", "12", None)),
        ("team/image:1.2_x", ("", "team/image", "1.2_x", None)),
        ("host.example/a/b:t", ("host.example", "a/b", "t", None)),
        ("localhost/a:t", ("localhost", "a", "t", None)),
        ("127.0.0.1:5000/a:t", ("127.0.0.1:5000", "a", "t", None)),
        ("[::1]:5000/a:t", ("[::1]:5000", "a", "t", None)),
        (f"a@{DIGEST}", ("", "a", None, DIGEST)),
        (f"h:1/a:t@{DIGEST}", ("h:1", "a", "t", DIGEST)),
        ("a", ("", "a", None, None)),
    ],
)
def test_a_name_is_taken_apart_as_engines_do(text: str, parts: tuple[str, str, str | None, str | None]) -> None:
    """What stands before the first slash is a registry only when it looks like a host."""
    found = parse_reference(text)

    assert (found.registry, found.repository, found.tag, found.digest) == parts
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    ["", ":t", "a:", "A:t", "a b:1", "a:t\nRUN x", "http://h/a:t", "a@sha256:0", "h:1/", "a//b:1", "-a:1", "a:$(id)"],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    """With what was expected."""
    with pytest.raises(UsageError, match="not the name of an image") as caught:
        parse_reference(text)

    assert caught.value.hint == "expected REPOSITORY:TAG or REPOSITORY@DIGEST"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an empty registry on loopback (Debian's docker-registry)."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (Debian: `apt-get install docker-registry`)")
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    process = subprocess.Popen([program, "serve", str(folder / "config.yml")], stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/v2/")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def wait_for(address: str) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=1):
            return
        time.sleep(0.05)
    pytest.fail("the registry did not come up")


def push(engine: Engine, name: str, content: bytes) -> bytes:
    """Load an image with one file, push it as `name`, forget it locally; return its layer."""
    layer = tar_of({"file": content})
    engine.load(chunks(archive_of([layer], name)))
    repository, _, tag = name.rpartition(":")
    try:
        for _ in engine.transport.messages(
            "cannot push",
            "POST",
            f"/images/{repository}/push",
            deadline=60.0,
            params={"tag": tag},
            headers={"X-Registry-Auth": "e30="},
        ):
            pass
    except EngineError as error:
        if "connection refused" in str(error):
            pytest.skip(f"the engine does not share this machine's loopback: {error}")
        raise
    finally:
        engine.remove_image(name)
    return layer


def served(registry: str, repository: str, tag: str) -> bytes:
    """The manifest's bytes as the registry serves them."""
    kinds = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
    request = urllib.request.Request(f"http://{registry}/v2/{repository}/manifests/{tag}", headers={"Accept": kinds})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


@pytest.mark.engine
def test_a_tag_is_resolved_to_what_the_registry_serves(engine: Engine, registry: str, native: str) -> None:
    """The digest is that of the manifest's bytes, config and layers come from our own hashing."""
    name = f"{registry}/team/base:12"
    layer = push(engine, name, b"first")

    found = engine.resolve(name, native)

    manifest = served(registry, "team/base", "12")
    assert found.digest == sha256(manifest)
    assert found.config == json.loads(manifest)["config"]["digest"]
    assert found.diff_ids == (sha256(layer),)
    assert (found.registry, found.repository, found.tag) == (registry, "team/base", "12")
    engine.remove_image(name)


@pytest.mark.engine
def test_a_digest_stays_when_its_tag_moves(engine: Engine, registry: str, native: str) -> None:
    """What was locked by digest is still fetched when the tag names something else."""
    name = f"{registry}/team/moving:1"
    push(engine, name, b"old")
    old = engine.resolve(name, native)
    engine.remove_image(name)
    push(engine, name, b"new")
    new = engine.resolve(name, native)
    engine.remove_image(name)

    again = engine.resolve(f"{registry}/team/moving@{old.digest}", native)

    assert new.digest != old.digest
    assert (again.digest, again.config, again.diff_ids) == (old.digest, old.config, old.diff_ids)
    engine.remove_image(f"{registry}/team/moving@{old.digest}")


@pytest.mark.engine
def test_an_image_for_another_platform_is_not_taken(engine: Engine, registry: str, native: str) -> None:
    """Whether the engine or we see it: an error, and the hint or the engine's words."""
    name = f"{registry}/team/other:1"
    push(engine, name, b"x")
    other = "linux/arm64" if native == "linux/amd64" else "linux/amd64"

    with pytest.raises(EngineError):
        engine.resolve(name, other)
    engine.remove_image(name)


@pytest.mark.engine
def test_a_tag_that_is_not_there_and_a_registry_that_is_not_there_are_errors(
    engine: Engine, registry: str, native: str
) -> None:
    """In the engine's words, exit 3."""
    for name in (f"{registry}/team/none:1", "127.0.0.1:1/team/none:1"):
        with pytest.raises(EngineError, match="cannot fetch image") as caught:
            engine.resolve(name, native)
        assert caught.value.exit_code == 3


def test_a_name_without_tag_and_digest_is_refused(engine_stub: Engine) -> None:
    """`latest` is nobody's wish."""
    with pytest.raises(UsageError, match="has neither a tag nor a digest"):
        engine_stub.resolve("debian", "linux/amd64")


@pytest.fixture
def engine_stub() -> Iterator[Engine]:
    from fakes.daemon import FakeDaemon

    from envlock.image.engine import connect

    with FakeDaemon() as daemon:
        yield connect(daemon.environ)


@pytest.fixture
def native(engine: Engine) -> str:
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    return f"linux/{names.get(engine.info.architecture, engine.info.architecture)}"


def test_credentials_go_only_to_the_registry_they_are_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docker's own configuration is asked for this one registry."""
    auths = {"one.example": {"auth": "dXNlcjpodW50ZXIy"}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    headers, trouble = credentials(parse_reference("one.example/a:1"))
    sent = json.loads(base64.urlsafe_b64decode(headers["X-Registry-Auth"]))

    assert (sent["username"], sent["password"], trouble) == ("user", "hunter2", None)
    assert credentials(parse_reference("two.example/a:1")) == ({}, None)


def test_a_credential_helper_that_fails_is_told_only_when_the_registry_refuses(
    engine_stub: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A public image needs none: the lack is a hint, not an error."""
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "not-there"}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    with pytest.raises(EngineError, match="cannot fetch image") as caught:
        engine_stub.pull("one.example/a:1", "linux/amd64")

    assert "no credentials were sent: " in str(caught.value.hint)
    assert "docker-credential-not-there" in str(caught.value.hint)
