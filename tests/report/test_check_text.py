"""The text of `check`: what was reset, what to run, what is waived, equal GPUs once."""

import dataclasses

from hypothesis import given
from made_views import CHANGED, COMPARISONS, EVERYTHING, TEXTS, UNKNOWN, WAIVED, WARNING

from envlock.drift import Comparison, Drift, Kind
from envlock.report.text import check_text


def text_of(comparison: Comparison, colored: bool = False) -> str:
    return check_text(comparison, "node17.json", "h100", "h100.lock.toml", colored)


def test_a_setting_that_fell_back_is_called_reset() -> None:
    """With the reason, and the one line that puts it right."""
    reset = dataclasses.replace(CHANGED, reset=True, because="reset to default: instances are gone")
    assert text_of(Comparison(drifts=(reset,))).splitlines()[2:7] == [
        "  reset      gpu.vbios on 0000:03:00.0: 96.00.5E.00.01 → 96.00.A5.00.01",
        "             because: reset to default: instances are gone",
        "             why: firmware of the board",
        "             fix: flash the `locked` one",
        "             run: nvidia-smi -i 0000:03:00.0 -pl 650",
    ]


def test_a_warning_is_called_that_first() -> None:
    """Without colours too, nothing that does not decide looks as if it did."""
    reset = dataclasses.replace(WARNING, reset=True)
    assert "\n  warning    nvidia.driver: 535.161.08 → 550.120\n" in text_of(Comparison(drifts=(reset,)))


def test_a_waiver_shows_its_reason_and_its_last_day() -> None:
    """Below the counts, where what is excused stands; equal ones once."""
    other = dataclasses.replace(WAIVED, device="0000:04:00.0")
    text = text_of(Comparison(waived=(WAIVED, other), checked=3))
    assert text.endswith(
        "\n3 checked, no difference, 2 waived\n"
        "  waived until 2026-12-31: gpu.power_limit on 2 devices (0000:03:00.0, 0000:04:00.0): 700000 mW → 650000 mW\n"
        "             reason: ticket 4711\n"
    )


def test_an_expired_waiver_is_an_error() -> None:
    """With its day, and what to do about it."""
    expired = Drift(
        key="gpu.ecc", expected="waived until 2026-11-01", observed="expired", kind=Kind.EXPIRED, until="2026-11-01",
        because="ticket 4711; the difference is still there", fix="remove the waiver",
    )  # fmt: skip
    text = text_of(Comparison(drifts=(expired,)))
    assert text.startswith("drift: ")
    assert "\n  expired    gpu.ecc: waived until 2026-11-01 → expired\n" in text
    assert "because: ticket 4711; the difference is still there" in text


def test_eight_equal_gpus_are_told_once_and_so_is_the_command() -> None:
    """Eight places, one command; where a command is another for each GPU, each is shown."""
    eight = [dataclasses.replace(CHANGED, device=f"0000:0{number}:00.0") for number in range(8)]
    text = text_of(Comparison(drifts=tuple(eight)))
    assert (text.count("gpu.vbios"), text.count("run: ")) == (1, 1)
    assert "gpu.vbios on 8 devices (0000:00:00.0, 0000:01:00.0, " in text
    each = [dataclasses.replace(drift, command=f"nvidia-smi -i {drift.device} -pl 650") for drift in eight]
    text = text_of(Comparison(drifts=tuple(each)))
    assert (text.count("gpu.vbios"), text.count("run: ")) == (1, 8)


def test_a_note_judges_nothing_and_is_said() -> None:
    """At the end."""
    assert text_of(EVERYTHING).endswith("\n  note: clocks may be locked\n")


@given(COMPARISONS, TEXTS)
def test_no_text_reaches_a_terminal_as_a_control_character(comparison: Comparison, subject: str) -> None:
    """Whatever a stranger's facts or rules say; the colours are ours alone."""
    text = check_text(comparison, subject, subject, subject, colored=False)
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    colored = check_text(comparison, subject, subject, subject, colored=True)
    for code in ("31", "33", "1", "32", "0"):
        colored = colored.replace(f"\x1b[{code}m", "")
    assert colored == text


def test_a_gpu_that_is_lost_is_one_entry() -> None:
    """Its facts by name, the reason once; fewer, other reasons and other GPUs stay entries of their own."""
    facts = ("gpu.ecc", "gpu.name", "gpu.vbios", "gpu.mode")
    lost = [dataclasses.replace(UNKNOWN, key=key, fix="", expected=key) for key in facts]
    other = dataclasses.replace(lost[0], because="no permission")
    elsewhere = dataclasses.replace(lost[1], device="0000:06:00.0", expected="another")
    lines = text_of(Comparison(drifts=(*lost, other, elsewhere))).splitlines()
    assert lines[2:4] == [
        "  unknown    4 facts on 0000:05:00.0: gpu.ecc, gpu.name, gpu.vbios, gpu.mode",
        "             because: GPU is lost",
    ]
    assert [line.split(":")[0] for line in lines if line.startswith("  unknown")][1:] == [
        "  unknown    gpu.ecc on 0000",
        "  unknown    gpu.name on 0000",
    ]
    assert lines[-1] == "0 checked, no difference, 6 unknown"
    assert text_of(Comparison(drifts=tuple(lost[:3]))).count("because") == 3
