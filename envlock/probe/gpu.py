"""The GPUs of a host that has a sign of one: from NVML, or from files in its place.

Imported only where `envlock.probe.nvidia` found such a sign.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from envlock.errors import UsageError
from envlock.facts import FAILED, HIDDEN, VALUE, Device, Observed, absent, observed_from, value
from envlock.probe import nvidia_proc, pci
from envlock.probe.host import Absent, Host
from envlock.probe.nvml import GPU_KEYS, NO_LIBRARY, NOT_LOADED
from envlock.probe.pci import Bus

_COUNT_SOURCE = "NVML nvmlDeviceGetCount"

Result = Tuple[Dict[str, Observed], Tuple[Device, ...]]


def read(host: Host, bus: Bus) -> Result:
    """Return the NVIDIA facts of the host, and its GPUs."""
    kernel = nvidia_proc.kernel_facts(host)
    try:
        answer = host.nvml()
        reason = _error(answer, bus, kernel["nvidia.kernel_driver"])
    except Absent as absence:
        answer, reason = {}, _unasked(absence.detail, bus, kernel["nvidia.kernel_driver"])
    found = {"nvidia.pci_count": bus.listed, **kernel}
    if not reason:
        try:
            said, devices = _with_nvml(answer, bus, found["nvidia.kernel_driver"])
            return {**found, **said}, devices
        except (KeyError, TypeError, UsageError) as error:
            reason = "the answer of the child process that asked NVML is not understood: {}".format(error)
    said, devices = _without_nvml(host, bus, reason)
    return {**found, **said}, devices


def _error(answer: Mapping[str, object], bus: Bus, kernel: Observed) -> str:
    """Return in words why NVML did not answer; empty when it did."""
    if "error" not in answer:
        return ""
    if answer.get("code") in (NOT_LOADED, NO_LIBRARY) and not kernel.has_value:
        return _no_driver(bus) + "; NVML: {}".format(answer["error"])
    return "NVML: {}".format(answer["error"])


def _unasked(detail: str, bus: Bus, kernel: Observed) -> str:
    return detail if kernel.has_value else "{}; {}".format(_no_driver(bus), detail)


def _no_driver(bus: Bus) -> str:
    if not bus.gpus:
        where = " (signs of one: {})".format(", ".join(bus.signs)) if bus.signs else ""
        return "no NVIDIA driver is loaded, and no NVIDIA device is seen on the PCI bus" + where
    bound = sorted({gpu.driver for gpu in bus.gpus if gpu.driver and gpu.driver != "nvidia"})
    names = ", ".join("{} at {}".format(gpu.pci_id, gpu.address) for gpu in bus.gpus)
    return "{}: no NVIDIA driver is loaded{}".format(names, " (bound to {})".format(", ".join(bound)) if bound else "")


def _without_nvml(host: Host, bus: Bus, reason: str) -> Result:
    """Return what files say: nothing here is a claim that something is not there."""
    unknown = absent(FAILED, "NVML", reason)
    found = {
        "nvidia.driver": nvidia_proc.library_version(host, reason),
        "nvidia.cuda": unknown,
        "nvidia.gpu_count": absent(FAILED, _COUNT_SOURCE, reason),
    }
    gpus = {gpu.address: gpu for gpu in bus.gpus or ()}
    addresses = sorted({*gpus, *nvidia_proc.addresses(host)})
    devices = []
    for address in addresses:
        facts = dict.fromkeys(GPU_KEYS, unknown)
        facts.update(nvidia_proc.gpu_facts(host, address))
        facts.update(_bus_facts(gpus.get(address)))
        devices.append(Device("gpu", address, facts))
    return found, tuple(devices)


def _bus_facts(gpu: pci.PciGpu | None) -> Dict[str, Observed]:
    if gpu is None:
        return {}
    folder = "{}/{}".format(pci.FOLDER, gpu.address)
    return {
        "gpu.pci_id": value(gpu.pci_id, folder + "/device"),
        "gpu.subsystem_id": value(gpu.subsystem_id, folder + "/subsystem_device"),
    }


def _with_nvml(answer: Mapping[str, object], bus: Bus, kernel: Observed) -> Result:
    found = _facts(answer.get("host"), ("nvidia.driver", "nvidia.cuda"))
    driver = found["nvidia.driver"]
    if driver.has_value and kernel.has_value and driver.value != kernel.value:
        detail = "the loaded kernel module is another version: {}".format(kernel.value)
        found["nvidia.driver"] = Observed(VALUE, driver.value, driver.source, detail)
    listed: Any = answer.get("gpus")
    devices = _name_places([(str(gpu["id"]), _facts(gpu["facts"], GPU_KEYS)) for gpu in listed], bus)
    found["nvidia.gpu_count"] = _count(len(devices), bus)
    return found, devices


def _facts(document: Any, keys: Tuple[str, ...]) -> Dict[str, Observed]:
    return {key: observed_from(document[key], "NVML child", key) for key in keys}


def _count(count: int, bus: Bus) -> Observed:
    on_bus = len(bus.gpus) if bus.gpus is not None else count
    if count == 0 and (on_bus or bus.signs):
        # A driver that shows nothing is not a host without GPUs.
        return absent(HIDDEN, _COUNT_SOURCE, "the driver shows no GPU; on the PCI bus: {}".format(on_bus))
    detail = "on the PCI bus: {}".format(on_bus) if on_bus != count else ""
    return Observed(VALUE, count, _COUNT_SOURCE, detail)


def _name_places(gpus: list[Tuple[str, Dict[str, Observed]]], bus: Bus) -> Tuple[Device, ...]:
    """Return the GPUs as devices; one that could not be opened takes the one place left on the bus, if it is one."""
    taken = {address for address, _ in gpus if address}
    left = [gpu for gpu in bus.gpus or () if gpu.address not in taken]
    nameless = sum(1 for address, _ in gpus if not address)
    devices = []
    for index, (address, facts) in enumerate(gpus):
        if not address and nameless == 1 and len(left) == 1:
            address = left[0].address
            facts = {**facts, **_bus_facts(left[0])}
        devices.append(Device("gpu", address or "unknown-{}".format(index), facts))
    return tuple(devices)
