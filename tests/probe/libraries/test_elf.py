"""`envlock.probe.libraries.elf`: build ids, sonames and needs read from ELF files."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from made_libraries import compiled

from envlock.probe.libraries import elf

BUILD_ID = bytes.fromhex("0123456789abcdef0123456789abcdef01234567")


def note(name: bytes, kind: int, body: bytes) -> bytes:
    """Return one ELF note, padded to four bytes."""
    padded = [part + b"\0" * (-len(part) % 4) for part in (name, body)]
    return struct.pack("<III", len(name), len(body), kind) + padded[0] + padded[1]


def made(notes: bytes, wide: bool = True) -> bytes:
    """Return a little ELF file whose second program header is a PT_NOTE with `notes`."""
    size, at = (56, 64) if wide else (32, 52)
    start = at + 2 * size
    if wide:
        head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
            "<HHIQQQIHHHHHH", 3, 62, 1, 0, at, 0, 0, 64, size, 2, 0, 0, 0
        )
        load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 10, 10, 4096)
        noted = struct.pack("<IIQQQQQQ", 4, 4, start, 0, 0, len(notes), len(notes), 4)
    else:
        head = b"\x7fELF\x01\x01\x01".ljust(16, b"\0") + struct.pack(
            "<HHIIIIIHHHHHH", 3, 3, 1, 0, at, 0, 0, 52, size, 2, 0, 0, 0
        )
        load = struct.pack("<IIIIIIII", 1, 0, 0, 0, 10, 10, 5, 4096)
        noted = struct.pack("<IIIIIIII", 4, start, 0, 0, len(notes), len(notes), 4, 4)
    return head + load + noted + notes


@pytest.mark.parametrize("wide", [True, False])
def test_a_build_id_is_found_among_other_notes(wide: bool) -> None:
    """The note with GNU's name and kind 3 is the build id, in 64-bit and 32-bit files."""
    notes = note(b"GNU\0", 5, b"property") + note(b"GNU\0", 3, BUILD_ID)

    assert BUILD_ID.hex() == elf.build_id(io.BytesIO(made(notes, wide)))


def test_a_library_without_a_build_id_says_so() -> None:
    """No build id is a text of its own, never an empty one that equals another."""
    assert elf.build_id(io.BytesIO(made(note(b"GNU\0", 1, b"abi ")))) == elf.NO_BUILD_ID


def test_notes_of_another_owner_are_not_taken() -> None:
    """Kind 3 means a build id only under GNU's name."""
    assert elf.build_id(io.BytesIO(made(note(b"Go\0\0", 3, BUILD_ID)))) == elf.NO_BUILD_ID


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n" * 20, b"\x7fELF\x02\x01"])
def test_what_is_no_elf_file_is_refused(data: bytes) -> None:
    """Anything else is an error, not a library without a build id."""
    with pytest.raises(ValueError, match="not an ELF file"):
        elf.build_id(io.BytesIO(data))


def test_program_headers_that_are_cut_off_are_refused() -> None:
    """A truncated file is an error."""
    with pytest.raises(ValueError, match="cut off"):
        elf.build_id(io.BytesIO(made(b"")[:80]))


@pytest.mark.parametrize("read", [elf.read, elf.build_id])
def test_any_cut_of_a_real_file_is_refused_or_read(read: Callable[[BinaryIO], object], tmp_path: Path) -> None:
    """Cut off anywhere, a file gives a value or the one error, never another one."""
    whole = compiled(tmp_path, "int one(void) { return 1; }", "-Wl,-soname,libone.so.1").read_bytes()

    for length in range(0, len(whole), 97):
        try:
            read(io.BytesIO(whole[:length]))
        except ValueError:
            continue


def test_soname_and_needs_of_a_real_file(tmp_path: Path) -> None:
    """What the compiler was told is what is read, and the build id is the one of the note."""
    compiled(tmp_path, "int one(void) { return 1; }", "-Wl,-soname,libone.so.1", name="libone.so")
    path = compiled(
        tmp_path,
        "int one(void); int two(void) { return one(); }",
        f"-L{tmp_path}",
        "-lone",
        "-Wl,-soname,libtwo.so.2",
        "-Wl,--build-id=0xabcdef0123",
        name="libtwo.so",
    )
    with path.open("rb") as stream:
        found = elf.read(stream)

    assert (found.soname, found.build_id) == ("libtwo.so.2", "abcdef0123")
    assert found.needed[0] == "libone.so.1"


def test_a_file_without_a_soname_has_none(tmp_path: Path) -> None:
    """No soname is an empty text; the file name is another thing."""
    with compiled(tmp_path, "int one(void) { return 1; }").open("rb") as stream:
        assert elf.read(stream).soname == ""
