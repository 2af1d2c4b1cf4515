"""`envlock.probe.libraries.operation.of_pid`: a process by its number, recorded or running."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from made_libraries import compiled

from envlock.errors import CouldNotTell
from envlock.facts import Observed, value
from envlock.probe.libraries.asking import Question
from envlock.probe.libraries.operation import of_pid
from envlock.probe.libraries.reading import Reading

MAPS = """\
7f1000000000-7f1000040000 r-xp 0 fe:01 1640   /opt/venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9
7f1200000000-7f1200040000 r-xp 00000000 fe:01 1845   /usr/lib/x86_64-linux-gnu/libcudnn_engines_precompiled.so.9.23.0
7f1300000000-7f1300040000 r-xp 00000000 fe:01 7      /usr/lib/x86_64-linux-gnu/libm.so.6
"""


def recorded(tmp_path: Path, maps: str = MAPS, flags: int = 0x400000) -> Path:
    """Return a procfs with the process 42, whose root is a folder of its own: as of a container."""
    proc = tmp_path / "proc"
    folder = proc / "42"
    (folder / "ns").mkdir(parents=True)
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self/ns/mnt").symlink_to("mnt:[1]")
    (folder / "ns/mnt").symlink_to("mnt:[2]")
    (folder / "root").mkdir()
    (folder / "maps").write_text(maps)
    (folder / "stat").write_text(f"42 (a) b) S 1 42 42 0 -1 {flags} 0 0\n")
    (folder / "mountinfo").write_text("1 0 0:5 / / rw - overlay overlay rw\n")
    (folder / "cmdline").write_bytes(b"python\0train.py\0")
    (folder / "environ").write_bytes(b"A=b\0LD_LIBRARY_PATH=/odd/lib:relative\0")
    (folder / "exe").symlink_to("/usr/bin/python3")
    return proc


def no_driver() -> dict[str, Observed]:
    return {}


def refuse(questions: Sequence[Question]) -> list[Observed]:
    """Stand in for the asking of libraries, where none may be asked."""
    assert not questions
    return []


def test_a_container_is_read_through_its_own_root(tmp_path: Path) -> None:
    """Build id, size, package and empty files are those of the process's root; none of its code is run."""
    proc = recorded(tmp_path)
    root = proc / "42" / "root"
    made = compiled(tmp_path, "int cudnnGetVersion(void) { return 92000; }", "-Wl,--build-id=0xabcd")
    site = root / "opt/venv/lib/python3.12/site-packages"
    (site / "nvidia/cudnn/lib").mkdir(parents=True)
    made.rename(site / "nvidia/cudnn/lib/libcudnn.so.9")
    (site / "nvidia_cudnn_cu12-9.20.0.48.dist-info").mkdir()
    (site / "nvidia_cudnn_cu12-9.20.0.48.dist-info/RECORD").write_text("nvidia/cudnn/lib/libcudnn.so.9,,\n")
    (root / "odd/lib").mkdir(parents=True)
    (root / "odd/lib/libcuda.so.1").touch()
    loaded = of_pid(42, no_driver, str(proc), refuse)
    wheel, system = loaded.libraries

    assert (wheel.build_id.text(), wheel.size.has_value, wheel.place) == ("abcd", True, "wheel")
    assert wheel.package is not None
    assert (wheel.package.name, wheel.package.version) == ("nvidia-cudnn-cu12", "9.20.0.48")
    assert wheel.version.detail.startswith("not asked: to load a library of another user or container")
    assert (system.place, system.build_id.detail) == ("system", "no such file or directory")
    assert [finding.code for finding in loaded.findings] == ["mixed-cudnn", "empty-library"]
    assert loaded.findings[1].paths == ("/odd/lib/libcuda.so.1",)
    assert loaded.processes[0].program == "python train.py"
    assert loaded.complete


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("maps-two-cudnn.txt", ["mixed-cudnn", "runtime-not-seen"]),
        # A driver of branch 570 runs CUDA 12.8, and the runtime is of CUDA 13.
        ("maps-deleted-lib.txt", ["deleted", "driver-too-old"]),
    ],
)
def test_the_recorded_processes(name: str, expected: list[str], tmp_path: Path) -> None:
    """The recorded maps give their findings, whatever else is not known of their files."""
    corpus = os.environ.get("ENVLOCK_CORPUS")
    if not corpus:
        pytest.skip("ENVLOCK_CORPUS is not set")
    proc = recorded(tmp_path, Path(corpus, "hosts/cuda", name).read_text())
    loaded = of_pid(42, no_driver, str(proc), refuse)

    assert [finding.code for finding in loaded.findings] == expected


def test_a_process_without_cuda_libraries_has_none(tmp_path: Path) -> None:
    """Nothing found is a result; the driver is not even asked."""
    proc = recorded(tmp_path, MAPS.splitlines(keepends=True)[2])

    def never() -> dict[str, Observed]:
        raise AssertionError

    assert of_pid(42, never, str(proc), refuse).libraries == ()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (0x208040, "process 42 is a kernel thread: it loads no libraries"),
        (0x40000C, "process 42 has ended"),
    ],
)
def test_a_process_without_memory_is_named(flags: int, message: str, tmp_path: Path) -> None:
    """Empty maps are a kernel thread or a process that has ended: could not tell, never "nothing loaded"."""
    with pytest.raises(CouldNotTell) as raised:
        of_pid(42, no_driver, str(recorded(tmp_path, "", flags)))

    assert (str(raised.value), raised.value.exit_code) == (message, 3)


def test_no_such_process(tmp_path: Path) -> None:
    """A number that is no process is said, with where to look."""
    with pytest.raises(CouldNotTell, match="there is no process 43") as raised:
        of_pid(43, no_driver, str(recorded(tmp_path)))

    assert "PID namespace" in str(raised.value.hint)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's process is exit 3 with a hint, whoever runs the tests."""

    def refused(self: Reading, pid: int, thread: int = 0) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Reading, "take", refused)
    with pytest.raises(CouldNotTell, match="process 1 may not be looked at by this user") as raised:
        of_pid(1, no_driver)

    assert "SYS_PTRACE" in str(raised.value.hint)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A running process that has loaded a library of ours as `libcudart.so.12`."""
    path = compiled(
        tmp_path,
        "int cudaRuntimeGetVersion(int *v) { *v = 12090; return 0; }",
        "-Wl,-soname,libcudart.so.12",
        name="libcudart.so.12",
    )
    program = f"import ctypes, sys; ctypes.CDLL({str(path)!r}); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=True
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        yield running, path
        running.kill()


def test_a_running_process(process: tuple[subprocess.Popen[bytes], Path]) -> None:
    """The very file is asked for its version; a runtime newer than the driver's major is found."""
    running, path = process
    loaded = of_pid(running.pid, lambda: {"nvidia.cuda": value("11.8")})
    (library,) = loaded.libraries

    assert (library.path, library.version.text(), library.place) == (str(path), "12.9", "other")
    assert [finding.code for finding in loaded.findings] == ["driver-too-old"]


def test_a_library_replaced_under_a_running_process(process: tuple[subprocess.Popen[bytes], Path]) -> None:
    """The process still runs the old file: a finding, and the new one's version is not taken for it."""
    running, path = process
    path.unlink()
    compiled(path.parent, "int cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }", name=path.name)
    loaded = of_pid(running.pid, no_driver)
    (library,) = loaded.libraries

    assert library.deleted
    assert library.version.detail == "not asked: its file is gone"
    assert [finding.code for finding in loaded.findings] == ["deleted"]


def test_a_process_that_ended_and_waits_for_its_parent() -> None:
    """A zombie is told as what it is."""
    with subprocess.Popen([sys.executable, "-c", ""]) as running:
        for _ in range(500):
            if Path(f"/proc/{running.pid}/maps").read_bytes() == b"":
                break
            time.sleep(0.01)
        with pytest.raises(CouldNotTell, match="has ended"):
            of_pid(running.pid, no_driver)


def test_a_program_on_its_way_out_is_the_one_that_it_was(tmp_path: Path) -> None:
    """The link to its file vanishes before its maps do: no second program is made of it."""
    proc = recorded(tmp_path)
    reading = Reading(str(proc))
    reading.take(42)
    (proc / "42/exe").unlink()
    (proc / "42/cmdline").write_bytes(b"")
    reading.take(42)

    assert [taken.program for taken in reading.taken.values()] == ["python train.py"]


def test_a_process_that_has_left_its_namespace_adds_nothing(tmp_path: Path) -> None:
    """On its way out, maps may still be there and the rest gone: its files are not taken for a container's."""
    proc = recorded(tmp_path)
    reading = Reading(str(proc))
    reading.take(42)
    before = dict(reading.files)
    (proc / "42/ns/mnt").unlink()

    with pytest.raises(FileNotFoundError):
        reading.take(42)
    assert reading.files == before


def test_without_namespaces_all_see_the_same_files(tmp_path: Path) -> None:
    """A kernel without mount namespaces has one: files are read as they are named."""
    proc = recorded(tmp_path)
    for name in ("42", "self"):
        (proc / name / "ns/mnt").unlink()
    reading = Reading(str(proc))
    reading.take(42)

    assert {seen.ours for seen in reading.files.values()} == {True}


def test_a_process_that_procfs_hides_is_not_called_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounted with hidepid, procfs shows nothing of a process that is there: no permission."""

    def refused(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refused)
    with pytest.raises(CouldNotTell, match="process 43 may not be looked at by this user"):
        of_pid(43, no_driver, str(recorded(tmp_path)))


def test_a_path_that_is_no_utf8_is_shown_with_escapes(tmp_path: Path) -> None:
    """Bytes that are no letters are visible, and the document can be written anywhere."""
    proc = recorded(tmp_path)
    (proc / "42/maps").write_bytes(b"1-2 r-xp 0 fe:01 7 /opt/\xff/libcudart.so.12\n")
    loaded = of_pid(42, no_driver, str(proc), refuse)

    assert loaded.libraries[0].path == "/opt/\\xff/libcudart.so.12"
    assert str(loaded.to_document()).encode("utf-8")
