"""Sockets, cores, nodes, and the hypervisor below."""

from pathlib import Path

import pytest
from recorded_host import RecordedHost, cpuinfo

from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, absent, value
from envlock.probe import topology

GUEST = {"/proc/cpuinfo": cpuinfo(2, flags="sse2 hypervisor")}
ARM = "processor\t: {}\nFeatures\t: asimd\nCPU implementer\t: 0x41\n\n"


def test_sockets_and_cores_come_from_cpuinfo(tmp_path: Path) -> None:
    """Two sockets of two threads on one core each are two sockets and two cores."""
    text = cpuinfo(4, {n: {"physical id": str(n // 2), "core id": "0"} for n in range(4)})
    found = topology.read(RecordedHost(tmp_path, {"/proc/cpuinfo": text, "/sys/devices/system/node/online": "0-1\n"}))

    assert (found["cpu.sockets"], found["cpu.cores"], found["cpu.numa_nodes"]) == (value(2), value(2), value(2))


def test_arm_asks_sysfs(tmp_path: Path) -> None:
    """Where cpuinfo names no sockets, sysfs does."""
    tree = {"/proc/cpuinfo": ARM.format(0) + ARM.format(1)}
    for number in (0, 1):
        folder = f"/sys/devices/system/cpu/cpu{number}/topology"
        tree[folder + "/physical_package_id"] = "0\n"
        tree[folder + "/thread_siblings_list"] = f"{number}\n"
    found = topology.read(RecordedHost(tmp_path, tree))

    assert (found["cpu.sockets"], found["cpu.cores"]) == (value(1), value(2))


def test_socket_that_firmware_does_not_name_is_failed(tmp_path: Path) -> None:
    """A package id of -1 is not a socket."""
    tree = {"/proc/cpuinfo": ARM.format(0), "/sys/devices/system/cpu/cpu0/topology/physical_package_id": "-1\n"}

    assert topology.read(RecordedHost(tmp_path, tree))["cpu.sockets"].outcome == FAILED


def test_bare_metal_has_no_hypervisor(tmp_path: Path) -> None:
    """Without the flag, an x86 host is no guest."""
    found = topology.read(RecordedHost(tmp_path, {"/proc/cpuinfo": cpuinfo()}))

    assert found["cpu.virtualized"] == value(False)
    assert found["cpu.hypervisor"] == absent(NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        ({"/sys/hypervisor/type": "xen\n"}, "xen"),
        ({"/sys/class/dmi/id/sys_vendor": "VMware, Inc.\n"}, "vmware"),
        ({"/sys/class/dmi/id/sys_vendor": "QEMU\n"}, "kvm"),
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "/sys/class/dmi/id/product_name": "m5.large\n"}, "amazon"),
        (
            {
                "/sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
                "/sys/class/dmi/id/product_name": "Virtual Machine\n",
            },
            "hyper-v",
        ),
        (
            {"/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock acpi_pm \n"},
            "kvm",
        ),
    ],
)
def test_guest_names_its_hypervisor(tmp_path: Path, tree: dict[str, str], name: str) -> None:
    """Xen's own file, DMI, or a clock source names the hypervisor."""
    found = topology.read(RecordedHost(tmp_path, {**GUEST, **tree}))

    assert found["cpu.virtualized"] == value(True)
    assert found["cpu.hypervisor"] == value(name)


def test_guest_of_an_unknown_hypervisor_is_hidden(tmp_path: Path) -> None:
    """A guest that nothing names stays a guest."""
    found = topology.read(RecordedHost(tmp_path, GUEST))

    assert found["cpu.virtualized"] == value(True)
    assert found["cpu.hypervisor"].outcome == HIDDEN


def test_arm_without_dmi_cannot_tell(tmp_path: Path) -> None:
    """Arm has no flag: without a name in DMI nothing is claimed either way."""
    assert topology.read(RecordedHost(tmp_path, {"/proc/cpuinfo": ARM.format(0)}))["cpu.virtualized"].outcome == FAILED


def test_metal_of_a_cloud_is_no_guest(tmp_path: Path) -> None:
    """A cloud's bare-metal machine carries the cloud's name and is not taken for a guest by it."""
    tree = {
        "/proc/cpuinfo": ARM.format(0),
        "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
        "/sys/class/dmi/id/product_name": "c7g.metal\n",
    }

    assert topology.read(RecordedHost(tmp_path, tree))["cpu.virtualized"].outcome == FAILED


def test_features_that_the_kernel_lacks_are_not_supported(tmp_path: Path) -> None:
    """A kernel without NUMA or SMT control has answered; a host without /sys has not."""
    tree = {"/proc/cpuinfo": cpuinfo()}
    blind = topology.read(RecordedHost(tmp_path / "1", tree))
    found = topology.read(RecordedHost(tmp_path / "2", {**tree, "/sys/devices/system/cpu/online": "0\n"}))

    assert {found["cpu.numa_nodes"].outcome, found["cpu.smt"].outcome} == {NOT_SUPPORTED}
    assert {blind["cpu.numa_nodes"].outcome, blind["cpu.smt"].outcome} == {FAILED}
