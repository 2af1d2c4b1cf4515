"""One `canary run` from lockfile to judgement, and what is recorded: the edge around `compare`.

Reads the lockfile, runs the canary in a container or on this host, judges the report,
and, when asked and allowed, writes the golden of its platform class.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envlock import files, lockstore
from envlock.canary import platform, request, switches
from envlock.digest import Digest
from envlock.errors import EXIT_UNKNOWN, CouldNotTell, UsageError, worst_exit_code
from envlock.lockfile import Golden, Lockfile
from envlock.run import compare, host, recording, reports
from envlock.run.findings import Judgement
from envlock.run.reports import Report
from envlock.run.twins import Comparison

_MAX_REPORT = 512 << 20

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What the person asked for. `flip` is a weight and a bit; `deadline` is in seconds.

    `device` is the index or UUID of the GPU to run on; None: the first one of all that there are.
    """

    image: str | None = None
    on_host: bool = False
    record: bool = False
    runs: int = 1
    processes: int = 1
    env: tuple[tuple[str, str], ...] = ()
    backend: str | None = None
    device: str | None = None
    flip: tuple[str, int] | None = None
    values: bool = False
    deadline: int = 900


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What came of it: the report as document and as value, its judgement, and why it was not recorded."""

    name: str
    document: dict[str, Any]
    report: Report
    judgement: Judgement
    recorded: bool = False
    refused: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The judgement's code; never 0 when a golden was to be recorded and was not."""
        if not self.refused:
            return self.judgement.exit_code
        found = self.judgement.exit_code
        return found if found else worst_exit_code((found, EXIT_UNKNOWN))

    def to_document(self) -> dict[str, Any]:
        """Return the report with its judgement in it, as `canary compare` and fleets read it."""
        return {
            **self.document,
            "environment": self.name,
            "judgement": self.judgement.to_document(),
            "recorded": self.recorded,
            "refused": list(self.refused),
        }


def variables(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return `NAME=VALUE` arguments as pairs; `UsageError` for one that is not."""
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name.isidentifier() or not name.isascii():
            raise UsageError(f"not a variable: {text!r}", where="--env", hint="write it as NAME=VALUE")
        if not value.isprintable():
            raise UsageError(f"the value of {name} holds a control character", where="--env")
        found[name] = value
    return tuple(sorted(found.items()))


def flip(given: str | None) -> tuple[str, int] | None:
    """Return `WEIGHT:BIT` as a pair; `UsageError` when it is not one."""
    if given is None:
        return None
    name, sign, bit = given.rpartition(":")
    if not sign or not name or not bit.isdecimal():
        raise UsageError(f"not a weight and a bit: {given!r}", where="--flip", hint="such as t3.encoder.o.weight:20")
    return name, int(bit)


def run(path: Path, wanted: Wanted, say: Say) -> Done:
    """Run the canary for the lockfile at `path` and judge its report; record it when asked and allowed."""
    if wanted.on_host and wanted.image is not None:
        raise UsageError("--host and --image exclude each other", where="canary run")
    if wanted.record:
        # Held from before the run: nobody else may change what the run is judged by.
        with lockstore.editing(path) as lock:
            return _record(path, lock, _observed(lock, wanted, say), say)
    lock = lockstore.read(path)
    document = _observed(lock, wanted, say)
    report = reports.from_document(document, "the canary report")
    judgement = compare.judge_report(report, lock)
    return Done(name=lock.environment.name, document=document, report=report, judgement=judgement)


def record_report(path: Path, report: Path, say: Say) -> Done:
    """Record the report in a file, made on another machine, into the lockfile at `path` where it may be.

    Raises `UsageError` when the file holds no report.
    """
    with lockstore.editing(path) as lock:
        return _record(path, lock, _report_in(report), say)


def _observed(lock: Lockfile, wanted: Wanted, say: Say) -> dict[str, Any]:
    document = _request(lock, wanted)
    on_gpu = document["backend"] == platform.CUDA
    if wanted.device is not None and not on_gpu:
        raise UsageError("`--device` names a GPU, and the canary runs on the CPU", hint="add `--backend cuda`")
    extra = dict(wanted.env)
    locked = None if lock.image is None else str(lock.image.config)
    image = None if wanted.on_host else wanted.image or locked
    if image is None and not wanted.on_host:
        raise CouldNotTell(
            "the lockfile holds no image",
            where=lock.environment.name,
            hint="run `envlock build` first, name an image with `--image`, or use `--host`",
        )
    say(f"running the canary: {wanted.processes} processes, {wanted.runs} runs each")
    if image is None:
        chosen = {"CUDA_VISIBLE_DEVICES": wanted.device} if wanted.device is not None else {}
        return host.run_canary(lock, document, {**chosen, **extra}, wanted.deadline)
    return _in_container(
        lock, image, document, extra, wanted.deadline, gpus=(wanted.device or "all") if on_gpu else None
    )


def _in_container(
    lock: Lockfile,
    image: str,
    document: Mapping[str, Any],
    extra: Mapping[str, str],
    deadline: int,
    *,
    gpus: str | None,
) -> dict[str, Any]:
    from envlock.image.engine import connect
    from envlock.run import container
    from envlock.run.confinement import Limits

    engine = connect(os.environ)
    return container.run_canary(engine, image, lock, document, extra, deadline, limits=Limits(gpus=gpus))


def device(given: str | None) -> str | None:
    """Return the index or UUID of a GPU as it was given; `UsageError` when it is neither."""
    if given is None or re.fullmatch(r"\d{1,4}|(GPU|MIG|MIG-GPU)-[0-9A-Fa-f][0-9A-Fa-f/-]*", given):
        return given
    raise UsageError(
        f"not a GPU: {given!r}", where="--device", hint="an index such as 0, or a UUID such as GPU-95309e33-…"
    )


def _request(lock: Lockfile, wanted: Wanted) -> dict[str, Any]:
    """Return the canary request, without its nonce; `UsageError` for a switch that does not exist."""
    for name, value in lock.determinism.torch:
        try:
            switches.check(name, value)
        except UsageError as fault:
            key = f"determinism.torch.{name}"
            raise UsageError(fault.message, where=lock.environment.name, key=key, hint=fault.hint) from None
    on_gpu = lock.host is not None and bool(lock.host.gpus)
    return {
        "schema": request.SCHEMA,
        "runs": wanted.runs,
        "processes": wanted.processes,
        "threads": lock.determinism.threads,
        "torch": dict(lock.determinism.torch),
        "weight-bit-flip": None if wanted.flip is None else {"tensor": wanted.flip[0], "bit": wanted.flip[1]},
        "backend": wanted.backend or (platform.CUDA if on_gpu else platform.CPU),
        "values": wanted.values,
        "deadline": wanted.deadline,
    }


def _record(path: Path, lock: Lockfile, document: dict[str, Any], say: Say) -> Done:
    """Write the golden, unless something speaks against it. Called while the lockfile is held."""
    report = reports.from_document(document, "the canary report")
    refused = tuple(recording.refusals_of(report, lock))
    name = lock.environment.name
    if refused:
        judgement = compare.judge_report(report, lock)
        return Done(name=name, document=document, report=report, judgement=judgement, refused=refused)
    golden = recording.golden_from(report, _image_of(report, lock))
    before = next((held for held in lock.goldens if held.platform == golden.platform), None)
    updated = lock.with_golden(golden)
    changed = lockstore.write(path, updated)
    say(_recorded(before, golden) if changed else "the golden is recorded already: nothing changed")
    judgement = compare.judge_report(report, updated)
    return Done(name=name, document=document, report=report, judgement=judgement, recorded=changed)


def _image_of(report: Report, lock: Lockfile) -> Digest | None:
    """Return the config digest of the image that the report ran in, None on the host."""
    if report.image is None:
        return None
    with suppress(ValueError):
        return Digest.parse(report.image)
    return lock.image.config if lock.image is not None else None


def _recorded(before: Golden | None, golden: Golden) -> str:
    if before is None:
        return f"recorded a new golden: {len(golden.outputs)} outputs"
    old = dict(before.outputs)
    moved = sum(old.get(name) != value for name, value in golden.outputs)
    return f"replaced the golden of this class: {moved} of {len(golden.outputs)} outputs moved"


def compare_files(a: Path, b: Path) -> Comparison:
    """Return what differs between the reports in two files; `UsageError` when one is no report."""
    return compare.compare(_report_in(a), _report_in(b), str(a), str(b))


def _report_in(path: Path) -> Any:
    data = files.read_bytes(path, _MAX_REPORT)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is not JSON: {error}", where=path) from None
