"""Whether a host has an NVIDIA GPU at all, and if so, everything about it.

Four states are kept apart: no NVIDIA device at all; a device without a driver; a driver
that does not answer; a driver that answers. Only the first is "no GPU".

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

from envlock.facts import NOT_SUPPORTED, Device, Observed, absent
from envlock.probe import pci
from envlock.probe.host import Host, observe
from envlock.registry import HOST, in_scope

_NONE = "no NVIDIA device on this host"
_COUNTS = ("nvidia.gpu_count", "nvidia.pci_count")


class Found(NamedTuple):
    """What was found: the host's NVIDIA facts, its GPUs, and remarks for people."""

    host: Dict[str, Observed]
    devices: Tuple[Device, ...]
    notes: Tuple[str, ...]


def read(host: Host, gpus: bool = True, cross_check: bool = False) -> Found:
    """Return what is found. Without `gpus` only the driver is asked, and no GPU is woken.

    `cross_check` asks nvidia-smi beside NVML, and notes what the two disagree about.
    """
    bus = _bus(host)
    if bus.gpus == () and not bus.signs:
        none = absent(NOT_SUPPORTED, pci.FOLDER, _NONE)
        found = {entry.key: none for entry in in_scope(HOST) if entry.key.startswith("nvidia.")}
        return Found({**found, **dict.fromkeys(_COUNTS, bus.listed)}, (), ())
    from envlock.probe import gpu

    return Found(*gpu.read(host, bus, gpus, cross_check))


def _bus(host: Host) -> pci.Bus:
    found: list[Tuple[pci.PciGpu, ...]] = []

    def count() -> int:
        found.append(pci.gpus(host))
        return len(found[0])

    seen = observe(pci.FOLDER, count)
    return pci.Bus(found[0] if found else None, seen, pci.signs(host))
