"""nvidia-smi asked on a host: when, and what becomes of each way it can end."""

import time
from pathlib import Path

import pytest
from fakes.nvidia_smi import asked, replay
from recorded_host import RecordedHost, pci_gpu

from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, Facts, value
from envlock.probe import nvidia
from envlock.probe.host import Absent, Printed
from envlock.probe.live import LiveHost

DATA = Path(__file__).resolve().parents[1] / "data" / "nvidia-smi"
XML = (DATA / "two-a100.xml").read_bytes()
REPORT = ("-q", "-x")
TREE = {
    **pci_gpu("0000:01:00.0", "0x20b2"),
    **pci_gpu("0000:41:00.0", "0x20b2"),
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Mon Jan  1\n",
}
NO_NVML = Absent(FAILED, "this Python has no NVML binding")


def read(root: Path, printed: Printed | Absent, more: dict[tuple[str, ...], Printed] | None = None) -> nvidia.Found:
    host = RecordedHost(root, TREE, smi={REPORT: printed, **(more or {})}, nvml=NO_NVML)
    return nvidia.read(host)


def test_nvidia_smi_takes_the_place_of_nvml(tmp_path: Path) -> None:
    """Without an answer of NVML the driver's facts come from nvidia-smi, and say so."""
    found = read(tmp_path, Printed(0, XML, b""))

    assert (found.host["nvidia.driver"], found.host["nvidia.gpu_count"]) == (value("550.90.07"), value(2))
    assert found.devices[0].facts["gpu.vbios"].source == "nvidia-smi -q -x"
    assert found.notes == ("nvidia-smi was asked, because NVML gave no answer: this Python has no NVML binding",)


def test_what_the_report_leaves_out_is_asked_for(tmp_path: Path) -> None:
    """Compute capability, MIG profiles and topology are further questions; one that is refused costs nothing."""
    more = {
        ("--query-gpu=pci.bus_id,compute_cap", "--format=csv"): Printed(
            0, b"pci.bus_id, compute_cap\n00000000:01:00.0, 8.0\n00000000:41:00.0, 8.0\n", b""
        ),
        ("topo", "-m"): Printed(
            0, b"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-3\t0\nGPU1\tSYS\t X \t4-7\t1\n", b""
        ),
    }
    facts = read(tmp_path, Printed(0, XML, b""), more).devices[1].facts

    assert facts["gpu.compute_capability"] == value("8.0")
    assert facts["gpu.topology"] == value(("1 x system",))
    assert facts["gpu.numa_node"] == value("1")


def test_nvidia_smi_is_not_started_when_nvml_answers(tmp_path: Path) -> None:
    """One source that answers is enough; `cross_check` asks for both."""
    facts = {"gpu.name": value("NVIDIA A100-SXM4-80GB").to_document(), "gpu.vbios": value("0.1").to_document()}
    nvml = {
        "host": {"nvidia.driver": value("550.90.07").to_document()},
        "gpus": [{"id": place, "facts": facts} for place in ("0000:01:00.0", "0000:41:00.0")],
    }
    host = RecordedHost(tmp_path, TREE, nvml=nvml, smi={REPORT: Printed(0, XML, b"")})

    assert (nvidia.read(host).notes, host.smi_was_asked) == ((), [])
    assert nvidia.read(host, cross_check=True).notes == (
        "GPU at 0000:01:00.0: VBIOS: one source says 0.1; nvidia-smi -q -x says 92.00.45.00.03",
        "GPU at 0000:41:00.0: VBIOS: one source says 0.1; nvidia-smi -q -x says 92.00.45.00.03",
    )


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (Printed(9, b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", b""),
         "nvidia-smi: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. (status 9)"),
        (Printed(12, b"", b"NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n"),
         "nvidia-smi: NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. (status 12)"),
        (Printed(255, b"Failed to initialize NVML: Unknown Error\n", b""),
         "nvidia-smi: Failed to initialize NVML: Unknown Error (status 255)"),
        (Printed(15, b"Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.\n", b""),
         "nvidia-smi: Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost."),
        (Printed(0, XML[:900], b""), "nvidia-smi: is cut off: the document has no end (status 0)"),
        (Printed(139, b"", b""), "`nvidia-smi -q -x` ended with status 139 and printed nothing"),
        (Absent(FAILED, "`nvidia-smi` gave no answer within 60 s"), "`nvidia-smi` gave no answer within 60 s"),
    ],
)  # fmt: skip
def test_each_way_to_give_no_answer_is_told(tmp_path: Path, printed: Printed | Absent, words: str) -> None:
    """The reason is nvidia-smi's own, after NVML's; the GPUs on the bus stay listed, and nothing is a value."""
    found = read(tmp_path, printed)

    assert found.host["nvidia.gpu_count"].outcome == FAILED
    assert found.host["nvidia.gpu_count"].detail == f"this Python has no NVML binding; {words}"
    assert [gpu.ident for gpu in found.devices] == ["0000:01:00.0", "0000:41:00.0"]
    assert found.devices[0].facts["gpu.pci_id"] == value("10de:20b2")


def test_warning_with_a_status_of_its_own_leaves_the_report_usable(tmp_path: Path) -> None:
    """A damaged InfoROM ends nvidia-smi with status 14: the facts are there, and the warning is a note."""
    found = read(tmp_path, Printed(14, XML, b"WARNING: infoROM is corrupted at gpu 0000:01:00.0\n"))

    assert found.host["nvidia.gpu_count"] == value(2)
    assert "WARNING: infoROM is corrupted at gpu 0000:01:00.0" in found.notes


def test_driver_that_shows_no_device_hides_those_on_the_bus(tmp_path: Path) -> None:
    """ "No devices were found" on a host with two is not a host without a GPU."""
    count = read(tmp_path, Printed(6, b"No devices were found\n", b"")).host["nvidia.gpu_count"]

    assert (count.outcome, count.detail) == (HIDDEN, "the driver shows no GPU; on the PCI bus: 2")


def test_modules_own_words_are_held_against_the_driver(tmp_path: Path) -> None:
    """A VBIOS that /proc tells otherwise, and a GPU that only the module knows, are notes."""
    information = "Model: \t NVIDIA A100-SXM4-80GB\nVideo BIOS: \t 92.00.00.00.01\n"
    tree = {
        **TREE,
        **{f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information": information for bus in ("01", "41", "81")},
    }
    found = nvidia.read(RecordedHost(tmp_path, tree, smi={REPORT: Printed(0, XML, b"")}))

    assert found.notes[1:] == (
        "the driver shows 2 GPUs, and the loaded module knows 3",
        "GPU at 0000:01:00.0: VBIOS: nvidia-smi -q -x says 92.00.45.00.03; "
        "/proc/driver/nvidia/gpus/0000:01:00.0/information says 92.00.00.00.01",
        "GPU at 0000:41:00.0: VBIOS: nvidia-smi -q -x says 92.00.45.00.03; "
        "/proc/driver/nvidia/gpus/0000:41:00.0/information says 92.00.00.00.01",
    )


def test_files_fill_what_the_driver_left_open(tmp_path: Path) -> None:
    """Link and NUMA node come from the PCI bus where the driver has no answer; -1 is none."""
    folder = "/sys/bus/pci/devices/0000:41:00.0"
    slot = "/sys/bus/pci/devices/0000:40:01.0"
    tree = {
        **TREE,
        "/sys/devices/pci0000:40/0000:40:01.0/x": "",
        f"{slot}/vendor": "0x8086\n",
        f"{slot}/max_link_speed": "8.0 GT/s PCIe\n",
        f"{slot}/max_link_width": "16\n",
        f"{folder}/max_link_speed": "16.0 GT/s PCIe\n",
        f"{folder}/max_link_width": "16\n",
        f"{folder}/current_link_speed": "2.5 GT/s PCIe\n",
        f"{folder}/current_link_width": "8\n",
        f"{folder}/numa_node": "1\n",
        "/sys/bus/pci/devices/0000:01:00.0/numa_node": "-1\n",
    }
    host = RecordedHost(tmp_path, tree, smi={REPORT: Printed(0, XML, b"")})
    host.link = lambda path: "../../../devices/pci0000:40/0000:40:01.0/" + path[-12:]  # type: ignore[method-assign]
    first, second = nvidia.read(host).devices

    assert {key: second.facts[key].value for key in (
        "gpu.pcie_generation_max", "gpu.pcie_generation_device", "gpu.pcie_generation", "gpu.pcie_width_max",
        "gpu.pcie_width", "gpu.numa_node",
    )} == {
        "gpu.pcie_generation_max": 3, "gpu.pcie_generation_device": 4, "gpu.pcie_generation": 1,
        "gpu.pcie_width_max": 16, "gpu.pcie_width": 8, "gpu.numa_node": "1",
    }  # fmt: skip
    assert second.facts["gpu.numa_node"].source == folder + "/numa_node"
    assert not first.facts["gpu.numa_node"].has_value


def test_kernel_part_under_wsl_is_not_supported(tmp_path: Path) -> None:
    """Under WSL there is no module of Linux to have a version; elsewhere its lack is a failure."""
    bus = {"/sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n"}
    wsl = nvidia.read(RecordedHost(tmp_path / "1", {**bus, "/dev/dxg": ""})).host
    other = nvidia.read(RecordedHost(tmp_path / "2", {**bus, "/dev/nvidiactl": ""})).host

    assert wsl["nvidia.kernel_driver"].outcome == wsl["nvidia.kernel_module"].outcome == NOT_SUPPORTED
    assert other["nvidia.kernel_driver"].outcome == FAILED


def test_module_shows_where_proc_is_hidden(tmp_path: Path) -> None:
    """A container that masks /proc/driver still shows the module's version in /sys."""
    tree = {**pci_gpu(), "/sys/module/nvidia/version": "550.90.07\n"}

    assert nvidia.read(RecordedHost(tmp_path, tree)).host["nvidia.kernel_driver"] == value("550.90.07")


def test_gsp_switched_off_by_a_parameter_is_off(tmp_path: Path) -> None:
    """ "N/A" with the module's parameter at 0 is "off", not "there is none"."""
    tree = {
        **TREE,
        "/proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t A\nGPU Firmware: \t N/A\n",
        "/proc/driver/nvidia/params": "ResmanDebugLevel: 4294967295\nEnableGpuFirmware: 0\n",
    }
    assert nvidia.read(RecordedHost(tmp_path, tree)).devices[0].facts["gpu.gsp"] == value(False)


# ---- a real program --------------------------------------------------------------------------------


def live(folder: Path, monkeypatch: pytest.MonkeyPatch, deadline: float = 20.0) -> LiveHost:
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return LiveHost(smi_deadline=deadline)


def test_program_on_path_is_started_with_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output, error output and status of the program come back as they are."""
    replay(tmp_path, {"-q -x": ("out\n", "err\n", 14)}, delay=0.05)

    assert live(tmp_path, monkeypatch).nvidia_smi("-q", "-x")() == Printed(14, b"out\n", b"err\n")
    assert asked(tmp_path) == ["-q -x"]


def test_program_that_never_ends_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ignores every polite signal costs the deadline, and is an absence in words."""
    replay(tmp_path, {}, never_ends=True)
    host = live(tmp_path, monkeypatch, deadline=0.3)
    began = time.monotonic()

    with pytest.raises(Absent, match=r"`nvidia-smi -q -x` gave no answer within 0\.3 s"):
        host.nvidia_smi("-q", "-x")()
    assert time.monotonic() - began < 3


def test_program_that_is_no_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be run is an absence in words."""
    (tmp_path / "nvidia-smi").write_bytes(b"\x7fELF no")
    (tmp_path / "nvidia-smi").chmod(0o755)

    with pytest.raises(Absent, match="`nvidia-smi -L` cannot be run: exec format error"):
        live(tmp_path, monkeypatch).nvidia_smi("-L")


def test_facts_of_both_sources_can_be_one_document(tmp_path: Path) -> None:
    """What was found is a document that can be read back."""
    found = read(tmp_path, Printed(0, XML, b""))
    document = Facts(found.host, found.devices, found.notes, ("nvidia.", "gpu.")).to_document()

    assert Facts.from_document(document, "f").notes == found.notes
