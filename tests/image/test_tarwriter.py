"""Tar headers: every reader understands them, and their bytes depend on nothing else."""

import io
import tarfile
from pathlib import Path

import pytest
from worlds import read_tar

from envlock.digest import sha256
from envlock.image import tarwriter
from envlock.image.layertar import DIRECTORY, REGULAR, SYMLINK, Entry

CASES = (
    (b"plain", Entry(name=b"", kind=REGULAR, mode=0o644, uid=0, gid=0, size=3)),
    (b"setuid", Entry(name=b"", kind=REGULAR, mode=0o4755, uid=12, gid=34, size=0)),
    (b"x" * 100, Entry(name=b"", kind=REGULAR, mode=0o644, uid=0, gid=0, size=0)),
    (b"x" * 101, Entry(name=b"", kind=REGULAR, mode=0o644, uid=0, gid=0, size=0)),
    (b"d" * 100, Entry(name=b"", kind=DIRECTORY, mode=0o1777, uid=0, gid=0, size=0)),
    ("Sağlayici.pem".encode(), Entry(name=b"", kind=SYMLINK, mode=0o777, uid=0, gid=0, size=0, link="ü/ç".encode())),
    (b"l", Entry(name=b"", kind=SYMLINK, mode=0o777, uid=0, gid=0, size=0, link=b"t" * 300)),
    (b"owner", Entry(name=b"", kind=REGULAR, mode=0o600, uid=5_000_000, gid=6_000_000, size=0)),
    (b"ping", Entry(name=b"", kind=REGULAR, mode=0o755, uid=0, gid=0, size=0, capability=b"\x01\0\0\x02\0\x20\0\0")),
)


@pytest.mark.parametrize(("name", "entry"), CASES)
def test_what_is_written_is_read_back_by_both_readers(name: bytes, entry: Entry, tmp_path: Path) -> None:
    """Our reader and tarfile both give the entry that was written."""
    data = tarwriter.header(name, entry, 77) + (b"abc" + bytes(509) if entry.size else b"") + tarwriter.END
    (ours, content) = read_tar(data, tmp_path)[0]
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        theirs = archive.getmembers()[0]

    assert ours.name == name
    assert (ours.kind, ours.mode, ours.uid, ours.gid, ours.link, ours.capability, content) == (
        entry.kind, entry.mode, entry.uid, entry.gid, entry.link, entry.capability, b"abc"[: entry.size],
    )  # fmt: skip
    assert (theirs.name.encode(), theirs.mode, theirs.uid, theirs.gid, theirs.mtime) == (
        name, entry.mode, entry.uid, entry.gid, 77,
    )  # fmt: skip
    assert theirs.linkname.encode() == entry.link
    assert (theirs.uname, theirs.gname) == ("", "")


def test_the_bytes_never_change() -> None:
    """All cases together have one digest: a change of it changes every image in the world."""
    data = b"".join(tarwriter.header(name, entry, 1_700_000_000) for name, entry in CASES)

    assert sha256(data) == "sha256:6679307d84948a4ce1d8be8ba2019129e309148bef04167499c45eb83d4f872b"


def test_records_are_sorted() -> None:
    """A long name and a long link give their records in one order (bootc PR 2073)."""
    entry = Entry(name=b"", kind=SYMLINK, mode=0o777, uid=0, gid=0, size=0, link=b"t" * 101)
    data = tarwriter.header(b"n" * 101, entry, 0)

    assert data.index(b"linkpath=") < data.index(b" path=")


def test_a_size_that_ustar_has_no_room_for_stands_in_pax_alone() -> None:
    """Nine gibibytes: zero in the header, the size in the record."""
    data = tarwriter.header(b"big", Entry(name=b"", kind=REGULAR, mode=0o644, uid=0, gid=0, size=9 << 30), 0)

    assert b"19 size=9663676416\n" in data
    assert data[-512:][124:136] == b"00000000000\0"
