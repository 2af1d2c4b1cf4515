"""Model and data files: hashed where they lie beside the spec, never copied by `lock`."""

from collections.abc import Sequence
from pathlib import Path

from envlock import files
from envlock.digest import sha256_stream
from envlock.errors import SpecError
from envlock.lockfile import LockedFile
from envlock.spec import File


def locked_files(wanted: Sequence[File], folder: Path, where: str) -> tuple[LockedFile, ...]:
    """Return each file of the spec with its size and digest; `folder` is where the spec lies.

    Raises `SpecError` when one is missing or no regular file.
    """
    return tuple(_locked(file, folder, where) for file in wanted)


def _locked(file: File, folder: Path, where: str) -> LockedFile:
    path = folder / file.source
    try:
        if not path.is_file():
            raise SpecError(f"no such file: {file.source!r}", where=where, key="file.source")
        with open(path, "rb") as stream:
            digest, size = sha256_stream(stream)
    except OSError as error:
        raise files.storage_error(error, path) from error
    return LockedFile(path=file.path, source=file.source, size=size, sha256=digest)
