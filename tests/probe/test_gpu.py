"""GPUs from all sources together: what may and what must not read as "no GPU"."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from recorded_host import RecordedHost, pci_gpu

from envlock.facts import FAILED, HIDDEN, NO_PERMISSION, NOT_SUPPORTED, VALUE, Device, Observed, absent, value
from envlock.probe import nvidia
from envlock.registry import GPU, in_scope

GPU_KEYS = [entry.key for entry in in_scope(GPU)]
BUS = {"/sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n"}
LOADED = {
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Mon Jan  1 01:02:03 UTC"
    " 2024\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14) \n"
}
INFORMATION = (
    "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 77\nGPU UUID: \t GPU-0dd00000-0000-4000-8000-000000000001\n"
    "Video BIOS: \t 96.00.A5.00.01\nBus Location: \t 0000:01:00.0\nGPU Firmware: \t 535.161.08\n"
)
NOT_ATTACHED = (
    "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\nVideo BIOS: \t ??.??.??.??.??\n"
)


def answer(*gpus: tuple[str, Observed]) -> dict[str, Any]:
    """Return NVML's document for GPUs at these addresses whose every fact is the given one."""
    return {
        "host": {
            "nvidia.driver": value("535.161.08").to_document(),
            "nvidia.cuda": value("12.4").to_document(),
        },
        "gpus": [{"id": place, "facts": {key: seen.to_document() for key in GPU_KEYS}} for place, seen in gpus],
    }


def read(
    root: Path, tree: Mapping[str, str], nvml: Mapping[str, object] | Exception | None = None
) -> tuple[dict[str, Observed], tuple[Device, ...]]:
    found = nvidia.read(RecordedHost(root, tree, nvml=nvml))
    return found.host, found.devices


def test_host_without_device_has_no_gpu(tmp_path: Path) -> None:
    """A bus that was listed and shows no NVIDIA device, with no other sign of one, is no GPU."""
    found, devices = read(tmp_path, BUS)

    assert devices == ()
    assert found["nvidia.gpu_count"] == value(0)
    assert found["nvidia.driver"].outcome == NOT_SUPPORTED
    assert found["nvidia.driver"].detail == "no NVIDIA device on this host"


def test_bus_that_cannot_be_listed_is_not_no_gpu(tmp_path: Path) -> None:
    """Without a bus to list and without an answer of NVML nothing is said about GPUs."""
    found, devices = read(tmp_path, {})

    assert devices == ()
    assert {found[key].outcome for key in found} == {FAILED}


def test_kernel_without_pci_has_no_gpu(tmp_path: Path) -> None:
    """A machine whose buses are listed and of which none is PCI has no GPU; an empty /sys/bus tells nothing."""
    found, _ = read(tmp_path / "1", {"/sys/bus/platform/uevent": ""})
    (tmp_path / "2" / "sys" / "bus").mkdir(parents=True)
    blind, _ = read(tmp_path / "2", {})

    assert found["nvidia.gpu_count"] == value(0)
    assert blind["nvidia.gpu_count"].outcome == FAILED


@pytest.mark.parametrize(
    "sign", ["/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/params", "/sys/module/nvidia/version"]
)
def test_sign_of_a_gpu_off_the_bus_is_followed(tmp_path: Path, sign: str) -> None:
    """A sign of NVIDIA beside a bus without it (WSL, a container) means that NVML is asked."""
    host = RecordedHost(tmp_path, {**BUS, sign: ""})

    found = nvidia.read(host).host

    assert host.nvml_was_asked
    assert found["nvidia.gpu_count"].outcome == FAILED


def test_tegra_is_a_sign(tmp_path: Path) -> None:
    """A Tegra's device tree is a sign of a GPU that no bus shows."""
    found, _ = read(tmp_path, {**BUS, "/proc/device-tree/compatible": "nvidia,p3737\0nvidia,tegra234\0"})

    assert found["nvidia.gpu_count"].outcome == FAILED


def test_device_without_driver_is_named(tmp_path: Path) -> None:
    """A device without a driver is a GPU whose facts failed, with the device's id in the reason."""
    found, devices = read(tmp_path, pci_gpu(), {"error": "library not found (NVML code 12)", "code": 12})

    assert found["nvidia.pci_count"] == value(1)
    assert found["nvidia.gpu_count"].outcome == FAILED
    assert found["nvidia.driver"].detail == (
        "10de:2330 at 0000:01:00.0: no NVIDIA driver is loaded; NVML: library not found (NVML code 12); "
        "`nvidia-smi` is not installed"
    )
    assert found["nvidia.kernel_driver"].detail == "no NVIDIA kernel module is loaded"
    assert [(gpu.ident, gpu.facts["gpu.pci_id"].value) for gpu in devices] == [("0000:01:00.0", "10de:2330")]
    assert devices[0].facts["gpu.vbios"].outcome == FAILED


def test_device_given_to_a_guest_names_its_driver(tmp_path: Path) -> None:
    """A GPU bound to another driver says to which."""
    tree = {**pci_gpu(), "/sys/bus/pci/devices/0000:01:00.0/driver": "-> ../../../bus/pci/drivers/vfio-pci"}

    found, _ = read(tmp_path, tree, {"error": "driver not loaded (NVML code 9)", "code": 9})

    assert "(bound to vfio-pci)" in found["nvidia.driver"].detail


def test_driver_library_that_fails_keeps_what_files_say(tmp_path: Path) -> None:
    """After an upgrade without a reboot NVML fails; the loaded module is still known, and the GPU still listed."""
    tree = {**pci_gpu(), **LOADED, "/proc/driver/nvidia/gpus/0000:01:00.0/information": INFORMATION}

    found, devices = read(tmp_path, tree, {"error": "driver/library version mismatch (NVML code 18)", "code": 18})

    assert found["nvidia.kernel_driver"] == value("535.161.08")
    assert found["nvidia.driver"].outcome == FAILED
    assert found["nvidia.driver"].detail == (
        "NVML: driver/library version mismatch (NVML code 18); the loaded kernel module is version 535.161.08; "
        "`nvidia-smi` is not installed"
    )
    assert devices[0].facts["gpu.vbios"] == value("96.00.A5.00.01")


def test_bare_node_reads_files_in_place_of_nvml(tmp_path: Path) -> None:
    """A node without an NVML binding gives what files give, and never reads as "no GPU"."""
    tree = {
        **pci_gpu(),
        **LOADED,
        "/proc/driver/nvidia/gpus/0000:01:00.0/information": INFORMATION,
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "-> libnvidia-ml.so.535.161.08",
    }

    found, devices = read(tmp_path, tree)

    assert found["nvidia.driver"] == value("535.161.08")
    assert found["nvidia.kernel_module"] == value("proprietary")
    assert found["nvidia.gpu_count"].detail == "this Python has no NVML binding; `nvidia-smi` is not installed"
    assert {key: seen.value for key, seen in devices[0].facts.items() if seen.has_value} == {
        "gpu.name": "NVIDIA H100 80GB HBM3",
        "gpu.pci_id": "10de:2330",
        "gpu.subsystem_id": "10de:16c1",
        "gpu.uuid": "GPU-0dd00000-0000-4000-8000-000000000001",
        "gpu.vbios": "96.00.A5.00.01",
        "gpu.gsp": True,
        "gpu.gsp_version": "535.161.08",
    }
    assert devices[0].facts["gpu.ecc"].outcome == FAILED


def test_placeholders_are_no_values(tmp_path: Path) -> None:
    """Question marks that the module shows before it has attached a GPU are not its VBIOS."""
    tree = {**pci_gpu(), **LOADED, "/proc/driver/nvidia/gpus/0000:01:00.0/information": NOT_ATTACHED}

    _, devices = read(tmp_path, tree)

    for key in ("gpu.name", "gpu.uuid", "gpu.vbios"):
        assert devices[0].facts[key] == absent(FAILED)


def test_nvml_answers(tmp_path: Path) -> None:
    """A driver that answers gives its facts and its GPUs by PCI address."""
    tree = {**pci_gpu(), **pci_gpu("0000:02:00.0"), **LOADED}

    found, devices = read(tmp_path, tree, answer(("0000:02:00.0", value("b")), ("0000:01:00.0", value("a"))))

    assert found["nvidia.driver"] == value("535.161.08")
    assert found["nvidia.gpu_count"] == found["nvidia.pci_count"] == value(2)
    assert sorted(gpu.ident for gpu in devices) == ["0000:01:00.0", "0000:02:00.0"]


def test_library_and_module_that_differ_are_reported(tmp_path: Path) -> None:
    """Two sources that disagree about the driver are both kept, and the disagreement is said."""
    tree = {**pci_gpu(), "/proc/driver/nvidia/version": LOADED["/proc/driver/nvidia/version"].replace("161", "129")}

    found, _ = read(tmp_path, tree, answer(("0000:01:00.0", value("a"))))

    assert found["nvidia.driver"].detail == "the loaded kernel module is another version: 535.129.08"
    assert found["nvidia.kernel_driver"] == value("535.129.08")


def test_driver_that_shows_nothing_is_not_no_gpu(tmp_path: Path) -> None:
    """A driver that shows none of the GPUs on the bus hides them."""
    found, _ = read(tmp_path, {**pci_gpu(), **LOADED}, answer())

    assert found["nvidia.gpu_count"].outcome == HIDDEN


def test_driver_that_shows_some_says_how_many_there_are(tmp_path: Path) -> None:
    """A container that is given one GPU of two counts one, and says so."""
    tree = {**pci_gpu(), **pci_gpu("0000:02:00.0"), **LOADED}

    found, devices = read(tmp_path, tree, answer(("0000:01:00.0", value("a"))))

    assert (found["nvidia.gpu_count"].value, found["nvidia.gpu_count"].detail) == (1, "on the PCI bus: 2")
    assert found["nvidia.pci_count"] == value(2)
    assert len(devices) == 1


def test_gpu_without_permission_takes_the_place_left_on_the_bus(tmp_path: Path) -> None:
    """A GPU that may not be opened is at the one address that no other GPU has."""
    tree = {**pci_gpu(), **pci_gpu("0000:02:00.0", "0x20b5"), **LOADED}

    _, devices = read(tmp_path, tree, answer(("", absent(NO_PERMISSION)), ("0000:01:00.0", value("a"))))

    closed = next(gpu for gpu in devices if gpu.facts["gpu.name"].outcome == NO_PERMISSION)
    assert closed.ident == "0000:02:00.0"
    assert closed.facts["gpu.pci_id"] == value("10de:20b5")


def test_two_gpus_without_permission_keep_no_address(tmp_path: Path) -> None:
    """Which of two unopened GPUs is at which address is not guessed."""
    tree = {**pci_gpu(), **pci_gpu("0000:02:00.0"), **LOADED}

    _, devices = read(tmp_path, tree, answer(("", absent(NO_PERMISSION)), ("", absent(NO_PERMISSION))))

    assert [gpu.ident for gpu in devices] == ["unknown-0", "unknown-1"]


def test_answer_that_is_not_understood_keeps_the_gpus(tmp_path: Path) -> None:
    """A document of the child that lacks facts is a failure, and the GPUs on the bus stay listed."""
    found, devices = read(tmp_path, {**pci_gpu(), **LOADED}, {"host": {}, "gpus": []})

    assert found["nvidia.driver"].outcome == FAILED
    assert "not understood" in found["nvidia.driver"].detail
    assert len(devices) == 1


@pytest.mark.parametrize(
    ("tree", "count"),
    [(pci_gpu(kind="0x030000"), 1), (pci_gpu(kind="0x030200"), 1), (pci_gpu(kind="0x040300"), 0),
     (pci_gpu(kind="0x068000"), 0)],
)  # fmt: skip
def test_only_display_controllers_are_gpus(tmp_path: Path, tree: dict[str, str], count: int) -> None:
    """A GPU's audio function and an NVSwitch are not GPUs."""
    found, _ = read(tmp_path, tree)

    assert found["nvidia.pci_count"] == value(count)
    assert found["nvidia.pci_count"].outcome == VALUE


def test_two_gpus_with_one_address_keep_none(tmp_path: Path) -> None:
    """A driver that gives two GPUs one address is not believed about either, and a note says so."""
    tree = {**pci_gpu(), **pci_gpu("0000:02:00.0"), **LOADED}
    host = RecordedHost(tmp_path, tree, nvml=answer(("0000:01:00.0", value("a")), ("0000:01:00.0", value("b"))))

    found = nvidia.read(host)

    assert [gpu.ident for gpu in found.devices] == ["unknown-0", "unknown-1"]
    assert any("2 GPUs at 0000:01:00.0" in note for note in found.notes)
