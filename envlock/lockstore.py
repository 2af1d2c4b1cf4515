"""Lockfiles on disk: found, read, and replaced whole.

Every writer holds the lockfile's advisory lock from its read to its write, so that two
envlocks at once never mix what they found.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from envlock import files, lockfile
from envlock.errors import LockfileError, UsageError
from envlock.lockfile import Lockfile

SPEC_NAME = "envlock.toml"
FOLDER = "lockfiles"
SUFFIX = ".lock.toml"


def read(path: Path) -> Lockfile:
    """Return the lockfile at `path`; `LockfileError` or `UsageError` says what is wrong."""
    if not path.exists():
        raise LockfileError("no such lockfile", where=path, hint="`envlock lock` writes it")
    return lockfile.parse(files.read_bytes(path), str(path))


def write(path: Path, lock: Lockfile) -> bool:
    """Replace the lockfile at `path`; return whether its bytes changed. Call inside `files.exclusive(path)`."""
    data = lockfile.render(lock).encode("utf-8")
    if path.exists() and files.read_bytes(path) == data:
        return False
    files.write_atomic(path, data)
    return True


@contextlib.contextmanager
def editing(path: Path) -> Iterator[Lockfile]:
    """Hold the advisory lock of `path` and give the lockfile as it is on disk."""
    with files.exclusive(path):
        yield read(path)


def find(lock: Path | None, spec: Path | None, folder: Path) -> Path:
    """Return the lockfile meant by `-l`, else by the spec's name, else the only one there is.

    Raises `UsageError` listing what there is when that leaves a choice.
    """
    if lock is not None:
        return lock
    spec_path = spec or folder / SPEC_NAME
    if spec is not None or spec_path.exists():
        from envlock.spec import read as read_spec

        return beside(spec_path, read_spec(spec_path).name)
    found = sorted((folder / FOLDER).glob(f"*{SUFFIX}"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            f"no `{SPEC_NAME}` here and no lockfile under `{FOLDER}/`",
            where=folder,
            hint="run `envlock init` to begin, or name the lockfile with `-l`",
        )
    names = "".join(f"\n  {path.relative_to(folder)}" for path in found)
    raise UsageError(f"several lockfiles under `{FOLDER}/`:{names}", where=folder, hint="name one with `-l`")


def beside(spec: Path, name: str) -> Path:
    """Return where the lockfile of the spec at `spec` lies: `lockfiles/NAME.lock.toml` beside it."""
    return spec.parent / FOLDER / f"{name}{SUFFIX}"
