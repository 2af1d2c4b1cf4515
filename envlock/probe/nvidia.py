"""Whether a host has an NVIDIA GPU at all, and if so, everything about it.

Four states are kept apart: no NVIDIA device at all; a device without a driver; a driver
that does not answer; a driver that answers. Only the first is "no GPU".

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, Tuple

from envlock.facts import NOT_SUPPORTED, Device, Observed, absent
from envlock.probe import pci
from envlock.probe.host import Host, observe

_NONE = "no NVIDIA device on this host"
_ABSENT_WITHOUT_DEVICE = ("nvidia.driver", "nvidia.kernel_driver", "nvidia.kernel_module", "nvidia.cuda")


def read(host: Host) -> Tuple[Dict[str, Observed], Tuple[Device, ...]]:
    """Return the host's NVIDIA facts and its GPUs."""
    bus = _bus(host)
    if bus.gpus == () and not bus.signs:
        found = dict.fromkeys(_ABSENT_WITHOUT_DEVICE, absent(NOT_SUPPORTED, pci.FOLDER, _NONE))
        return {**found, "nvidia.gpu_count": bus.listed, "nvidia.pci_count": bus.listed}, ()
    from envlock.probe import gpu

    return gpu.read(host, bus)


def _bus(host: Host) -> pci.Bus:
    found: list[Tuple[pci.PciGpu, ...]] = []

    def count() -> int:
        found.append(pci.gpus(host))
        return len(found[0])

    seen = observe(pci.FOLDER, count)
    return pci.Bus(found[0] if found else None, seen, pci.signs(host))
