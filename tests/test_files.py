"""Files that are never torn: atomic writes, advisory locks, bounded reads."""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envlock import files
from envlock.errors import LockHeldError, StorageError, UsageError

HOLD = """
import sys
from pathlib import Path
from envlock import files
with files.exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    """The folder holds the file, with the mode asked for, whatever the umask."""
    path = tmp_path / "new" / "a.toml"
    before = os.umask(0o077)
    try:
        files.write_atomic(path, b"one")
        files.write_atomic(path, b"two")
    finally:
        os.umask(before)

    assert path.read_bytes() == b"two"
    assert names(path.parent) == ["a.toml"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_symbolic_link_is_not_written_through(tmp_path: Path) -> None:
    """The file behind a link is one nobody named: it stays as it is."""
    target = tmp_path / "profile"
    target.write_bytes(b"mine")
    link = tmp_path / "a.toml"
    link.symlink_to(target)

    with pytest.raises(UsageError, match="is a symbolic link; refusing to write through it"):
        files.write_atomic(link, b"x")

    assert target.read_bytes() == b"mine"


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    """`-o /dev/null`, run by root, would leave the machine without its null device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(UsageError, match="is no regular file; refusing to replace it"):
        files.write_atomic(pipe, b"x")
    with pytest.raises(UsageError, match="is a folder, expected a file"):
        files.write_atomic(tmp_path, b"x")

    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_lock_file_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    """Opening the lock never creates or truncates what a link points to."""
    target = tmp_path / "profile"
    target.write_bytes(b"mine")
    (tmp_path / ".a.toml.flock").symlink_to(target)

    with pytest.raises(StorageError), files.exclusive(tmp_path / "a.toml"):
        pass

    assert target.read_bytes() == b"mine"


CALLS = [("write", 1), ("fsync", 1), ("fsync", 2), ("replace", 1), ("open", 1), ("fchmod", 1)]
ERRORS = [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EACCES]


@pytest.mark.parametrize("code", ERRORS, ids=[errno.errorcode[code] for code in ERRORS])
@pytest.mark.parametrize(("call", "turn"), CALLS)
def test_a_disk_that_refuses_at_any_call_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, turn: int, code: int
) -> None:
    """At each system call of the writer: the error is in words, the file whole, no temporary file stays."""
    path = tmp_path / "a.toml"
    path.write_bytes(b"old")
    calls = 0
    real = getattr(os, call)

    def fails(*arguments: object, **more: object) -> object:
        nonlocal calls
        calls += 1
        if calls == turn:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **more)

    if call == "write":
        # The stream writes in C, so the disk is made to refuse there: a full device.
        real_fdopen = os.fdopen

        class Full:
            def __init__(self, descriptor: int) -> None:
                self.stream = real_fdopen(descriptor, "wb")

            def __enter__(self) -> "Full":
                return self

            def __exit__(self, *_: object) -> None:
                self.stream.close()

            def write(self, data: bytes) -> int:
                raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fdopen", lambda descriptor, mode: Full(descriptor))
    else:
        monkeypatch.setattr(os, call, fails)

    with pytest.raises(StorageError) as caught:
        files.write_atomic(path, b"new")
    monkeypatch.undo()

    # The second fsync is the folder's, after the rename: the new file is there, and whether it lasts is not known.
    assert (b"new" if (call, turn) == ("fsync", 2) else b"old") == path.read_bytes()
    assert names(tmp_path) == ["a.toml"]
    assert caught.value.exit_code == 3
    assert str(path) == caught.value.where


def test_a_full_disk_says_what_to_do() -> None:
    """The hint is the next thing to do, not the number of an error."""
    error = files.storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "/x")

    assert str(error) == "/x: no space left on device"
    assert error.hint == "free some space on this disk, then run this again"


def test_a_really_full_device_is_an_error_of_ours(tmp_path: Path) -> None:
    """Not a fake: the kernel's own full device refuses, and the error is in words."""
    with pytest.raises(StorageError, match="no space left on device"):
        _write_to_full_device(tmp_path / "a")

    assert names(tmp_path) == []


def _write_to_full_device(path: Path) -> None:
    with files.replacing(path) as stream:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, stream.fileno())
        os.close(full)
        stream.write(b"x" * 10)


def test_a_block_that_raises_leaves_the_old_file(tmp_path: Path) -> None:
    """Whatever ends the block, an interrupt too, the old file stays and nothing else."""
    path = tmp_path / "a"
    path.write_bytes(b"old")

    for raised in (ValueError, KeyboardInterrupt):
        with contextlib.suppress(raised), files.replacing(path) as stream:
            stream.write(b"half")
            raise raised

    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


WRITE = """
import sys
from pathlib import Path
from envlock import files
if sys.argv[2] == "file":
    held = files.replacing(Path(sys.argv[1]) / "a")
else:
    held = files.temporary_folder(Path(sys.argv[1]), "envlock-x-")
with held as made:
    print(getattr(made, "name", made), flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def writing(folder: Path, kind: str, *before: str) -> Iterator[subprocess.Popen[str]]:
    """Let another process (run by `before`) be in the middle of a write; its temporary file or folder is there."""
    child = subprocess.Popen(
        [*before, sys.executable, "-c", WRITE, str(folder), kind],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.communicate()


def test_what_a_dead_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """A temporary file that no process holds is rubbish, though its number is that of a living one."""
    with writing(tmp_path, "file") as child:
        held = names(tmp_path)
        files.write_atomic(tmp_path / "a", b"new")
        assert names(tmp_path) == sorted([*held, "a"])
        child.kill()
        child.wait()
    for name in (f".envlock-tmp-a-{os.getppid()}-00000000", f".envlock-tmp-ab-{os.getppid()}-00000000"):
        (tmp_path / name).write_bytes(b"x")

    files.write_atomic(tmp_path / "a", b"newer")

    assert names(tmp_path) == [f".envlock-tmp-ab-{os.getppid()}-00000000", "a"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_writer_in_another_container_is_not_taken_for_a_dead_one(tmp_path: Path, kind: str) -> None:
    """Two PID namespaces share a folder: the writer's number is nobody's here, and yet it lives."""
    apart = ("unshare", "--pid", "--fork", "--mount-proc")
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("another PID namespace is not allowed here")
    clean = (
        "import re, sys\nfrom pathlib import Path\nfrom envlock import files\n"
        "for prefix in ('.envlock-tmp-a-', 'envlock-x-'):\n"
        "    files.remove_leftovers(Path(sys.argv[1]), re.escape(prefix))\n"
    )
    with writing(tmp_path, kind):
        held = names(tmp_path)
        subprocess.run([*apart, sys.executable, "-c", clean, str(tmp_path)], check=True)
        assert names(tmp_path) == held
    subprocess.run([*apart, sys.executable, "-c", clean, str(tmp_path)], check=True)

    assert names(tmp_path) == []


def test_a_writer_whose_file_was_taken_for_a_leftover_begins_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making a file and holding it another process may clean up: the write succeeds all the same."""
    lock = fcntl.flock
    taken: list[int] = []

    def flock(descriptor: int, how: int) -> None:
        if not taken:
            taken.append(descriptor)
            for left in tmp_path.glob(".envlock-tmp-*"):
                left.unlink()
        lock(descriptor, how)

    monkeypatch.setattr("fcntl.flock", flock)
    files.write_atomic(tmp_path / "a", b"new")

    assert taken
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_without_locks_a_write_works_and_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that knows no locks tells of nobody that it is dead."""
    left = tmp_path / ".envlock-tmp-a-999999999-00000000"
    left.write_bytes(b"x")

    def flock(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    files.write_atomic(tmp_path / "a", b"new")

    assert names(tmp_path) == [left.name, "a"]


def test_two_writers_of_one_file_are_told_apart(tmp_path: Path) -> None:
    """While one process holds the lock another is refused at once; when it dies the lock is free."""
    path = tmp_path / "a.toml"
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with (
            pytest.raises(LockHeldError, match="another envlock is writing this file") as caught,
            files.exclusive(path),
        ):
            pass
        assert caught.value.exit_code == 2
    finally:
        child.kill()
        child.communicate()

    with files.exclusive(path):
        pass


def test_a_file_system_without_locks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS without a lock daemon: a clear message, never a write without a lock."""
    import fcntl

    def refuses(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuses)

    with pytest.raises(StorageError, match="this file system has no advisory locks"), files.exclusive(tmp_path / "a"):
        pass


def test_reading_says_what_is_wrong(tmp_path: Path) -> None:
    """No file, a folder, a file too large: each in words."""
    large = tmp_path / "large"
    large.write_bytes(b"x" * 11)

    with pytest.raises(UsageError, match="no such file"):
        files.read_bytes(tmp_path / "none")
    with pytest.raises(UsageError, match="is a folder, expected a file"):
        files.read_bytes(tmp_path)
    with pytest.raises(UsageError, match="larger than 10 bytes"):
        files.read_bytes(large, limit=10)
    assert files.read_bytes(large, limit=11) == b"x" * 11


def test_a_path_through_a_file_is_an_error_of_ours(tmp_path: Path) -> None:
    """`a/b` where `a` is a file: the disk refuses, in words."""
    (tmp_path / "a").write_bytes(b"")

    with pytest.raises(StorageError, match="not a directory"):
        files.read_bytes(tmp_path / "a" / "b")
    with pytest.raises(StorageError):
        files.write_atomic(tmp_path / "a" / "b", b"")


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    """A named pipe at the path would hang a plain open for ever: it is refused."""
    path = tmp_path / "pipe"
    os.mkfifo(path)

    with pytest.raises(UsageError, match="is no regular file"):
        files.read_bytes(path)


def test_a_scratch_folder_is_private_and_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What killed processes left, for whatever purpose, goes with it; what a living one holds stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = ("envlock-x-me", "envlock-x-1-not-ours", "envlock-9-1-a")
    for name in ("envlock-x-999999999-abc", f"envlock-x-{os.getppid()}-abc", "envlock-y-999999999-abc", *mine):
        (tmp_path / name).mkdir()

    with writing(tmp_path, "folder"):
        living = set(names(tmp_path)) - {name for name in names(tmp_path) if name.endswith("-abc")}
        with files.scratch("x") as folder:
            (folder / "file").write_bytes(b"1")
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert set(names(tmp_path)) == {*living, folder.name}
        assert set(names(tmp_path)) == living


def test_no_room_for_temporary_files_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or full temporary folder is said in words."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))

    with pytest.raises(StorageError), files.scratch("x"):
        pass
