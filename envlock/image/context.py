"""The build context as a list of items: streamed to an engine as a tar, or written as a folder.

Each item gives its bytes when they are asked for, so a context is never held whole, in
memory or on disk. Modes are 0644 and 0755 and every time is the environment's epoch,
whatever the umask, the clock and the order in which things were found.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from envlock import files
from envlock.errors import IntegrityError, UsageError
from envlock.image import layertar, tarwriter

FOLDER_MODE = 0o755
MARKER = ".envlock-context"
"""The file by which a rendered folder is known as one; holds the inputs digest."""

_GATHER = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One file, link or folder of the context; `path` is relative, with `/`.

    `content` gives `size` bytes in chunks, anew at each call. With `link` it is a
    symbolic link to that text, with `folder` an empty folder.
    """

    path: str
    mode: int
    size: int
    content: Callable[[], Iterable[bytes]] | None = None
    link: str = ""
    folder: bool = False

    def chunks(self) -> Iterable[bytes]:
        """Return the content as it is, unchecked; nothing for a link or a folder."""
        return self.content() if self.content is not None else ()


def from_bytes(path: str, data: bytes, mode: int = 0o644) -> Item:
    """Return a file of the context whose content is `data`."""
    return Item(path=path, mode=mode, size=len(data), content=lambda: (data,))


def from_file(path: str, source: Path, mode: int = 0o644) -> Item:
    """Return a file of the context whose content is the file at `source`."""
    try:
        size = source.stat().st_size
    except OSError as error:
        raise files.storage_error(error, source) from error
    return Item(path=path, mode=mode, size=size, content=lambda: _read(source))


def _read(source: Path) -> Iterator[bytes]:
    try:
        with open(source, "rb") as stream:
            while chunk := stream.read(_GATHER):
                yield chunk
    except OSError as error:
        raise files.storage_error(error, source) from error


def below(folder: str, items: Iterable[Item]) -> Iterator[Item]:
    """Yield `items` with `folder/` before each path."""
    for item in items:
        yield Item(
            path=f"{folder}/{item.path}",
            mode=item.mode,
            size=item.size,
            content=item.content,
            link=item.link,
            folder=item.folder,
        )


def ordered(items: Iterable[Item]) -> Iterator[Item]:
    """Yield folders before what is in them, everything sorted by the bytes of its path."""
    found: dict[str, Item] = {}
    for item in items:
        found[item.path] = item
        for parent in PurePosixPath(item.path).parents:
            if str(parent) != ".":
                found.setdefault(str(parent), Item(path=str(parent), mode=FOLDER_MODE, size=0, folder=True))
    yield from sorted(found.values(), key=lambda item: item.path.encode().split(b"/"))


def checked(item: Item) -> Iterator[bytes]:
    """Yield the content of `item`; `IntegrityError` when it is not `size` bytes."""
    length = 0
    for chunk in item.chunks():
        length += len(chunk)
        yield chunk
    if length != item.size:
        raise IntegrityError(f"has {length} bytes, expected {item.size}", where=item.path)


# ---- as a tar ------------------------------------------------------------------------


def tar_stream(items: Iterable[Item], epoch: int) -> Iterator[bytes]:
    """Yield the context as one tar archive, in chunks of about a megabyte."""
    return gathered(_tar_pieces(items, epoch))


def _tar_pieces(items: Iterable[Item], epoch: int) -> Iterator[bytes]:
    for item in ordered(items):
        yield from tar_entry(item, epoch)
    yield tarwriter.END


def tar_entry(item: Item, epoch: int) -> Iterator[bytes]:
    """Yield one item as it stands in a tar: header, content, padding."""
    kind = layertar.DIRECTORY if item.folder else layertar.SYMLINK if item.link else layertar.REGULAR
    entry = layertar.Entry(
        name=item.path.encode(), kind=kind, mode=item.mode, uid=0, gid=0, size=item.size, link=item.link.encode()
    )
    yield tarwriter.header(entry.name, entry, epoch)
    yield from checked(item)
    yield tarwriter.padding(item.size)


def gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join small pieces, so that each one sent costs little; large ones pass as they are."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _GATHER:
            yield b"".join(held) if len(held) > 1 else piece
            held.clear()
            size = 0
    if held:
        yield b"".join(held)


# ---- as a folder ---------------------------------------------------------------------


def write_folder(items: Iterable[Item], folder: Path, epoch: int, force: bool) -> None:
    """Make `folder` hold the context and nothing else, whole or not at all.

    A folder that is not empty and was not written by envlock is refused without `force`
    (`UsageError`). It is written beside its place and moved there.
    """
    _refuse_foreign(folder, force)
    prefix = f".envlock-tmp-{folder.name}-"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        files.remove_leftovers(folder.parent, re.escape(prefix))
        with files.temporary_folder(folder.parent, prefix) as made:
            new = made / "new"
            _fill(items, new, epoch)
            if folder.exists():
                folder.rename(made / "old")
            new.rename(folder)
            files.fsync_folder(folder.parent)
    except OSError as error:
        raise files.storage_error(error, error.filename or folder) from error


def _refuse_foreign(folder: Path, force: bool) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError("is not a folder", where=folder, hint="name a new folder with `-o`")
    if force or not folder.exists() or (folder / MARKER).is_file():
        return
    try:
        held = next(folder.iterdir(), None)
    except OSError as error:
        raise files.storage_error(error, folder) from error
    if held is not None:
        raise UsageError(
            "is not empty, and envlock did not write it",
            where=folder,
            hint="name another folder, or `--force` to replace all that is in it",
        )


def _fill(items: Iterable[Item], root: Path, epoch: int) -> None:
    folders = [root]
    root.mkdir()
    for item in ordered(items):
        path = root / item.path
        if item.folder:
            path.mkdir()
            folders.append(path)
        elif item.link:
            path.symlink_to(item.link)
            os.utime(path, (epoch, epoch), follow_symlinks=False)
        else:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with contextlib.closing(os.fdopen(descriptor, "wb")) as stream:
                for chunk in checked(item):
                    stream.write(chunk)
                stream.flush()
                os.fchmod(descriptor, item.mode)
                os.utime(descriptor, (epoch, epoch))
    for path in reversed(folders):
        path.chmod(FOLDER_MODE)
        os.utime(path, (epoch, epoch))
