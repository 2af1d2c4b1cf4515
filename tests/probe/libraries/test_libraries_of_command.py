"""`envlock.probe.libraries.operation.of_command`: real programs followed to their end, or watched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_libraries import compiled

from envlock.errors import ToolError
from envlock.facts import Observed
from envlock.probe.libraries import operation, tracing
from envlock.probe.libraries.operation import of_command, shortcoming
from envlock.probe.libraries.values import Loaded


def no_driver() -> dict[str, Observed]:
    return {}


def run(*command: str, deadline: float | None = None, trace: bool = True) -> Loaded:
    return of_command(command, deadline, trace, no_driver)


@pytest.fixture
def cudart(tmp_path: Path) -> str:
    """The path of a little CUDA runtime."""
    source = "int cudaRuntimeGetVersion(int *v) { *v = 12090; return 0; }"
    return str(compiled(tmp_path, source, "-Wl,-soname,libcudart.so.12", name="libcudart.so.12"))


ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def everyones(cudart: str) -> Iterator[str]:
    """The same library where every user may read it: pytest keeps its folders for one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield shutil.copy(cudart, folder)


def loading(path: str, then: str = "") -> tuple[str, ...]:
    return sys.executable, "-c", f"import ctypes, os, sys, threading, time; ctypes.CDLL({path!r})\n{then}"


def gone(loaded: Loaded) -> bool:
    """Return whether every process of `loaded` ends within a moment; its new parent may be slow to ask."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        files = [Path(f"/proc/{process.pid}/status") for process in loaded.processes]
        if all(not file.exists() or "State:\tZ" in file.read_text() for file in files):
            return True
        time.sleep(0.02)
    return False


def paths(loaded: Loaded) -> list[str]:
    return [item.path for item in loaded.libraries]


def test_what_is_loaded_in_the_last_moment_is_seen(cudart: str) -> None:
    """A process that loads and ends at once is seen, with the version and its status; nothing is missing."""
    loaded = run(*loading(cudart))

    assert (paths(loaded), loaded.libraries[0].version.text()) == ([cudart], "12.9")
    assert loaded.ran is not None
    assert (loaded.ran.status, loaded.ran.processes, loaded.complete) == (0, 1, True)
    assert shortcoming(loaded) is None


@pytest.mark.parametrize(
    "ending",
    [
        "os._exit(0)",
        "threading.Thread(target=lambda: os._exit(0)).start(); time.sleep(9)",
        "[threading.Thread(target=int).start() for _ in range(50)]",
        "if os.fork() == 0: os._exit(0)\nos.wait()",
    ],
    ids=["at once", "by another thread", "among many threads", "after a fork"],
)
def test_however_it_ends(ending: str, cudart: str) -> None:
    """Each way to end leaves its libraries to be read, a thread's too."""
    loaded = run(*loading(cudart, ending))

    assert paths(loaded) == [cudart]
    assert loaded.gaps == ()


def test_many_threads_are_not_slowed_for_ever(monkeypatch: pytest.MonkeyPatch, cudart: str) -> None:
    """Looks at ending threads have a budget; what the process loaded is still read at its end."""
    monkeypatch.setattr(tracing, "_MOST", -1e9)
    late = f"[threading.Thread(target=int).start() for _ in range(200)]; ctypes.CDLL({cudart!r})"
    loaded = run(sys.executable, "-c", f"import ctypes, threading\n{late}")

    assert (paths(loaded), loaded.gaps) == ([cudart], ())


def test_children_are_followed(cudart: str) -> None:
    """A shell's child's child, each a millisecond long, is seen; the shell itself loads nothing."""
    inner = " ".join(f"'{word}'" if " " in word else word for word in (sys.executable, "-S", "-c", "LOAD"))
    script = inner.replace("LOAD", f"'import ctypes; ctypes.CDLL(\"{cudart}\")'")
    loaded = run("sh", "-c", f"sh -c true; ( {script} ); true")

    assert paths(loaded) == [cudart]
    assert loaded.ran is not None
    assert loaded.ran.processes >= 3
    assert len(loaded.processes) == 1


def test_a_failing_program_is_named(cudart: str) -> None:
    """Its status is in the result, and the result is not taken for all."""
    loaded = run(*loading(cudart, "sys.exit(7)"))
    error = shortcoming(loaded)

    assert loaded.ran is not None
    assert loaded.ran.status == 7
    assert paths(loaded) == [cudart]
    assert error is not None
    assert (error.exit_code, "failed with status 7" in str(error)) == (3, True)


def test_a_program_ended_by_a_signal_is_read_and_named(cudart: str) -> None:
    """A crash is read at its end; the status is minus the signal."""
    loaded = run(*loading(cudart, "os.kill(os.getpid(), 11)"))

    assert loaded.ran is not None
    assert (paths(loaded), loaded.ran.status, loaded.gaps) == ([cudart], -11, ())
    assert "was ended by signal 11" in str(shortcoming(loaded))


def test_a_child_killed_outright_may_have_loaded_more() -> None:
    """What SIGKILL ended cannot be read at its end: either it was, or the result says so."""
    child = "import os, signal\nif os.fork() == 0: os.kill(os.getpid(), signal.SIGKILL)\nos.wait()"
    loaded = run(sys.executable, "-c", child)

    assert loaded.ran is not None
    assert loaded.ran.status == 0
    assert loaded.gaps == () or "was killed before its libraries could be read a last time" in loaded.gaps[0]


@pytest.mark.parametrize("trace", [True, False])
def test_what_a_daemon_runs_is_a_gap(trace: bool, tmp_path: Path) -> None:
    """`docker run …` ends well and loads nothing: what its daemon started was not followed."""
    client = shutil.copy(shutil.which("sleep") or "/bin/sleep", tmp_path / "docker")
    loaded = run("sh", "-c", f"{client} 1; true", trace=trace)

    assert loaded.ran is not None
    assert loaded.ran.status == 0
    assert loaded.gaps[-1].startswith("`docker` lets another process start what it is given")
    assert shortcoming(loaded) is not None


def test_a_helper_that_ends_with_the_program_is_followed_to_its_end() -> None:
    """multiprocessing's tracker outlives a program by a moment: nothing was missed of it."""
    work = (
        "import multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    lock, one = context.Lock(), context.Process(target=print)\n"
        "    one.start(); one.join()\n"
        "    import os, time\n"
        "    if os.fork() == 0: time.sleep(0.3); os._exit(0)\n"
    )
    loaded = run(sys.executable, "-c", work)

    assert loaded.ran is not None
    assert (loaded.ran.status, loaded.gaps) == (0, ())


UNREADABLE = "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"


@pytest.mark.skipif(not Path("/usr/bin/python3").exists() or os.geteuid() != 0, reason="needs to become another user")
@pytest.mark.parametrize(
    "then", ["pass", "os.kill(os.getpid(), 9)", "time.sleep(0.4); os.execv('/bin/true', ['true'])"]
)
def test_a_process_that_may_not_be_read_is_a_gap(then: str, everyones: str) -> None:
    """One that made itself unreadable (PR_SET_DUMPABLE) is not taken for one that loads nothing."""
    program = f"import ctypes, os, time; ctypes.CDLL({everyones!r})\n{UNREADABLE}{then}"
    observer = (
        f"import ctypes, os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from envlock.probe.libraries.operation import of_command\n"
        "from envlock.probe.libraries import tracing, launching\n"
        "os.setgid(65534); os.setuid(65534); ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"
        "print(of_command(sys.argv[1:], driver=dict).gaps)"
    )
    command = ["/usr/bin/python3", "-B", "-c", observer, "/usr/bin/python3", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "permission denied" in ended.stdout, ended.stdout + ended.stderr


def test_a_process_that_outlives_the_program_is_left_alone_and_told(cudart: str, tmp_path: Path) -> None:
    """What it has loaded so far is seen, that it goes on is a gap, and it goes on."""
    done = tmp_path / "done"
    child = f"time.sleep(3); open({str(done)!r}, 'w').write('x')"
    loaded = run(*loading(cudart, f"if os.fork() == 0: {child}"))

    assert paths(loaded) == [cudart]
    assert "still ran when it ended" in loaded.gaps[0]
    assert shortcoming(loaded) is not None
    until = time.monotonic() + 10
    while not done.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert done.exists()


def test_a_server_is_ended_at_its_deadline(cudart: str) -> None:
    """A program that never ends is asked to end; what it loaded is the result."""
    begun = time.monotonic()
    loaded = run(*loading(cudart, "time.sleep(60)"), deadline=1.0)

    assert time.monotonic() - begun < 5
    assert loaded.ran is not None
    assert (paths(loaded), loaded.ran.status, loaded.gaps) == ([cudart], None, ())
    assert "to its end" not in loaded.method
    assert "later was not seen" in loaded.method
    assert shortcoming(loaded) is None


def test_a_program_that_will_not_end_is_killed(monkeypatch: pytest.MonkeyPatch, cudart: str) -> None:
    """After a grace period nothing is left of it."""
    monkeypatch.setattr(tracing, "_GRACE", 0.3)
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); os.fork(); time.sleep(60)"
    begun = time.monotonic()
    loaded = run(*loading(cudart, stubborn), deadline=1.0)

    assert time.monotonic() - begun < 10
    assert paths(loaded) == [cudart]
    assert gone(loaded)


ASKED = """
import json, os, signal, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(json.dumps({
    "environment": dict(os.environ), "cwd": os.getcwd(), "stdin": sys.stdin.read(), "session": os.getsid(0),
    "signals": [status[key].strip() for key in ("SigBlk", "SigIgn", "SigCgt")],
    "files": sorted(os.listdir("/proc/self/fd")),
}), file=open(sys.argv[1], "w"))
print("said")
"""
OBSERVER = """
import sys
from envlock.probe.libraries.operation import of_command
of_command(sys.argv[2:], trace=sys.argv[1] == "trace", driver=dict)
"""


@pytest.mark.parametrize("trace", [True, False])
def test_workers_end_with_their_server(trace: bool, cudart: str) -> None:
    """At the deadline nothing is left behind: a worker that outlives its server by a moment is ended too."""
    server = f'{sys.executable} -c "{loading(cudart)[2]}time.sleep(60)"; true'
    loaded = run("sh", "-c", server, deadline=1.5, trace=trace)

    assert paths(loaded) == [cudart]
    assert loaded.ran is not None
    assert loaded.ran.status is None
    assert gone(loaded)


@pytest.mark.parametrize("trace", [True, False])
def test_a_closed_pipe_still_ends_a_program(trace: bool) -> None:
    """Python ignores SIGPIPE; a program that is run from it need not: `yes | head` must end."""
    loaded = run("sh", "-c", "kill -s PIPE $$; exit 3", trace=trace)

    assert loaded.ran is not None
    assert loaded.ran.status == -13


@pytest.mark.parametrize("how", ["trace", "watch"])
def test_nothing_is_changed_for_the_program(how: str, tmp_path: Path) -> None:
    """Environment, folder, input, signals and open files are those of a plain start; its output goes to stderr."""
    seen = []
    for name, command in (("plain", []), ("observed", [sys.executable, "-c", OBSERVER, how])):
        out = tmp_path / name
        finished = subprocess.run(
            [*command, sys.executable, "-c", ASKED, out], input=b"given", capture_output=True, check=True, timeout=60
        )
        seen.append(json.loads(out.read_text()))
        if command:
            assert (finished.stdout, finished.stderr) == (b"", b"said\n")

    assert seen[0] == seen[1]
    assert seen[1]["stdin"] == "given"


@pytest.mark.parametrize("trace", [True, False])
def test_a_program_that_is_not_there(trace: bool) -> None:
    """It is said, and not taken for a program that loads nothing."""
    with pytest.raises(ToolError, match="`nosuchprogram` cannot be run: no such file or directory"):
        run("nosuchprogram", trace=trace)


def test_watching_says_that_it_may_have_missed_something(cudart: str) -> None:
    """Without ptrace the list is made by looking again and again, and is never called complete."""
    loaded = run(*loading(cudart, "time.sleep(3); sys.exit(0)"), trace=False)

    assert paths(loaded) == [cudart]
    assert not loaded.complete
    assert "was not seen" in loaded.gaps[0]
    error = shortcoming(loaded)
    assert error is not None
    assert (error.exit_code, "ptrace_scope" in str(error.hint)) == (3, True)


def test_where_ptrace_is_not_permitted_it_is_watched(cudart: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of the kernel is no end: the program runs once, is watched, and the reason is a gap."""

    def refused(self: tracing._Tracer, what: int, thread: int, data: int = 0) -> int:
        import ctypes

        ctypes.set_errno(1)
        return -1

    monkeypatch.setattr(tracing._Tracer, "request", refused)
    loaded = run(*loading(cudart, "time.sleep(3)"))

    assert paths(loaded) == [cudart]
    assert loaded.method == operation._WATCHED
    assert loaded.gaps[0].startswith("it may not be followed here (operation not permitted), so it was looked at")


def test_job_control_still_works(cudart: str, tmp_path: Path) -> None:
    """A stopped program stays stopped until it is continued."""
    mark = tmp_path / "pid"
    then = (
        f"open({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        f"os.kill(os.getpid(), 19); open({str(mark)!r}, 'a').write(' on')"
    )
    with subprocess.Popen([sys.executable, "-c", OBSERVER, "trace", *loading(cudart, then)]) as observer:
        until = time.monotonic() + 20
        while not (mark.exists() and mark.read_text()) and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.4)
        stopped = mark.read_text()
        os.kill(int(stopped), signal.SIGCONT)
        assert observer.wait(timeout=20) == 0

    assert not stopped.endswith("on")
    assert mark.read_text().endswith("on")


def test_signals_reach_the_program(cudart: str) -> None:
    """A handler of the program's own runs as ever."""
    loaded = run(*loading(cudart, "import signal; signal.signal(10, lambda *_: os._exit(5)); os.kill(os.getpid(), 10)"))

    assert loaded.ran is not None
    assert loaded.ran.status == 5
