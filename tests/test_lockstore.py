"""Lockfiles on disk: which one is meant, and never torn whatever ends the writer."""

import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import samples

from envlock import files, lockfile, lockstore
from envlock.errors import LockfileError, LockHeldError, UsageError

SPEC = '[environment]\nname = "mine"\n[base]\ndebian = "bookworm"\n[python]\nversion = "3.11"\n'

WRITER = """
import dataclasses, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import samples
from envlock import files, lockstore
path = Path(sys.argv[1])
held = [dataclasses.replace(samples.lock(), policy_profile=name * 5000) for name in ("a", "b")]
print("ready", flush=True)
turn = 0
while True:
    turn += 1
    with files.exclusive(path):
        lockstore.write(path, held[turn % 2])
"""


def test_the_spec_s_name_decides_the_lockfile(tmp_path: Path) -> None:
    """`lockfiles/NAME.lock.toml` beside the spec; `-l` wins over all."""
    (tmp_path / "envlock.toml").write_text(SPEC)

    assert lockstore.find(None, None, tmp_path) == tmp_path / "lockfiles" / "mine.lock.toml"
    assert lockstore.find(Path("x.toml"), None, tmp_path) == Path("x.toml")


def test_without_a_spec_the_only_lockfile_is_meant(tmp_path: Path) -> None:
    """A node that got one lockfile needs no spec and no option."""
    (tmp_path / "lockfiles").mkdir()
    only = tmp_path / "lockfiles" / "a.lock.toml"
    only.write_text("")

    assert lockstore.find(None, None, tmp_path) == only


def test_several_lockfiles_are_listed(tmp_path: Path) -> None:
    """Which of two is meant is not guessed: both are shown."""
    (tmp_path / "lockfiles").mkdir()
    for name in ("b", "a"):
        (tmp_path / "lockfiles" / f"{name}.lock.toml").write_text("")

    with pytest.raises(UsageError) as caught:
        lockstore.find(None, None, tmp_path)

    assert "several lockfiles under `lockfiles/`:\n  lockfiles/a.lock.toml\n  lockfiles/b.lock.toml" in str(
        caught.value
    )


def test_nothing_there_says_how_to_begin(tmp_path: Path) -> None:
    """An empty folder gets the newcomer's hint."""
    with pytest.raises(UsageError, match=r"no `envlock.toml` here and no lockfile under `lockfiles/`"):
        lockstore.find(None, None, tmp_path)


def test_a_missing_lockfile_says_what_writes_it(tmp_path: Path) -> None:
    """The hint is the command to type."""
    with pytest.raises(LockfileError, match="no such lockfile") as caught:
        lockstore.read(tmp_path / "a.lock.toml")

    assert caught.value.hint == "`envlock lock` writes it"


def test_an_empty_lockfile_is_an_error_not_a_new_project(tmp_path: Path) -> None:
    """What a kill or a full disk may leave of a file that another program wrote."""
    path = tmp_path / "a.lock.toml"
    path.write_bytes(b"")

    with pytest.raises(LockfileError, match="is empty"):
        lockstore.read(path)


def test_writing_the_same_again_changes_nothing(tmp_path: Path) -> None:
    """Equal bytes are not written: the file keeps its time, and Git sees nothing."""
    path = tmp_path / "a.lock.toml"

    assert lockstore.write(path, samples.lock())
    before = path.stat().st_mtime_ns
    assert not lockstore.write(path, samples.lock())
    assert path.stat().st_mtime_ns == before
    assert lockstore.read(path) == samples.lock()


def test_editing_holds_the_lock_from_read_to_write(tmp_path: Path) -> None:
    """A second writer is refused in between, so that neither's work is lost."""
    path = tmp_path / "a.lock.toml"
    lockstore.write(path, samples.lock())

    with lockstore.editing(path) as held:
        assert held == samples.lock()
        with pytest.raises(LockHeldError), lockstore.editing(path):
            pass


def test_a_reader_never_sees_a_torn_file_and_a_kill_leaves_none(tmp_path: Path) -> None:
    """Read again and again beside a writer, then after its death by SIGKILL: one whole version or the other."""
    path = tmp_path / "a.lock.toml"
    randomness = random.Random(7)
    for _ in range(4):
        argv = [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent)]
        writer = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        until = time.monotonic() + randomness.uniform(0.3, 0.6)
        while time.monotonic() < until:
            assert not path.exists() or _is_whole(path.read_bytes())
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        assert not path.exists() or lockstore.read(path).policy_profile[0] in "ab"

    with files.exclusive(path):
        lockstore.write(path, samples.lock())
    assert lockstore.read(path) == samples.lock()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".a.lock.toml.flock", "a.lock.toml"]


def _is_whole(data: bytes) -> bool:
    """Return whether `data` begins and ends as the writer's two versions do (parsing each would read too seldom)."""
    return data.startswith(b"# Written by envlock") and data.endswith(b"\n") and b"[[golden]]" in data


def test_kill_9_between_any_two_system_calls(tmp_path: Path) -> None:
    """A forked writer is killed at each system call of the write in turn: forty kills, no torn file."""
    path = tmp_path / "a.lock.toml"
    old, new = samples.lock(), samples.lock(rules=())
    lockstore.write(path, old)
    seen = set()
    for turn in range(40):
        _killed_at(path, new if turn % 2 == 0 else old, turn // 4)
        found = lockstore.read(path)
        assert found in (old, new)
        seen.add(lockfile.render(found))

    assert len(seen) == 2
    with files.exclusive(path):
        lockstore.write(path, new)
        lockstore.write(path, old)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".a.lock.toml.flock", "a.lock.toml"]


def _killed_at(path: Path, lock: lockfile.Lockfile, call: int) -> None:
    """Write `lock` in a forked child that kills itself before its `call`th system call on files."""
    with warnings.catch_warnings():
        # Newer Pythons warn of a fork beside threads that other tests left; this child starts none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        count = 0

        def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(*arguments: Any, **more: Any) -> Any:
                nonlocal count
                if count == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1
                return real(*arguments, **more)

            return wrapper

        for name in ("open", "fdopen", "fchmod", "fsync", "replace", "close", "unlink"):
            setattr(os, name, guarded(getattr(os, name)))
        with files.exclusive(path):
            lockstore.write(path, lock)
        os._exit(0)
    os.waitpid(child, 0)
