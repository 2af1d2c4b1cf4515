"""Who chooses the CPUs' clock, and between which limits.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

from envlock.facts import FAILED, NOT_SUPPORTED, VALUE, Observed, absent
from envlock.probe.cpu import distinct
from envlock.probe.host import Host, feature, lacking, observe

_CPUS = "/sys/devices/system/cpu"
_FOLDER = _CPUS + "/cpufreq"
_NO_TURBO = _CPUS + "/intel_pstate/no_turbo"
_NONE = "the kernel controls no CPU frequency here"


def read(host: Host) -> Dict[str, Observed]:
    """Return governor, limits (kHz in sysfs, MHz here) and boost."""
    return {
        "cpu.governor": _each(host, "scaling_governor", str),
        "cpu.frequency_min": _each(host, "scaling_min_freq", lambda text: int(text) // 1000),
        "cpu.frequency_max": _each(host, "scaling_max_freq", lambda text: int(text) // 1000),
        "cpu.frequency_min_default": _each(host, "cpuinfo_min_freq", lambda text: int(text) // 1000),
        "cpu.frequency_max_default": _each(host, "cpuinfo_max_freq", lambda text: int(text) // 1000),
        "cpu.boost": _boost(host),
    }


def _each(host: Host, name: str, convert: Callable[[str], Any]) -> Observed:
    source = "{}/policy*/{}".format(_FOLDER, name)
    found: list[Observed] = []

    def values() -> str:
        try:
            names = host.names(_FOLDER)
        except FileNotFoundError:
            names = ()
        policies = [item for item in names if item.startswith("policy") and item[6:].isdigit()]
        if not policies:
            raise lacking(host, _CPUS, _NONE)
        pairs = [
            (int(item[6:]), convert(host.read("{}/{}/{}".format(_FOLDER, item, name)).strip())) for item in policies
        ]
        found.append(distinct(sorted(pairs), source, "policy"))
        return ""

    problem = observe(source, values)
    return found[0] if found else problem


def _boost(host: Host) -> Observed:
    for path, on in ((_FOLDER + "/boost", "1"), (_NO_TURBO, "0")):
        seen = feature(host, path, str.strip, _CPUS, _NONE)
        if seen.outcome == NOT_SUPPORTED:
            continue
        if not seen.has_value:
            return seen
        if seen.value not in ("0", "1"):
            return absent(FAILED, path, "not understood: {!r}".format(seen.value))
        return Observed(VALUE, seen.value == on, path)
    return absent(NOT_SUPPORTED, _FOLDER + "/boost", _NONE)
