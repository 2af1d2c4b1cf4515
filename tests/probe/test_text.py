"""Facts as text for people."""

from pathlib import Path

from recorded_host import RecordedHost, cpuinfo, pci_gpu

from envlock.facts import FAILED, NOT_SUPPORTED, Device, Facts, absent, value
from envlock.probe import probe
from envlock.probe.text import printable, render

GPU = {"gpu.name": value("H100"), "gpu.uuid": value("GPU-1"), "gpu.power_limit": value(700000)}


def test_this_host_fits_into_80_columns() -> None:
    """No line is longer than a terminal is wide."""
    assert [line for line in render(probe()).splitlines() if len(line) > 80] == []


def test_small_host_reads_as_expected(tmp_path: Path) -> None:
    """A section is a title, a label and a text for each fact, and absences in words."""
    host = RecordedHost(tmp_path, {"/proc/cpuinfo": cpuinfo(2, {1: {"microcode": "0x1"}})})
    text = render(probe(host=host, only="cpu.m"))

    assert text == (
        "Some CPU\n"
        "\n"
        "CPU\n"
        "  model name               Some CPU\n"
        "  model                    143\n"
        "  microcode                0x1 0x2b000603 (not all agree: 0x1 on CPU 1;\n"
        "                           0x2b000603 on CPU 0)\n"
    )


def test_facts_absent_for_one_reason_share_a_row(tmp_path: Path) -> None:
    """Neighbours that are absent for the same reason are said once."""
    host = RecordedHost(tmp_path, {"/sys/bus/pci/devices/x/vendor": "0x8086\n"})

    assert render(probe(host=host, only="nvidia.")) == (
        "no NVIDIA GPU\n"
        "\n"
        "NVIDIA\n"
        "  GPUs                     0\n"
        "  GPUs on the PCI bus      0\n"
        "  driver, driver branch, loaded kernel module, kernel module kind, CUDA level\n"
        "    of the driver, confidential computing\n"
        "                           not supported: no NVIDIA device on this host\n"
    )


def test_count_that_is_unknown_is_not_no_gpu(tmp_path: Path) -> None:
    """The line that sums up says that it could not tell."""
    text = render(probe(host=RecordedHost(tmp_path, pci_gpu()), only="nvidia."))

    assert text.startswith("NVIDIA GPUs: could not tell\n")


def test_equal_gpus_share_a_section() -> None:
    """GPUs that differ in their UUID alone are shown once, with what names each."""
    other = {**GPU, "gpu.uuid": value("GPU-2")}
    facts = Facts({"nvidia.gpu_count": value(2)}, [Device("gpu", "01:00.0", GPU), Device("gpu", "02:00.0", other)])

    assert render(facts) == (
        "2 x H100\n"
        "\n"
        "NVIDIA\n"
        "  GPUs                     2\n"
        "\n"
        "2 GPUs (place, UUID)\n"
        "  01:00.0  GPU-1\n"
        "  02:00.0  GPU-2\n"
        "  name                                H100\n"
        "  power limit                         700 W\n"
    )


def test_gpus_that_differ_share_what_is_equal() -> None:
    """What two GPUs of one model share is shown once, and then each with what differs."""
    other = {**GPU, "gpu.power_limit": value(699999)}

    assert render(Facts({}, [Device("gpu", "01:00.0", GPU), Device("gpu", "02:00.0", other)])).endswith(
        "  name                                H100\n"
        "\n"
        "1 GPU at 01:00.0, where it differs\n"
        "  power limit                         700 W\n"
        "\n"
        "1 GPU at 02:00.0, where it differs\n"
        "  power limit                         699.999 W\n"
    )


def test_gpu_alone_is_shown_with_its_identity() -> None:
    """One GPU has no group to name it: its UUID is a row like the others."""
    assert render(Facts({}, [Device("gpu", "01:00.0", GPU)])) == (
        "1 GPU at 01:00.0\n"
        "  name                                H100\n"
        "  UUID                                GPU-1\n"
        "  power limit                         700 W\n"
    )


def test_gpu_that_says_nothing_is_not_mixed_with_the_others() -> None:
    """A lost GPU takes nothing from what its neighbours share, and its silence is said once."""
    lost = dict.fromkeys((f"gpu.fact{number}" for number in range(30)), absent(FAILED, "", "gpu is lost"))
    lost["gpu.name"] = absent(FAILED, "", "gpu is lost")
    facts = Facts({}, [Device("gpu", "01:00.0", GPU), Device("gpu", "02:00.0", lost), Device("gpu", "03:00.0", GPU)])

    text = render(facts)

    assert "2 GPUs (place, UUID)\n  01:00.0  GPU-1\n  03:00.0  GPU-1\n  name " in text
    assert text.endswith("1 GPU at 02:00.0\n  all other facts                     failed: gpu is lost\n")


def test_absences_of_a_gpu_come_last_and_once_for_each_reason() -> None:
    """What a GPU does not support is one row at the end, wherever it stands in the registry."""
    reason = absent(NOT_SUPPORTED, "NVML", "not supported (NVML code 3)")
    facts = {"gpu.brand": reason, **GPU, "gpu.ecc": reason}

    assert render(Facts({}, [Device("gpu", "01:00.0", facts)])).endswith(
        "  power limit                         700 W\n"
        "  brand, ECC                          not supported (NVML code 3)\n"
    )


def test_items_of_several_words_are_set_apart() -> None:
    """A list whose items have blanks in them is joined by commas."""
    facts = {"gpu.topology": value(("3 x node", "4 x system"))}

    assert "paths to the other GPUs             3 x node, 4 x system\n" in render(
        Facts({}, [Device("gpu", "01:00.0", facts)])
    )


def test_empty_list_is_none() -> None:
    """No parameter that matters is "none", and an absence is never an empty text."""
    facts = Facts({"system.kernel_parameters": value(()), "system.memory": absent(FAILED)})

    assert "kernel parameters        none\n" in render(facts)
    assert "memory                   failed\n" in render(facts)


def test_control_characters_are_escaped() -> None:
    """What a host says cannot drive the reader's terminal."""
    assert printable("a\x1b[31mb\nc é") == "a\\x1b[31mb\\nc é"
    assert "\x1b" not in render(Facts({"cpu.vendor": value("\x1b[2J")}))


def test_fact_of_another_version_is_shown_by_its_key() -> None:
    """A fact that this envlock does not know is not dropped."""
    assert "cpu.colour               blue\n" in render(Facts({"cpu.colour": value("blue")}))


def test_one_gpu_that_is_not_listed_is_one() -> None:
    """A document of the driver's facts alone counts its GPUs in words that fit the number."""
    counted = [Facts({"nvidia.gpu_count": value(count)}, only=("nvidia.",)) for count in (1, 2)]

    assert [render(facts).splitlines()[0] for facts in counted] == ["1 NVIDIA GPU", "2 NVIDIA GPUs"]
