"""The content-addressed store: every blob under its SHA-256, re-hashed when handed out.

    ROOT/envlock-store                  what this folder is (written once)
    ROOT/blobs/sha256/AB/ABCD...        one blob, read-only
    ROOT/derived/KIND/KEY               the digest of what was derived from KEY

A blob appears whole or not at all (`envlock.files.replacing`). Users of the store hold a
shared advisory lock while blobs must stay; `gc` takes it alone. The store never fetches
anything: that is `envlock.lock.fetch`.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from envlock import files
from envlock.digest import Digest, sha256_file
from envlock.errors import CouldNotTell, IntegrityError, LockHeldError, StorageError

_MARKER = "envlock-store"
_MARKER_TEXT = b"envlock store 1\n"
_CHUNK = 1 << 20
_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_REPAIR = "`envlock store verify --repair` removes it, `envlock lock` fetches it again"


class Readable(Protocol):
    """Anything with `read(size)`: a file, a socket's body, a generator's wrapper."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """What `verify` found: how many blobs, how many bytes, and the digests of the broken ones."""

    blobs: int
    size: int
    broken: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """What `gc` removed, or would remove: blobs, derived records and bytes."""

    blobs: int
    derived: int
    size: int


def default_root() -> Path:
    """Return the store's folder: `ENVLOCK_STORE`, else `store` in envlock's cache folder.

    The cache folder is `ENVLOCK_CACHE_DIR`, else `XDG_CACHE_HOME/envlock`, else
    `~/.cache/envlock` (XDG base directory specification).
    """
    if chosen := os.environ.get("ENVLOCK_STORE"):
        return Path(chosen).absolute()
    if chosen := os.environ.get("ENVLOCK_CACHE_DIR"):
        return Path(chosen).absolute() / "store"
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if cache.startswith("/"):
        return Path(cache) / "envlock" / "store"
    try:
        return Path.home() / ".cache" / "envlock" / "store"
    except RuntimeError:
        raise StorageError("there is no home folder for the store", hint="set ENVLOCK_STORE to a folder") from None


class Store:
    """The store in one folder, which is made when it is not there.

    Raises `StorageError` when the folder is another user's, may be written by others, or
    holds something else: what others can write proves nothing.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._refuse_foreign()
            if not (root / _MARKER).exists():
                self._claim()
            (root / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise files.storage_error(error, root) from error

    def _refuse_foreign(self) -> None:
        found = os.lstat(self.root)
        if not stat.S_ISDIR(found.st_mode):
            raise StorageError(
                "the store is no folder (or a symbolic link)", where=self.root, hint="set ENVLOCK_STORE to a folder"
            )
        if found.st_uid != os.geteuid():
            raise StorageError(
                "the store belongs to another user", where=self.root, hint="set ENVLOCK_STORE to a folder of yours"
            )
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StorageError(
                "the store can be written by others",
                where=self.root,
                hint=f"`chmod go-w {self.root}`, or choose another folder",
            )

    def _claim(self) -> None:
        held = [entry.name for entry in os.scandir(self.root) if not entry.name.startswith(".envlock-tmp-")]
        if held and set(held) - {_MARKER}:
            raise StorageError(
                "this folder is not empty and no store", where=self.root, hint="set ENVLOCK_STORE to an empty folder"
            )
        files.write_atomic(self.root / _MARKER, _MARKER_TEXT)

    # ---- blobs ---------------------------------------------------------------------

    def _place(self, digest: Digest) -> Path:
        return self.root / "blobs" / "sha256" / digest.hex[:2] / digest.hex

    def add(self, stream: Readable, expected: Digest, what: str, size: int | None = None) -> Path:
        """Store what `stream` gives, when its digest is `expected`; return its path.

        `what` names it in errors; at most `size` bytes are read when it is given. Raises
        `IntegrityError` when the bytes are others, and then nothing is stored.
        """
        place = self._place(expected)
        with self.using(), files.replacing(place, 0o444) as target:
            state = hashlib.sha256()
            length = 0
            while chunk := stream.read(_CHUNK):
                state.update(chunk)
                length += len(chunk)
                if size is not None and length > size:
                    raise IntegrityError(f"is longer than {size} bytes", where=what)
                target.write(chunk)
            if size is not None and length < size:
                raise IntegrityError(f"has {length} bytes, expected {size}", where=what)
            if state.hexdigest() != expected.hex:
                raise IntegrityError(f"has digest sha256:{state.hexdigest()}, expected {expected}", where=what)
        return place

    def add_new(self, stream: Readable) -> Digest:
        """Store what `stream` gives and return its digest."""
        folder = self.root / "blobs" / "sha256"
        temporary = folder / f".envlock-new-{os.getpid()}-{os.urandom(4).hex()}"
        with self.using():
            for leftover in folder.glob(".envlock-new-*"):
                if not Path(f"/proc/{leftover.name.split('-')[2]}").exists():
                    leftover.unlink(missing_ok=True)
            try:
                with files.replacing(temporary, 0o444) as target:
                    state = hashlib.sha256()
                    while chunk := stream.read(_CHUNK):
                        state.update(chunk)
                        target.write(chunk)
                digest = Digest.from_hex(state.hexdigest())
                place = self._place(digest)
                place.parent.mkdir(exist_ok=True)
                temporary.replace(place)
                files.fsync_folder(place.parent)
            except OSError as error:
                temporary.unlink(missing_ok=True)
                raise files.storage_error(error, self.root) from error
        return digest

    def holds(self, digest: Digest) -> bool:
        """Return whether the blob is here and whole (it is hashed)."""
        try:
            return sha256_file(self._place(digest))[0] == digest
        except FileNotFoundError:
            return False
        except OSError as error:
            raise files.storage_error(error, self._place(digest)) from error

    def path(self, digest: Digest, what: str) -> Path:
        """Return the path of the blob, hashed again just now.

        Raises `CouldNotTell` when it is not in the store, `IntegrityError` when its bytes
        are not what its name says. `what` names it in both.
        """
        place = self._place(digest)
        try:
            found, _ = sha256_file(place)
        except FileNotFoundError:
            raise CouldNotTell("is not in the store", where=what, hint="`envlock lock` fetches it") from None
        except OSError as error:
            raise files.storage_error(error, place) from error
        if found != digest:
            raise IntegrityError(
                f"is damaged in the store: has digest {found}, expected {digest}", where=what, hint=_REPAIR
            )
        return place

    def open(self, digest: Digest, what: str) -> BinaryIO:
        """Return the blob opened for reading, after hashing it; the errors are those of `path`."""
        return open(self.path(digest, what), "rb")

    def _blobs(self) -> Iterator[Path]:
        """Yield every file among the blobs, what dead writers left too (their names begin with a dot)."""
        for folder in sorted((self.root / "blobs" / "sha256").iterdir()):
            if folder.is_dir():
                yield from sorted(folder.iterdir())
            else:
                yield folder

    def verify(self, repair: bool) -> Verified:
        """Hash every blob. With `repair`, remove the broken ones, so that they are fetched again."""
        count = total = 0
        broken = []
        with self.using():
            for place in self._blobs():
                if place.name.startswith("."):
                    continue
                try:
                    found, size = sha256_file(place)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise files.storage_error(error, place) from error
                count += 1
                total += size
                if found.hex != place.name:
                    broken.append(f"sha256:{place.name}")
                    if repair:
                        place.unlink(missing_ok=True)
        return Verified(blobs=count, size=total, broken=tuple(broken))

    # ---- what was derived from blobs -----------------------------------------------

    def _record(self, kind: str, key: Digest) -> Path:
        if not _KIND.fullmatch(kind):
            raise ValueError(f"not a kind of derived artifact: {kind!r}")
        return self.root / "derived" / kind / key.hex

    def add_derived(self, kind: str, key: Digest, stream: Readable) -> Path:
        """Store what was derived from the inputs `key`, and remember it under `kind`."""
        with self.using():
            digest = self.add_new(stream)
            files.write_atomic(self._record(kind, key), f"{digest}\n".encode())
        return self._place(digest)

    def derived(self, kind: str, key: Digest) -> Path | None:
        """Return the path of what was derived from `key`, hashed again; None when there is none.

        A damaged one is as good as none: it is derived again.
        """
        record = self._record(kind, key)
        try:
            digest = Digest.parse(record.read_text("ascii").strip())
        except (FileNotFoundError, ValueError):
            return None
        except OSError as error:
            raise files.storage_error(error, record) from error
        return self._place(digest) if self.holds(digest) else None

    # ---- keeping and removing ------------------------------------------------------

    @contextlib.contextmanager
    def using(self) -> Iterator[None]:
        """Keep every blob in place for the time of the block (a shared lock)."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def _locked(self, kind: int, patience: float = 120) -> Iterator[None]:
        place = self.root / ".lock"
        try:
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise files.storage_error(error, place) from error
        try:
            deadline = time.monotonic() + patience
            while True:
                try:
                    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise LockHeldError("another envlock works in the store", where=self.root) from None
                    time.sleep(0.02)
                except OSError as error:
                    raise files.storage_error(error, place) from error
            yield
        finally:
            os.close(descriptor)

    def gc(self, keep: Collection[Digest], keys: Collection[Digest], dry_run: bool = False) -> Collected:
        """Remove every blob not in `keep`, and every derived record whose key is not in `keys`."""
        blobs = derived = freed = 0
        wanted = {digest.hex for digest in keep}
        with self._locked(fcntl.LOCK_EX):
            for record in sorted((self.root / "derived").glob("*/*")):
                if record.name in {key.hex for key in keys}:
                    with contextlib.suppress(ValueError):
                        wanted.add(Digest.parse(record.read_text("ascii").strip()).hex)
                    continue
                derived += 1
                if not dry_run:
                    record.unlink(missing_ok=True)
            for place in self._blobs():
                if place.name in wanted:
                    continue
                blobs += 1
                freed += place.stat().st_size
                if not dry_run:
                    place.unlink(missing_ok=True)
        return Collected(blobs=blobs, derived=derived, size=freed)
