"""The strict tar reader: it agrees with tarfile on what is plain, and refuses what is not."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import Thing, in_pieces, read_tar, tar_of

from envlock.errors import IntegrityError
from envlock.image import tarwriter
from envlock.image.layertar import (
    BLOCK_SIZE,
    DIRECTORY,
    HARD_LINK,
    REGULAR,
    SYMLINK,
    Entry,
    RangeSource,
    StreamSource,
    entries,
)

PLAIN = (
    Thing("./", None, 0o755),
    Thing("./a", None, 0o755),
    Thing("./a/file", b"x" * 700),
    Thing("./a/" + "long/" * 40 + "name", b"y"),
    Thing("./a/Sağlayici.pem", b"", link="Sertifika/" + "ü" * 60),
    Thing("./a/hard", b"", link="./a/file", hard=True),
    Thing("./big-owner", b"z", uid=3_000_000, gid=2_999_999),
)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_what_tarfile_writes_is_read_as_tarfile_reads_it(form: int, tmp_path: Path) -> None:
    """Names, kinds, modes, owners, links and contents agree, in both forms in use."""
    data = tar_of(*PLAIN, form=form)
    ours = read_tar(data, tmp_path)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        theirs = archive.getmembers()

        assert [entry.name.decode() for entry, _ in ours] == [
            member.name.removeprefix(".").removeprefix("/") for member in theirs
        ]
        for (entry, content), member in zip(ours, theirs, strict=True):
            stream = archive.extractfile(member) if member.isreg() else None
            assert (entry.mode, entry.uid, entry.gid) == (member.mode, member.uid, member.gid)
            assert content == (stream.read() if stream else b"")
    assert [entry.kind for entry, _ in ours] == [
        DIRECTORY, DIRECTORY, REGULAR, REGULAR, SYMLINK, HARD_LINK, REGULAR,
    ]  # fmt: skip
    assert ours[5][0].link == b"a/file"


def test_file_type_bits_in_a_mode_are_dropped(tmp_path: Path) -> None:
    """Docker 20.10 writes 0o40755 where 0o755 is due."""
    data = bytearray(tar_of(Thing("a", None, 0o755)))
    data[100:108] = b"0040755\0"

    assert read_tar(fixed(data), tmp_path)[0][0].mode == 0o755


def test_a_stream_and_a_file_give_the_same_entries() -> None:
    """How the bytes arrive makes no difference."""
    data = tar_of(*PLAIN)
    found = [entry.name for entry in entries(StreamSource(in_pieces(data, 333), "x"), "x")]

    assert len(found) == len(PLAIN)
    assert found[2] == b"a/file"


# ---- what is refused -------------------------------------------------------------------


def fixed(data: bytes | bytearray, at: int = 0) -> bytes:
    """Return `data` with the checksum of the header at `at` made right."""
    block = bytearray(data[at : at + BLOCK_SIZE])
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(data[:at]) + bytes(block) + bytes(data[at + BLOCK_SIZE :])


def header(name: bytes, kind: bytes = REGULAR, size: int = 0, link: bytes = b"") -> bytes:
    entry = Entry(name=name, kind=kind, mode=0o644, uid=0, gid=0, size=size, link=link)
    return tarwriter._ustar(name, entry, 0)


def extended(kind: bytes, data: bytes) -> bytes:
    return header(b"x", kind, len(data)) + data + bytes(-len(data) % BLOCK_SIZE)


def record(key: bytes, value: bytes) -> bytes:
    return tarwriter._pax_record(key, value)


def patched(position: int, field: bytes) -> bytes:
    data = bytearray(header(b"a"))
    data[position : position + len(field)] = field
    return fixed(data)


END = tarwriter.END
ONE = header(b"a")

EVIL = {
    "absolute name": (header(b"/etc/passwd") + END, "unsafe name"),
    "name through the parent": (header(b"a/../../b") + END, "unsafe name"),
    "parent alone": (header(b"..") + END, "unsafe name"),
    "empty part": (header(b"a//b") + END, "unsafe name"),
    "dot inside": (header(b"a/./b") + END, "unsafe name"),
    "empty name": (header(b"") + END, "unsafe name"),
    "file named like a folder": (header(b"a/") + END, "unsafe name"),
    "root as a file": (header(b".") + END, "unsafe name"),
    "hard link outside": (header(b"a", HARD_LINK, link=b"../b") + END, "unsafe name"),
    "hard link absolute": (header(b"a", HARD_LINK, link=b"/b") + END, "unsafe name"),
    "hard link to nothing": (header(b"a", HARD_LINK) + END, "unsafe name"),
    "duplicate": (ONE + ONE + END, "two entries"),
    "duplicate by dot": (ONE + header(b"./a") + END, "two entries"),
    "PAX path absolute": (extended(b"x", record(b"path", b"/b")) + ONE + END, "unsafe name"),
    "PAX path up": (extended(b"x", record(b"path", b"../b")) + ONE + END, "unsafe name"),
    "PAX path with NUL": (extended(b"x", record(b"path", b"b\0c")) + ONE + END, "NUL"),
    "PAX linkpath with NUL": (
        extended(b"x", record(b"linkpath", b"b\0c")) + header(b"a", SYMLINK, link=b"b") + END, "NUL",
    ),
    "PAX size unlike the header's": (extended(b"x", record(b"size", b"1024")) + ONE + bytes(1024) + END, "two sizes"),
    "PAX size hides an entry": (extended(b"x", record(b"size", b"0")) + header(b"a", size=9) + ONE + END, "two sizes"),
    "PAX size negative": (extended(b"x", record(b"size", b"-1")) + ONE + END, "bad size"),
    "PAX size no number": (extended(b"x", record(b"size", b"0x10")) + ONE + END, "bad size"),
    "PAX uid no number": (extended(b"x", record(b"uid", b"root")) + ONE + END, "bad uid"),
    "two PAX headers": (extended(b"x", record(b"path", b"b")) * 2 + ONE + END, "two extended headers"),
    "PAX then long name": (extended(b"x", record(b"path", b"b")) + extended(b"L", b"c\0") + ONE + END, "two extended"),
    "long name then PAX": (extended(b"L", b"c\0") + extended(b"x", record(b"path", b"b")) + ONE + END, "two extended"),
    "two long names": (extended(b"L", b"c\0") * 2 + ONE + END, "two extended headers"),
    "two records of one key": (extended(b"x", record(b"path", b"b") * 2) + ONE + END, "two records"),
    "unknown PAX key": (extended(b"x", record(b"hdrcharset", b"BINARY")) + ONE + END, "record"),
    "sparse file": (extended(b"x", record(b"GNU.sparse.size", b"9")) + ONE + END, "record"),
    "PAX without length": (extended(b"x", b"path=b\n") + ONE + END, "cannot be read"),
    "PAX length too long": (extended(b"x", b"99 path=b\n") + ONE + END, "cannot be read"),
    "PAX length too short": (extended(b"x", b"5 path=b\n") + ONE + END, "cannot be read"),
    "PAX without newline": (extended(b"x", b"8 path=b") + ONE + END, "cannot be read"),
    "PAX without equals": (extended(b"x", b"7 path\n") + ONE + END, "cannot be read"),
    "PAX without key": (extended(b"x", b"5 =b\n") + ONE + END, "cannot be read"),
    "global header": (extended(b"g", record(b"path", b"b")) + ONE + END, "global extended header"),
    "GNU sparse type": (header(b"a", b"S") + END, "unknown type"),
    "contiguous type": (header(b"a", b"7") + END, "unknown type"),
    "volume label": (header(b"a", b"V") + END, "unknown type"),
    "vendor type": (header(b"a", b"X") + END, "unknown type"),
    "long name of a gigabyte": (header(b"x", b"L", 1 << 30) + END, "extended header of"),
    "content of a folder": (header(b"a", DIRECTORY, 512) + bytes(512) + END, "cannot have"),
    "content of a link": (header(b"a", SYMLINK, 512, b"b") + bytes(512) + END, "cannot have"),
    "negative size": (patched(124, b"\xff" * 12) + END, "negative number"),
    "size of text": (patched(124, b"0000000zz\0") + END, "bad number"),
    "size of a petabyte": (patched(124, b"\x80" + (1 << 50).to_bytes(11, "big")) + END, "at most"),
    "wrong checksum": (ONE[:148] + b"000000\0 " + ONE[156:] + END, "wrong checksum"),
    "old tar without magic": (patched(257, bytes(8)) + END, "not ustar"),
    "bytes after the end": (ONE + END + b"hidden".ljust(512, b"\0"), "after its end"),
    "an entry after the end": (ONE + END + ONE + END, "after its end"),
    "one end mark": (ONE + bytes(512), "cut off"),
    "one end mark, then an entry": (ONE + bytes(512) + ONE, "one end mark"),
    "no end mark": (ONE, "cut off"),
    "half a header": (ONE[:300], "cut off"),
    "content cut off": (header(b"a", size=600) + bytes(512), "cut off"),
    "ends after an extended header": (extended(b"x", record(b"path", b"b")) + END, "after an extended header"),
    "name too long": (extended(b"x", record(b"path", b"b" * 5000)) + ONE + END, "unsafe name"),
    "nothing": (b"", "cut off"),
    "text": (b"this is no archive at all. " * 100, "not ustar"),
    "gzip": (b"\x1f\x8b\x08" + bytes(2000), "not ustar"),
}  # fmt: skip


@pytest.mark.parametrize("name", EVIL)
def test_an_archive_that_two_readers_could_read_in_two_ways_is_refused(name: str, tmp_path: Path) -> None:
    """Each of these is refused with words of its own, as a file and as a stream."""
    data, words = EVIL[name]

    with pytest.raises(IntegrityError, match=words):
        read_tar(data, tmp_path)
    with pytest.raises(IntegrityError, match=words):
        list(entries(StreamSource(in_pieces(data), "x"), "x"))


def test_a_bomb_of_entries_is_refused(tmp_path: Path) -> None:
    """The number of entries is bounded."""
    data = b"".join(header(b"%d" % number) for number in range(20)) + END
    path = tmp_path / "many.tar"
    path.write_bytes(data)
    with open(path, "rb") as stream, pytest.raises(IntegrityError, match="more than 10 entries"):
        list(entries(RangeSource(stream.fileno(), 0, len(data), "x"), "x", limit=10))


SEED = tar_of(*PLAIN)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, len(SEED) - 1), value=st.integers(0, 255), repair=st.booleans())
def test_a_changed_byte_never_gives_an_archive_that_tarfile_reads_otherwise(
    position: int, value: int, repair: bool, tmp_path: Path
) -> None:
    """Whatever byte is changed, the archive is refused, or both readers see the same names and contents."""
    data = bytearray(SEED)
    data[position] = value
    block = position - position % BLOCK_SIZE
    changed = fixed(data, block) if repair and data[block + 257 : block + 262] == b"ustar" else bytes(data)
    try:
        ours = read_tar(changed, tmp_path)
    except IntegrityError:
        return
    with tarfile.open(fileobj=io.BytesIO(changed), errorlevel=2, errors="surrogateescape") as archive:
        theirs = [
            (os.fsencode(member.name).removeprefix(b"./").rstrip(b"/"), member.size) for member in archive.getmembers()
        ]
    assert [(entry.name or b".", entry.size) for entry, _ in ours] == [
        (name, size if ours[index][0].kind == REGULAR else 0) for index, (name, size) in enumerate(theirs)
    ]
