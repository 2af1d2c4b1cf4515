"""What /proc/cpuinfo says: the CPUs' identity, flags, ISA level and microcode.

The functions over text are pure; the canary uses them for its platform class. What the
kernel lets a process use is `envlock.probe.limits`, clocks are `envlock.probe.frequency`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Mapping, Sequence, Tuple

from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, VALUE, Observed, absent
from envlock.probe import ranges
from envlock.probe.host import Absent, Host, observe

CPUINFO = "/proc/cpuinfo"

Cpus = Tuple[Mapping[str, str], ...]

# x86-64 psABI, "Micro-Architecture Levels", in the kernel's names for the flags:
# SSE3 is `pni`, LZCNT is `abm`, OSXSAVE is `xsave`, SCE is `syscall`.
_LEVELS = (
    ("x86-64-v1", "cmov cx8 fpu fxsr mmx syscall sse sse2"),
    ("x86-64-v2", "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"),
    ("x86-64-v3", "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"),
    ("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl"),
)

# Flags by which math libraries choose kernels (oneDNN, MKL, OpenBLAS, XNNPACK, ACL). One
# list for each architecture: AMD's `sme` is encryption, Arm's is a matrix extension.
_X86_FLAGS = frozenset("ssse3 sse4_1 sse4_2 avx avx2 f16c fma fma4 xop".split())
_X86_PREFIXES = ("avx512", "avx_", "avx10", "amx_")
_ARM_FLAGS = frozenset("fp fphp asimd asimdhp asimddp asimdfhm asimdrdm fcma bf16 ebf16 i8mm".split())
_ARM_PREFIXES = ("sve", "sme")

_IDENTITY = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags",
    "CPU implementer", "CPU part", "CPU variant", "CPU revision", "Features",
    "isa", "uarch", "cpu", "revision",
)  # fmt: skip


def parse(text: str) -> Cpus:
    """Return one mapping for each processor in the text of /proc/cpuinfo.

    Lines outside of a processor's block (older Arm kernels print what is common once,
    at the end) count for every processor that does not say otherwise.
    """
    cpus: list[Dict[str, str]] = []
    shared: Dict[str, str] = {}
    current = shared
    for line in text.splitlines():
        key, colon, found = line.partition(":")
        key, found = key.strip(), found.strip()
        if not line.strip():
            current = shared
        elif colon and key == "processor" and found.isdigit():
            current = {key: found}
            cpus.append(current)
        elif colon:
            current[key] = found
    return tuple({**shared, **cpu} for cpu in cpus)


def flags_of(cpus: Cpus) -> frozenset[str]:
    """Return the flags that every CPU has; empty when one of them prints none."""
    sets = [_flag_set(cpu) for cpu in cpus]
    return frozenset.intersection(*sets) if sets else frozenset()


def _flag_set(cpu: Mapping[str, str]) -> frozenset[str]:
    # RISC-V joins its extensions by underscores: rv64imafdc_zicsr.
    return frozenset((cpu.get("flags") or cpu.get("Features") or cpu.get("isa", "").replace("_", " ")).split())


def kernel_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """Return those of `flags` by which math libraries choose their kernels, sorted.

    Arm is told by `asimd`, RISC-V by its ISA string, of which every part is kept.
    """
    held = frozenset(flags)
    if any(flag.startswith(("rv32", "rv64")) for flag in held):
        return tuple(sorted(held))
    known, prefixes = (_ARM_FLAGS, _ARM_PREFIXES) if "asimd" in held else (_X86_FLAGS, _X86_PREFIXES)
    return tuple(sorted(flag for flag in held if flag in known or flag.startswith(prefixes)))


def isa_level(flags: Iterable[str]) -> str:
    """Return the highest x86-64 level that `flags` reach in full; empty when not even the first."""
    held = frozenset(flags)
    reached = ""
    for name, needed in _LEVELS:
        if not held.issuperset(needed.split()):
            break
        reached = name
    return reached


def is_x86(cpus: Cpus) -> bool:
    return any("vendor_id" in cpu and ("flags" in cpu or "cpu family" in cpu) for cpu in cpus)


def is_arm(cpus: Cpus) -> bool:
    return any("CPU implementer" in cpu for cpu in cpus)


def is_guest(cpus: Cpus) -> bool:
    """Tell whether an x86 CPU says that a hypervisor is present (CPUID 1, ECX bit 31)."""
    return any("hypervisor" in cpu.get("flags", "").split() for cpu in cpus)


def read(host: Host) -> Dict[str, Observed]:
    """Return the facts that come from /proc/cpuinfo."""
    cpus: Cpus = ()
    try:
        cpus = parse(host.read(CPUINFO))
        if not cpus:
            raise Absent(FAILED, "lists no processor")
    except (OSError, Absent) as error:
        fault = error

        def unreadable() -> str:
            raise fault

        found = dict.fromkeys(facts_of(()), observe(CPUINFO, unreadable))
    else:
        found = facts_of(cpus)
    found["cpu.architecture"] = machine = observe("uname", host.machine)
    if machine.value in ("x86_64", "i686") and not is_x86(cpus):
        # A sandbox's made-up text: what an x86 CPU has is not missing, it is not shown.
        return {key: _not_shown(seen) for key, seen in found.items()}
    return found


def _not_shown(seen: Observed) -> Observed:
    if seen.outcome != NOT_SUPPORTED:
        return seen
    return absent(FAILED, seen.source, "the text is not that of an x86 CPU")


def facts_of(cpus: Cpus) -> Dict[str, Observed]:
    """Return the facts that the parsed /proc/cpuinfo holds."""
    return {
        "cpu.vendor": _of_x86(cpus, "vendor_id", str),
        "cpu.model_name": _model_name(cpus),
        "cpu.family": _of_x86(cpus, "cpu family", int),
        "cpu.model": _of_x86(cpus, "model", int),
        "cpu.stepping": _of_x86(cpus, "stepping", int),
        "cpu.arm_part": _arm_part(cpus),
        "cpu.isa_level": observe(CPUINFO, lambda: _level(cpus)),
        "cpu.flags": observe(CPUINFO, lambda: _selected(cpus)),
        "cpu.microcode": _microcode(cpus),
        "cpu.uniform": _uniform(cpus),
        "cpu.threads": observe(CPUINFO, lambda: len(cpus)),
    }


def distinct(found: Sequence[tuple[int, Any]], source: str, holder: str = "CPU") -> Observed:
    """Return one value when all CPUs (or policies) agree, else all values, sorted.

    `found` pairs each number with its value; the detail then says who holds which.
    """
    holders: Dict[Any, list[int]] = {}
    for number, item in found:
        holders.setdefault(item, []).append(number)
    if len(holders) == 1:
        return Observed(VALUE, next(iter(holders)), source)
    ordered = sorted(holders)
    detail = "; ".join("{} on {} {}".format(item, holder, ranges.text(holders[item])) for item in ordered)
    return Observed(VALUE, tuple(ordered), source, "not all agree: " + detail)


def _of_x86(cpus: Cpus, key: str, convert: Callable[[str], Any]) -> Observed:
    # Elsewhere a line of the same name means something else: POWER's `model` is the machine's.
    if not is_x86(cpus):
        return absent(NOT_SUPPORTED, CPUINFO, "only x86 CPUs have it")
    return _each(cpus, key, convert)


def _each(cpus: Cpus, key: str, convert: Callable[[str], Any]) -> Observed:
    lacking = [int(cpu["processor"]) for cpu in cpus if not cpu.get(key)]
    if len(lacking) == len(cpus):
        return absent(FAILED, CPUINFO, "no line `{}`".format(key))
    if lacking:
        return absent(FAILED, CPUINFO, "no line `{}` for CPUs {}".format(key, ranges.text(lacking)))
    try:
        return distinct([(int(cpu["processor"]), convert(cpu[key])) for cpu in cpus], CPUINFO)
    except ValueError as error:
        return absent(FAILED, CPUINFO, "not understood: {}".format(error))


def _model_name(cpus: Cpus) -> Observed:
    for key in ("model name", "cpu", "uarch"):
        if any(cpu.get(key) for cpu in cpus):
            return _each(cpus, key, lambda text: " ".join(text.split()))
    return absent(FAILED if is_x86(cpus) else NOT_SUPPORTED, CPUINFO, "this CPU prints no name")


def _arm_part(cpus: Cpus) -> Observed:
    if not is_arm(cpus):
        return absent(NOT_SUPPORTED, CPUINFO, "only Arm CPUs have it")
    keys = ("CPU implementer", "CPU part", "CPU variant", "CPU revision")
    joined = tuple({**cpu, "part": "/".join(cpu.get(key, "?") for key in keys)} for cpu in cpus)
    if any("?" in cpu["part"] for cpu in joined):
        return absent(FAILED, CPUINFO, "a core prints no implementer, part, variant or revision")
    return _each(joined, "part", str)


def _level(cpus: Cpus) -> str:
    if not is_x86(cpus):
        raise Absent(NOT_SUPPORTED, "levels are defined for x86-64 only")
    flags = flags_of(cpus)
    level = isa_level(flags)
    if not level:
        missing = sorted(set(_LEVELS[0][1].split()) - flags)
        raise Absent(FAILED, "the flags do not reach x86-64-v1: no {}".format(" ".join(missing)))
    return level


def _selected(cpus: Cpus) -> tuple[str, ...]:
    silent = [int(cpu["processor"]) for cpu in cpus if not _flag_set(cpu)]
    if len(silent) == len(cpus) and not (is_x86(cpus) or is_arm(cpus)):
        raise Absent(NOT_SUPPORTED, "this architecture prints no flags")
    if silent:
        raise Absent(FAILED, "no flags for CPUs {}".format(ranges.text(silent)))
    return kernel_flags(flags_of(cpus))


def _microcode(cpus: Cpus) -> Observed:
    if is_guest(cpus):
        # The flag decides, not the value: some hypervisors print a plausible version.
        shown = sorted({cpu["microcode"] for cpu in cpus if cpu.get("microcode")})
        detail = "a guest does not see the real one" + (" (it prints {})".format(" ".join(shown)) if shown else "")
        return absent(HIDDEN, CPUINFO, detail)
    return _of_x86(cpus, "microcode", str)


def _uniform(cpus: Cpus) -> Observed:
    if not cpus:
        return absent(FAILED, CPUINFO, "lists no processor")
    differing = [key for key in _IDENTITY if len({_normal(cpu, key) for cpu in cpus}) > 1]
    if not differing:
        return Observed(VALUE, True, CPUINFO)
    return Observed(VALUE, False, CPUINFO, "CPUs differ in: {}".format(", ".join(differing)))


def _normal(cpu: Mapping[str, str], key: str) -> str:
    return " ".join(sorted(cpu.get(key, "").split())) if key in ("flags", "Features") else cpu.get(key, "")
