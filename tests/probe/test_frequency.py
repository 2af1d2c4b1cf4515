"""Governor, limits and boost."""

from pathlib import Path

import pytest
from recorded_host import RecordedHost

from envlock.facts import FAILED, NOT_SUPPORTED, value
from envlock.probe import frequency

FOLDER = "/sys/devices/system/cpu/cpufreq"


def policies(*governors: str) -> dict[str, str]:
    tree = {}
    for number, governor in enumerate(governors):
        tree[f"{FOLDER}/policy{number}/scaling_governor"] = governor + "\n"
        tree[f"{FOLDER}/policy{number}/scaling_min_freq"] = "800000\n"
        tree[f"{FOLDER}/policy{number}/scaling_max_freq"] = "3800000\n"
        tree[f"{FOLDER}/policy{number}/cpuinfo_min_freq"] = "400000\n"
        tree[f"{FOLDER}/policy{number}/cpuinfo_max_freq"] = "4100000\n"
    return tree


def test_policies_that_agree_give_one_value(tmp_path: Path) -> None:
    """One governor and one pair of limits in MHz for the whole host."""
    found = frequency.read(RecordedHost(tmp_path, policies("performance", "performance")))

    assert found["cpu.governor"] == value("performance")
    assert (found["cpu.frequency_min"], found["cpu.frequency_max"]) == (value(800), value(3800))


def test_limits_of_the_cpu_are_what_the_set_ones_fall_back_to(tmp_path: Path) -> None:
    """What the hardware can is told beside what is set, in the same unit."""
    found = frequency.read(RecordedHost(tmp_path, policies("performance", "performance")))

    assert (found["cpu.frequency_min_default"], found["cpu.frequency_max_default"]) == (value(400), value(4100))


def test_policies_that_differ_give_all_values(tmp_path: Path) -> None:
    """One CPU left on another governor is seen."""
    seen = frequency.read(RecordedHost(tmp_path, policies("performance", "powersave", "performance")))["cpu.governor"]

    assert seen == value(("performance", "powersave"))
    assert seen.detail == "not all agree: performance on policy 0,2; powersave on policy 1"


@pytest.mark.parametrize("tree", [{"/sys/devices/system/cpu/online": "0"}, {f"{FOLDER}/ondemand/x": ""}])
def test_guest_without_control_is_not_supported(tmp_path: Path, tree: dict[str, str]) -> None:
    """Without a frequency driver there is nothing to read."""
    assert {seen.outcome for seen in frequency.read(RecordedHost(tmp_path, tree)).values()} == {NOT_SUPPORTED}


def test_host_without_sysfs_cannot_tell(tmp_path: Path) -> None:
    """Where /sys is not mounted nobody has looked: a failure, which agrees with nothing."""
    assert {seen.outcome for seen in frequency.read(RecordedHost(tmp_path, {})).values()} == {FAILED}


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (f"{FOLDER}/boost", "1\n", True),
        (f"{FOLDER}/boost", "0\n", False),
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0\n", True),
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "1\n", False),
    ],
)
def test_boost_of_both_kinds(tmp_path: Path, path: str, text: str, expected: bool) -> None:
    """Intel's switch says the opposite of everybody's."""
    assert frequency.read(RecordedHost(tmp_path, {path: text}))["cpu.boost"] == value(expected)


def test_boost_that_is_neither_is_failed(tmp_path: Path) -> None:
    """A switch that holds something else is not understood."""
    assert frequency.read(RecordedHost(tmp_path, {f"{FOLDER}/boost": "maybe\n"}))["cpu.boost"].outcome == FAILED


def test_limit_that_is_no_number_is_failed(tmp_path: Path) -> None:
    """A limit that is not a number is not understood, and the governor is still read."""
    found = frequency.read(
        RecordedHost(tmp_path, {**policies("performance"), f"{FOLDER}/policy0/scaling_max_freq": "<unknown>\n"})
    )

    assert found["cpu.frequency_max"].outcome == FAILED
    assert found["cpu.governor"] == value("performance")
