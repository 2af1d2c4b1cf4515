"""An engine that fails in the middle: always an `EngineError` in words, always in time."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.daemon import FakeDaemon, Request, read_upload

from envlock.errors import EngineError, IntegrityError, StorageError
from envlock.image import engine as engines
from envlock.image.engine import Engine, connect

SLACK = 2.0  # seconds that an answer may be later than its deadline


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with FakeDaemon() as fake:
        yield fake


@pytest.fixture
def engine(daemon: FakeDaemon) -> Engine:
    return connect(daemon.environ)


def failure(call: Callable[[], object], within: float) -> str:
    """Return the error that `call` ends with, checked for its kind and for the time it took."""
    begin = time.monotonic()
    with pytest.raises(EngineError) as caught:
        call()
    assert time.monotonic() - begin < within + SLACK
    assert caught.value.exit_code == 3
    return str(caught.value)


def drain(chunks: Iterator[bytes]) -> int:
    return sum(len(chunk) for chunk in chunks)


def test_an_answer_of_500_is_told_in_the_engines_words(daemon: FakeDaemon, engine: Engine) -> None:
    """Every request of the engine says what it could not do, and what the engine said."""
    for method in ("GET", "POST", "DELETE"):
        daemon.on(method, "/(images|build|containers).*", lambda request: request.json({"message": "disk full"}, 500))
    calls: dict[str, Callable[[], object]] = {
        "cannot inspect image `a:1`": lambda: engine.inspect_image("a:1"),
        "cannot save image `a:1`": lambda: drain(engine.save("a:1")),
        "cannot load the image": lambda: engine.load(iter([b"x"])),
        "cannot tag image `a:1`": lambda: engine.tag("a:1", "b:1"),
        "cannot remove image `a:1`": lambda: engine.remove_image("a:1"),
        "cannot fetch image `a:1`": lambda: engine.pull("a:1", "linux/amd64"),
        "cannot list images": lambda: engine.images("a"),
        "cannot list containers": lambda: engine.containers("a"),
        "cannot create the container": lambda: engine.read_file("a:1", "/x"),
        "the build failed": lambda: engine.build(iter([b"x"]), "a:1"),
    }
    for says, call in calls.items():
        assert failure(call, 0.0) == f"{says}: the engine answered 500: disk full"


def test_an_engine_that_finds_its_own_layer_altered_is_an_integrity_fault(daemon: FakeDaemon, engine: Engine) -> None:
    """A file changed under the engine's feet is no engine that cannot answer: exit 4, as for any altered bytes."""
    says = 'file integrity checksum failed for "opt/venv/lib/a.py"'
    daemon.on("GET", "/images/.*/get", lambda request: request.json({"message": says}, 500))

    with pytest.raises(IntegrityError, match=r"cannot save image `a:1`.*checksum failed") as caught:
        drain(engine.save("a:1"))
    assert caught.value.exit_code == 4


def test_an_error_of_500_without_a_message_is_told_by_its_number(daemon: FakeDaemon, engine: Engine) -> None:
    """A body that is no JSON, or none at all, does no harm."""
    daemon.on("GET", "/images/.*", lambda request: request.raw(b"", 502))

    assert failure(lambda: engine.inspect_image("a:1"), 0.0) == "cannot inspect image `a:1`: the engine answered 502"


def test_a_connection_cut_in_the_middle_of_a_stream_is_an_error(daemon: FakeDaemon, engine: Engine) -> None:
    """A save that ends early never looks like a short archive."""

    def cut(request: Request) -> None:
        request.begin_chunks()
        request.chunk(b"a" * 1000)
        request.write(b"3e8\r\nhalf")
        request.cut()

    daemon.on("GET", "/images/.*/get", cut)
    daemon.on("POST", "/images/load", cut)

    assert "cannot save image `a:1`: the engine's answer broke off" in failure(lambda: drain(engine.save("a:1")), 0.0)
    assert "cannot load the image: " in failure(lambda: engine.load(iter([b"x"])), 0.0)


def test_an_engine_that_dies_while_it_reads_an_upload_is_an_error(daemon: FakeDaemon, engine: Engine) -> None:
    """The connection is cut while the context is being sent."""

    def die(request: Request) -> None:
        request.handler.rfile.read(100)
        request.cut()

    daemon.on("POST", "/build", die)
    context = (b"x" * (1 << 20) for _ in range(64))

    assert failure(lambda: engine.build(context, "a:1"), 0.0).startswith("the build failed: the engine")


def test_a_stream_that_never_ends_is_given_up_at_the_deadline(daemon: FakeDaemon, engine: Engine) -> None:
    """Each packet comes in time, the whole never does."""

    def forever(request: Request) -> None:
        request.begin_chunks()
        while not daemon.wait(0.05):
            request.chunk(b'{"stream":"still at it\\n"}\r\n')

    daemon.on("POST", "/build", forever)
    daemon.on("GET", "/images/.*/get", forever)
    log: list[str] = []

    says = failure(lambda: engine.build(iter([b"x"]), "a:1", log.append, deadline=1.0), 1.0)

    assert says == "the build failed: the engine did not finish within 1 s"
    assert len(log) > 5
    assert "did not finish within 1 s" in failure(lambda: drain(engine.save("a:1", deadline=1.0)), 1.0)


def test_an_answer_byte_by_byte_is_given_up_at_the_deadline(
    daemon: FakeDaemon, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read timeout per packet never strikes here; the deadline does, in headers and in the body."""

    def slow_headers(request: Request) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n":
            if daemon.wait(0.1):
                return
            request.write(bytes([byte]))

    def slow_body(request: Request) -> None:
        request.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not daemon.wait(0.1):
            request.write(b"1")

    monkeypatch.setattr(engines, "QUICK", 1.0)
    for behaviour in (slow_headers, slow_body):
        daemon.on("GET", "/images/.*/json", behaviour)
        assert "did not finish within 1 s" in failure(lambda: engine.inspect_image("a:1"), 1.0)


def test_an_engine_that_stops_reading_an_upload_is_given_up_at_the_deadline(daemon: FakeDaemon, engine: Engine) -> None:
    """The sending side blocks; the deadline still holds."""
    daemon.on("POST", "/images/load", lambda request: (request.handler.rfile.read(10), daemon.wait(60)))
    archive = (b"x" * (1 << 20) for _ in range(64))

    assert "did not finish within 1 s" in failure(lambda: engine.load(archive, deadline=1.0), 1.0)


def test_a_log_line_without_end_is_refused_in_bounded_memory(daemon: FakeDaemon, engine: Engine) -> None:
    """Memory does not grow with what an engine sends."""

    def flood(request: Request) -> None:
        request.begin_chunks()
        while not daemon.stopping.is_set():
            request.chunk(b"x" * (1 << 16))

    daemon.on("POST", "/build", flood)
    daemon.on("GET", "/images/.*/json", flood)

    assert "a line longer than" in failure(lambda: engine.build(iter([b"x"]), "a:1", deadline=20.0), 5.0)
    assert "answer is larger than" in failure(lambda: engine.inspect_image("a:1"), 10.0)


def test_a_huge_log_passes_line_by_line(daemon: FakeDaemon, engine: Engine) -> None:
    """Thirty megabytes of log are given on, not kept."""
    line = b'{"stream":"' + b"y" * 1000 + b'\\n"}\r\n'

    def chatter(request: Request) -> None:
        read_upload(request)
        request.begin_chunks()
        for _ in range(300):
            request.chunk(line * 100)
        request.end_chunks()

    daemon.on("POST", "/build", chatter)
    daemon.on("GET", "/images/.*/json", lambda request: request.json({"Id": "sha256:" + "a" * 64}))
    count = 0

    def counted(_: str) -> None:
        nonlocal count
        count += 1

    assert engine.build(iter([b"x"]), "a:1", counted) == "sha256:" + "a" * 64
    assert count == 30000


@pytest.mark.parametrize("ident", ["", None, 7, "sha256:short", "a" * 64, "sha256:" + "A" * 64])
def test_an_id_that_is_no_digest_is_refused(daemon: FakeDaemon, engine: Engine, ident: object) -> None:
    """What is not well formed never becomes an identity."""
    daemon.on("GET", "/images/.*/json", lambda request: request.json({"Id": ident}))

    assert "an Id that is no digest" in failure(lambda: engine.image_id("a:1"), 0.0)


def test_a_build_that_says_it_succeeded_and_left_no_image_is_an_error(daemon: FakeDaemon, engine: Engine) -> None:
    """Success is an image under the tag, not a line in the log."""

    def lie(request: Request) -> None:
        request.lines({"stream": "Successfully built 123456789012\n"})

    daemon.on("POST", "/build", lie)

    assert failure(lambda: engine.build(iter([b"x"]), "a:1"), 0.0) == "the engine has no image `a:1`"


@pytest.mark.parametrize(
    "message",
    [
        {"error": "no space left"},
        {"errorDetail": {"code": 1, "message": "no space left"}},
        {"error": "no space left\n"},
    ],
)
def test_an_error_inside_a_stream_is_found(daemon: FakeDaemon, engine: Engine, message: dict[str, object]) -> None:
    """The request answers 200 and the error is a line of its stream (docker-py#2171)."""

    def answer(request: Request) -> None:
        request.lines({"stream": "Step 1/1\n"}, message, {"stream": "after"})

    daemon.on("POST", "/(build|images/load)", answer)

    assert failure(lambda: engine.build(iter([b"x"]), "a:1"), 0.0) == "the build failed: no space left"
    assert failure(lambda: engine.load(iter([b"x"])), 0.0) == "cannot load the image: no space left"


@pytest.mark.parametrize("text", [b"<html>", b"[1]\n", b"\xff\xfe\n", b"{" * 100000 + b"\n"])
def test_a_stream_that_is_no_json_is_refused(daemon: FakeDaemon, engine: Engine, text: bytes) -> None:
    """A proxy's page, another type, broken text, endless nesting: no traceback for any."""

    def answer(request: Request) -> None:
        read_upload(request)
        request.raw(text)

    daemon.on("POST", "/images/load", answer)

    assert "cannot load the image: the engine sent something that is not" in failure(
        lambda: engine.load(iter([b"x"])), 0.0
    )


def test_what_breaks_in_the_callers_stream_is_not_blamed_on_the_engine(daemon: FakeDaemon, engine: Engine) -> None:
    """An unreadable file of the context stays an error of that file."""

    def context(error: Exception) -> Iterator[bytes]:
        yield b"x"
        raise error

    daemon.on("POST", "/build", read_upload)
    with pytest.raises(OSError, match="no such file"):
        engine.build(context(FileNotFoundError(2, "no such file")), "a:1", deadline=5.0)
    with pytest.raises(StorageError, match="cannot be read"):
        engine.build(context(StorageError("cannot be read")), "a:1", deadline=5.0)


def test_neither_proxies_nor_registry_credentials_go_into_a_build(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docker's configuration may hold both; docker-py would send them (docker-py#2199)."""
    (tmp_path / "config.json").write_text(
        '{"proxies":{"default":{"httpProxy":"http://user:hunter2@proxy:1"}},'
        '"auths":{"registry.example":{"auth":"dXNlcjpodW50ZXIy"}}}'
    )
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HTTP_PROXY", "http://user:hunter2@proxy:1")
    daemon.on("POST", "/build", lambda request: request.lines())
    daemon.on("GET", "/images/.*/json", lambda request: request.json({"Id": "sha256:" + "a" * 64}))

    connect(daemon.environ).build(iter([b"x"]), "a:1")

    (request,) = [request for request in daemon.seen if request.path == "/build"]
    everything = f"{request.query} {request.headers}"
    assert "hunter2" not in everything
    assert "dXNlcjpodW50ZXIy" not in everything
    assert "X-Registry-Config" not in request.headers
    assert request.query["networkmode"] == "none"


def test_a_silent_engine_is_given_up_quickly(
    daemon: FakeDaemon, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that accepts and never answers costs the short deadline of one candidate."""
    monkeypatch.setattr(engines, "CONNECT", 0.5)
    daemon.on("GET", "/version", lambda request: daemon.wait(30))

    why = failure(lambda: connect(daemon.environ), 0.5)

    # Two clocks run, one for each read and one for the whole request; either may ring first.
    assert "did not finish within 0.5 s" in why or "the engine did not answer in time" in why


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ({"ApiVersion": "1.40"}, "the engine is too old: API 1.40 (expected 1.41 or newer)"),
        ({"ApiVersion": "1.9"}, "the engine is too old: API 1.9 (expected 1.41 or newer)"),
        ({}, "this is no container engine"),
        ([], "this is no container engine"),
        ({"ApiVersion": "latest"}, "this is no container engine"),
    ],
)
def test_an_engine_that_cannot_be_used_says_why(daemon: FakeDaemon, version: object, says: str) -> None:
    """The API's version is compared as numbers; what is no engine is called so."""
    daemon.on("GET", "/version", lambda request: request.json(version))

    with pytest.raises(EngineError) as caught:
        connect(daemon.environ)

    assert says in str(caught.value)
    if "too old" in says:
        assert "Docker 20.10" in str(caught.value.hint)


def test_the_engine_is_known_by_its_first_component(daemon: FakeDaemon) -> None:
    """Podman answers with version numbers like Docker's, and is named by its component only."""
    daemon.on(
        "GET",
        "/version",
        lambda request: request.json(
            {"ApiVersion": "1.44", "Components": [{"Name": "Podman Engine", "Version": "5.4"}]}
        ),
    )
    driver = {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]], "SecurityOptions": ["name=seccomp"]}
    daemon.on("GET", "/info", lambda request: request.json(driver))

    info = connect(daemon.environ).info

    assert (info.name, info.version, info.api_version) == ("Podman Engine", "5.4", "1.44")
    assert info.containerd_store
    assert info.seccomp
    assert info.endpoint == "unix"
    assert daemon.seen[-1].handler.path.startswith("/v1.44/")


def test_an_engine_that_vanishes_after_it_was_found_is_an_error() -> None:
    """The socket is gone: in words, at once."""
    with FakeDaemon() as fake:
        engine = connect(fake.environ)

    assert failure(lambda: engine.inspect_image("a:1"), 0.0) == "cannot inspect image `a:1`: no such socket"


@pytest.mark.parametrize("silent", [False, True])
def test_no_thread_is_left_behind_when_a_stream_is_dropped(daemon: FakeDaemon, engine: Engine, silent: bool) -> None:
    """A reader that has seen enough closes the stream, and the request ends with it, also one that waits."""

    def forever(request: Request) -> None:
        request.begin_chunks()
        while not daemon.stopping.is_set():
            request.chunk(b"x" * (1 << 16))

    def once(request: Request) -> None:
        request.begin_chunks()
        request.chunk(b"x")
        daemon.wait(30)

    daemon.on("GET", "/images/.*/get", once if silent else forever)
    chunks = engine.save("a:1")
    assert next(chunks)
    chunks.close()

    for _ in range(40):
        if not any(thread.name == "envlock-engine" for thread in threading.enumerate()):
            break
        time.sleep(0.05)
    assert not any(thread.name == "envlock-engine" for thread in threading.enumerate())


def test_credentials_in_what_an_engine_says_are_hidden(daemon: FakeDaemon, engine: Engine) -> None:
    """An engine may quote the address of a proxy or a registry, password and all."""
    says = "Get https://user:hunter2@registry.example/v2/: no route"
    daemon.on("GET", "/images/.*/json", lambda request: request.json({"message": says}, 500))
    daemon.on("POST", "/images/load", lambda request: request.lines({"error": says}))

    for call in (lambda: engine.inspect_image("a:1"), lambda: engine.load(iter([b"x"]))):
        assert "https://***@registry.example/v2/: no route" in failure(call, 0.0)
