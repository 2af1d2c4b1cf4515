"""How the CPUs are arranged, whether a hypervisor is below, and its name.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, Mapping

from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, Observed
from envlock.probe import cpu, ranges
from envlock.probe.host import Absent, Host, feature, observe

_SYS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node/online"
_CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"

# What DMI's system vendor and product say on a guest; the first fit counts.
_DMI_NAMES = (
    ("vmware", "vmware"),
    ("innotek", "virtualbox"),
    ("virtualbox", "virtualbox"),
    ("xen", "xen"),
    ("virtual machine", "hyper-v"),
    ("qemu", "kvm"),
    ("kvm", "kvm"),
    ("google compute engine", "google"),
    ("amazon ec2", "amazon"),
    ("openstack", "openstack"),
    ("parallels", "parallels"),
)
_CLOCK_NAMES = (("kvm-clock", "kvm"), ("hyperv", "hyper-v"), ("xen", "xen"))


def read(host: Host) -> Dict[str, Observed]:
    """Return the facts about sockets, cores, nodes, hardware threads and the hypervisor."""
    cpus = _cpus(host)
    return {
        "cpu.sockets": observe(cpu.CPUINFO, lambda: _sockets(host, cpus)),
        "cpu.cores": observe(cpu.CPUINFO, lambda: _cores(host, cpus)),
        "cpu.numa_nodes": feature(
            host, _NODES, lambda text: len(ranges.parse(text)), "/sys/devices/system", "a kernel without NUMA"
        ),
        "cpu.smt": feature(host, _SYS + "/smt/control", str.strip, _SYS, "the kernel has no SMT control here"),
        "cpu.virtualized": observe(cpu.CPUINFO, lambda: _virtualized(host, cpus)),
        "cpu.hypervisor": observe("/sys/hypervisor, DMI, clock sources", lambda: _hypervisor(host, cpus)),
    }


def _cpus(host: Host) -> cpu.Cpus:
    try:
        return cpu.parse(host.read(cpu.CPUINFO))
    except OSError:
        # `envlock.probe.cpu` reports why; the facts here that need it say so below.
        return ()


def _sockets(host: Host, cpus: cpu.Cpus) -> int:
    if cpus and all("physical id" in item for item in cpus):
        return len({item["physical id"] for item in cpus})
    packages = {_topology(host, item, "physical_package_id") for item in _some(cpus)}
    if "-1" in packages:
        raise Absent(FAILED, "the firmware does not name the sockets")
    return len(packages)


def _cores(host: Host, cpus: cpu.Cpus) -> int:
    if cpus and all("physical id" in item and "core id" in item for item in cpus):
        return len({(item["physical id"], item["core id"]) for item in cpus})
    return len({_topology(host, item, "thread_siblings_list") for item in _some(cpus)})


def _some(cpus: cpu.Cpus) -> cpu.Cpus:
    if not cpus:
        raise Absent(FAILED, "lists no processor")
    return cpus


def _topology(host: Host, item: Mapping[str, str], name: str) -> str:
    return host.read("{}/cpu{}/topology/{}".format(_SYS, item["processor"], name)).strip()


def _virtualized(host: Host, cpus: cpu.Cpus) -> bool:
    if cpu.is_x86(_some(cpus)):
        return cpu.is_guest(cpus)
    name = _dmi(host)
    if name:
        return True
    raise Absent(FAILED, "this architecture has no flag that tells, and DMI names no hypervisor")


def _hypervisor(host: Host, cpus: cpu.Cpus) -> str:
    guest = _virtualized(host, cpus)
    if not guest:
        raise Absent(NOT_SUPPORTED, "not a guest")
    name = _first_line(host, "/sys/hypervisor/type") or _dmi(host) or _clock(host)
    if not name:
        raise Absent(HIDDEN, "a guest, and nothing says of which hypervisor")
    return name


def _dmi(host: Host) -> str:
    text = " ".join(_first_line(host, "/sys/class/dmi/id/" + name) for name in ("sys_vendor", "product_name")).lower()
    if text.rstrip().endswith("metal"):  # a cloud's bare-metal machines carry its name, too
        return ""
    return next((name for part, name in _DMI_NAMES if part in text), "")


def _clock(host: Host) -> str:
    text = _first_line(host, _CLOCKS)
    return next((name for part, name in _CLOCK_NAMES if part in text), "")


def _first_line(host: Host, path: str) -> str:
    """Return the first line of a file that many hosts lack; empty when it cannot be read.

    Used only to *name* what another source has established, so nothing is hidden by it.
    """
    try:
        return host.read(path).partition("\n")[0].strip()
    except OSError:
        return ""
