"""Measure whole processes: wall time and peak memory, two commands in turn.

The two commands of a row run A B A B …, so that a machine whose speed drifts slows both;
the ratio is the median of the ratios pair by pair.
"""

import os
import statistics
import subprocess
import time
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One finished process: `seconds` of wall time, `peak` resident memory in MiB."""

    seconds: float
    peak: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table: what was measured, against what, and the ratio to reach."""

    name: str
    against: str
    reach: str
    ratio: float | None
    ours: Run
    theirs: Run | None
    command: str
    peer: str
    met: bool


class BenchError(Exception):
    """A measured command failed: its figures would mean nothing."""


def shell(command: str) -> list[str]:
    """Return the argument list that runs `command` by bash, pipes failing as they should."""
    return ["bash", "-o", "pipefail", "-c", command]


def once(command: str, ok: tuple[int, ...] = (0,)) -> Run:
    """Run `command` once, its output thrown away; `BenchError` when its exit status is not in `ok`."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        shell(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in ok:
        raise BenchError(f"`{command}` ended with {process.returncode}: {said.decode(errors='replace')[-400:]}")
    return Run(seconds=seconds, peak=usage.ru_maxrss / 1024)


def median(runs: list[Run]) -> Run:
    """Return the median wall time and the largest peak of `runs`."""
    return Run(seconds=statistics.median(run.seconds for run in runs), peak=max(run.peak for run in runs))


def against(
    name: str,
    command: str,
    label: str,
    peer: str,
    limit: float,
    count: int = 7,
    ok: tuple[int, ...] = (0,),
    reset: str = "",
) -> Row:
    """Measure `command` against `peer`, `count` times each in turn after one warm-up.

    `limit` is the ratio to reach; `reset` is run, unmeasured, before each run of ours.
    """
    ours: list[Run] = []
    theirs: list[Run] = []
    for number in range(count + 1):
        if reset:
            once(reset)
        first, second = once(command, ok), once(peer)
        if number or count == 1:
            ours.append(first)
            theirs.append(second)
    ratio = statistics.median(a.seconds / b.seconds for a, b in zip(ours, theirs, strict=True))
    return Row(
        name=name, against=label, reach=f"≤ {limit:g}×", ratio=ratio, ours=median(ours), theirs=median(theirs),
        command=command, peer=peer, met=ratio <= limit,
    )  # fmt: skip


def within(name: str, command: str, seconds: float, count: int = 5, ok: tuple[int, ...] = (0,)) -> Row:
    """Measure `command` against a limit in seconds."""
    runs = [once(command, ok) for _ in range(count + 1)][1:]
    middle = median(runs)
    return Row(
        name=name, against="a limit", reach=f"≤ {seconds:g} s", ratio=middle.seconds / seconds,
        ours=middle, theirs=None, command=command, peer="", met=middle.seconds <= seconds,
    )  # fmt: skip
