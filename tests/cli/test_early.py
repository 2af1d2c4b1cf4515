"""The driver is asked before the command line is parsed, only where it will surely be needed."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.nvml import world

from envlock.cli import early


@pytest.mark.parametrize(
    "line",
    ["check", "check -l LOCK", "check --lock=LOCK -q", "check -f SPEC --format json -o FILE",
     "check --as slurm --drain"],
)  # fmt: skip
def test_check_of_this_host_is_known_from_its_arguments(line: str) -> None:
    """Options that say where the lockfile is and how to answer leave no doubt."""
    assert early.checks_this_host(line.split(), {})


@pytest.mark.parametrize(
    "line",
    ["", "probe", "-q check", "check --facts F", "check --image I", "check --facts=F", "check --exec true",
     "check --pid 1", "check --help", "check -h", "check -lLOCK", "check --color never", "check -l", "check more"],
)  # fmt: skip
def test_doubtful_command_line_asks_no_driver(line: str) -> None:
    """Whatever may not check this host, or may be a mistake, is left to the parser."""
    assert not early.checks_this_host(line.split(), {})


@pytest.mark.parametrize("name", ["FACTS", "IMAGE", "EXECUTE", "PID"])
def test_variable_that_names_something_else_asks_no_driver(name: str) -> None:
    """An option in the environment counts like one on the command line."""
    assert not early.checks_this_host(["check"], {f"ENVLOCK_CHECK_{name}": "x"})
    assert early.checks_this_host(["check"], {"ENVLOCK_CHECK_OUTPUT": "x"})


def test_driver_that_was_asked_early_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check takes the host that was begun, once; where none was begun, it begins one."""
    begun: list[object] = []

    def begin() -> object:
        begun.append(object())
        return begun[-1]

    monkeypatch.setattr("envlock.probe.begin", begin)
    early.begin(["check"], {})

    assert [early.host(), early.host()] == begun
    assert len(begun) == 2


def test_child_of_a_check_that_fails_is_gone_with_it(tmp_path: Path) -> None:
    """A check that was a mistake leaves no process behind in a driver that hangs."""
    mark = f"{tmp_path}/mark"
    environment = {**os.environ, **world("hang-at-start"), "ENVLOCK_TEST_MARK": mark}
    ran = subprocess.run(
        [sys.executable, "-m", "envlock", "check", "-l", "missing.lock.toml"],
        env=environment, capture_output=True, cwd=tmp_path, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 2

    left = _marked(mark)
    for _ in range(100):
        if not left:
            break
        time.sleep(0.1)
        left = _marked(mark)
    assert left == []


def _marked(mark: str) -> list[str]:
    """Return the processes that have `mark` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found
