"""Hosts made of plain facts: an HGX node, a node cut into MIG instances, a laptop.

Every function returns fresh values; `changed` and `gpu_changes` say what is not as usual.
The eight boards of the HGX node are those of a real one: one of them is of another part.
"""

from collections.abc import Mapping
from datetime import date

from envlock.drift import Comparison, Drift, Kind, compare_facts
from envlock.facts import Device, Facts, Observed, absent, value
from envlock.lockfile import Host, Rule, host_of
from envlock.policy import default_rules, locked_keys, policy_of
from envlock.registry import REGISTRY

TODAY = date(2026, 11, 30)
PLACES = tuple(f"0000:{bus:02x}:00.0" for bus in (0x1A, 0x40, 0x53, 0x66, 0x9C, 0xC0, 0xD2, 0xE4))
UNSUPPORTED = absent("not-supported")

CPU: dict[str, Observed] = {
    "cpu.architecture": value("x86_64"),
    "cpu.vendor": value("GenuineIntel"),
    "cpu.model_name": value("Intel(R) Xeon(R) Platinum 8480C"),
    "cpu.family": value(6),
    "cpu.model": value(143),
    "cpu.stepping": value(8),
    "cpu.microcode": value("0x2b000603"),
    "cpu.sockets": value(2),
    "cpu.cores": value(112),
    "cpu.governor": value("performance"),
    "cpu.frequency_max": value(3000),
    "cpu.frequency_max_default": value(3800),
    "cpu.frequency_min": value(800),
    "cpu.frequency_min_default": value(800),
    "cpu.boost": value(False),
}
DRIVER: dict[str, Observed] = {
    "nvidia.driver": value("535.161.08"),
    "nvidia.kernel_driver": value("535.161.08"),
    "nvidia.kernel_module": value("open"),
    "nvidia.cuda": value("12.2"),
}
SYSTEM: dict[str, Observed] = {
    "system.kernel": value("6.1.0-18-amd64"),
    "system.transparent_hugepage": value("madvise"),
}
H100: dict[str, Observed] = {
    "gpu.uuid": value("GPU-0"),
    "gpu.name": value("NVIDIA H100 80GB HBM3"),
    "gpu.brand": value("NVIDIA"),
    "gpu.architecture": value("Hopper"),
    "gpu.compute_capability": value("9.0"),
    "gpu.cores": value(16896),
    "gpu.memory": value(81559),
    "gpu.pci_id": value("10de:2330"),
    "gpu.subsystem_id": value("10de:16c1"),
    "gpu.board_part": value("692-2G520-0200-000"),
    "gpu.vbios": value("96.00.99.00.01"),
    "gpu.inforom": value("G520.0200.00.05"),
    "gpu.ecc": value(True),
    "gpu.ecc_pending": value(True),
    "gpu.ecc_default": value(True),
    "gpu.mig": value(False),
    "gpu.mig_pending": value(False),
    "gpu.mig_layout": UNSUPPORTED,
    "gpu.persistence": value(True),
    "gpu.compute_mode": value("exclusive process"),
    "gpu.power_limit": value(650000),
    "gpu.power_limit_default": value(700000),
    "gpu.clock_graphics_application": value(1410),
    "gpu.clock_graphics_application_default": value(1980),
    "gpu.clock_memory_application": value(2619),
    "gpu.clock_memory_application_default": value(2619),
    "gpu.clock_locked": absent("hidden", detail="no driver tells"),
    "gpu.event_reasons": value(("gpu idle",)),
    "gpu.nvlink": value(("18 x version 4 to switch",)),
    "gpu.topology": value(("7 x node",)),
    "gpu.fabric": value("completed"),
    "gpu.pcie_width": value(16),
    "gpu.cpu_affinity": value("0-55,112-167"),
    "gpu.inforom_valid": value(True),
    "gpu.recovery_action": value("none"),
    "gpu.remapped_rows": value(("correctable 0", "failed no", "pending no", "uncorrectable 0")),
}
AFTER_BOOT: dict[str, Observed] = {
    "gpu.persistence": value(False),
    "gpu.compute_mode": value("default"),
    "gpu.power_limit": value(700000),
    "gpu.clock_graphics_application": value(1980),
}
MIG: dict[str, Observed] = {
    "gpu.mig": value(True),
    "gpu.mig_pending": value(True),
    "gpu.mig_layout": value(("1g.10gb@6", "2g.20gb@4", "3g.40gb@0")),
}

Changes = Mapping[str, Observed]


def hgx(
    changed: Changes | None = None, gpu_changes: Changes | None = None, on: tuple[int, ...] = tuple(range(8))
) -> Facts:
    """Return the facts of eight H100; the GPUs `on` are changed by `gpu_changes`."""
    devices = []
    for index, place in enumerate(PLACES):
        held = {**H100, "gpu.uuid": value(f"GPU-{index}")}
        if index == 3:
            held["gpu.board_part"] = value("965-2G520-A800-000")
        if index in on:
            held.update(gpu_changes or {})
        devices.append(Device("gpu", place, held))
    host = {**CPU, **DRIVER, **SYSTEM, "nvidia.gpu_count": value(8), "nvidia.pci_count": value(8), **(changed or {})}
    return Facts(host, devices)


def without(facts: Facts, index: int, host: Changes | None = None) -> Facts:
    """Return `facts` without one of its GPUs."""
    left = [gpu for number, gpu in enumerate(facts.gpus()) if number != index]
    return Facts({**facts.host, **(host or {})}, left)


def laptop(gpu_changes: Changes | None = None) -> Facts:
    """Return the facts of a laptop: most of what a board for servers tells is not there."""
    gpu = {
        **dict.fromkeys(H100, UNSUPPORTED),
        "gpu.name": value("NVIDIA GeForce RTX 4070 Laptop GPU"),
        "gpu.pci_id": value("10de:2820"),
        "gpu.compute_capability": value("8.9"),
        "gpu.vbios": value("95.06.1F.00.50"),
        "gpu.persistence": value(False),
        "gpu.compute_mode": value("default"),
        "gpu.power_limit": UNSUPPORTED,
        "gpu.power_limit_default": value(115000),
        **(gpu_changes or {}),
    }
    return Facts({**CPU, **DRIVER, **SYSTEM, "nvidia.gpu_count": value(1)}, [Device("gpu", "0000:01:00.0", gpu)])


def locked(facts: Facts) -> Host:
    """Return what a lockfile would hold of `facts`."""
    keep = {key for key, entry in REGISTRY.items() if entry.locked}
    return host_of(
        {key: seen for key, seen in facts.host.items() if key in keep},
        [{key: seen for key, seen in gpu.facts.items() if key in keep} for gpu in facts.gpus()],
    )


def check(golden: Facts, observed: Facts, *changed: Rule, profile: str = "bits", today: date = TODAY) -> Comparison:
    """Check `observed` against a lockfile made from `golden` under a profile, with some rules changed."""
    host = locked(golden)
    rules = {rule.key: rule for rule in (*default_rules(host, profile), *changed)}
    policy = policy_of(tuple(rules[key] for key in sorted(rules)), "x.lock.toml", locked_keys(host))
    return compare_facts(host, observed, policy, today)


def of(comparison: Comparison, key: str) -> list[Drift]:
    """Return the drifts of one fact."""
    return [drift for drift in comparison.drifts if drift.key == key]


def errors(comparison: Comparison) -> set[tuple[str, Kind]]:
    """Return what decides the verdict."""
    return {(drift.key, drift.kind) for drift in comparison.drifts if drift.severity == "error"}


def warnings(comparison: Comparison) -> set[str]:
    """Return the facts that differ and decide nothing."""
    return {drift.key for drift in comparison.drifts if drift.severity == "warning"}
