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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from envlock.canary import frame
from envlock.errors import CouldNotTell, EngineError, IntegrityError
from envlock.image import containers
from envlock.image.engine import Engine
from envlock.image.failures import EngineRefused
from envlock.image.transport import Attached
from envlock.lockfile import Lockfile
from envlock.run import confinement
from envlock.run.confinement import INTERPRETER, Limits
from envlock.run.framed import Demultiplexer, Output, Tail

_GRACE = 10.0  # seconds between the end of the output and the end of the container
_MIB = 1 << 20


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
    environment = {**confinement.PLACES, **_image_environment(found), **extra_env}
    head = {"nonce": nonce, "argv": ["canary", "run"], "environment": environment}
    if agent is None:
        from envlock import agent as packer

        agent = packer.build()
    sent = _framed_input(head, agent, {**request, "nonce": nonce})
    config = confinement.config(engine.info, image, interpreter, lock, environment, limits)
    with _gpu_refusals(limits), containers.created(engine, config) as ident:
        run = _Run(engine, ident, deadline)
        run.go(sent)
        state = containers.inspect(engine, ident)
        report = _report(run, state, nonce, limits)
        return {**report, "container": {**_described(engine, state, run, nonce), "image": _identity(state, lock)}}


# What engines say when they cannot give a GPU: Docker's own driver, the toolkit's runtime, CDI.
_NO_GPU = ("could not select device driver", "nvidia-container", "cdi device", "cdi registry")
_TOOLKIT = (
    "the engine's host needs the NVIDIA driver and nvidia-container-toolkit: for Docker run "
    "`nvidia-ctk runtime configure --runtime=docker` there and restart it, for Podman `nvidia-ctk cdi generate`; "
    "or use `--host`, without a container"
)


@contextmanager
def _gpu_refusals(limits: Limits) -> Iterator[None]:
    """Add what to do to the engine's refusal to give the GPUs that were asked for."""
    try:
        yield
    except EngineRefused as refused:
        if limits.gpus is not None and any(words in refused.message.lower() for words in _NO_GPU):
            raise EngineError(refused.message, hint=_TOOLKIT) from refused
        raise


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
        self.ended = threading.Event()

    def go(self, sent: bytes) -> None:
        """Start the container, send `sent`, take in its output until it ends or time is up."""
        attached = self.engine.transport.attach("cannot attach to the container", self.ident, deadline=30.0)
        sender = threading.Thread(target=self._send, args=(attached, sent), daemon=True, name="envlock-stdin")
        # A connection through ssh has no timeouts of its own: a clock ends what it would wait for.
        clock = threading.Timer(self.seconds + 0.3, self._expire, (attached,))
        clock.daemon = True
        clock.start()
        try:
            containers.start(self.engine, self.ident)
            sender.start()
            self._take_in(attached)
            self.ended.set()
            self._wait()
        finally:
            clock.cancel()
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
            try:
                data = attached.receive(left) if left > 0 else None
            except EngineError:
                if self.timed_out:
                    return
                raise
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

    def _expire(self, attached: Attached) -> None:
        if not self.timed_out:
            self._kill()
            self.ended.wait(1.0)
            attached.close()

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
    seen = confinement.seen_inside(run.first_error, nonce)
    wrong = confinement.not_in_force(seen, engine.info.seccomp)
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
