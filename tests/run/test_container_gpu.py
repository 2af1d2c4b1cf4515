"""GPUs in the canary's container: what the engine is asked for, and what its refusal becomes."""

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import canary_agent
from fakes.daemon import INFO, VERSION, FakeDaemon, Request

from envlock.errors import EngineError, UsageError
from envlock.image.engine import Engine, connect
from envlock.run import job
from envlock.run.confinement import Limits
from envlock.run.container import run_canary

AGENT = canary_agent.packed()
PODMAN = {**VERSION, "Components": [{"Name": "Podman Engine", "Version": "5.4.0"}]}


def refusing(daemon: FakeDaemon, said: str) -> None:
    """Let the daemon create every container and start none."""
    daemon.on("GET", "/images/a:1/json", lambda request: request.json({"Id": "sha256:" + "c" * 64}))
    daemon.on("POST", "/containers/create", lambda request: request.json({"Id": "abc"}, 201))
    daemon.on("POST", "/containers/abc/attach", attached)
    daemon.on("POST", "/containers/abc/start", lambda request: request.json({"message": said}, 500))
    daemon.on("DELETE", "/containers/abc", lambda request: request.raw(b"", 204))
    daemon.on("GET", "/containers/json", lambda request: request.json([]))
    daemon.on("GET", "/images/json", lambda request: request.json([]))


def attached(request: Request) -> None:
    request.write(
        b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
        b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    )
    request.handler.close_connection = True


def created(daemon: FakeDaemon) -> dict[str, Any]:
    (body,) = [json.loads(request.body) for request in daemon.seen if request.path == "/containers/create"]
    found: dict[str, Any] = body["HostConfig"]
    return found


@pytest.mark.parametrize(
    "said",
    [
        'could not select device driver "nvidia" with capabilities: [[compute gpu utility]]',
        "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
        "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
    ],
)
def test_an_engine_that_cannot_give_gpus_is_told_with_what_to_install(said: str) -> None:
    """Unknown (exit 3) in the engine's own words, with the way out; the container is removed."""
    with FakeDaemon() as daemon:
        refusing(daemon, said)
        with pytest.raises(EngineError) as raised:
            run_canary(connect(daemon.environ), "a:1", None, {}, {}, 5.0, limits=Limits(gpus="all"), agent=AGENT)

        assert raised.value.exit_code == 3
        assert said in raised.value.message
        assert "nvidia-container-toolkit" in str(raised.value.hint)
        assert created(daemon)["DeviceRequests"][0]["Driver"] == "nvidia"
        assert created(daemon)["CapDrop"] == ["ALL"]
        assert [request.method for request in daemon.seen if request.path == "/containers/abc"] == ["DELETE"]


def test_without_gpus_the_refusal_says_nothing_of_a_toolkit() -> None:
    """A hint that does not belong there would send people the wrong way."""
    with FakeDaemon() as daemon:
        refusing(daemon, "nvidia-container-cli: something else")
        with pytest.raises(EngineError) as raised:
            run_canary(connect(daemon.environ), "a:1", None, {}, {}, 5.0, agent=AGENT)

        assert raised.value.hint is None
        assert created(daemon)["DeviceRequests"] == []


@pytest.mark.parametrize(
    ("version", "info", "cdi"),
    [
        (VERSION, INFO, False),
        (PODMAN, INFO, True),
        (VERSION, {**INFO, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}]}, True),
        (VERSION, {**INFO, "CDISpecDirs": ["/etc/cdi"], "DiscoveredDevices": []}, False),
    ],
)
def test_cdi_is_used_where_the_engine_works_with_it(version: Any, info: Any, cdi: bool) -> None:
    """Folders for CDI are no devices in them."""
    with FakeDaemon() as daemon:
        daemon.on("GET", "/version", lambda request: request.json(version))
        daemon.on("GET", "/info", lambda request: request.json(info))

        assert connect(daemon.environ).info.cdi_gpus is cdi


@pytest.mark.engine
def test_a_real_engine_without_a_gpu_refuses_in_words_that_are_understood(engine: Engine, python_image: str) -> None:
    """Docker refuses at the start; Podman may start it without one, and then the canary itself sees none."""
    if engine.info.name != "Docker":
        pytest.skip("Podman ignores what it cannot give")
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    with pytest.raises(EngineError, match="could not select device driver") as raised:
        run_canary(engine, python_image, None, {"mode": "answer"}, {}, 30.0, limits=Limits(gpus="all"), agent=AGENT)

    assert "nvidia-container-toolkit" in str(raised.value.hint)


@pytest.mark.parametrize("given", ["0", "15", "GPU-95309e33-ce3b-7738-2389-7e7d3d014973", "MIG-GPU-1f/1/0", None])
def test_a_gpu_is_named_by_index_or_uuid(given: str | None) -> None:
    """As CUDA_VISIBLE_DEVICES and both ways of an engine take it."""
    assert job.device(given) == given


@pytest.mark.parametrize("given", ["", "-1", "all", "0,1", "GPU-", "H100", "0\n"])
def test_anything_else_is_no_gpu(given: str) -> None:
    """Exit 2, before anything runs."""
    with pytest.raises(UsageError, match="not a GPU"):
        job.device(given)
