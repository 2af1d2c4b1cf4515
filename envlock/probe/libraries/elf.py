"""What an ELF file says about itself: its build id, its soname, the libraries it needs.

A build id (`.note.gnu.build-id`) names one build of one library, whatever its file name
or version says. All is read from the file's own program headers (System V ABI, "Note
Section", "Dynamic Section"; NT_GNU_BUILD_ID is 3), in small pieces: a library of 750 MB
costs what one of 75 kB does.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Iterator, List, NamedTuple, Tuple

NO_BUILD_ID = "(no build id)"

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME = 1, 5, 10, 14
_NT_GNU_BUILD_ID = 3
_MOST_NOTES = _MOST_DYNAMIC = 1 << 16
_MOST_STRINGS = 1 << 24
_MOST_HEADERS = 4096


class Elf(NamedTuple):
    """One ELF file: `soname` is empty where it has none, `needed` in the file's order."""

    build_id: str
    soname: str
    needed: Tuple[str, ...]


class _Part(NamedTuple):
    """One program header: where its bytes lie in the file and in memory."""

    kind: int
    offset: int
    address: int
    size: int


def read(stream: BinaryIO) -> Elf:
    """Return what the ELF file in `stream` says; `ValueError` when it is none that can be read."""
    try:
        order, wide, parts = _parts(stream)
        soname, needed = _dynamic(stream, order, wide, parts)
        return Elf(_build_id(stream, order, parts), soname, needed)
    except struct.error as error:
        raise ValueError("the ELF file is cut off") from error


def build_id(stream: BinaryIO) -> str:
    """Return the build id of the ELF file in `stream` as hex, or why there is none.

    Raises `ValueError` when it is no ELF file that can be read.
    """
    try:
        order, _, parts = _parts(stream)
        return _build_id(stream, order, parts)
    except struct.error as error:
        raise ValueError("the ELF file is cut off") from error


def _parts(stream: BinaryIO) -> Tuple[str, bool, List[_Part]]:
    """Return the byte order, whether it is a 64-bit file, and the program headers."""
    head = stream.read(64)
    if len(head) < 52 or head[:4] != b"\x7fELF":
        raise ValueError("not an ELF file")
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    if wide:
        offset = struct.unpack_from(order + "Q", head, 32)[0]
        size, count = struct.unpack_from(order + "HH", head, 54)
    else:
        offset = struct.unpack_from(order + "I", head, 28)[0]
        size, count = struct.unpack_from(order + "HH", head, 42)
    parts = []
    for index in range(min(count, _MOST_HEADERS)):
        stream.seek(offset + index * size)
        header = stream.read(size)
        if len(header) < size:
            raise ValueError("the ELF program headers are cut off")
        if wide:
            kind, start, address, length = struct.unpack_from(order + "I4xQQ8xQ", header)
        else:
            kind, start, address, length = struct.unpack_from(order + "III4xI", header)
        parts.append(_Part(kind, start, address, length))
    return order, wide, parts


def _build_id(stream: BinaryIO, order: str, parts: List[_Part]) -> str:
    for part in parts:
        if part.kind == _PT_NOTE:
            stream.seek(part.offset)
            found = _in_notes(stream.read(min(part.size, _MOST_NOTES)), order)
            if found:
                return found
    return NO_BUILD_ID


def _in_notes(notes: bytes, order: str) -> str:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from(order + "III", notes, at)
        name = notes[at + 12 : at + 12 + name_size].rstrip(b"\x00")
        begin = at + 12 + _aligned(name_size)
        if name == b"GNU" and kind == _NT_GNU_BUILD_ID and size:
            return notes[begin : begin + size].hex()
        at = begin + _aligned(size)
    return ""


def _aligned(size: int) -> int:
    return (size + 3) & ~3


def _dynamic(stream: BinaryIO, order: str, wide: bool, parts: List[_Part]) -> Tuple[str, Tuple[str, ...]]:
    """Return the soname and the needed libraries; nothing of a file without a dynamic section."""
    for part in parts:
        if part.kind == _PT_DYNAMIC:
            stream.seek(part.offset)
            entries = list(_entries(stream.read(min(part.size, _MOST_DYNAMIC)), order, wide))
            break
    else:
        return "", ()
    values = dict(entries)
    start = _file_offset(values.get(_DT_STRTAB, 0), parts)
    stream.seek(start)
    strings = stream.read(min(values.get(_DT_STRSZ, 0), _MOST_STRINGS))
    needed = tuple(_string(strings, number) for tag, number in entries if tag == _DT_NEEDED)
    soname = _string(strings, values[_DT_SONAME]) if _DT_SONAME in values else ""
    return soname, needed


def _entries(table: bytes, order: str, wide: bool) -> Iterator[Tuple[int, int]]:
    form, size = (order + "qQ", 16) if wide else (order + "iI", 8)
    for at in range(0, len(table) - size + 1, size):
        tag, number = struct.unpack_from(form, table, at)
        if tag == 0:
            return
        yield tag, number


def _file_offset(address: int, parts: List[_Part]) -> int:
    for part in parts:
        if part.kind == _PT_LOAD and part.address <= address < part.address + part.size:
            return address - part.address + part.offset
    raise ValueError("the ELF string table lies in no part of the file")


def _string(strings: bytes, at: int) -> str:
    end = strings.find(b"\x00", at)
    if at >= len(strings) or end < 0:
        raise ValueError("the ELF string table is cut off")
    return strings[at:end].decode("utf-8", "backslashreplace")
