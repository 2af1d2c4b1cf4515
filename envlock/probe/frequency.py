"""Who chooses the CPUs' clock, and between which limits.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

from envlock.facts import FAILED, NOT_SUPPORTED, VALUE, Observed, absent
from envlock.probe.cpu import distinct
from envlock.probe.host import Absent, Host, observe

_FOLDER = "/sys/devices/system/cpu/cpufreq"
_NO_TURBO = "/sys/devices/system/cpu/intel_pstate/no_turbo"
_NONE = "the kernel controls no CPU frequency here"


def read(host: Host) -> Dict[str, Observed]:
    """Return governor, limits (kHz in sysfs, MHz here) and boost."""
    return {
        "cpu.governor": _each(host, "scaling_governor", str),
        "cpu.frequency_min": _each(host, "scaling_min_freq", lambda text: int(text) // 1000),
        "cpu.frequency_max": _each(host, "scaling_max_freq", lambda text: int(text) // 1000),
        "cpu.boost": _boost(host),
    }


def _each(host: Host, name: str, convert: Callable[[str], Any]) -> Observed:
    source = "{}/policy*/{}".format(_FOLDER, name)
    found: list[Observed] = []

    def values() -> str:
        policies = [item for item in host.names(_FOLDER) if item.startswith("policy") and item[6:].isdigit()]
        if not policies:
            raise Absent(NOT_SUPPORTED, _NONE)
        pairs = [
            (int(item[6:]), convert(host.read("{}/{}/{}".format(_FOLDER, item, name)).strip())) for item in policies
        ]
        found.append(distinct(sorted(pairs), source, "policy"))
        return ""

    problem = observe(source, values, NOT_SUPPORTED, _NONE)
    return found[0] if found else problem


def _boost(host: Host) -> Observed:
    for path, on in ((_FOLDER + "/boost", "1"), (_NO_TURBO, "0")):
        seen = observe(path, lambda path=path: host.read(path).strip(), NOT_SUPPORTED, _NONE)  # type: ignore[misc]
        if seen.outcome == NOT_SUPPORTED:
            continue
        if not seen.has_value:
            return seen
        if seen.value not in ("0", "1"):
            return absent(FAILED, path, "not understood: {!r}".format(seen.value))
        return Observed(VALUE, seen.value == on, path)
    return absent(NOT_SUPPORTED, _FOLDER + "/boost", _NONE)
