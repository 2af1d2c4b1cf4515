"""Files that are never torn: atomic writes, advisory locks, bounded reads.

A write is a temporary file in the same folder, fsync, rename, fsync of the folder: at
any moment the path holds the old bytes or the new ones. The lock is `flock` on a file
that is never deleted, so it dies with its process and leaves nothing stale. What is
temporary is locked by its writer too: what nobody holds was left by one that was killed.
A process id would not tell, where containers share a folder.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from envlock.errors import LockHeldError, StorageError, UsageError

MAX_TEXT = 16 << 20
"""The most bytes read of a file that a person wrote or reviews."""

_TEMPORARY = ".envlock-tmp-"


def read_bytes(path: Path, limit: int = MAX_TEXT) -> bytes:
    """Return the bytes of the file at `path`.

    Raises `UsageError` when there is no such file, it is no regular file, or it is
    larger than `limit`; `StorageError` when the disk refuses. A pipe is read only where
    a shell puts one, under `/dev`: elsewhere it would be waited for without an end.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UsageError("is a folder, expected a file", where=path)
        if not stat.S_ISREG(mode) and not path.is_relative_to("/dev"):
            raise UsageError("is no regular file", where=path)
        with open(path, "rb") as stream:
            data = stream.read(limit + 1)
    except FileNotFoundError:
        raise UsageError("no such file", where=path) from None
    except OSError as error:
        raise storage_error(error, path) from error
    if len(data) > limit:
        raise UsageError(f"larger than {limit} bytes", where=path)
    return data


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace the file at `path` with `data`, whole or not at all.

    What is no regular file is refused (`UsageError`): following a symbolic link would
    write a file nobody named, replacing a device or a pipe would destroy it. Raises
    `StorageError` when the disk refuses; the old file is then still there.
    """
    with replacing(path, mode) as stream:
        stream.write(data)


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """Give a stream whose bytes replace the file at `path` when the block ends well.

    When the block raises, `path` is untouched and nothing stays behind. The errors are
    those of `write_atomic`.
    """
    _refuse_irregular(path)
    folder = path.parent
    prefix = f"{_TEMPORARY}{path.name}-"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder, re.escape(prefix))
        descriptor, temporary = _temporary_file(folder, prefix, mode)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                os.fchmod(stream.fileno(), mode)
                os.fsync(stream.fileno())
                os.replace(temporary, path)  # still held: nobody takes it for a leftover
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        fsync_folder(folder)
    except OSError as error:
        raise storage_error(error, path) from error


def _temporary_file(folder: Path, prefix: str, mode: int) -> tuple[int, Path]:
    """Return a new file in `folder`, open and held, and its path."""
    while True:
        path = folder / f"{prefix}{os.getpid()}-{os.urandom(4).hex()}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        if _hold(descriptor, path):
            return descriptor, path
        os.close(descriptor)


def _hold(descriptor: int, path: Path) -> bool:
    """Hold what was just made at `path`; return False when one who cleans up was faster, and it is gone."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks: nobody can tell that this is held, so nobody removes it either.
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _refuse_irregular(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise storage_error(error, path) from error
    if stat.S_ISLNK(mode):
        raise UsageError("is a symbolic link; refusing to write through it", where=path)
    if stat.S_ISDIR(mode):
        raise UsageError("is a folder, expected a file", where=path)
    if not stat.S_ISREG(mode):
        hint = "name a file, or `-` for standard output"
        raise UsageError("is no regular file; refusing to replace it", where=path, hint=hint)


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove temporary files and folders of ours in `folder` that no process holds any more.

    `prefix` is a pattern for how their names begin; a number and letters follow. What
    cannot be told (no locks here, no permission) is left.
    """
    pattern = re.compile(prefix + r"[0-9]+-[A-Za-z0-9_]+")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name):
                _remove_unless_held(Path(entry.path))


def _remove_unless_held(path: Path) -> None:
    import shutil  # these are for who has something to remove: 5 ms that `check` has no use for

    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if found.st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True) if stat.S_ISDIR(found.st_mode) else path.unlink()
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """Give a private folder for temporary files, gone when the block ends.

    A process that is killed cannot clean up after itself: what such ones left, for
    whatever `purpose` (one word), is removed first. Raises `StorageError`.
    """
    import tempfile

    parent = Path(tempfile.gettempdir())
    remove_leftovers(parent, "envlock-[a-z]+-")
    with temporary_folder(parent, f"envlock-{purpose}-") as folder:
        yield folder


@contextlib.contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Give a private folder in `parent`, held until the block ends and then gone.

    `remove_leftovers` with this prefix removes what a killed process left of it. Raises `StorageError`.
    """
    import tempfile

    while True:
        try:
            made = tempfile.TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-", dir=parent, ignore_cleanup_errors=True)
        except OSError as error:
            raise storage_error(error, parent) from error
        with made as name, contextlib.ExitStack() as stack:
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            stack.callback(os.close, descriptor)
            if _hold(descriptor, Path(name)):
                yield Path(name)
                return


def fsync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the advisory lock beside `path` (`.NAME.flock`) for the time of the block.

    Raises `LockHeldError` at once when another process holds it: two writers of one
    lockfile are a mistake to show, not a queue to wait in.
    """
    target = path.with_name(f".{path.name}.flock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(error, target) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LockHeldError(
                    "another envlock is writing this file", where=path, hint="wait for it to end, then run this again"
                ) from None
            raise StorageError(
                f"this file system has no advisory locks ({error.strerror})",
                where=target,
                hint="keep the lockfile on a local disk, or on NFS 4",
            ) from error
        yield
    finally:
        os.close(descriptor)


def storage_error(error: OSError, path: Path | str) -> StorageError:
    """Return `error` in words, with what to do about it."""
    hints = {
        errno.ENOSPC: "free some space on this disk, then run this again",
        errno.EDQUOT: "free some of your quota, then run this again",
        errno.EROFS: "the disk is mounted read-only; choose another folder",
        errno.EACCES: "check the permissions of the file and its folder",
        errno.EPERM: "check the permissions of the file and its folder",
    }
    text = (error.strerror or str(error)).lower()
    return StorageError(text, where=path, hint=hints.get(error.errno or 0))
