"""NVIDIA GPUs on the PCI bus, and other signs of one, without any driver.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from envlock.facts import Observed
from envlock.probe.host import Host

FOLDER = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380")  # VGA, 3D and other display controllers

# Signs of a GPU that is not on the PCI bus (WSL, Tegra), or of a driver.
_SIGNS = ("/proc/driver/nvidia", "/sys/module/nvidia", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
_DEVICE_TREE = "/proc/device-tree/compatible"


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
    return tuple(found)


def _may_exist(host: Host, path: str) -> bool:
    try:
        return host.exists(path)
    except OSError:
        return True  # a folder that may not be entered is no proof that nothing is there


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
