"""The GPUs of a host that has a sign of one, from all sources together.

NVML is asked first, nvidia-smi where NVML gives no answer; what neither tells comes from
/proc and the PCI bus. Each fact names its source, and sources that disagree are told.
Imported only where `envlock.probe.nvidia` found a sign.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from envlock.errors import UsageError
from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, VALUE, Device, Facts, Observed, absent, observed_from, value
from envlock.probe import nvidia_proc, pci
from envlock.probe.crosscheck import agree, cross_check, merged
from envlock.probe.host import Absent, Host
from envlock.probe.pci import Bus
from envlock.registry import GPU, HOST, REGISTRY, in_scope

_COUNT = "nvidia.gpu_count"
_COUNT_SOURCE = "NVML nvmlDeviceGetCount"
# nvmlReturn_t (nvml.h)
_NOT_LOADED, _NO_LIBRARY, _MISMATCH = 9, 12, 18

Result = Tuple[Dict[str, Observed], Tuple[Device, ...], Tuple[str, ...]]


class Source(NamedTuple):
    """What one source says: facts of the host, GPUs, remarks; `fault` in words why it gives no answer."""

    host: Dict[str, Observed]
    devices: Tuple[Device, ...]
    notes: Tuple[str, ...] = ()
    fault: str = ""


def read(host: Host, bus: Bus, opened: bool = True, checked: bool = False) -> Result:
    """Return the NVIDIA facts of the host, its GPUs, and remarks.

    Without `opened` no GPU is woken, and none is returned. `checked` asks nvidia-smi
    beside NVML, and remarks what the two disagree about.
    """
    kernel = nvidia_proc.kernel_facts(host, bus.signs)
    nvml = _nvml(host, bus, kernel["nvidia.kernel_driver"], opened)
    second = _smi(host, bus) if nvml.fault or checked else None
    chosen = second if nvml.fault and second is not None and not second.fault else nvml
    reason = nvml.fault if second is None or not second.fault else "; ".join(filter(None, (nvml.fault, second.fault)))
    found = {"nvidia.pci_count": bus.listed, **kernel}
    if chosen.fault:
        said, devices = _without_driver(host, bus, reason)
    else:
        said, devices = chosen.host, _name_places(chosen.devices, bus)
    found = merged(found, said)
    notes = [*nvml.notes, *(second.notes if second is not None else ()), *_doubled(chosen.devices)]
    if checked and second is not None and not nvml.fault:
        notes += _checked(nvml, second)
    if nvml.fault and not chosen.fault:
        notes.append("nvidia-smi was asked, because NVML gave no answer: {}".format(nvml.fault))
    notes += _disagreements(found, devices, host)
    if not opened:
        return found, (), tuple(notes)
    return found, tuple(_filled(host, bus, device) for device in devices), tuple(notes)


def _filled(host: Host, bus: Bus, device: Device) -> Device:
    """Return the device with what files say where the driver gave no answer."""
    gpu = next((gpu for gpu in bus.gpus or () if gpu.address == device.ident), None)
    files = {} if gpu is None else {**_bus_facts(gpu), **pci.facts(host, device.ident)}
    return Device(device.kind, device.ident, merged(merged(device.facts, _module(host, device.ident)), files))


def _module(host: Host, address: str) -> Dict[str, Observed]:
    """Return what the loaded module says of a GPU, its values alone: a placeholder says nothing new."""
    return {key: seen for key, seen in nvidia_proc.gpu_facts(host, address).items() if seen.has_value}


# ---- NVML ----------------------------------------------------------------------------------------


def _nvml(host: Host, bus: Bus, kernel: Observed, opened: bool) -> Source:
    try:
        answer = host.nvml(opened)
    except Absent as absence:
        return Source({}, (), (), absence.detail if kernel.has_value else _no_driver(bus) + "; " + absence.detail)
    fault = _error(answer, bus, kernel)
    if fault:
        return Source({}, (), (), fault)
    try:
        return _answered(answer, bus)
    except (KeyError, TypeError, UsageError) as error:
        return Source({}, (), (), "the answer of the child process that asked NVML is not understood: {}".format(error))


def _answered(answer: Mapping[str, Any], bus: Bus) -> Source:
    found = _facts(answer["host"], HOST, ("nvidia.driver",))
    listed = answer["gpus"]
    devices = tuple(Device("gpu", str(gpu["id"]), _facts(gpu["facts"], GPU, ("gpu.name",))) for gpu in listed)
    found[_COUNT] = _count(int(answer.get("count", len(devices))), bus)
    said = [answer["unfinished"]] if answer.get("unfinished") else []
    said += [note for note in answer.get("notes", ()) if note not in said]
    return Source(found, devices, tuple(str(note) for note in said))


def _facts(document: Any, scope: str, needed: Tuple[str, ...]) -> Dict[str, Observed]:
    """Return the registered facts in the child's document; `KeyError` when it lacks one that is `needed`."""
    for key in needed:
        document[key]
    keys = [entry.key for entry in in_scope(scope) if entry.key in document]
    return {key: observed_from(document[key], "NVML child", key) for key in keys}


def _error(answer: Mapping[str, object], bus: Bus, kernel: Observed) -> str:
    """Return in words why NVML did not answer; empty when it did."""
    if "error" not in answer:
        return ""
    said = "NVML: {}".format(answer["error"])
    if answer.get("code") in (_NOT_LOADED, _NO_LIBRARY) and not kernel.has_value:
        return "{}; {}".format(_no_driver(bus), said)
    if answer.get("code") == _MISMATCH and kernel.has_value:
        return "{}; the loaded kernel module is version {}".format(said, kernel.value)
    return said


def _count(count: int, bus: Bus, source: str = _COUNT_SOURCE) -> Observed:
    on_bus = len(bus.gpus) if bus.gpus is not None else count
    if count == 0 and (on_bus or bus.signs):
        # A driver that shows nothing is not a host without GPUs.
        return absent(HIDDEN, source, "the driver shows no GPU; on the PCI bus: {}".format(on_bus))
    detail = "on the PCI bus: {}".format(on_bus) if on_bus != count else ""
    return Observed(VALUE, count, source, detail)


# ---- nvidia-smi ----------------------------------------------------------------------------------


def _smi(host: Host, bus: Bus) -> Source:
    from envlock.probe.smi.live import ask

    try:
        answer = ask(host)
    except Absent as absence:
        return Source({}, (), (), absence.detail)
    count = answer.host[_COUNT]
    if answer.fault or (not answer.described and count != value(0)):
        return Source({}, (), answer.notes, "nvidia-smi: {}".format(answer.fault or "; ".join(answer.notes)))
    found = dict(answer.host)
    if not found["nvidia.driver"].has_value:
        found["nvidia.driver"] = nvidia_proc.library_version(host, found["nvidia.driver"].detail)
    if isinstance(count.value, int):
        counted = _count(count.value, bus, count.source)
        said = count.detail if count.value else ""
        detail = "; ".join(filter(None, (said, counted.detail)))
        found[_COUNT] = Observed(counted.outcome, counted.value, counted.source, detail)
    return Source(found, answer.gpus, answer.notes)


# ---- without an answer of the driver -------------------------------------------------------------


def _no_driver(bus: Bus) -> str:
    if not bus.gpus:
        where = " (signs of one: {})".format(", ".join(bus.signs)) if bus.signs else ""
        return "no NVIDIA driver is loaded, and no NVIDIA device is seen on the PCI bus" + where
    bound = sorted({gpu.driver for gpu in bus.gpus if gpu.driver and gpu.driver != "nvidia"})
    names = ", ".join("{} at {}".format(gpu.pci_id, gpu.address) for gpu in bus.gpus)
    return "{}: no NVIDIA driver is loaded{}".format(names, " (bound to {})".format(", ".join(bound)) if bound else "")


def _without_driver(host: Host, bus: Bus, reason: str) -> Tuple[Dict[str, Observed], Tuple[Device, ...]]:
    """Return what files say: nothing here is a claim that something is not there."""
    unknown = absent(FAILED, "NVML", reason)
    found = {entry.key: unknown for entry in in_scope(HOST) if entry.key.startswith("nvidia.")}
    found[_COUNT] = absent(FAILED, _COUNT_SOURCE, reason)
    found["nvidia.driver"] = nvidia_proc.library_version(host, reason)
    addresses = sorted({*(gpu.address for gpu in bus.gpus or ()), *nvidia_proc.addresses(host)})
    devices = []
    for address in addresses:
        facts = {entry.key: unknown for entry in in_scope(GPU)}
        facts.update(nvidia_proc.gpu_facts(host, address))
        devices.append(Device("gpu", address, facts))
    return found, tuple(devices)


def _bus_facts(gpu: pci.PciGpu) -> Dict[str, Observed]:
    folder = "{}/{}".format(pci.FOLDER, gpu.address)
    return {
        "gpu.pci_id": value(gpu.pci_id, folder + "/device"),
        "gpu.subsystem_id": value(gpu.subsystem_id, folder + "/subsystem_device"),
    }


# ---- what sources disagree about -----------------------------------------------------------------


def _disagreements(found: Dict[str, Observed], devices: Tuple[Device, ...], host: Host) -> List[str]:
    """Return in words what the driver's library and its loaded module disagree about."""
    notes = []
    driver, kernel = found["nvidia.driver"], found["nvidia.kernel_driver"]
    if driver.has_value and kernel.has_value and driver.value != kernel.value:
        detail = "the loaded kernel module is another version: {}".format(kernel.value)
        found["nvidia.driver"] = Observed(VALUE, driver.value, driver.source, detail)
        notes.append("the driver library is version {}, and {}".format(driver.value, detail))
    known = nvidia_proc.addresses(host)
    count = found[_COUNT]
    if count.has_value and known and count.value != len(known):
        notes.append("the driver shows {} GPUs, and the loaded module knows {}".format(count.text(), len(known)))
    for device in devices:
        for key, seen in _module(host, device.ident).items():
            told = device.facts.get(key)
            if told is not None and told.outcome != NOT_SUPPORTED and not agree(key, told, seen):
                notes.append("GPU at {}: {}: {} says {}; {} says {}".format(
                    device.ident, REGISTRY[key].label, told.source, told.text(), seen.source, seen.text()))  # fmt: skip
    return notes


def _checked(nvml: Source, second: Source) -> List[str]:
    if second.fault:
        return ["nvidia-smi was asked beside NVML and gave no answer: {}".format(second.fault)]
    found = cross_check(Facts(nvml.host, nvml.devices), Facts(second.host, second.devices))
    return [str(one) for one in found] or ["NVML and nvidia-smi agree"]


def _name_places(gpus: Tuple[Device, ...], bus: Bus) -> Tuple[Device, ...]:
    """Return the GPUs, each with a place; one that could not be opened takes the one left on the bus, if it is one.

    A place that several GPUs are said to be at is none of theirs: nobody can tell whose it is.
    """
    counted = Counter(gpu.ident for gpu in gpus)
    left = [gpu for gpu in bus.gpus or () if gpu.address not in counted]
    devices = []
    for index, gpu in enumerate(gpus):
        place = gpu.ident if counted[gpu.ident] == 1 else ""
        if not gpu.ident and counted[""] == 1 and len(left) == 1:
            place = left[0].address
        devices.append(Device("gpu", place or "unknown-{}".format(index), gpu.facts))
    return tuple(devices)


def _doubled(gpus: Tuple[Device, ...]) -> List[str]:
    """Return in words which addresses the driver gives to several GPUs."""
    counted = Counter(gpu.ident for gpu in gpus if gpu.ident)
    return ["the driver shows {} GPUs at {}: which of them is there cannot be told".format(number, place)
            for place, number in counted.items() if number > 1]  # fmt: skip
