"""The canary's container on a real engine: how it is confined, and every way it can end."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes import canary_agent

from envlock.errors import CouldNotTell, EngineError, EnvlockError, IntegrityError
from envlock.image import owner
from envlock.image.engine import Engine
from envlock.run.confinement import Limits
from envlock.run.container import run_canary

pytestmark = pytest.mark.engine

AGENT = canary_agent.packed()
ROOT = Path(__file__).resolve().parents[2]


def ask(
    engine: Engine,
    image: str,
    mode: str,
    *,
    deadline: float = 30.0,
    env: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    **more: Any,
) -> dict[str, Any]:
    return run_canary(engine, image, None, {"mode": mode, **more}, env or {}, deadline, limits=limits, agent=AGENT)


def own_containers(engine: Engine) -> list[str]:
    mine = f"p{os.getpid()}-"
    return [item["Id"] for item in engine.containers(owner.LABEL) if item["Labels"][owner.LABEL].startswith(mine)]


def test_the_report_comes_back_with_how_it_was_confined(engine: Engine, python_image: str) -> None:
    """No capability, no new privileges, the seccomp filter, a read-only root, no route: seen from inside."""
    report = ask(engine, python_image, "answer")

    assert report["schema"] == "envlock.test/1"
    assert report["argv"] == ["canary", "run"]
    assert report["container"]["confined"] == {
        "CapEff": "0000000000000000",
        "CapBnd": "0000000000000000",
        "NoNewPrivs": "1",
        "Seccomp": "2" if engine.info.seccomp else "0",
        "Uid": "1000",
        "Gid": "1000",
        "read-only-root": True,
        "routes": 0,
        "host-name": "envlock",
    }
    assert report["container"]["engine"] == engine.info.name
    assert report["container"]["exit-status"] == 0
    assert own_containers(engine) == []


def test_the_environment_is_the_images_and_the_extra_and_nothing_of_the_engines(
    engine: Engine, python_image: str
) -> None:
    """HOSTNAME and what else an engine adds is not seen; an extra variable wins over the image's."""
    report = ask(engine, python_image, "answer", env={"ENVLOCK_TEST": "tried", "A": "b=c"})

    assert report["env"] == {
        "A": "b=c",
        "ENVLOCK_TEST": "tried",
        "CUDA_CACHE_PATH": "/envlock-cache/nv",
        "HOME": "/tmp",
        "PATH": "/opt/venv/bin",
        "TMPDIR": "/tmp",
        "TORCHINDUCTOR_CACHE_DIR": "/envlock-cache/inductor",
        "TRITON_CACHE_DIR": "/envlock-cache/triton",
        "XDG_CACHE_HOME": "/envlock-cache",
    }


def test_only_temporary_places_can_be_written_and_only_the_cache_can_run_files(
    engine: Engine, python_image: str
) -> None:
    """The root is read-only, /tmp runs nothing, there is no network and no core file."""
    found = ask(engine, python_image, "look")

    assert found["/x"] == found["/opt/venv/x"] == "Read-only file system"
    assert found["/tmp/x"] == found["/envlock-cache/x"] == found["/dev/shm/x"] == "written"
    assert found["run /tmp"] in (127, "Permission denied")
    assert found["run /envlock-cache"] == 0
    assert found["core"] == [0, 0]
    assert found["connect"] == "Network is unreachable"


def test_a_run_can_be_bound_to_processors(engine: Engine, python_image: str) -> None:
    """The set of processors that was asked for is the one in force inside."""
    assert ask(engine, python_image, "look", limits=Limits(cpuset="0"))["cpus"] == [0]


def test_what_libraries_print_around_the_frame_does_no_harm(engine: Engine, python_image: str) -> None:
    """Bytes that are no text before and after the frame leave the report as it was."""
    assert ask(engine, python_image, "noise")["schema"] == "envlock.test/1"


def test_every_byte_value_arrives_as_it_was_sent(engine: Engine, python_image: str) -> None:
    """A report of a few megabytes is exact: nothing decodes the stream on its way (docker-py#2575)."""
    found = ask(engine, python_image, "binary", times=4000)

    assert found["bytes"] == list(range(256)) * 4000


@pytest.mark.parametrize(
    ("mode", "more", "error", "says"),
    [
        ("nothing", {}, CouldNotTell, "ended without an error and without a result (25 bytes of output"),
        ("status", {"status": 7}, CouldNotTell, "failed with exit status 7"),
        ("signal", {}, CouldNotTell, "was ended by signal 11"),
        ("cut-off", {}, CouldNotTell, "the result is cut off"),
        ("other-nonce", {}, IntegrityError, "another nonce"),
        ("two-frames", {}, IntegrityError, "more than one frame"),
        ("wrong-hash", {}, IntegrityError, "do not have the hash"),
        ("not-json", {}, IntegrityError, "the framed result is not JSON"),
        ("not-object", {}, IntegrityError, "the framed result is not a JSON object"),
    ],
)
def test_a_run_without_a_sound_result_says_what_happened(
    engine: Engine, python_image: str, mode: str, more: dict[str, Any], error: type[EnvlockError], says: str
) -> None:
    """Each way to fail has words of its own; a missing result is exit 3, a forged one exit 4."""
    with pytest.raises(error) as caught:
        ask(engine, python_image, mode, **more)

    assert says in str(caught.value)
    assert caught.value.exit_code == (3 if error is CouldNotTell else 4)
    assert own_containers(engine) == []


def test_what_the_container_said_last_is_in_the_hint(engine: Engine, python_image: str) -> None:
    """The last lines on standard error are shown, without the bootstrap's own."""
    with pytest.raises(CouldNotTell) as caught:
        ask(engine, python_image, "status", status=7)

    assert caught.value.hint == "it said:\n  could not import the library"


@pytest.mark.parametrize("mode", ["sleep", "answer-and-sleep", "close-and-sleep"])
def test_a_run_past_its_deadline_is_ended_and_removed(engine: Engine, python_image: str, mode: str) -> None:
    """The deadline is ours: 2 s, kept within 2 s more, whatever the container does with its streams."""
    begin = time.monotonic()
    with pytest.raises(CouldNotTell, match="did not finish within 2 s, and was ended"):
        ask(engine, python_image, mode, deadline=2.0)

    assert time.monotonic() - begin < 4.0
    assert own_containers(engine) == []


def test_a_run_that_is_out_of_memory_is_undecided(engine: Engine, python_image: str) -> None:
    """The kernel's kill is told from any other, with the limit."""
    with pytest.raises(CouldNotTell, match=r"ran out of memory \(limit 64 MiB\)"):
        ask(engine, python_image, "memory", bytes=256 << 20, limits=Limits(memory=64 << 20))


def test_a_flood_of_output_is_refused_in_bounded_memory(engine: Engine, python_image: str) -> None:
    """100 MiB without a line feed: no result, and not held in memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CouldNotTell, match="104857600 bytes of output, and no result in them"):
        ask(engine, python_image, "flood", mebibytes=100)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10
    assert ask(engine, python_image, "flood-and-answer", mebibytes=20)["schema"] == "envlock.test/1"


def test_an_image_that_is_not_there_is_an_error_with_a_hint(engine: Engine) -> None:
    """The hint names the command that makes it."""
    with pytest.raises(EngineError, match="the engine has no image `envlock-test-none:1`") as caught:
        ask(engine, "envlock-test-none:1", "answer")

    assert "envlock build" in str(caught.value.hint)


def test_an_image_without_the_interpreter_is_an_error(engine: Engine, python_image: str) -> None:
    """The engine's words come through (Podman says it at attach already), and no container stays behind."""
    with pytest.raises(
        EngineError, match=r"cannot (start|attach to) the container: the engine answered \d+: .*/no/python"
    ):
        run_canary(engine, python_image, None, {}, {}, 10.0, interpreter="/no/python", agent=AGENT)

    assert own_containers(engine) == []


def test_the_next_run_removes_what_a_killed_one_left(engine: Engine, python_image: str) -> None:
    """A client killed with SIGKILL leaves its container running; the next run removes it, and only it."""
    code = (
        "import os, sys; sys.path[:0] = ['tests']\n"
        "from fakes import canary_agent\n"
        "from envlock.image.engine import connect\n"
        "from envlock.run.container import run_canary\n"
        f"run_canary(connect(os.environ), {python_image!r}, None, {{'mode': 'sleep'}}, {{}}, 600.0,"
        " agent=canary_agent.packed())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    try:
        mark = f"p{process.pid}-"
        for _ in range(200):
            left = [c for c in engine.containers(owner.LABEL) if c["Labels"][owner.LABEL].startswith(mark)]
            if left and left[0]["State"] == "running":
                break
            time.sleep(0.05)
        assert [item["State"] for item in left] == ["running"]
        engine.reap()
        assert any(item["Labels"][owner.LABEL].startswith(mark) for item in engine.containers(owner.LABEL))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()

    ask(engine, python_image, "answer")

    assert not any(item["Labels"][owner.LABEL].startswith(mark) for item in engine.containers(owner.LABEL))
