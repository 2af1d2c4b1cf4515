"""The operating system: distribution, kernel, C library, parameters, memory.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Dict

from envlock.facts import FAILED, NOT_SUPPORTED, Observed, absent
from envlock.probe.host import Absent, Host, feature, observe

_RELEASE = "/etc/os-release"
_RELEASE_FALLBACK = "/usr/lib/os-release"
_CMDLINE = "/proc/cmdline"
_HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"
_BALANCING = "/proc/sys/kernel/numa_balancing"
_KERNEL = "/proc/sys/kernel/osrelease"
_MEMINFO = "/proc/meminfo"

# Parameters that hide instructions or microcode, cost speed, or place memory and threads.
# The rest of the line is never recorded: it may hold addresses, names and secrets.
_PARAMETERS = frozenset(
    "mitigations nosmt isolcpus nohz_full rcu_nocbs maxcpus nr_cpus clearcpuid noxsave dis_ucode_ldr "
    "transparent_hugepage hugepages hugepagesz default_hugepagesz numa numa_balancing mem "
    "iommu intel_iommu amd_iommu pcie_aspm idle intel_pstate amd_pstate cpufreq.default_governor "
    "processor.max_cstate intel_idle.max_cstate gather_data_sampling spectre_v2 spec_store_bypass_disable "
    "spec_rstack_overflow retbleed l1tf mds tsx tsx_async_abort mmio_stale_data srbds pti nopti nospectre_v1 "
    "nospectre_v2 reg_file_data_sampling indirect_target_selection preempt nokaslr norandmaps".split()
)
_PARAMETER_PREFIXES = ("nvidia.", "nvidia-drm.", "nvidia_drm.")


def read(host: Host) -> Dict[str, Observed]:
    """Return the facts of the operating system."""
    return {
        **_distribution(host),
        "system.kernel": observe(_KERNEL, lambda: _text(host.read(_KERNEL))),
        "system.libc": observe("confstr", host.libc),
        "system.kernel_parameters": observe(_CMDLINE, lambda: parameters(host.read(_CMDLINE))),
        "system.memory": observe(_MEMINFO, lambda: memory(host.read(_MEMINFO))),
        "system.transparent_hugepage": feature(
            host, _HUGE, chosen, "/sys/kernel/mm", "a kernel without transparent huge pages"
        ),
        "system.numa_balancing": feature(
            host, _BALANCING, _text, "/proc/sys/kernel", "a kernel without NUMA balancing"
        ),
    }


def parse_release(text: str) -> Dict[str, str]:
    """Return the variables of an os-release file (os-release(5)); a line that is none is passed over."""
    found: Dict[str, str] = {}
    for line in text.splitlines():
        name, equals, quoted = line.strip().partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            continue
        found[name] = _unquoted(quoted)
    return found


def _unquoted(text: str) -> str:
    """Return a shell word without its quotes; an open quote stays, which says more than nothing."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1]
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r'\\(["$`\\])', r"\1", text[1:-1])
    return text


def _distribution(host: Host) -> Dict[str, Observed]:
    path = _RELEASE if _readable(host, _RELEASE) else _RELEASE_FALLBACK
    try:
        release = parse_release(host.read(path))
    except OSError as error:
        seen = absent(FAILED, path, (error.strerror or str(error)).lower())
        return {"system.distribution": seen, "system.distribution_version": seen}
    return {
        # os-release(5): a file without an ID is one of the distribution "linux".
        "system.distribution": observe(path, lambda: release.get("ID") or "linux"),
        "system.distribution_version": _version(host, path, release),
    }


def _readable(host: Host, path: str) -> bool:
    try:
        host.read(path)
    except OSError:
        return False
    return True


def _version(host: Host, path: str, release: Dict[str, str]) -> Observed:
    version = release.get("VERSION_ID") or release.get("BUILD_ID")
    if not version:
        return absent(NOT_SUPPORTED, path, "this distribution numbers no releases")
    if release.get("ID") == "debian" and _readable(host, "/etc/debian_version"):
        # The point release is not in os-release.
        point = host.read("/etc/debian_version").strip()
        if point.startswith(version + "."):
            return observe("/etc/debian_version", lambda: point)
    return observe(path, lambda: str(version))


def parameters(line: str) -> tuple[str, ...]:
    """Return the kernel parameters that matter, in the order of the line."""
    kept = []
    for word in line.split():
        if word == "--":  # the rest is for the first process, not for the kernel
            break
        name = word.partition("=")[0].replace("-", "_")
        if name in _PARAMETERS or word.startswith(_PARAMETER_PREFIXES):
            kept.append(word)
    return tuple(kept)


def memory(text: str) -> int:
    """Return MemTotal in MiB."""
    match = re.search(r"^MemTotal:\s+(\d+) kB$", text, re.MULTILINE)
    if match is None:
        raise Absent(FAILED, "no line `MemTotal`")
    return int(match.group(1)) // 1024


def chosen(text: str) -> str:
    """Return the word in brackets of a sysfs choice such as `always [madvise] never`."""
    match = re.search(r"\[([a-z]+)\]", text)
    if match is None:
        raise ValueError("no word in brackets in {!r}".format(text.strip()))
    return match.group(1)


def _text(text: str) -> str:
    stripped = text.strip()
    if not stripped:
        raise Absent(FAILED, "is empty")
    return stripped
