"""NVIDIA GPUs on the PCI bus, and other signs of one, without any driver.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional, Tuple

from envlock.facts import Observed, value
from envlock.probe.host import Host

FOLDER = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380")  # VGA, 3D and other display controllers

WSL = "/dev/dxg"
# Signs of a GPU that is not on the PCI bus (WSL, Tegra), or of a driver.
_SIGNS = ("/proc/driver/nvidia", "/sys/module/nvidia", "/dev/nvidiactl", "/dev/nvidia0", WSL)
_DEVICE_TREE = "/proc/device-tree/compatible"
_LIBRARY = "ENVLOCK_NVML_LIBRARY"  # whoever names a driver library wants it asked


class PciGpu(NamedTuple):
    """One GPU on the bus: `address` such as `0000:01:00.0`, ids such as `10de:2330`, its kernel driver."""

    address: str
    pci_id: str
    subsystem_id: str
    driver: str


class Bus(NamedTuple):
    """What the PCI bus and other signs say; `gpus` is None when the bus could not be listed."""

    gpus: Optional[Tuple[PciGpu, ...]]
    listed: Observed
    signs: Tuple[str, ...]


def gpus(host: Host) -> tuple[PciGpu, ...]:
    """Return the NVIDIA GPUs on the PCI bus, by address; raises `OSError` when the bus cannot be listed."""
    found = []
    for address in _addresses(host):
        folder = "{}/{}".format(FOLDER, address)
        if _word(host, folder, "vendor") != _NVIDIA or not _word(host, folder, "class").startswith(_DISPLAY_CLASSES):
            continue
        found.append(
            PciGpu(
                normal_address(address),
                _pair(_NVIDIA, _word(host, folder, "device")),
                _pair(_word(host, folder, "subsystem_vendor"), _word(host, folder, "subsystem_device")),
                _driver(host, folder),
            )
        )
    return tuple(found)


def _addresses(host: Host) -> Tuple[str, ...]:
    try:
        return host.names(FOLDER)
    except FileNotFoundError:
        # A kernel without PCI shows its other buses; a sandbox's empty /sys shows nothing.
        buses = host.names("/sys/bus")
        if buses and "pci" not in buses:
            return ()
        raise


def signs(host: Host) -> tuple[str, ...]:
    """Return other signs of an NVIDIA GPU or driver on this host, as paths."""
    found = [path for path in _SIGNS if _may_exist(host, path)]
    if _may_exist(host, _DEVICE_TREE):
        try:
            tegra = "nvidia,tegra" in host.read(_DEVICE_TREE)
        except OSError:
            tegra = True  # it cannot be read, so it cannot rule a GPU out
        found += [_DEVICE_TREE] if tegra else []
    return (*found, _LIBRARY) if host.variable(_LIBRARY) else tuple(found)


def _may_exist(host: Host, path: str) -> bool:
    try:
        return host.exists(path)
    except OSError:
        return True  # a folder that may not be entered is no proof that nothing is there


_SPEEDS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5, "64.0": 6, "64": 6}


def facts(host: Host, address: str) -> Dict[str, Observed]:
    """Return what sysfs says of the link and the place of the GPU at `address`; what it does not is left out.

    The highest link that GPU and slot can have is the lesser of both ends' (PCI Express
    base specification, link capabilities; `max_link_speed` in the kernel's sysfs-bus-pci).
    """
    folder = "{}/{}".format(FOLDER, address)
    slot = _slot(host, folder)
    found: Dict[str, Observed] = {}
    for key, name, read in (
        ("gpu.pcie_generation", "current_link_speed", _generation),
        ("gpu.pcie_generation_device", "max_link_speed", _generation),
        ("gpu.pcie_width", "current_link_width", _width),
    ):
        number = read(host, folder, name)
        if number:
            found[key] = value(number, "{}/{}".format(folder, name))
    for key, name, read in (
        ("gpu.pcie_generation_max", "max_link_speed", _generation),
        ("gpu.pcie_width_max", "max_link_width", _width),
    ):
        ends = [read(host, end, name) for end in (folder, slot)] if slot else []
        if ends and all(ends):
            found[key] = value(min(ends), "{}/{}, and its slot's".format(folder, name))
    node = _said(host, folder, "numa_node")
    if re.match(r"\d{1,5}$", node):  # -1: the firmware does not say
        found["gpu.numa_node"] = value(node, folder + "/numa_node")
    return found


def _slot(host: Host, folder: str) -> str:
    """Return the folder of the bridge that the device at `folder` hangs on; empty when there is none to ask."""
    try:
        parent = host.link(folder).rstrip("/").split("/")[-2:-1]
    except OSError:
        return ""
    return "{}/{}".format(FOLDER, parent[0]) if parent and re.match(r"[0-9a-f]{4,8}:", parent[0]) else ""


def _generation(host: Host, folder: str, name: str) -> int:
    return _SPEEDS.get(_said(host, folder, name).partition(" ")[0], 0)


def _width(host: Host, folder: str, name: str) -> int:
    text = _said(host, folder, name)
    return int(text) if re.match(r"[1-9]\d?$", text) and int(text) <= 32 else 0


def _said(host: Host, folder: str, name: str) -> str:
    try:
        return _word(host, folder, name)
    except OSError:
        return ""


def normal_address(text: str) -> str:
    """Return a PCI address in sysfs' form: NVML's `00000000:01:00.0` is `0000:01:00.0`."""
    domain, colon, rest = text.strip().lower().partition(":")
    if not colon:
        raise ValueError("not a PCI address: {!r}".format(text))
    return "{:04x}:{}".format(int(domain, 16), rest)


def _word(host: Host, folder: str, name: str) -> str:
    return host.read("{}/{}".format(folder, name)).strip().lower()


def _pair(vendor: str, device: str) -> str:
    return "{}:{}".format(vendor.replace("0x", ""), device.replace("0x", ""))


def _driver(host: Host, folder: str) -> str:
    try:
        return host.link(folder + "/driver").rpartition("/")[2]
    except FileNotFoundError:
        return ""
