"""The text forms of /proc/driver/nvidia."""

import os
from pathlib import Path

import pytest

from envlock.facts import FAILED, NOT_SUPPORTED
from envlock.probe.host import Absent
from envlock.probe.nvidia_proc import parse_information, parse_version
from envlock.probe.pci import normal_address


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("NVIDIA UNIX x86_64 Kernel Module  535.161.08  Mon Jan  1 01:02:03 UTC 2024", ("535.161.08", "proprietary")),
        ("NVIDIA UNIX x86_64 Kernel Module  440.33.01  Mon Jan  1 01:02:03 PDT 2020", ("440.33.01", "proprietary")),
        ("NVIDIA UNIX x86_64 Kernel Module  550.120  Mon Jan  1 01:02:03 UTC 2024", ("550.120", "proprietary")),
        ("NVIDIA UNIX Open Kernel Module for x86_64  570.148.08  Release Build  (b@h)", ("570.148.08", "open")),
        ("NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  (b@h)", ("540.4.0", "open")),
    ],
)
def test_version_and_kind_of_each_form(line: str, expected: tuple[str, str]) -> None:
    """Each form of the version line gives the version as printed, and the kind of module."""
    assert expected == parse_version(
        f"NVRM version: {line}\nGCC version:  collect2: error: ld returned 1 exit status\n"
    )


def test_version_without_its_line_is_failed() -> None:
    """A file without the line gives no version, not another number in it."""
    with pytest.raises(Absent):
        parse_version("GCC version:  gcc version 12.2.0\n")


def test_gsp_that_is_not_available_is_not_supported() -> None:
    """`N/A` for the firmware is an absence, as NVML calls it, and not a version."""
    assert parse_information("GPU Firmware: \t N/A\n", "f")["gpu.gsp"].outcome == NOT_SUPPORTED


def test_information_without_firmware_line_says_nothing_of_it() -> None:
    """A driver too old to print the firmware has not said that it is off."""
    assert "gpu.gsp" not in parse_information("Model: \t NVIDIA A10G\n", "f")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("00000000:01:00.0", "0000:01:00.0"), ("0000:0A:1e.0", "0000:0a:1e.0"), ("00010000:01:00.0", "10000:01:00.0")],
)
def test_addresses_of_two_sources_are_one(text: str, expected: str) -> None:
    """NVML's and sysfs' forms of one PCI address are the same text."""
    assert expected == normal_address(text)


CORPUS = os.environ.get("ENVLOCK_CORPUS", "")


@pytest.mark.skipif(not CORPUS, reason="ENVLOCK_CORPUS is not set")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("version-proprietary", ("535.161.08", "proprietary")),
        ("version-open", ("570.148.08", "open")),
        ("version-tegra", ("540.4.0", "open")),
        ("version-two-parts", ("550.120", "proprietary")),
        ("version-old-440.33.01", ("440.33.01", "proprietary")),
    ],
)
def test_recorded_versions_read_as_expected(name: str, expected: tuple[str, str]) -> None:
    """Each recorded form gives version and kind, and never who built it."""
    assert parse_version((Path(CORPUS) / "hosts" / "nvidia_proc" / f"{name}.txt").read_text()) == expected


@pytest.mark.skipif(not CORPUS, reason="ENVLOCK_CORPUS is not set")
def test_recorded_information_reads_as_expected() -> None:
    """Uneven blanks are cut; a line that is absent says nothing; placeholders are failures."""
    full, old, early = (
        parse_information((Path(CORPUS) / "hosts" / "nvidia_proc" / f"information-{name}.txt").read_text(), "f")
        for name in ("full", "no-firmware", "not-attached")
    )

    assert {key: seen.value for key, seen in full.items()} == {
        "gpu.name": "NVIDIA GeForce RTX 3090", "gpu.uuid": "GPU-0dd00000-0000-4000-8000-000000000001",
        "gpu.vbios": "94.02.26.40.81", "gpu.minor": 0, "gpu.gsp": True, "gpu.gsp_version": "590.48.01",
    }  # fmt: skip
    assert (old["gpu.minor"].value, "gpu.gsp" in old) == (3, False)
    assert {early[key].outcome for key in ("gpu.name", "gpu.uuid", "gpu.vbios")} == {FAILED}
