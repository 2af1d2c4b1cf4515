"""What confinement is asked for, and that one which is not in force is seen."""

import dataclasses
import json
from typing import Any

import pytest

from envlock.errors import CouldNotTell
from envlock.image.engine import EngineInfo
from envlock.run.confinement import Limits, config, not_in_force, seen_inside

INFO = EngineInfo(
    name="Docker",
    version="26",
    api_version="1.45",
    endpoint="unix",
    storage_driver="overlay2",
    containerd_store=False,
    cgroup_version="2",
    architecture="x86_64",
    seccomp=True,
)
SEEN: dict[str, Any] = {
    "CapEff": "0000000000000000",
    "CapBnd": "0000000000000000",
    "NoNewPrivs": "1",
    "Seccomp": "2",
    "Uid": "1000",
    "Gid": "1000",
    "read-only-root": True,
    "routes": 0,
    "host-name": "envlock",
}


def test_the_container_is_asked_for_as_the_design_says() -> None:
    """Each line of the confinement, so that none is lost in passing."""
    asked = config(INFO, "a:1", "/python", None, {"B": "2", "A": "1=1"}, Limits(memory=1 << 30, cpuset="0-1"))
    host = asked["HostConfig"]

    assert asked["User"] == "1000:1000"
    assert asked["Hostname"] == "envlock"
    assert asked["Env"] == ["A=1=1", "B=2"]
    assert not asked["Tty"]
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["Memory"] == host["MemorySwap"] == 1 << 30
    assert host["IpcMode"] == "private"
    assert host["LogConfig"] == {"Type": "none"}
    assert host["Ulimits"] == [{"Name": "core", "Soft": 0, "Hard": 0}]
    assert host["CpusetCpus"] == "0-1"
    assert all("nosuid,nodev" in options for options in host["Tmpfs"].values())
    assert "noexec" in host["Tmpfs"]["/tmp"]
    assert "Binds" not in host
    assert "Mounts" not in host


def test_podman_is_not_asked_for_the_owner_of_a_tmpfs() -> None:
    """It refuses the option."""
    podman = EngineInfo(**{**{name: getattr(INFO, name) for name in INFO.__slots__}, "name": "Podman Engine"})

    assert "uid=" in config(INFO, "a:1", "/python", None, {}, Limits())["HostConfig"]["Tmpfs"]["/tmp"]
    assert "uid=" not in config(podman, "a:1", "/python", None, {}, Limits())["HostConfig"]["Tmpfs"]["/tmp"]


def test_a_confinement_in_force_is_found_so() -> None:
    """Nothing to complain of; without seccomp on the host, none is expected."""
    assert not_in_force(SEEN, True) == []
    assert not_in_force({**SEEN, "Seccomp": "0"}, False) == []


@pytest.mark.parametrize("key", sorted(SEEN))
def test_whatever_is_not_in_force_is_named(key: str) -> None:
    """Another value and none at all: neither is silence."""
    other = {**SEEN, key: "something else"}
    none = {name: value for name, value in SEEN.items() if name != key}

    assert not_in_force(other, True) == [f"{key} is something else (expected {SEEN[key]})"]
    assert not_in_force(none, True) == [f"{key} is None (expected {SEEN[key]})"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"envlock-container other {}\n",
        b"envlock-container nonce {\n",
        b"envlock-container nonce []\n",
        b"noise\nenvlock-container nonce {}\n",
    ],
)
def test_a_container_that_does_not_say_how_it_is_confined_is_not_believed(text: bytes) -> None:
    """Its report may be right, but what it ran in is not known."""
    with pytest.raises(CouldNotTell, match="did not say how it is confined"):
        seen_inside(text, "nonce")


def test_what_the_container_says_is_read() -> None:
    """The first line on standard error, with the nonce of this run."""
    text = f"envlock-container nonce {json.dumps(SEEN)}\nmore\n".encode()

    assert seen_inside(text, "nonce") == SEEN


def test_no_gpu_goes_in_unless_asked_for() -> None:
    """A canary on the CPU cannot touch a GPU."""
    assert config(INFO, "a:1", "/python", None, {}, Limits())["HostConfig"]["DeviceRequests"] == []


@pytest.mark.parametrize(
    ("cdi", "gpus", "expected"),
    [
        (False, "all", {"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu", "compute", "utility"]]}),
        (False, "0", {"Driver": "nvidia", "DeviceIDs": ["0"], "Capabilities": [["gpu", "compute", "utility"]]}),
        (True, "all", {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}),
        (True, "GPU-1f", {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=GPU-1f"]}),
    ],
)
def test_gpus_are_asked_for_in_the_engines_own_way_and_nothing_else_is_loosened(
    cdi: bool, gpus: str, expected: dict[str, Any]
) -> None:
    """Count and names exclude each other; the confinement of a run with a GPU is that of one without."""
    info = dataclasses.replace(INFO, cdi_gpus=cdi)
    asked, without = (config(info, "a:1", "/python", None, {}, limits) for limits in (Limits(gpus=gpus), Limits()))

    assert asked["HostConfig"].pop("DeviceRequests") == [expected]
    del without["HostConfig"]["DeviceRequests"]
    assert asked == without
    assert not asked["HostConfig"].get("Privileged")
