"""Tar, read strictly.

A parser of our own over a source of bytes, for layers and for the archives that
engines save. It never extracts, and it refuses what two readers could understand in two
ways (CVE-2025-62518 and its kin): a size in PAX unlike the header's, two PAX headers for
one entry, duplicate names, NUL, `..` or absolute names, unknown types, bad checksums,
bytes after the end. Names are bytes: what a file system holds, not what it means.
Writing is `envlock.image.tarwriter`'s work.

Formats: POSIX.1-2017 `pax` (ustar and extended headers), GNU long names when reading.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from envlock.errors import IntegrityError

REGULAR = b"0"
HARD_LINK = b"1"
SYMLINK = b"2"
CHARACTER = b"3"
BLOCK = b"4"
DIRECTORY = b"5"
FIFO = b"6"
_KINDS = frozenset((REGULAR, HARD_LINK, SYMLINK, CHARACTER, BLOCK, DIRECTORY, FIFO))
_PAX, _PAX_GLOBAL, _LONG_NAME, _LONG_LINK = b"x", b"g", b"L", b"K"

BLOCK_SIZE = 512
CHUNK = 1 << 20
_ZERO = bytes(BLOCK_SIZE)

MAX_ENTRIES = 400_000
MAX_FILE = 64 << 30
MAX_NAME = 4096
_MAX_EXTENDED = 1 << 20
OCTAL_LIMIT = 8**11

CAPABILITY = b"SCHILY.xattr.security.capability"
_NUMBERS = ((100, 108), (108, 116), (116, 124), (124, 136), (136, 148), (329, 337), (337, 345))
_USUAL = re.compile(rb"(?:[0-7]{7}\0){3}(?:[0-7]{11}\0){2}")
_USUAL_DEVICE = re.compile(rb"(?:[0-7]{7}\0){2}|\0{16}")
_OCTAL = re.compile(rb"[0-7]+")
_RECORD = re.compile(rb"(\d{1,7}) ")
_PLAIN_KEYS = frozenset(b"path linkpath size uid gid mtime atime ctime uname gname".split())


@dataclass(slots=True, eq=False)
class Entry:
    """One file of an archive. `name` has no leading `./` and no trailing `/`; the root is empty.

    `offset` is where the content begins in the source, `size` its length; `link` is the
    target of a link; `capability` the raw `security.capability` attribute. Compared by
    identity: two names with one entry are hard links of one file.
    """

    name: bytes
    kind: bytes
    mode: int
    uid: int
    gid: int
    size: int
    link: bytes = b""
    device: tuple[int, int] = (0, 0)
    capability: bytes = b""
    offset: int = 0


class Source(Protocol):
    """Where an archive's bytes come from, in order."""

    position: int

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes; `IntegrityError` when there are fewer."""

    def skip(self, size: int) -> None:
        """Pass over exactly `size` bytes; `IntegrityError` when there are fewer."""

    def rest(self) -> Iterator[bytes]:
        """Yield all bytes that are left."""


class RangeSource:
    """`size` bytes of an open file from `offset` on; `position` counts from the file's start."""

    def __init__(self, descriptor: int, offset: int, size: int, where: str) -> None:
        self._descriptor = descriptor
        self.position = offset
        self._end = offset + size
        self._where = where

    def read(self, size: int) -> bytes:
        if self.position + size > self._end:
            raise cut_off(self._where)
        data = os.pread(self._descriptor, size, self.position)
        if len(data) != size:
            raise cut_off(self._where)
        self.position += size
        return data

    def skip(self, size: int) -> None:
        if self.position + size > self._end:
            raise cut_off(self._where)
        self.position += size

    def rest(self) -> Iterator[bytes]:
        while self.position < self._end:
            yield self.read(min(CHUNK, self._end - self.position))


class StreamSource:
    """Bytes that arrive in chunks; `position` counts from the first."""

    def __init__(self, chunks: Iterator[bytes], where: str) -> None:
        self._chunks = chunks
        self._held = memoryview(b"")
        self.position = 0
        self._where = where

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Yield the next `size` bytes in pieces, without joining them."""
        left = size
        while left:
            if not self._held:
                try:
                    self._held = memoryview(next(self._chunks))
                except StopIteration:
                    raise cut_off(self._where) from None
                continue
            piece = self._held[:left]
            self._held = self._held[left:]
            left -= len(piece)
            self.position += len(piece)
            yield piece

    def read(self, size: int) -> bytes:
        return b"".join(self.pieces(size))

    def skip(self, size: int) -> None:
        for _ in self.pieces(size):
            pass

    def rest(self) -> Iterator[bytes]:
        if self._held:
            yield bytes(self._held)
        self._held = memoryview(b"")
        yield from self._chunks


def cut_off(where: str) -> IntegrityError:
    """Return the error for an archive that ends too early."""
    return IntegrityError("the archive is cut off", where=where, hint="was it copied whole? make it again")


def entries(source: Source, where: str, limit: int = MAX_ENTRIES) -> Iterator[Entry]:
    """Yield each entry of the archive in `source`, up to its end mark.

    While an entry is held, the source stands at its content; what is not read of it is
    passed over. Raises `IntegrityError`, naming `where`, for anything not plainly tar.
    """
    seen: set[bytes] = set()
    while (found := _next_entry(source, where)) is not None:
        if found.name in seen:
            raise _bad(where, f"holds two entries {_shown(found.name)}")
        seen.add(found.name)
        if len(seen) > limit:
            raise _bad(where, f"holds more than {limit} entries")
        found.offset = source.position
        yield found
        end = found.offset + found.size + -found.size % BLOCK_SIZE
        source.skip(end - source.position)


def _next_entry(source: Source, where: str) -> Entry | None:
    pax: dict[bytes, bytes] | None = None
    long: dict[bytes, bytes] = {}
    while True:
        block = source.read(BLOCK_SIZE)
        if block == _ZERO:
            if pax is not None or long:
                raise _bad(where, "ends after an extended header")
            _only_zeros(source, where)
            return None
        kind = _check_header(block, where)
        if kind == _PAX:
            if pax is not None or long:
                raise _bad(where, "has two extended headers for one entry")
            pax = _parse_pax(_extended(source, block, where), where)
        elif kind in (_LONG_NAME, _LONG_LINK):
            if pax is not None or kind in long:
                raise _bad(where, "has two extended headers for one entry")
            long[kind] = _extended(source, block, where).rstrip(b"\0")
        elif kind in _KINDS:
            return _entry(block, kind, pax or {}, long, where)
        else:
            what = "a global extended header" if kind == _PAX_GLOBAL else f"an entry of unknown type {kind!r}"
            raise _bad(where, f"holds {what}")


def _only_zeros(source: Source, where: str) -> None:
    if source.read(BLOCK_SIZE) != _ZERO:
        raise _bad(where, "has one end mark where two are due")
    for chunk in source.rest():
        if chunk.count(0) != len(chunk):
            raise _bad(where, "has bytes after its end")


def _check_header(block: bytes, where: str) -> bytes:
    """Return the type of a header block whose magic and checksum are right."""
    if block[257:263] not in (b"ustar\0", b"ustar "):
        raise _bad(where, "has a header that is not ustar")
    total = sum(block) - sum(block[148:156]) + 8 * 32
    if _number(block[148:156], where) != total:
        raise _bad(where, "has a header with a wrong checksum")
    if not (_USUAL.fullmatch(block, 100, 148) and _USUAL_DEVICE.fullmatch(block, 329, 345)):
        for start, end in _NUMBERS:
            # Each one, used or not: a field that one reader skips another stumbles over.
            _number(block[start:end], where)
    kind = block[156:157]
    return REGULAR if kind == b"\0" else kind


def _extended(source: Source, block: bytes, where: str) -> bytes:
    size = _number(block[124:136], where)
    if size > _MAX_EXTENDED:
        raise _bad(where, f"has an extended header of {size} bytes")
    data = source.read(size)
    source.skip(-size % BLOCK_SIZE)
    return data


def _entry(block: bytes, kind: bytes, pax: dict[bytes, bytes], long: dict[bytes, bytes], where: str) -> Entry:
    gnu = block[257:263] == b"ustar "
    name = pax.get(b"path") or long.get(_LONG_NAME) or _ustar_name(block, gnu)
    link = pax.get(b"linkpath") or long.get(_LONG_LINK) or _text(block[157:257])
    if b"\0" in name or b"\0" in link:
        raise _bad(where, "holds a name with a NUL")
    size = _size(block, pax, where)
    if size and kind != REGULAR:
        raise _bad(where, f"gives {_shown(name)} a content that its type cannot have")
    device = (_number(block[329:337], where), _number(block[337:345], where))
    return Entry(
        name=clean_name(name, kind, where),
        kind=kind,
        mode=_number(block[100:108], where) & 0o7777,
        uid=_decimal(pax, b"uid", where, _number(block[108:116], where)),
        gid=_decimal(pax, b"gid", where, _number(block[116:124], where)),
        size=size,
        link=clean_name(link, REGULAR, where) if kind == HARD_LINK else link if kind == SYMLINK else b"",
        device=device if kind in (CHARACTER, BLOCK) else (0, 0),
        capability=pax.get(CAPABILITY, b""),
    )


def _ustar_name(block: bytes, gnu: bool) -> bytes:
    name = _text(block[:100])
    prefix = b"" if gnu else _text(block[345:500])
    return prefix + b"/" + name if prefix else name


def _size(block: bytes, pax: dict[bytes, bytes], where: str) -> int:
    size = _number(block[124:136], where)
    if b"size" in pax:
        large = _decimal(pax, b"size", where, 0)
        # Only a size that the header has no room for may stand in PAX alone.
        if large != size and not (size == 0 and large >= OCTAL_LIMIT):
            raise _bad(where, f"gives one entry two sizes, {size} and {large}")
        size = large
    if size > MAX_FILE:
        raise _bad(where, f"holds a file of {size} bytes (at most {MAX_FILE})")
    return size


def clean_name(name: bytes, kind: bytes, where: str) -> bytes:
    """Return `name` in its one form; `IntegrityError` for one that could lead elsewhere."""
    plain = name
    while plain.startswith(b"./"):
        plain = plain[2:]
    if kind == DIRECTORY and plain.endswith(b"/"):
        plain = plain[:-1]
    if name and plain in (b"", b".") and kind == DIRECTORY:
        return b""
    parts = plain.split(b"/")
    if len(plain) > MAX_NAME or any(part in (b"", b".", b"..") for part in parts):
        raise _bad(where, f"holds the unsafe name {_shown(name)}")
    return plain


def _parse_pax(data: bytes, where: str) -> dict[bytes, bytes]:
    records: dict[bytes, bytes] = {}
    position = 0
    while position < len(data):
        match = _RECORD.match(data, position)
        length = int(match.group(1)) if match else 0
        record = data[match.end() if match else position : position + length]
        key, equals, value = record.partition(b"=")
        if not match or not equals or not key or not value.endswith(b"\n") or position + length > len(data):
            raise _bad(where, "has an extended header that cannot be read")
        if key in records:
            raise _bad(where, f"has an extended header with two records {_shown(key)}")
        if key.startswith(b"GNU.sparse") or (b"." not in key and key not in _PLAIN_KEYS):
            raise _bad(where, f"has an extended header with a record {_shown(key)}")
        records[key] = value[:-1]
        position += length
    return records


def _decimal(pax: dict[bytes, bytes], key: bytes, where: str, default: int) -> int:
    text = pax.get(key)
    if text is None:
        return default
    if not text.isdigit() or len(text) > 20:
        raise _bad(where, f"has an extended header with a bad {key.decode()}")
    return int(text)


def _number(field: bytes, where: str) -> int:
    """Return a header number: octal text, or GNU's base 256 when the first bit is set."""
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise _bad(where, "has a header with a negative number")
        return int.from_bytes(field[1:], "big")
    text = field.rstrip(b" \0").lstrip(b" ")
    if not text:
        return 0
    if not _OCTAL.fullmatch(text):
        raise _bad(where, "has a header with a bad number")
    return int(text, 8)


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def _shown(name: bytes) -> str:
    return repr(name[:200].decode("utf-8", "backslashreplace"))


def _bad(where: str, what: str) -> IntegrityError:
    return IntegrityError(f"{what}; refusing the archive", where=where)
