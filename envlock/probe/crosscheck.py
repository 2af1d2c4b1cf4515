"""Where two sources that were both asked about one host disagree.

Pure. What only one of them can tell is no disagreement, nor is what moves from one
moment to the next.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Tuple

from envlock.facts import NOT_SUPPORTED, UNANSWERED, Facts, Observed
from envlock.registry import REGISTRY

# What moves between two readings, and what the two number in ways of their own.
_MOVING = frozenset(("gpu.event_reasons", "gpu.pcie_generation"))
# Told with placement by one source, and without by the other.
_LAYOUT = "gpu.mig_layout"


class Disagreement(NamedTuple):
    """One fact that two sources tell differently; `device` is the PCI address, empty for the host."""

    key: str
    device: str
    first: Observed
    second: Observed

    def __str__(self) -> str:
        label = REGISTRY[self.key].label if self.key in REGISTRY else self.key
        place = "GPU at {}: ".format(self.device) if self.device else ""
        said = ("{} says {}".format(seen.source or "one source", seen.text()) for seen in (self.first, self.second))
        return "{}{}: {}".format(place, label, "; ".join(said))


def cross_check(first: Facts, second: Facts) -> Tuple[Disagreement, ...]:
    """Return what the NVIDIA facts of `first` and `second` disagree about, by key and PCI address.

    GPUs that only one side lists show in the count of GPUs.
    """
    found = _of(first.host, second.host, "")
    others = {gpu.ident: gpu for gpu in second.gpus()}
    for gpu in first.gpus():
        if gpu.ident in others:
            found += _of(gpu.facts, others[gpu.ident].facts, gpu.ident)
    return tuple(found)


def _of(first: Mapping[str, Observed], second: Mapping[str, Observed], device: str) -> list[Disagreement]:
    return [
        Disagreement(key, device, seen, second[key])
        for key, seen in first.items()
        if key.startswith(("nvidia.", "gpu.")) and key in second and not agree(key, seen, second[key])
    ]


def agree(key: str, first: Observed, second: Observed) -> bool:
    """Return whether two observations can both be true; one without an answer contradicts nothing."""
    if key in _MOVING or first.outcome in UNANSWERED or second.outcome in UNANSWERED or first == second:
        return True
    if NOT_SUPPORTED in (first.outcome, second.outcome):
        # "off" and "there is none" are one print of nvidia-smi.
        return key in ("gpu.gsp", "gpu.gsp_default") and False in (first.value, second.value)
    if key == _LAYOUT:
        return _profiles(first) == _profiles(second)
    return first.text().lower() == second.text().lower()


def _profiles(seen: Observed) -> list[str]:
    items = seen.value if isinstance(seen.value, tuple) else ()
    return sorted(str(item).partition("@")[0] for item in items)


def merged(first: Mapping[str, Observed], second: Mapping[str, Observed]) -> Dict[str, Observed]:
    """Return `first`, and from `second` what `first` has no answer for."""
    found = dict(first)
    for key, seen in second.items():
        if key not in found or (found[key].outcome in UNANSWERED and seen.outcome not in UNANSWERED):
            found[key] = seen
    return found
