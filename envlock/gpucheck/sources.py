"""The same machine asked twice, by NVML and by nvidia-smi, and where the two disagree.

Standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from envlock.errors import EXIT_DRIFT, EXIT_MATCH, EXIT_UNKNOWN, EnvlockError
from envlock.facts import Device, Facts, observed_from
from envlock.probe import smi
from envlock.probe.crosscheck import cross_check
from envlock.probe.host import Absent, Host


class Source(NamedTuple):
    """What one source told: `facts`, or why there are none."""

    name: str
    facts: Optional[Facts]
    failure: str
    notes: Tuple[str, ...] = ()


def by_nvml(host: Host) -> Source:
    """Ask NVML in a child process, through the module pynvml of this Python."""
    try:
        answer: Any = host.nvml()
        if "error" in answer:
            return Source("NVML", None, str(answer["error"]))
        told = {key: observed_from(held, "NVML", key) for key, held in answer["host"].items()}
        gpus = [Device("gpu", _place(gpu, number), _told(gpu["facts"])) for number, gpu in enumerate(answer["gpus"])]
        notes = [str(note) for note in answer.get("notes", ())]
        if answer.get("unfinished"):
            notes.append(str(answer["unfinished"]))
    except Absent as absence:
        return Source("NVML", None, absence.detail)
    except (EnvlockError, KeyError, TypeError, AttributeError) as error:
        return Source("NVML", None, "the answer of the child that asked NVML is not understood: {}".format(error))
    return Source("NVML", Facts(told, gpus, notes), "", tuple(dict.fromkeys(notes)))


def _place(gpu: Dict[str, Any], number: int) -> str:
    return str(gpu["id"]) or "unknown-{}".format(number)


def _told(document: Dict[str, Any]) -> Dict[str, Any]:
    return {key: observed_from(held, "NVML", key) for key, held in document.items()}


def by_smi(output: bytes, failure: str) -> Source:
    """Read what `nvidia-smi -q -x` printed; `failure` is why it printed nothing of use."""
    if failure and not output.strip():
        return Source("nvidia-smi", None, failure)
    try:
        answer = smi.read(output, "nvidia-smi -q -x")
    except EnvlockError as error:
        return Source("nvidia-smi", None, "{}{}".format(error, "; it " + failure if failure else ""))
    if answer.fault:
        return Source("nvidia-smi", None, answer.fault, answer.notes)
    return Source("nvidia-smi", Facts(answer.host, answer.gpus, answer.notes), "", answer.notes)


class Compared(NamedTuple):
    """How two sources stand to each other: agreeing and disagreeing facts, and the exit code of it."""

    agreeing: int
    disagreements: Tuple[str, ...]
    code: int
    failure: str


def compare(nvml: Source, smi_source: Source) -> Compared:
    """Return where the two disagree; unknown when one of them told nothing."""
    missing = [source for source in (nvml, smi_source) if source.facts is None]
    if nvml.facts is None or smi_source.facts is None:
        said = "; ".join("{}: {}".format(source.name, source.failure) for source in missing)
        return Compared(0, (), EXIT_UNKNOWN, "the two sources cannot be compared: " + said)
    found = tuple(str(item) for item in cross_check(nvml.facts, smi_source.facts))
    both = _in_both(nvml.facts, smi_source.facts)
    code = EXIT_DRIFT if found else EXIT_MATCH if both else EXIT_UNKNOWN
    return Compared(max(0, both - len(found)), found, code, "" if both else "no fact was told by both sources")


def _in_both(first: Facts, second: Facts) -> int:
    """Return how many facts have a value in both."""
    count = _shared(first.host, second.host)
    others = {device.ident: device for device in second.gpus()}
    for device in first.gpus():
        if device.ident in others:
            count += _shared(device.facts, others[device.ident].facts)
    return count


def _shared(first: Dict[str, Any], second: Dict[str, Any]) -> int:
    return sum(1 for key, held in first.items() if held.has_value and key in second and second[key].has_value)


def gpus_of(sources: List[Source]) -> int:
    """Return how many GPUs the source that saw most of them saw."""
    return max((len(source.facts.gpus()) for source in sources if source.facts is not None), default=0)
