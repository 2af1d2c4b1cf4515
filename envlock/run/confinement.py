"""How the canary's container is confined, and whether that is in force.

The confinement is asked for in the engine API's own form, and then looked at from inside:
an engine may accept what it does not apply.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envlock.errors import CouldNotTell
from envlock.image.engine import EngineInfo
from envlock.lockfile import Lockfile

INTERPRETER = "/opt/venv/bin/python"
CACHE = "/envlock-cache"
USER = "1000:1000"
HOST_NAME = "envlock"

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the container may use; sizes in bytes, `cpuset` as the kernel writes it (`0-3,8`).

    `gpus` is `all`, or the index or UUID of one NVIDIA GPU; None: the container gets none.
    """

    memory: int = 8 << 30
    processes: int = 1024
    shared_memory: int = 256 * _MIB
    temporary: int = 64 * _MIB
    cache: int = 1 << 30
    cpuset: str | None = None
    gpus: str | None = None


# Caches of compiled kernels need a place whose files may be executed; everything else
# that a library writes goes to the small /tmp. An image may say otherwise.
PLACES = {
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "XDG_CACHE_HOME": CACHE,
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/inductor",
    "TRITON_CACHE_DIR": f"{CACHE}/triton",
    "CUDA_CACHE_PATH": f"{CACHE}/nv",
}

# Runs with -I -S: no line of a .pth file comes before it. It says first what the kernel
# lets it do, then becomes the agent with exactly the environment that it was sent, so
# that what an engine adds (HOSTNAME, Podman's `container`) is not seen.
BOOTSTRAP = """
import json, os, struct, sys
def take():
    parts, left = [], 8
    for step in (0, 1):
        while left:
            part = os.read(0, min(left, 1 << 20))
            if not part:
                sys.exit("envlock: standard input ended early")
            parts.append(part)
            left -= len(part)
        if not step:
            left, parts = struct.unpack(">Q", b"".join(parts))[0], []
    return b"".join(parts)
head = json.loads(take())
status = dict(line.rstrip().split(":", 1) for line in open("/proc/self/status") if ":" in line)
seen = {key: status.get(key, "").split()[:1] for key in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Uid", "Gid")}
seen = {key: value[0] if value else "" for key, value in seen.items()}
seen["read-only-root"] = bool(os.statvfs("/").f_flag & os.ST_RDONLY)
seen["routes"] = len(open("/proc/net/route").readlines()) - 1
seen["host-name"] = os.uname().nodename
os.write(2, ("envlock-container " + head["nonce"] + " " + json.dumps(seen) + "\\n").encode())
for name in ("agent", "request"):
    with open("/tmp/envlock-" + name, "wb") as stream:
        stream.write(take())
request = os.open("/tmp/envlock-request", os.O_RDONLY)
os.dup2(request, 0)
os.close(request)
argv = [sys.executable, "-I", "-B", "/tmp/envlock-agent"] + head["argv"]
os.execve(sys.executable, argv, head["environment"])
"""


def _owned(info: EngineInfo) -> str:
    """Return the mount options that let our user write, and nobody gain rights, in a tmpfs.

    runc gives a tmpfs the mode of the folder that it covers, whatever `mode` says: an
    owner makes it writable over a /tmp that is 0755 in the image. Podman refuses `uid`.
    """
    user, group = USER.split(":")
    owner = "" if info.name.startswith("Podman") else f",uid={user},gid={group}"
    return f"nosuid,nodev,mode=1777{owner}"


def device_requests(info: EngineInfo, gpus: str | None) -> list[dict[str, Any]]:
    """Return the engine API's request for `gpus` (`all`, an index, a UUID); nothing for None.

    By CDI name where the engine works with those, else through Docker's own `nvidia` driver.
    `compute` is CUDA, `utility` NVML: nothing that draws or encodes goes in.
    """
    if gpus is None:
        return []
    if info.cdi_gpus:
        return [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={gpus}"]}]
    which: dict[str, Any] = {"Count": -1} if gpus == "all" else {"DeviceIDs": [gpus]}
    return [{"Driver": "nvidia", **which, "Capabilities": [["gpu", "compute", "utility"]]}]


def config(
    info: EngineInfo,
    image: str,
    interpreter: str,
    lock: Lockfile | None,
    environment: Mapping[str, str],
    limits: Limits,
) -> dict[str, Any]:
    """Return the container in the form of the engine's API (Docker Engine API, ContainerCreate)."""
    return {
        "Image": image,
        "Entrypoint": [interpreter, "-I", "-S", "-B", "-c", BOOTSTRAP],
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in sorted(environment.items())],
        "User": USER,
        "WorkingDir": "/",
        "Hostname": HOST_NAME,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {"dev.envlock.environment": lock.environment.name} if lock is not None else {},
        "HostConfig": {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": limits.processes,
            "Memory": limits.memory,
            "MemorySwap": limits.memory,  # equal: no swap
            "IpcMode": "private",
            "ShmSize": limits.shared_memory,
            "Tmpfs": {
                "/tmp": f"rw,noexec,{_owned(info)},size={limits.temporary}",
                CACHE: f"rw,exec,{_owned(info)},size={limits.cache}",
            },
            "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
            "LogConfig": {"Type": "none"},
            "RestartPolicy": {"Name": "no"},
            "CpusetCpus": limits.cpuset or "",
            "DeviceRequests": device_requests(info, limits.gpus),
        },
    }


def seen_inside(text: bytes, nonce: str) -> dict[str, Any]:
    """Return what the bootstrap saw, from its first line on standard error; `CouldNotTell` when it is not there."""
    line = text.split(b"\n", 1)[0]
    prefix = f"envlock-container {nonce} ".encode()
    found: Any = None
    if line.startswith(prefix):
        with contextlib.suppress(ValueError):
            found = json.loads(line[len(prefix) :])
    if not isinstance(found, dict):
        raise CouldNotTell("the container did not say how it is confined", where="canary")
    return found


def not_in_force(seen: Mapping[str, Any], seccomp: bool) -> list[str]:
    """Return, in words, each part of the confinement that is not as asked; `seccomp`: the host has the filter."""
    expected: dict[str, Any] = {
        "CapEff": "0000000000000000",
        "CapBnd": "0000000000000000",
        "NoNewPrivs": "1",
        "Uid": USER.split(":")[0],
        "Gid": USER.split(":")[1],
        "read-only-root": True,
        "routes": 0,
        "host-name": HOST_NAME,
    }
    if seccomp:
        expected["Seccomp"] = "2"
    return [f"{key} is {seen.get(key)} (expected {value})" for key, value in expected.items() if seen.get(key) != value]
