"""`envlock.canary.libraries`: build ids read from ELF files, and who is loaded from where."""

import io
import struct
import sys
from pathlib import Path

import pytest

from envlock.canary import libraries

BUILD_ID = bytes.fromhex("0123456789abcdef0123456789abcdef01234567")


def note(name: bytes, kind: int, body: bytes) -> bytes:
    """Return one ELF note, padded to four bytes."""
    padded = [part + b"\0" * (-len(part) % 4) for part in (name, body)]
    return struct.pack("<III", len(name), len(body), kind) + padded[0] + padded[1]


def elf(notes: bytes, wide: bool = True) -> bytes:
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

    assert BUILD_ID.hex() == libraries.build_id(io.BytesIO(elf(notes, wide)))


def test_a_library_without_a_build_id_says_so() -> None:
    """No build id is a text of its own, never an empty one that equals another."""
    assert libraries.build_id(io.BytesIO(elf(note(b"GNU\0", 1, b"abi ")))) == libraries.NO_BUILD_ID


def test_notes_of_another_owner_are_not_taken() -> None:
    """Kind 3 means a build id only under GNU's name."""
    assert libraries.build_id(io.BytesIO(elf(note(b"Go\0\0", 3, BUILD_ID)))) == libraries.NO_BUILD_ID


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n" * 20, b"\x7fELF\x02\x01"])
def test_what_is_no_elf_file_is_refused(data: bytes) -> None:
    """Anything else is an error, not a library without a build id."""
    with pytest.raises(ValueError, match="not an ELF file"):
        libraries.build_id(io.BytesIO(data))


def test_program_headers_that_are_cut_off_are_refused() -> None:
    """A truncated file is an error."""
    with pytest.raises(ValueError, match="cut off"):
        libraries.build_id(io.BytesIO(elf(b"")[:80]))


def test_loaded_takes_executable_files_once() -> None:
    """Data mappings and anonymous memory are no libraries; a path with spaces is one path."""
    maps = (
        "7f00-7f01 r--p 00000000 08:01 1    /lib/a.so\n"
        "7f01-7f02 r-xp 00001000 08:01 1    /lib/a.so\n"
        "7f02-7f03 r-xp 00000000 08:01 2    /opt/with space/b.so\n"
        "7f03-7f04 r--p 00000000 08:01 3    /usr/lib/locale/C.utf8/LC_CTYPE\n"
        "7f04-7f05 r-xp 00000000 00:00 0    [vdso]\n"
        "7f05-7f06 rwxp 00000000 00:00 0 \n"
    )

    assert libraries.loaded(maps) == ["/lib/a.so", "/opt/with space/b.so"]


def test_this_process_names_its_own_interpreter_and_c_library() -> None:
    """Read from the kernel, the libraries of this very process are there with build ids."""
    found = {item["name"]: item for item in libraries.read()}

    assert any(name.startswith(("libc.so", "libc-", "ld-musl")) for name in found)
    assert any(
        str(Path(item["path"]).parent).startswith(sys.base_prefix) or "python" in name for name, item in found.items()
    )


def test_a_library_that_is_gone_says_why(tmp_path: Path) -> None:
    """A deleted file is unreadable in words; it does not vanish from the list."""
    maps = tmp_path / "maps"
    maps.write_text("7f01-7f02 r-xp 00001000 08:01 1    /gone/libm.so.6\n")

    assert libraries.read(str(maps))[0]["build-id"].startswith("(unreadable: ")


def test_only_what_computes_decides() -> None:
    """Build ids of libraries that compute are settings; the others are only listed."""
    listed = [
        {"name": name, "build-id": "ab"} for name in ("libm.so.6", "libz.so.1", "libtorch_cpu.so", "libtorch_python.so")
    ]

    assert libraries.deciding(listed) == (("libm.so.6", "ab"), ("libtorch_cpu.so", "ab"))
