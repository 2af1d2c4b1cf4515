"""NVML's answers as values: texts, numbers, switches and the names of its enumerations.

Numbers are those of nvml.h. A number that is not among them is never given a name: it is
a fault with the number in it. Names are spelled as the tool nvidia-smi prints them, in
lower case: both sources of GPU facts must spell a thing in one way.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED
from envlock.probe import ranges
from envlock.probe.host import Absent

BRANDS = {
    1: "quadro", 2: "tesla", 3: "nvs", 4: "grid", 5: "geforce", 6: "titan", 7: "nvidia virtual applications",
    8: "nvidia virtual pc", 9: "nvidia virtual compute server", 10: "nvidia rtx virtual workstation",
    11: "nvidia cloud gaming", 12: "quadro rtx", 13: "nvidia rtx", 14: "nvidia", 15: "geforce rtx", 16: "titan rtx",
}  # fmt: skip
ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada lovelace", 9: "hopper",
    10: "blackwell", 13: "rubin",
}  # fmt: skip
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
ADDRESSING = {0: "none", 1: "hmm", 2: "ats"}
OPERATION = {0: "all on", 1: "compute", 2: "low double precision"}
VIRTUALIZATION = {0: "none", 1: "pass-through", 2: "vgpu", 3: "host vgpu", 4: "host vsga"}
HOST_VGPU = {0: "non sr-iov", 1: "sr-iov"}
RECOVERY = {
    0: "none", 1: "reset", 2: "reboot", 3: "drain p2p", 4: "drain and reset", 5: "recover imex domain",
    6: "bus reset", 7: "system reboot",
}  # fmt: skip
# nvmlPlatformInfo_t.peerType; not in nvml.h, but what nvidia-smi makes of it (NVIDIA/k8s-test-infra).
PEER_TYPES = {0: "direct connected", 1: "switch connected"}
FABRIC = {1: "not started", 2: "in progress", 3: "completed"}
PATHS = {0: "internal", 10: "single-switch", 20: "multiple-switch", 30: "host-bridge", 40: "node", 50: "system"}
PEERS = {
    0: "ok", 1: "chipset not supported", 2: "gpu not supported", 3: "topology not supported",
    4: "disabled by registry key", 5: "not supported",
}  # fmt: skip
# nvmlNvlinkVersion_t: an A100 answers 5, which is version 3.1.
LINK_VERSIONS = {1: "1", 2: "2", 3: "2.2", 4: "3", 5: "3.1", 6: "4", 7: "5", 8: "6"}
LINK_ENDS = {0: "gpu", 1: "cpu", 2: "switch", 0xFF: "unknown"}
REASONS = (
    "gpu idle", "applications clocks setting", "sw power cap", "hw slowdown", "sync boost", "sw thermal slowdown",
    "hw thermal slowdown", "hw power brake slowdown", "display clock setting", "board limit", "reliability",
)  # fmt: skip


def text(found: Any) -> str:
    """Return a text that is not empty; the driver may answer with bytes."""
    words = found.decode("utf-8") if isinstance(found, bytes) else str(found)
    if not words.strip():
        raise ValueError("an empty answer")
    return words.strip()


def number(found: Any) -> int:
    """Return a number, which may come wrapped by ctypes."""
    return int(getattr(found, "value", found))


def switch(found: Any) -> bool:
    """Return whether something is on (1) or off (0)."""
    state = number(found)
    if state not in (0, 1):
        raise ValueError("neither on nor off: {}".format(state))
    return state == 1


def named(names: Mapping[int, str]) -> Callable[[Any], str]:
    """Return the function that gives a number its name; an unknown number is a fault."""

    def name(found: Any) -> str:
        return name_of(names, found)

    return name


def name_of(names: Mapping[int, str], found: Any) -> str:
    """Return the name of a number; `ValueError` says which number has none."""
    if number(found) not in names:
        raise ValueError("an answer that this envlock does not know: {}".format(number(found)))
    return names[number(found)]


def vbios(found: Any) -> str:
    """Return a VBIOS version; the zeros that a virtual GPU shows are hidden."""
    version = text(found)
    if not version.strip("0."):
        raise Absent(HIDDEN, "a guest with a virtual GPU does not see it ({})".format(version))
    return version


def cuda(found: Any) -> str:
    """Return a CUDA level: 12040 is 12.4."""
    level = number(found)
    return "{}.{}".format(level // 1000, level % 1000 // 10)


def pci_ids(found: int) -> str:
    """Return `vendor:device` of an id whose upper half is the device (nvmlPciInfo_t)."""
    return "{:04x}:{:04x}".format(found & 0xFFFF, found >> 16)


def mebibytes(found: Any) -> int:
    """Return the total of an nvmlMemory_t in MiB."""
    return int(found.total) >> 20


def reasons(found: Any) -> tuple[str, ...]:
    """Return the names of the bits that are set in a mask of clock event reasons."""
    mask = number(found)
    unknown = mask >> len(REASONS)
    if unknown:
        raise ValueError("reasons that this envlock does not know: {:#x}".format(unknown << len(REASONS)))
    return tuple(sorted(name for bit, name in enumerate(REASONS) if mask >> bit & 1))


def remapped(found: Any) -> tuple[str, ...]:
    """Return the remapped rows: counts, and whether some wait for a reset or could not be remapped."""
    correctable, uncorrectable, pending, failed = found
    return (
        "correctable {}".format(number(correctable)),
        "uncorrectable {}".format(number(uncorrectable)),
        "pending {}".format("yes" if switch(pending) else "no"),
        "failed {}".format("yes" if switch(failed) else "no"),
    )


def fabric(found: Any) -> str:
    """Return the state of a GPU in its NVLink fabric (nvmlGpuFabricInfo_t)."""
    if number(found.state) == 0:
        raise Absent(NOT_SUPPORTED, "this GPU is in no NVLink fabric")
    state = name_of(FABRIC, found.state)
    if state == "completed" and number(found.status) != 0:
        raise Absent(FAILED, "registration with the fabric ended with NVML code {}".format(number(found.status)))
    return state


def fabric_cluster(found: Any) -> str:
    """Return the UUID of the NVLink domain; zeros stand for a node alone."""
    from ctypes import addressof, string_at

    # Some bindings call these bytes a text, and would end it at the first zero.
    digits = string_at(addressof(found) + type(found).clusterUuid.offset, 16).hex()
    if not digits.strip("0"):
        raise Absent(NOT_SUPPORTED, "no NVLink domain of several nodes")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def serial(found: Any) -> str:
    """Return a serial number; zeros stand for none."""
    digits = text(found)
    if not digits.strip("0"):
        raise Absent(NOT_SUPPORTED, "the board has no serial number ({})".format(digits))
    return digits


def pdi(found: int) -> str:
    """Return a device identifier in hexadecimal; zero stands for none."""
    if not found:
        raise Absent(NOT_SUPPORTED, "the GPU has no device identifier (0)")
    return "{:#018x}".format(found)


def chassis(found: Any) -> str:
    """Return a chassis serial number (nvmlPlatformInfo_t); an empty one is none."""
    if not found.chassisSerialNumber:
        raise Absent(NOT_SUPPORTED, "no chassis has given its serial number")
    return text(found.chassisSerialNumber)


def memory_node(found: Any) -> int:
    """Return the NUMA node that a GPU's own memory is; a negative one is none."""
    if number(found) < 0:
        raise Absent(NOT_SUPPORTED, "the GPU's memory is no NUMA node ({})".format(number(found)))
    return number(found)


def numbers_in(words: Iterable[int]) -> tuple[int, ...]:
    """Return the numbers of the bits that are set in an array of 64-bit words."""
    return tuple(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def set_of(what: str) -> Callable[[Any], str]:
    """Return the function that gives a bit set as ranges such as `0-55,112-167`; `what` names its members."""

    def written(found: Any) -> str:
        members = numbers_in(found)
        if not members:
            raise Absent(NOT_SUPPORTED, "no {} is nearer than another".format(what))
        return ranges.text(members)

    return written


def counted(items: Iterable[str]) -> tuple[str, ...]:
    """Return equal items once with their number, such as `7 x node`, sorted."""
    tally: dict[str, int] = {}
    for item in items:
        tally[item] = tally.get(item, 0) + 1
    return tuple(sorted("{} x {}".format(tally[item], item) for item in tally))
