"""The platform class: what decides which kernels run and no lockfile can set.

Two hosts of one class are expected to give the same bits under the same settings; each
class has its own golden. Threads, ISA caps, versions and build ids are settings, not
class: a difference there is a finding with its name.

Travels to nodes: standard library only, Python 3.8 and newer; torch is handed in.
"""

from __future__ import annotations

import os
from typing import Any, Dict

from envlock.errors import CouldNotTell
from envlock.probe import cpu

CPU = "cpu"
CUDA = "cuda"
BACKENDS = (CPU, CUDA)


def of_cpu(cpuinfo: str, machine: str) -> Dict[str, str]:
    """Return the class of a host's CPUs from the text of /proc/cpuinfo and uname's machine.

    Raises `CouldNotTell` when the text does not say what the CPUs can do.
    """
    cpus = cpu.parse(cpuinfo)
    flags = cpu.kernel_flags(cpu.flags_of(cpus))
    if not cpus or not flags:
        raise CouldNotTell("does not say which instructions the CPUs have", where=cpu.CPUINFO)
    vendors = sorted({item.get("vendor_id") or item.get("CPU implementer") or "unknown" for item in cpus})
    return {
        "backend": CPU,
        "machine": machine,
        "cpu.vendor": " ".join(vendors),
        "cpu.flags": " ".join(flags),
    }


def of_cuda(torch: Any) -> Dict[str, str]:
    """Return the class of the GPU that torch sees first: architecture, SM count, MIG profile."""
    seen = torch.cuda.get_device_properties(0)
    name = str(seen.name)
    return {
        "backend": CUDA,
        "gpu.arch": "sm_{}{}".format(seen.major, seen.minor),
        "gpu.sms": str(seen.multi_processor_count),
        "gpu.mig": name.split(" MIG ", 1)[1] if " MIG " in name else "none",
    }


def require_visible(torch: Any, backend: str) -> None:
    """Raise `CouldNotTell` when the device asked for is not there: never run on another one."""
    if backend == CUDA and not torch.cuda.is_available():
        raise CouldNotTell(
            "CUDA was asked for and torch {} sees no GPU{}".format(torch.__version__, _why_none(torch)),
            hint="is the driver loaded, is this torch made for CUDA, and was the GPU given to the container?",
        )


def _why_none(torch: Any) -> str:
    """Return what torch says when CUDA is started all the same: `is_available` keeps it to itself."""
    try:
        torch.cuda.init()
    except Exception as error:  # a driver that is too old, a build without CUDA: only the words differ
        lines = str(error).strip().splitlines()
        return " ({})".format(lines[0][:300]) if lines else ""
    return ""


def read(torch: Any, backend: str) -> Dict[str, str]:
    """Return the class of this host for `backend`; `CouldNotTell` when it cannot be read."""
    require_visible(torch, backend)
    if backend == CUDA:
        return of_cuda(torch)
    try:
        with open(cpu.CPUINFO, encoding="utf-8", errors="replace") as stream:
            return of_cpu(stream.read(), os.uname().machine)
    except OSError as error:
        raise CouldNotTell(str(error.strerror).lower(), where=cpu.CPUINFO) from error


def described(torch: Any, backend: str) -> Dict[str, str]:
    """Return what is worth knowing about this host and decides no class: for people and hints."""
    found: Dict[str, str] = {}
    try:
        with open(cpu.CPUINFO, encoding="utf-8", errors="replace") as stream:
            cpus = cpu.parse(stream.read())
        found["cpu.model_name"] = " / ".join(sorted({item.get("model name", "unknown") for item in cpus}))
        found["cpu.threads"] = str(len(cpus))
    except OSError as error:
        found["cpu.model_name"] = "(unreadable: {})".format(error.strerror)
    for level in ("1", "2", "3"):
        size = "/sys/devices/system/cpu/cpu0/cache/index{}/size".format(level)
        try:
            with open(size, encoding="ascii") as stream:
                found["cpu.cache.index" + level] = stream.read().strip()
        except OSError:
            found["cpu.cache.index" + level] = "(unreadable)"
    if hasattr(os, "sched_getaffinity"):
        found["cpu.usable"] = str(len(os.sched_getaffinity(0)))
    if backend == CUDA:
        for index in range(torch.cuda.device_count()):
            seen = torch.cuda.get_device_properties(index)
            found["gpu.{}.name".format(index)] = str(seen.name)
            found["gpu.{}.uuid".format(index)] = uuid_of(seen)
            found["gpu.{}.capability".format(index)] = "{}.{}".format(seen.major, seen.minor)
            found["gpu.{}.memory".format(index)] = str(getattr(seen, "total_memory", "(this torch does not say)"))
    return found


def uuid_of(seen: Any) -> str:
    """Return the UUID of a GPU as NVML writes it; torch (2.4 and newer) leaves the `GPU-` out."""
    found = str(getattr(seen, "uuid", "(this torch does not say)"))
    return "GPU-" + found if found[:1].isalnum() and not found.startswith(("GPU-", "MIG-")) else found
