"""Only reading commands are started, each with a deadline."""

import time
from pathlib import Path

import pytest
import recordings

from envlock.gpucheck import clocks, commands
from envlock.gpucheck.commands import SmiProgram

# What nvidia-smi's own help calls queries, and nothing else: the whole of what may be asked.
ALLOWED = {
    ("-q", "-x"),
    ("-q",),
    ("-L",),
    ("--version",),
    ("topo", "-m"),
    ("nvlink", "-s"),
    ("--help-query-gpu",),
}


def test_every_recorded_command_is_a_reading_one() -> None:
    """The table holds nothing that is not on the list here, and the list nothing that is not asked."""
    assert {read.argv for read in commands.RECORDED} == ALLOWED


@pytest.mark.parametrize(
    "argv",
    [
        ("-pl", "300"), ("-pm", "1"), ("-ac", "1,2"), ("-lgc", "1000"), ("-lmc", "1"), ("-rgc",), ("-rac",), ("-r",),
        ("--gpu-reset",), ("-mig", "1"), ("mig", "-cgi", "0"), ("-e", "0"), ("-c", "0"), ("-p", "0"), ("drain",), (),
        ("-q", "-x", "-f", "/tmp/x"), ("-q", "-pl"), ("--query-gpu=name", "-pl"),
        ("--query-gpu=name", "--format=csv", "-r"),
        ("--query-gpu=name --format=csv",),
        ("--query-gpu=", "--format=csv"), ("--query-gpu=a;b", "--format=csv"),
        ("nvlink", "-sLowPwrThres"), ("topo", "-m", "-r"),
    ],
)  # fmt: skip
def test_what_sets_something_is_never_started(argv: tuple[str, ...], tmp_path: Path) -> None:
    """A mistake here is a fault of ours that stops before the program starts."""
    smi = SmiProgram(str(recordings.program(tmp_path)))

    assert not commands.reads_only(argv)
    with pytest.raises(ValueError, match="nvidia-smi is never started with"):
        smi.ask(argv)
    assert not (tmp_path / "asked.txt").exists()


def test_both_forms_of_a_query_are_reading_ones() -> None:
    """With header and units for people, bare for sampling."""
    assert commands.reads_only(commands.query(["name", "clocks.sm"]))
    assert commands.reads_only(commands.query(["name"], bare=True))


def test_no_other_module_of_the_check_starts_nvidia_smi() -> None:
    """Whoever asks goes through the table."""
    folder = Path(commands.__file__).parent
    naming = {
        path.stem
        for path in folder.glob("*.py")
        if "process.run" in path.read_text() or "process.check" in path.read_text()
    }

    assert naming == {"commands", "clocks", "canaries"}
    for name in ("clocks", "canaries"):
        assert "nvidia-smi" not in (folder / f"{name}.py").read_text().split('"""', 2)[2].replace("`nvidia-smi", "")


def test_after_one_that_hangs_nothing_more_is_asked(tmp_path: Path) -> None:
    """It is left behind and named; a second one would sit in the driver beside it."""
    smi = SmiProgram(str(recordings.program(tmp_path, hangs=("-q",))), deadline=1.0)
    begin = time.monotonic()
    first, second = smi.ask(("-q",)), smi.ask(("-L",))

    assert first.failure == "`nvidia-smi -q` gave no answer within 1 s, and was left behind"
    assert second.failure == f"not asked: {first.failure}"
    assert time.monotonic() - begin < 8
    assert (tmp_path / "asked.txt").read_text() == "-q\n"


def test_a_command_that_fails_says_how(tmp_path: Path) -> None:
    """The status and its last line."""
    smi = SmiProgram(str(recordings.program(tmp_path, refused=("-L",))))

    assert smi.ask(("-L",)).failure == "ended with status 2: Field is not a valid field to query."
    assert SmiProgram(None).ask(("-L",)).failure == "nvidia-smi is not on PATH"


def test_the_fields_of_the_driver_are_read_from_its_own_help() -> None:
    """Each by its first name; words in the middle of a line are none."""
    text = recordings.answers()["--help-query-gpu"]

    assert commands.fields_in(text) == ["name", "serial", "uuid"]


def test_an_older_driver_is_asked_for_throttle_reasons(tmp_path: Path) -> None:
    """Before 535 event reasons had another name, and an unknown field fails the whole query."""
    new, _ = (commands.query((*commands.SAMPLED, name), bare=True) for name in commands.REASONS)
    smi = SmiProgram(str(recordings.program(tmp_path, refused=(" ".join(new),))))

    assert clocks._fields(smi)[-1] == "clocks_throttle_reasons.active"
