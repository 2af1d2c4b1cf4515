"""Facts about the CPUs of a host.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from envlock.registry.entry import (
    BITS,
    BOOLEAN,
    IDENTITY,
    INFORMATION,
    INTEGER,
    SPEED,
    STRING,
    STRINGS,
    Entry,
)

_CPUINFO = "/proc/cpuinfo"
_SYS = "/sys/devices/system/cpu"
_OTHER_HOST = "run on a host with the locked CPU model"

FACTS: tuple[Entry, ...] = (
    Entry(
        "cpu.architecture", "architecture", STRING,
        "libraries for another architecture are other programs with other arithmetic",
        "uname", BITS, locked=True, rule="exact", severity="error", identity="error", remedy=_OTHER_HOST,
    ),
    Entry(
        "cpu.vendor", "vendor", STRING,
        "math libraries choose their kernels by vendor",
        _CPUINFO, BITS, locked=True, rule="exact", severity="error", identity="error", remedy=_OTHER_HOST, each=True,
    ),
    Entry(
        "cpu.model_name", "model name", STRING,
        "the name people know the part by; hypervisors change it freely",
        _CPUINFO, IDENTITY, locked=True, rule="exact", identity="warning", remedy=_OTHER_HOST, each=True,
    ),
    Entry(
        "cpu.family", "family", INTEGER,
        "with model and stepping it names the design; libraries tune by it",
        _CPUINFO, BITS, locked=True, rule="exact", severity="error", identity="error", remedy=_OTHER_HOST, each=True,
    ),
    Entry(
        "cpu.model", "model", INTEGER,
        "with family and stepping it names the design; libraries tune by it",
        _CPUINFO, BITS, locked=True, rule="exact", severity="error", identity="error", remedy=_OTHER_HOST, each=True,
    ),
    Entry(
        "cpu.stepping", "stepping", INTEGER,
        "another revision of one design has other errata",
        _CPUINFO, IDENTITY, locked=True, rule="exact", identity="warning", remedy=_OTHER_HOST, each=True,
    ),
    Entry(
        "cpu.arm_part", "Arm part", STRING,
        "implementer/part/variant/revision name an Arm core, which prints no model",
        _CPUINFO, BITS, locked=True, rule="exact", severity="error", identity="error", remedy=_OTHER_HOST, each=True,
    ),
    Entry(
        "cpu.isa_level", "ISA level", STRING,
        "the x86-64 level that all flags reach decides which builds of a library load",
        "computed from the flags (x86-64 psABI)", BITS, locked=True, rule="exact", severity="error",
        remedy="run on a host of the same level, or cap the ISA in the determinism profile",
    ),
    Entry(
        "cpu.flags", "kernel flags", STRINGS,
        "instruction sets by which math libraries choose kernels, so the order of sums",
        _CPUINFO, BITS, locked=True, rule="exact", severity="error",
        remedy="look for `clearcpuid` or a firmware switch that hides instructions; else use another host",
    ),
    Entry(
        "cpu.microcode", "microcode", STRING,
        "microcode can switch instructions off and change their timing and results",
        _CPUINFO, BITS, locked=True, rule="exact", severity="error", each=True,
        remedy="install the same microcode package and reboot",
    ),
    Entry(
        "cpu.uniform", "all CPUs agree", BOOLEAN,
        "a thread that moves to another kind of core may run another kernel",
        _CPUINFO, BITS, locked=True, rule="exact", severity="error",
        remedy="update the microcode on all sockets; pin the work to one kind of core",
    ),
    Entry(
        "cpu.virtualized", "virtual machine", BOOLEAN,
        "a hypervisor hides microcode and may mask instructions",
        _CPUINFO, INFORMATION,
    ),
    Entry(
        "cpu.hypervisor", "hypervisor", STRING,
        "whose masking of CPU facts to expect",
        "/sys/hypervisor, DMI, clock sources", INFORMATION,
    ),
    Entry(
        "cpu.sockets", "sockets", INTEGER,
        "memory distance and default thread placement",
        _CPUINFO, SPEED, locked=True, rule="exact", identity="error", remedy=_OTHER_HOST,
    ),
    Entry(
        "cpu.cores", "cores", INTEGER,
        "default thread pools follow it, and with them the split of sums",
        _CPUINFO, SPEED, locked=True, rule="exact", identity="error",
        remedy="fix the thread count in the determinism profile",
    ),
    Entry(
        "cpu.threads", "threads", INTEGER,
        "logical CPUs that are online; default thread pools follow it",
        _CPUINFO, SPEED, locked=True, rule="exact", remedy="fix the thread count in the determinism profile",
    ),
    Entry(
        "cpu.numa_nodes", "NUMA nodes", INTEGER,
        "memory distance; libraries may split work by node",
        "/sys/devices/system/node/online", SPEED, locked=True, rule="exact",
        remedy="set the same NUMA (NPS, SNC) mode in the firmware",
    ),
    Entry(
        "cpu.smt", "SMT", STRING,
        "hardware threads that share a core share its units",
        _SYS + "/smt/control", SPEED, locked=True, rule="exact",
        remedy="write the locked value to " + _SYS + "/smt/control, or set it in the firmware",
    ),
    Entry(
        "cpu.governor", "governor", STRING,
        "who chooses the clock",
        _SYS + "/cpufreq/policy*/scaling_governor", SPEED, locked=True, rule="exact", each=True,
        remedy="`cpupower frequency-set -g GOVERNOR`", command="cpupower frequency-set -g {value}",
    ),
    Entry(
        "cpu.frequency_min", "lowest frequency", INTEGER,
        "lower limit of the clock",
        _SYS + "/cpufreq/policy*/scaling_min_freq", SPEED, unit="MHz", locked=True, rule="within 1 MHz", each=True,
        remedy="`cpupower frequency-set -d FREQUENCY`", default="cpu.frequency_min_default",
        command="cpupower frequency-set -d {value}MHz",
    ),
    Entry(
        "cpu.frequency_max", "highest frequency", INTEGER,
        "upper limit of the clock",
        _SYS + "/cpufreq/policy*/scaling_max_freq", SPEED, unit="MHz", locked=True, rule="within 1 MHz", each=True,
        remedy="`cpupower frequency-set -u FREQUENCY`", default="cpu.frequency_max_default",
        command="cpupower frequency-set -u {value}MHz",
    ),
    Entry(
        "cpu.frequency_min_default", "lowest frequency of the CPU", INTEGER,
        "what the lower limit is after a boot",
        _SYS + "/cpufreq/policy*/cpuinfo_min_freq", SPEED, unit="MHz", each=True,
    ),
    Entry(
        "cpu.frequency_max_default", "highest frequency of the CPU", INTEGER,
        "what the upper limit is after a boot",
        _SYS + "/cpufreq/policy*/cpuinfo_max_freq", SPEED, unit="MHz", each=True,
    ),
    Entry(
        "cpu.boost", "boost", BOOLEAN,
        "clocks above the base frequency depend on heat and neighbours",
        _SYS + "/cpufreq/boost", SPEED, locked=True, rule="exact", default_value=True,
        remedy="write 0 or 1 to " + _SYS + "/cpufreq/boost (intel_pstate/no_turbo on Intel)",
    ),
    Entry(
        "cpu.usable", "usable CPUs", INTEGER,
        "CPUs this process may run on; default thread pools follow it",
        "/proc/self/status", INFORMATION,
    ),
    Entry(
        "cpu.limit", "CPU time limit", INTEGER,
        "CPU time the control group may use, in thousandths of a CPU",
        "cgroup cpu.max or cpu.cfs_quota_us", INFORMATION, unit="mCPU",
    ),
)  # fmt: skip
