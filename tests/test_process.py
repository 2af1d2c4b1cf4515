"""The one place that starts programs."""

import os
import sys
import time
from pathlib import Path

import pytest

from envlock.errors import ToolError
from envlock.process import check, run, start


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_output_and_status_are_returned() -> None:
    """Both streams and the exit status come back, whatever the status is."""
    finished = run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"), 30)

    assert (finished.status, finished.stdout, finished.stderr) == (7, b"out\n", b"err\n")


def test_input_environment_and_folder_are_given(tmp_path: Path) -> None:
    """The program gets the bytes, the variables and the folder it was meant to get, and no others."""
    program = "import os, sys; print(sys.stdin.read(), os.getcwd(), os.environ.get('A'), os.environ.get('HOME'))"
    finished = run(python(program), 30, env={"A": "1"}, stdin=b"in", cwd=tmp_path)

    assert finished.stdout.decode().split() == ["in", str(tmp_path), "1", "None"]


def test_much_output_does_not_block() -> None:
    """More output than a pipe holds, on both streams at once, is read to its end."""
    program = "import sys; sys.stdout.write('o' * 300000); sys.stderr.write('e' * 300000)"
    finished = run(python(program), 30)

    assert (len(finished.stdout), len(finished.stderr)) == (300000, 300000)


def test_program_that_is_missing_is_said() -> None:
    """A missing program is named, with the hint of how to get it."""
    with pytest.raises(ToolError, match="`no-such-program` is not installed") as caught:
        run(["no-such-program"], 30, hint="install it")

    assert caught.value.hint == "install it"
    assert caught.value.exit_code == 3


def test_program_that_may_not_be_run_is_said(tmp_path: Path) -> None:
    """A file without permission to run is told from a missing one."""
    (tmp_path / "p").write_text("x")

    with pytest.raises(ToolError, match="cannot be run: permission denied"):
        run([str(tmp_path / "p")], 30)


def test_deadline_kills_the_whole_group(tmp_path: Path) -> None:
    """Past the deadline the program and what it started are gone, even if they ignore being asked to end."""
    program = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = os.fork(); open({str(tmp_path / 'pid')!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
    )
    began = time.monotonic()

    with pytest.raises(ToolError, match="gave no answer within 1 s"):
        run(python(program), 1)

    assert time.monotonic() - began < 10
    time.sleep(0.2)
    assert [pid for pid in (tmp_path / "pid").read_text().split() if alive(int(pid))] == []


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in ("Z", "X")


def test_started_program_runs_while_others_work() -> None:
    """`start` returns at once; `wait` gives what the program left."""
    began = time.monotonic()
    running = [start(python("import time; time.sleep(0.5); print(1)")) for _ in range(2)]

    assert time.monotonic() - began < 0.4
    assert [item.wait(30).stdout for item in running] == [b"1\n", b"1\n"]


def test_check_returns_the_output_of_success() -> None:
    """Status 0 gives the standard output."""
    assert check(python("print('x')"), 30) == b"x\n"


def test_check_quotes_the_end_of_what_a_failure_said() -> None:
    """Another status is an error with the last eight lines of standard error."""
    program = "import sys; [print(f'line {n}', file=sys.stderr) for n in range(20)]; sys.exit(3)"

    with pytest.raises(ToolError) as caught:
        check(python(program), 30)

    assert caught.value.message.startswith(f"`{sys.executable}` failed with status 3\n  line 12\n")
    assert caught.value.message.endswith("\n  line 19")


def test_no_descriptor_is_left_open() -> None:
    """Programs that end, and one past its deadline, leave no open file behind."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run(python("pass"), 30)
    with pytest.raises(ToolError):
        run(python("import time; time.sleep(60)"), 0.1)

    assert len(os.listdir("/proc/self/fd")) == before
