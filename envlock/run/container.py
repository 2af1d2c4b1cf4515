"""The canary in a container: hardened, fed through its standard input, answering in one frame.

Nothing of the host goes in but bytes on standard input, nothing comes out but bytes on
standard output and error: the engine may be on another machine. The agent (the zip
application) and the request are sent after attaching and before anything else runs;
a bootstrap of a few lines puts them into the container's temporary file system.
"""

import json
import secrets
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envlock.canary import frame
from envlock.errors import CouldNotTell, EngineError, IntegrityError
from envlock.image import containers
from envlock.image.engine import Engine
from envlock.image.transport import Attached
from envlock.lockfile import Lockfile
from envlock.run.framed import Demultiplexer, Output, Tail

INTERPRETER = "/opt/venv/bin/python"
CACHE = "/envlock-cache"
USER = "1000:1000"
HOST_NAME = "envlock"

_GRACE = 10.0  # seconds between the end of the output and the end of the container
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the container may use; sizes in bytes, `cpuset` as the kernel writes it (`0-3,8`)."""

    memory: int = 8 << 30
    processes: int = 1024
    shared_memory: int = 256 * _MIB
    temporary: int = 64 * _MIB
    cache: int = 1 << 30
    cpuset: str | None = None


# Caches of compiled kernels need a place whose files may be executed; everything else
# that a library writes goes to the small /tmp. An image may say otherwise.
_PLACES = {
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "XDG_CACHE_HOME": CACHE,
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/inductor",
    "TRITON_CACHE_DIR": f"{CACHE}/triton",
}

# Runs with -I -S: no line of a .pth file comes before it. It says first what the kernel
# lets it do, then becomes the agent with exactly the environment that it was sent, so
# that what an engine adds (HOSTNAME, Podman's `container`) is not seen.
_BOOTSTRAP = """
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


def run_canary(
    engine: Engine,
    image: str,
    lock: Lockfile | None,
    request: Mapping[str, Any],
    extra_env: Mapping[str, str],
    deadline: float,
    *,
    interpreter: str = INTERPRETER,
    limits: Limits | None = None,
    agent: bytes | None = None,
) -> dict[str, Any]:
    """Run the canary in a container of `image`, and return its report with a `container` entry.

    `request` goes to the agent's standard input with the `nonce` of this run added;
    `extra_env` comes over the image's environment; `deadline` is in seconds. The agent's
    own bytes are packed when `agent` is None.

    Raises `CouldNotTell` when there is no result to judge (out of time or memory, ended
    early, not hardened), `IntegrityError` when the result was tampered with,
    `EngineError` when the engine fails.
    """
    limits = limits or Limits()
    engine.reap()
    image, found = _located(engine, image, lock)
    nonce = secrets.token_hex(16)
    environment = {**_PLACES, **_image_environment(found), **extra_env}
    head = {"nonce": nonce, "argv": ["canary", "run"], "environment": environment}
    if agent is None:
        from envlock import agent as packer

        agent = packer.build()
    sent = _framed_input(head, agent, {**request, "nonce": nonce})
    with containers.created(engine, _config(engine, image, interpreter, lock, environment, limits)) as ident:
        run = _Run(engine, ident, deadline)
        run.go(sent)
        state = containers.inspect(engine, ident)
        report = _report(run, state, nonce, limits)
        return {**report, "container": {**_described(engine, state, run, nonce), "image": _identity(state, lock)}}


def _identity(state: Mapping[str, Any], lock: Lockfile | None) -> str:
    """Return the Id of the image that ran; the locked config digest where it is the locked image's manifest."""
    ident = str(state.get("Image", ""))
    if "sha256:" not in ident:
        ident = f"sha256:{ident}"  # Podman
    if lock is not None and lock.image is not None and ident == lock.image.manifest:
        return lock.image.config
    return ident


def _located(engine: Engine, image: str, lock: Lockfile | None) -> tuple[str, dict[str, Any]]:
    """Return the name by which the engine knows `image`, and what it says about it."""
    names = [image]
    if lock is not None and lock.image is not None and image == lock.image.config:
        names.append(lock.image.manifest)  # a containerd store calls an image by its manifest
    for name in names:
        found = engine.inspect_image(name)
        if found is not None:
            return name, found
    raise EngineError(
        f"the engine has no image `{image}`", hint="run `envlock build` first, or name another with `--image`"
    )


def _image_environment(found: dict[str, Any]) -> dict[str, str]:
    config = found.get("Config")
    listed = config.get("Env") if isinstance(config, dict) else None
    return dict(str(item).partition("=")[::2] for item in listed or ())


def _framed_input(head: dict[str, Any], agent: bytes, request: dict[str, Any]) -> bytes:
    parts = (json.dumps(head).encode(), agent, json.dumps(request).encode())
    return b"".join(struct.pack(">Q", len(part)) + part for part in parts)


def _owned(engine: Engine) -> str:
    """Return the mount options that let our user write, and nobody gain rights, in a tmpfs.

    runc gives a tmpfs the mode of the folder that it covers, whatever `mode` says: an
    owner makes it writable over a /tmp that is 0755 in the image. Podman refuses `uid`.
    """
    user, group = USER.split(":")
    owner = "" if engine.info.name.startswith("Podman") else f",uid={user},gid={group}"
    return f"nosuid,nodev,mode=1777{owner}"


def _config(
    engine: Engine, image: str, interpreter: str, lock: Lockfile | None, environment: Mapping[str, str], limits: Limits
) -> dict[str, Any]:
    """Return the container in the form of the engine's API (Docker Engine API, ContainerCreate)."""
    return {
        "Image": image,
        "Entrypoint": [interpreter, "-I", "-S", "-B", "-c", _BOOTSTRAP],
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
                "/tmp": f"rw,noexec,{_owned(engine)},size={limits.temporary}",
                CACHE: f"rw,exec,{_owned(engine)},size={limits.cache}",
            },
            "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
            "LogConfig": {"Type": "none"},
            "RestartPolicy": {"Name": "no"},
            "CpusetCpus": limits.cpuset or "",
        },
    }


class _Run:
    """One run of a created container: attached first, then started, watched, and ended in time."""

    def __init__(self, engine: Engine, ident: str, deadline: float) -> None:
        self.engine = engine
        self.ident = ident
        self.seconds = deadline
        self.end = time.monotonic() + deadline
        self.output = Output()
        self.errors = Tail()
        self.first_error = b""
        self.timed_out = False

    def go(self, sent: bytes) -> None:
        """Start the container, send `sent`, take in its output until it ends or time is up."""
        attached = self.engine.transport.attach("cannot attach to the container", self.ident, deadline=30.0)
        sender = threading.Thread(target=self._send, args=(attached, sent), daemon=True, name="envlock-stdin")
        try:
            containers.start(self.engine, self.ident)
            sender.start()
            self._take_in(attached)
            self._wait()
        finally:
            attached.close()
            self.output.finish()

    def _send(self, attached: Attached, sent: bytes) -> None:
        try:
            attached.send(sent, self.seconds)
        except EngineError:
            return  # a container that ends early reads no input: its end says why

    def _take_in(self, attached: Attached) -> None:
        streams = Demultiplexer(self.output.feed, self._error)
        while True:
            left = self.end - time.monotonic()
            data = attached.receive(left) if left > 0 else None
            if data is None:
                self._kill()
                return
            if not data:
                return
            try:
                streams.feed(data)
            except ValueError as error:
                raise EngineError(f"the engine's stream of the container's output is damaged ({error})") from error

    def _error(self, data: bytes) -> None:
        if len(self.first_error) < 4096:
            self.first_error += data[:4096]
        self.errors.feed(data)

    def _wait(self) -> None:
        left = self.end - time.monotonic()
        try:
            containers.wait(self.engine, self.ident, max(_GRACE, left))
        except EngineError:
            if time.monotonic() < self.end:
                raise
            self._kill()

    def _kill(self) -> None:
        self.timed_out = True
        containers.kill(self.engine, self.ident)


def _report(run: _Run, state: dict[str, Any], nonce: str, limits: Limits) -> dict[str, Any]:
    """Return the report that came in the frame, or raise why there is none."""
    said = [line for line in run.errors.lines(9) if not line.startswith("envlock-container ")][-8:]
    hint = "it said:" + "".join(f"\n  {line}" for line in said) if said else None
    if not run.output.count:
        raise CouldNotTell(_why_nothing(run, state.get("State"), limits), where="canary", hint=hint)
    if run.timed_out:
        raise CouldNotTell(f"did not finish within {run.seconds:g} s, and was ended", where="canary", hint=hint)
    payload = frame.decode(nonce, bytes(run.output.frames)).payload
    try:
        report = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise IntegrityError("the framed result is not JSON", where="canary") from error
    if not isinstance(report, dict):
        raise IntegrityError("the framed result is not a JSON object", where="canary")
    return report


def _why_nothing(run: _Run, state: Any, limits: Limits) -> str:
    found = state if isinstance(state, dict) else {}
    status = found.get("ExitCode")
    if found.get("OOMKilled"):
        return f"ran out of memory (limit {limits.memory // _MIB} MiB), so there is no result"
    if run.timed_out:
        return f"did not finish within {run.seconds:g} s, and was ended"
    printed = f"{run.output.length} bytes of output, and no result in them"
    if status == 0:
        return f"ended without an error and without a result ({printed})"
    if isinstance(status, int) and status > 128:
        return f"was ended by signal {status - 128} ({printed})"
    return f"failed with exit status {status} ({printed})"


def _described(engine: Engine, state: dict[str, Any], run: _Run, nonce: str) -> dict[str, Any]:
    """Return what ran and how it was confined; `CouldNotTell` when the confinement is not in force."""
    seen = _seen_inside(run.first_error, nonce)
    wrong = _not_hardened(seen, engine.info.seccomp)
    if wrong:
        raise CouldNotTell(
            f"the container was not confined as asked: {', '.join(wrong)}",
            where="canary",
            hint=f"{engine.info.name} {engine.info.version} did not apply what it accepted; use another engine",
        )
    ended = state.get("State")
    return {
        "engine": engine.info.name,
        "engine-version": engine.info.version,
        "exit-status": ended.get("ExitCode") if isinstance(ended, dict) else None,
        "output-bytes": run.output.length,
        "confined": seen,
    }


def _seen_inside(text: bytes, nonce: str) -> dict[str, Any]:
    line = text.split(b"\n", 1)[0]
    prefix = f"envlock-container {nonce} ".encode()
    if not line.startswith(prefix):
        raise CouldNotTell("the container did not say how it is confined", where="canary")
    try:
        found = json.loads(line[len(prefix) :])
    except ValueError as error:
        raise CouldNotTell("the container did not say how it is confined", where="canary") from error
    return dict(found)


def _not_hardened(seen: Mapping[str, Any], seccomp: bool) -> list[str]:
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
