"""Clocks under load: what may be said about locked clocks, and that nothing is ever claimed."""

import sys
from pathlib import Path

import pytest
import recordings

from envlock.gpucheck import clocks, load
from envlock.gpucheck.clocks import NO_CLAIM, Sample, Seen
from envlock.gpucheck.commands import REASONS, SAMPLED, SmiProgram


def sample(
    sm: float | None, reasons: tuple[str, ...] | None = (), utilization: float = 100.0, uuid: str = "GPU-a"
) -> Sample:
    return Sample(uuid, sm, 3201.0, 1980.0, 650.0, 700.0, utilization, reasons)


def said(idle: list[Sample], loaded: list[Sample], failure: str = "") -> str:
    return "; ".join(clocks.words(Seen(tuple(idle), tuple(loaded), "GPU-a", {}, failure)))


@pytest.mark.parametrize(
    ("idle", "loaded", "inference"),
    [
        (
            [345],
            [1980, 1980],
            "it reached the highest clock, so it is not locked below that; a lock at the highest looks",
        ),
        (
            [345],
            [1200, 1200],
            "it stood still below the highest clock and the driver gives no reason: clocks may be locked",
        ),
        ([345], [1200, 1400], "it moved, so it is not locked to one clock; a locked range looks the same"),
        ([1200], [1200, 1200], "it is the same at rest: clocks may be locked, or something kept the GPU awake"),
    ],
)
def test_what_was_seen_allows_an_inference_and_no_claim(idle: list[int], loaded: list[int], inference: str) -> None:
    """The last sentence always says that this proves nothing."""
    text = said([sample(clock, utilization=0) for clock in idle], [sample(clock) for clock in loaded])

    assert inference in text
    assert text.endswith(NO_CLAIM)


def test_a_gpu_that_the_driver_slows_down_says_nothing_about_locks() -> None:
    """A power cap holds the clock as a lock would."""
    text = said([], [sample(1500, ("sw power cap",)), sample(1500, ())])

    assert "the driver held it down: sw power cap; with a reason like that a lock cannot be told" in text
    assert "may be locked" not in text


def test_a_driver_that_tells_no_reasons_leaves_it_open() -> None:
    """Without reasons a clock that stands still can come from anything."""
    assert "the driver did not say whether it held the clock down" in said([], [sample(1500, None)])


def test_only_the_loaded_gpu_at_work_counts() -> None:
    """Neither its neighbour, nor the seconds in which torch was still being imported."""
    text = said([], [sample(300, utilization=0), sample(700, uuid="GPU-b"), sample(1900)])

    assert "under load the SM clock was 1900 MHz in 1 samples (highest possible 1980 MHz)" in text


def test_without_a_load_nothing_is_said() -> None:
    """The reason stands in its place."""
    assert said([sample(345)], [], "no load: no torch") == (
        f"nothing can be said about locked clocks: no load: no torch; {NO_CLAIM}"
    )


def test_cells_that_are_no_numbers_are_not_told() -> None:
    """Every spelling of absence, a line about a lost GPU, and a mask with a bit that is not known."""
    text = (
        "0, GPU-a, P0, [N/A], 3201, 1980, [Not Supported], 700.00, 100, 61, 0x0000000000000204\n"
        "Unable to determine the device handle for GPU1\n"
        "1, GPU-b, P0, 1980, 3201, 1980, 650.1, 700.00, 100, 61, [N/A]\n"
    )
    first, second = clocks.parse(text, (*SAMPLED, REASONS[0]))

    assert (first.sm, first.power, first.reasons) == (None, None, ("sw power cap", "unknown reason 0x200"))
    assert (second.sm, second.reasons) == (1980.0, None)


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "PAUSE", 0.05)
    monkeypatch.setattr(clocks, "_START", 10.0)


def test_clocks_are_sampled_while_the_load_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At rest first, then as long as the load takes; it says which GPU it loaded."""
    quick(monkeypatch)
    program = f'import time; time.sleep(1); print(\'{{"uuid": "{recordings.UUIDS[1]}", "products": 4}}\')'
    smi = SmiProgram(str(recordings.program(tmp_path)))
    seen = clocks.watch(smi, [sys.executable, "-I", "-c", program], {})

    assert (len(seen.idle), seen.uuid, seen.failure) == (2 * clocks.IDLE_SAMPLES, recordings.UUIDS[1], "")
    assert len(clocks.busy(seen)) >= 2
    assert "it reached the highest clock" in "; ".join(clocks.words(seen))


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import sys; sys.exit('no GPU here')", "the load ended with status 1: no GPU here"),
        ("print('not JSON')", "the load did not run: "),
    ],
)
def test_a_load_that_breaks_is_a_reason(
    program: str, failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is inferred from clocks of a GPU that did nothing."""
    quick(monkeypatch)
    seen = clocks.watch(SmiProgram(str(recordings.program(tmp_path))), [sys.executable, "-I", "-c", program], {})

    assert seen.failure.startswith(failure)
    assert clocks.words(seen)[0].startswith("nothing can be said about locked clocks: " + failure)


@pytest.mark.torch
def test_the_load_really_multiplies() -> None:
    """The loop ends in time and counts what it did (on the CPU: the device is an argument)."""
    import torch

    done = load.multiply(torch, "cpu", 0.05, size=32)

    assert done["products"] >= 4
    assert 0.05 <= done["seconds"] < 5
