"""What files say about the NVIDIA driver: /proc/driver/nvidia, and the library's own name.

Used beside NVML for the loaded kernel module, and in its place on a node whose Python
has no NVML binding.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Dict, Tuple

from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, Observed, absent, value
from envlock.probe.host import Absent, Host, observe
from envlock.probe.pci import WSL, normal_address

VERSION = "/proc/driver/nvidia/version"
_GPUS = "/proc/driver/nvidia/gpus"
_PARAMS = "/proc/driver/nvidia/params"
_MODULE = "/sys/module/nvidia/version"
_LIBRARY = "libnvidia-ml.so.1"
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/run/opengl-driver/lib", "/usr/lib/wsl/lib",
)  # fmt: skip


def kernel_facts(host: Host, signs: Tuple[str, ...] = ()) -> Dict[str, Observed]:
    """Return version and kind of the loaded kernel module. `signs` are those of `envlock.probe.pci`."""
    outcome, why = FAILED, "no NVIDIA kernel module is loaded"
    if WSL in signs:
        outcome, why = NOT_SUPPORTED, "under WSL the kernel's part of the driver is in Windows"
    found = {
        "nvidia.kernel_driver": observe(VERSION, lambda: parse_version(host.read(VERSION))[0], outcome, why),
        "nvidia.kernel_module": observe(VERSION, lambda: parse_version(host.read(VERSION))[1], outcome, why),
    }
    if found["nvidia.kernel_driver"].outcome != NOT_SUPPORTED and not found["nvidia.kernel_driver"].has_value:
        # A container that hides /proc/driver shows the module all the same.
        module = observe(_MODULE, lambda: _bare_version(host.read(_MODULE)))
        if module.has_value:
            found["nvidia.kernel_driver"] = module
    return found


def _bare_version(text: str) -> str:
    if not re.match(r"\d+(?:\.\d+)+$", text.strip()):
        raise ValueError(text)
    return text.strip()


def parse_version(text: str) -> tuple[str, str]:
    """Return version and kind (`open` or `proprietary`) from the text of /proc/driver/nvidia/version.

    Only the NVRM line is read: the GCC line may hold an error message, and the rest of
    the NVRM line names whoever built the module.
    """
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)\b", line)
    if match is None:
        raise Absent(FAILED, "no version in the line `NVRM version`")
    return match.group(1), "open" if "Open Kernel Module" in line else "proprietary"


def library_version(host: Host, reason: str) -> Observed:
    """Return the driver's version from what the link `libnvidia-ml.so.1` points to.

    The driver's installer names the file by its full version. `reason` says why the
    driver itself was not asked.
    """
    for folder in _FOLDERS:
        path = "{}/{}".format(folder, _LIBRARY)
        try:
            match = re.search(r"libnvidia-ml\.so\.(\d+(?:\.\d+)+)$", host.link(path))
        except OSError:
            continue  # not here; the next folder
        if match is not None:
            return value(match.group(1), path)
    return absent(FAILED, "NVML", reason)


def addresses(host: Host) -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs that the loaded module knows."""
    try:
        return tuple(normal_address(name) for name in host.names(_GPUS))
    except (OSError, ValueError):
        return ()  # the PCI bus is the source that counts; this one only adds


def gpu_facts(host: Host, address: str) -> Dict[str, Observed]:
    """Return what the module says about the GPU at `address`; empty when it says nothing."""
    path = "{}/{}/information".format(_GPUS, address)
    try:
        found = parse_information(host.read(path), path)
    except OSError:
        return {}
    if "gpu.gsp" in found and not found["gpu.gsp"].has_value and _gsp_is_switched_off(host):
        found["gpu.gsp"] = value(False, "{}: EnableGpuFirmware".format(_PARAMS))
    return found


def _gsp_is_switched_off(host: Host) -> bool:
    """Return whether the module was loaded with GSP firmware off (NVreg_EnableGpuFirmware=0)."""
    try:
        return bool(re.search(r"^EnableGpuFirmware: 0$", host.read(_PARAMS), re.MULTILINE))
    except OSError:
        return False


def parse_information(text: str, source: str) -> Dict[str, Observed]:
    """Return the facts in a GPU's `information` file. Placeholders are failures, not values."""
    lines = {}
    for line in text.splitlines():
        key, colon, found = line.partition(":")
        if colon:
            lines[key.strip()] = found.strip()
    facts = {}
    for key, label in (("gpu.name", "Model"), ("gpu.uuid", "GPU UUID"), ("gpu.vbios", "Video BIOS")):
        found = lines.get(label, "")
        if not found or "??" in found or found == "Unknown":
            facts[key] = absent(FAILED, source, "the driver has not attached this GPU yet")
        elif key == "gpu.vbios" and not found.strip("0."):
            facts[key] = absent(HIDDEN, source, "a guest with a virtual GPU does not see it ({})".format(found))
        else:
            facts[key] = value(found, source)
    if re.match(r"\d{1,4}$", lines.get("Device Minor", "")):
        facts["gpu.minor"] = value(int(lines["Device Minor"]), source)
    firmware = lines.get("GPU Firmware")
    if firmware == "N/A":
        # NVML calls it not supported, too, and does not tell "off" from "none".
        facts["gpu.gsp"] = facts["gpu.gsp_version"] = absent(NOT_SUPPORTED, source, "GSP firmware is off or absent")
    elif firmware and "?" not in firmware:
        facts["gpu.gsp"] = value(True, source)
        facts["gpu.gsp_version"] = value(firmware, source)
    return facts
