"""Clocks at rest and under load, and what may be said from them about locked clocks.

Drivers can lock clocks (`nvidia-smi -lgc`) and none tells whether they are. So nothing
here is a claim: the words say what was seen, what it could come from, and that it proves
nothing. Bits of NVML's clocks event reasons: nvml.h, `nvmlClocksEventReason…`.

Standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import csv
import json
import threading
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from envlock import process
from envlock.errors import EnvlockError
from envlock.gpucheck.commands import REASONS, SAMPLED, SmiProgram, query

IDLE_SAMPLES = 3
LOAD_SECONDS = 12.0
PAUSE = 0.5
_START = 120.0  # seconds that torch may take to be there, and the questions after the load as well
MOST = 2 * _START + LOAD_SECONDS
"""Seconds that the load may take, all in all."""

BITS = {
    0x001: "gpu idle", 0x002: "applications clocks setting", 0x004: "sw power cap", 0x008: "hw slowdown",
    0x010: "sync boost", 0x020: "sw thermal slowdown", 0x040: "hw thermal slowdown", 0x080: "hw power brake slowdown",
    0x100: "display clock setting",
}  # fmt: skip

NO_CLAIM = "no driver tells whether clocks are locked: this is what was seen, and proves neither yes nor no"


class Sample(NamedTuple):
    """One GPU at one moment; clocks in MHz, power in W, None where it was not told."""

    uuid: str
    sm: Optional[float]
    memory: Optional[float]
    sm_max: Optional[float]
    power: Optional[float]
    power_limit: Optional[float]
    utilization: Optional[float]
    reasons: Optional[Tuple[str, ...]]


class Seen(NamedTuple):
    """The samples at rest and under load, the GPU that was loaded, and why something is missing."""

    idle: Tuple[Sample, ...]
    loaded: Tuple[Sample, ...]
    uuid: str
    load: Mapping[str, Any]
    failure: str


def watch(smi: SmiProgram, load: Optional[List[str]], environment: Mapping[str, str], seconds: float = MOST) -> Seen:
    """Sample clocks at rest, then while the program `load` runs, for `seconds` at most; None: there is no load."""
    fields = _fields(smi)
    if isinstance(fields, str):
        return Seen((), (), "", {}, fields)
    idle: List[Sample] = []
    for _ in range(IDLE_SAMPLES):
        idle.extend(_sample(smi, fields))
        time.sleep(PAUSE)
    if load is None:
        return Seen(tuple(idle), (), "", {}, "no load: torch cannot use a GPU here")
    answer: List[Any] = []
    thread = threading.Thread(target=_run, args=(load, environment, seconds, answer), daemon=True)
    thread.start()
    loaded: List[Sample] = []
    end = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < end and not smi.hangs:
        loaded.extend(_sample(smi, fields))
        thread.join(PAUSE)
    thread.join(max(0.0, end - time.monotonic()) + 5)
    found = answer[0] if answer else "the load did not end"
    if isinstance(found, str):
        return Seen(tuple(idle), tuple(loaded), "", {}, found)
    return Seen(tuple(idle), tuple(loaded), str(found.get("uuid", "")), found, smi.hangs)


def _fields(smi: SmiProgram) -> Any:
    """Return the fields that this driver can be asked for, or why there are none."""
    failure = ""
    for reasons in REASONS:
        answer = smi.ask(query((*SAMPLED, reasons), bare=True))
        if not answer.failure:
            return (*SAMPLED, reasons)
        failure = failure or answer.failure
    return failure


def _run(load: List[str], environment: Mapping[str, str], seconds: float, answer: List[Any]) -> None:
    try:
        ended = process.run(load, seconds, env=environment)
        lines = ended.stdout.decode("utf-8", "replace").strip().splitlines()
        if ended.status == 0 and lines:
            answer.append(json.loads(lines[-1]))
            return
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        answer.append("the load ended with status {}{}".format(ended.status, ": " + said[-1] if said else ""))
    except (EnvlockError, ValueError) as error:
        answer.append("the load did not run: {}".format(error))


def _sample(smi: SmiProgram, fields: Sequence[str]) -> List[Sample]:
    answer = smi.ask(query(fields, bare=True))
    return [] if answer.failure else parse(answer.stdout.decode("utf-8", "replace"), fields)


def parse(text: str, fields: Sequence[str]) -> List[Sample]:
    """Return one sample for each line of a bare query of `fields`; a cell that is no number is not told."""
    found = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) != len(fields):
            continue  # a line about a lost GPU stands among the others
        cell = dict(zip(fields, (item.strip() for item in row)))
        found.append(
            Sample(
                uuid=cell["uuid"],
                sm=_number(cell["clocks.sm"]),
                memory=_number(cell["clocks.mem"]),
                sm_max=_number(cell["clocks.max.sm"]),
                power=_number(cell["power.draw"]),
                power_limit=_number(cell["enforced.power.limit"]),
                utilization=_number(cell["utilization.gpu"]),
                reasons=_reasons(cell[fields[-1]]),
            )
        )
    return found


def _number(text: str) -> Optional[float]:
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None


def _reasons(text: str) -> Optional[Tuple[str, ...]]:
    try:
        mask = int(text, 16)
    except ValueError:
        return None
    named = [words for bit, words in BITS.items() if mask & bit]
    rest = mask & ~sum(BITS)
    return tuple(named + (["unknown reason {:#x}".format(rest)] if rest else []))


def busy(seen: Seen) -> List[Sample]:
    """Return the samples in which the loaded GPU really worked: the start of the load is left out."""
    return [item for item in seen.loaded if item.uuid == seen.uuid and (item.utilization or 0) >= 90]


def words(seen: Seen) -> List[str]:
    """Return what was seen and what may be inferred from it, a sentence each; the last one is always `NO_CLAIM`."""
    working = busy(seen)
    clocks = sorted(item.sm for item in working if item.sm is not None)
    if not clocks:
        why = seen.failure or "the loaded GPU was never seen at work"
        return ["nothing can be said about locked clocks: {}".format(why), NO_CLAIM]
    said = [_range("under load the SM clock", clocks, working)]
    resting = sorted(item.sm for item in seen.idle if item.uuid == seen.uuid and item.sm is not None)
    if resting:
        said.append(_range("at rest it", resting, []))
    said.extend(_inference(clocks, resting, working))
    return [*said, NO_CLAIM]


def _range(what: str, clocks: List[float], working: List[Sample]) -> str:
    span = "{:g} MHz".format(clocks[0]) if clocks[0] == clocks[-1] else "{:g} to {:g} MHz".format(clocks[0], clocks[-1])
    most = sorted({item.sm_max for item in working if item.sm_max is not None})
    highest = " (highest possible {:g} MHz)".format(most[-1]) if most else ""
    return "{} was {} in {} samples{}".format(what, span, len(clocks), highest)


def _inference(clocks: List[float], resting: List[float], working: List[Sample]) -> List[str]:
    told = [item.reasons for item in working if item.reasons is not None]
    reasons = sorted({name for item in told for name in item if name != "gpu idle"})
    most = max((item.sm_max for item in working if item.sm_max is not None), default=None)
    said = []
    if reasons:
        said.append(
            "the driver held it down: {}; with a reason like that a lock cannot be told".format(", ".join(reasons))
        )
    elif not told:
        said.append("the driver did not say whether it held the clock down, so nothing follows from it")
    elif most is not None and clocks[-1] >= most:
        said.append(
            "it reached the highest clock, so it is not locked below that; a lock at the highest looks the same"
        )
    elif clocks[0] == clocks[-1]:
        said.append(
            "it stood still below the highest clock and the driver gives no reason: clocks may be locked, or this is "
            "as fast as the GPU goes with this load"
        )
    else:
        said.append("it moved, so it is not locked to one clock; a locked range looks the same")
    if resting and resting[0] == resting[-1] == clocks[0] == clocks[-1]:
        said.append("it is the same at rest: clocks may be locked, or something kept the GPU awake")
    return said


def document(seen: Seen) -> Dict[str, Any]:
    """Return the samples as JSON values."""
    return {
        "schema": "envlock.gpu-check-clocks/1",
        "loaded": seen.uuid,
        "load": {key: held for key, held in seen.load.items() if key != "libraries"},
        "failure": seen.failure,
        "idle": [item._asdict() for item in seen.idle],
        "under-load": [item._asdict() for item in seen.loaded],
        "inference": words(seen),
    }
