"""A file system as a value: layers applied one on another, compared, and written as a layer.

A tree maps each path to its entry; two paths with one entry are hard links of one file.
Contents stay where they are, in one open file that all entries point into.
"""

import os
from collections.abc import Iterator, Mapping

from envlock.errors import IntegrityError, StorageError
from envlock.image import layertar, tarwriter
from envlock.image.layertar import CHUNK, DIRECTORY, HARD_LINK, REGULAR, SYMLINK, Entry, Source

Tree = dict[bytes, Entry]

WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_META = b".wh..wh."
_MAX_LINKS = 40  # as Linux


def parents(name: bytes) -> Iterator[bytes]:
    """Yield the folders above `name`, the nearest first, without the root."""
    while (at := name.rfind(b"/")) > 0:
        name = name[:at]
        yield name


def apply_layer(tree: Tree, source: Source, where: str) -> None:
    """Change `tree` by the layer in `source` (OCI image specification, layer.md, "Changesets").

    Whiteouts hide what lower layers hold, never what this one brings. Raises
    `IntegrityError` for a layer that leads through a link or links to nothing.
    """
    added: list[Entry] = []
    gone: set[bytes] = set()
    hollow: set[bytes] = set()
    for entry in layertar.entries(source, where):
        folder, _, base = entry.name.rpartition(b"/")
        if base == _OPAQUE:
            hollow.add(folder)
        elif base.startswith(_META):
            continue  # bookkeeping of old engines, never content
        elif base.startswith(WHITEOUT):
            hidden = base[len(WHITEOUT) :]
            gone.add(folder + b"/" + hidden if folder else hidden)
        elif entry.name:
            added.append(entry)
            if entry.kind != DIRECTORY and (held := tree.get(entry.name)) is not None and held.kind == DIRECTORY:
                hollow.add(entry.name)
    if gone or hollow:
        _hide(tree, gone, hollow)
    own: set[bytes] = set()
    for entry in added:
        tree[entry.name] = _target(tree, entry, where) if entry.kind == HARD_LINK else entry
        own.add(entry.name)
    _complete(tree, own, where)


def _hide(tree: Tree, gone: set[bytes], hollow: set[bytes]) -> None:
    if b"" in hollow:
        tree.clear()
    above = gone | hollow
    for name in [name for name in tree if name in gone or any(folder in above for folder in parents(name))]:
        del tree[name]


def _target(tree: Tree, entry: Entry, where: str) -> Entry:
    found = tree.get(entry.link)
    if found is None or found.kind == DIRECTORY:
        raise IntegrityError(f"holds a hard link to nothing, {entry.name!r}", where=where)
    if (found.mode, found.uid, found.gid) != (entry.mode, entry.uid, entry.gid):
        # Some readers would take the one, some the other.
        raise IntegrityError(f"gives one file two modes or owners, {entry.name!r}", where=where)
    return found


def _complete(tree: Tree, names: set[bytes], where: str) -> None:
    """Give every new name its folders; engines make missing ones without saying so."""
    known: set[bytes] = set()
    for name in names:
        for folder in parents(name):
            if folder in known:
                break
            known.add(folder)
            held = tree.get(folder)
            if held is None:
                tree[folder] = Entry(name=folder, kind=DIRECTORY, mode=0o755, uid=0, gid=0, size=0)
            elif held.kind != DIRECTORY:
                raise IntegrityError(f"leads through {folder!r}, which is no folder", where=where)


def resolve(tree: Mapping[bytes, Entry], path: bytes) -> Entry | None:
    """Return what `path` leads to when links are followed inside the tree, None when nowhere."""
    left = path.split(b"/")[::-1]
    done: list[bytes] = []
    links = 0
    while left:
        part = left.pop()
        if part in (b"", b"."):
            continue
        if part == b"..":
            del done[-1:]
            continue
        held = tree.get(b"/".join([*done, part]))
        if held is None or held.kind != SYMLINK:
            done.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            return None
        if held.link.startswith(b"/"):
            done.clear()
        left += held.link.split(b"/")[::-1]
    return tree.get(b"/".join(done))


# ---- comparing -------------------------------------------------------------------------


def same(descriptor: int, one: Entry, other: Entry) -> bool:
    """Return whether two entries are the same file: all but the time and the links to it."""
    if one is other:
        return True
    if (one.kind, one.mode, one.uid, one.gid, one.size) != (other.kind, other.mode, other.uid, other.gid, other.size):
        return False
    if (one.link, one.device, one.capability) != (other.link, other.device, other.capability):
        return False
    return one.kind != REGULAR or _same_content(descriptor, one, other)


def _same_content(descriptor: int, one: Entry, other: Entry) -> bool:
    for start in range(0, one.size, CHUNK):
        size = min(CHUNK, one.size - start)
        if os.pread(descriptor, size, one.offset + start) != os.pread(descriptor, size, other.offset + start):
            return False
    return True


def content(descriptor: int, entry: Entry) -> Iterator[bytes]:
    """Yield the content of `entry` in chunks."""
    position, end = entry.offset, entry.offset + entry.size
    while position < end:
        chunk = os.pread(descriptor, min(CHUNK, end - position), position)
        if not chunk:
            raise StorageError("a temporary file became shorter while it was read")
        yield chunk
        position += len(chunk)


# ---- writing ---------------------------------------------------------------------------


def pieces(descriptor: int, tree: Mapping[bytes, Entry], epoch: int) -> Iterator[bytes]:
    """Yield `tree` as one tar: sorted by path, every time `epoch`, hard links to the first path in order."""
    first: dict[int, bytes] = {}
    for name in sorted(tree):
        entry = tree[name]
        if entry.kind == REGULAR:
            target = first.setdefault(id(entry), name)
            if target is not name:
                yield tarwriter.header(name, _hard_link(entry, target), epoch)
                continue
        yield tarwriter.header(name, entry, epoch)
        if entry.size:
            yield from content(descriptor, entry)
            yield tarwriter.padding(entry.size)
    yield tarwriter.END


def _hard_link(entry: Entry, target: bytes) -> Entry:
    return Entry(name=target, kind=HARD_LINK, mode=entry.mode, uid=entry.uid, gid=entry.gid, size=0, link=target)


def whiteout(name: bytes) -> tuple[bytes, Entry]:
    """Return the path and the entry that hide `name` in lower layers."""
    folder, _, base = name.rpartition(b"/")
    path = folder + b"/" + WHITEOUT + base if folder else WHITEOUT + base
    return path, Entry(name=path, kind=REGULAR, mode=0, uid=0, gid=0, size=0)
