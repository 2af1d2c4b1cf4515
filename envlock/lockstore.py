"""Lockfiles on disk: found, read, and replaced whole.

Every writer holds the lockfile's advisory lock from its read to its write, so that two
envlocks at once never mix what they found.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from envlock import files, lockfile
from envlock.errors import LockfileError, UsageError
from envlock.lockfile import Lockfile

if TYPE_CHECKING:
    from envlock.lockfile.merging import Merged

SPEC_NAME = "envlock.toml"
FOLDER = "lockfiles"
SUFFIX = ".lock.toml"


def read(path: Path, edited: bool = False) -> Lockfile:
    """Return the lockfile at `path`; `LockfileError` or `UsageError` says what is wrong.

    `edited` is for who writes it anew: content that no longer fits `inputs` is taken as merged.
    """
    if not path.exists():
        raise LockfileError("no such lockfile", where=path, hint="`envlock lock` writes it")
    return lockfile.parse(files.read_bytes(path), str(path), edited)


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


def merge(base: Path, ours: Path, theirs: Path) -> "Merged":
    """Merge `theirs` into the file `ours` as Git's merge drivers do; return what came of it.

    `ours` then holds the merged lockfile, or one with its conflicts marked. On any error
    it is untouched: `LockfileError` says which of the three cannot be used. An empty
    `base` (both sides added the file) is no lockfile at all.
    """
    from envlock.lockfile import marking, merging  # only merges pay for it

    # What Git hands over is a temporary file of its own, which no other envlock knows.
    with files.exclusive(ours) if ours.name.endswith(SUFFIX) else contextlib.nullcontext():
        before = _base(base)
        merged = merging.merge(before, _side(ours, "ours"), _side(theirs, "theirs"))
        files.write_atomic(ours, marking.text_of(merged).encode("utf-8"))
    return merged


def _base(path: Path) -> Lockfile | None:
    data = files.read_bytes(path)
    if b"\n<<<<<<< " in data:
        raise LockfileError(
            "is an ancestor that Git made up by a merge of its own, with a conflict in it",
            where=f"base ({path})",
            hint="`git config merge.envlock.recursive binary` lets it make none; then merge again",
        )
    return _side(path, "base") if data.strip() else None


def _side(path: Path, name: str) -> Lockfile:
    """Return one side of a merge; its line ends may be those of another system, the result's are ours."""
    return lockfile.parse(files.read_bytes(path).replace(b"\r\n", b"\n"), f"{name} ({path})")


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
