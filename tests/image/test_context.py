"""The build context: one stream, one folder, whatever the host is set to."""

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from worlds import EPOCH

from envlock import files
from envlock.digest import sha256
from envlock.errors import IntegrityError, StorageError, UsageError
from envlock.image import context
from envlock.image.context import Item, from_bytes, from_file

ITEMS = (
    from_bytes("Dockerfile", b"FROM scratch\n"),
    from_bytes("venv/bin/tool", b"#!x", 0o755),
    Item(path="venv/bin/python", mode=0o777, size=0, link="/usr/bin/python3"),
    Item(path="venv/empty", mode=0o755, size=0, folder=True),
    from_bytes("venv-x", b"beside"),
    from_bytes(context.MARKER, b"sha256:abc\n"),
)


def test_the_stream_is_the_same_in_any_order() -> None:
    """Items are sorted, folders come before what is in them."""
    one = b"".join(context.tar_stream(ITEMS, EPOCH))

    assert one == b"".join(context.tar_stream(reversed(ITEMS), EPOCH))
    with tarfile.open(fileobj=io.BytesIO(one)) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == [
        ".envlock-context", "Dockerfile", "venv", "venv/bin", "venv/bin/python", "venv/bin/tool",
        "venv/empty", "venv-x",
    ]  # fmt: skip
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(EPOCH, 0, 0, "")}


def test_an_item_that_changes_while_it_is_read_is_noticed() -> None:
    """More or fewer bytes than announced would break the archive."""
    with pytest.raises(IntegrityError, match="has 2 bytes, expected 3"):
        list(context.tar_stream([Item(path="a", mode=0o644, size=3, content=lambda: (b"xx",))], EPOCH))


def listing(folder: Path) -> list[tuple[str, int, int, bytes]]:
    found = []
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found.append((str(path.relative_to(folder)), stat.S_IMODE(state.st_mode), int(state.st_mtime), data))
    return found


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_folder_is_the_same_under_any_umask(umask: int, tmp_path: Path) -> None:
    """Modes and times are the context's own."""
    held = os.umask(umask)
    try:
        context.write_folder(ITEMS, tmp_path / "out", EPOCH, force=False)
    finally:
        os.umask(held)
    found = {name: (mode, mtime) for name, mode, mtime, _ in listing(tmp_path / "out")}

    assert found["venv/bin/tool"] == (0o755, EPOCH)
    assert found["Dockerfile"] == (0o644, EPOCH)
    assert found["venv/bin"] == (0o755, EPOCH)
    assert found["venv/bin/python"][1] == EPOCH
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o755


def test_our_own_folder_is_replaced_whole(tmp_path: Path) -> None:
    """What is no longer part of it is gone, and nothing lies beside it."""
    out = tmp_path / "out"
    context.write_folder([*ITEMS, from_bytes("old", b"")], out, EPOCH, force=False)
    context.write_folder(ITEMS, out, EPOCH, force=False)

    assert not (out / "old").exists()
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_of_somebody_else_is_refused_without_force(tmp_path: Path) -> None:
    """Its files are still there; with force they are not."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="is not empty, and envlock did not write it"):
        context.write_folder(ITEMS, out, EPOCH, force=False)
    assert (out / "thesis.txt").read_text() == "years of work"

    context.write_folder(ITEMS, out, EPOCH, force=True)
    assert not (out / "thesis.txt").exists()


def test_a_link_or_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    """Even with force: what it leads to was not named."""
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("x")
    for name in ("link", "file"):
        with pytest.raises(UsageError, match="is not a folder"):
            context.write_folder(ITEMS, tmp_path / name, EPOCH, force=True)


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    """An item that breaks in the middle changes nothing and leaves nothing."""
    out = tmp_path / "out"
    context.write_folder(ITEMS, out, EPOCH, force=False)
    before = listing(out)
    with pytest.raises(IntegrityError):
        context.write_folder(
            [*ITEMS, Item(path="z", mode=0o644, size=9, content=lambda: (b"",))], out, EPOCH, force=False
        )

    assert listing(out) == before
    assert list(tmp_path.iterdir()) == [out]


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """A folder that nobody holds goes, whatever process has its number; one that is held stays."""
    dead = tmp_path / f".envlock-tmp-out-{os.getppid()}-abc"
    (dead / "new").mkdir(parents=True)
    with files.temporary_folder(tmp_path, ".envlock-tmp-out-") as alive:
        context.write_folder(ITEMS, tmp_path / "out", EPOCH, force=False)

        assert not dead.exists()
        assert alive.exists()


def test_a_missing_source_is_told_in_words(tmp_path: Path) -> None:
    """A file of the context that is not there is a storage error with its path."""
    with pytest.raises(StorageError, match="gone"):
        from_file("a", tmp_path / "gone")


def test_small_pieces_are_gathered() -> None:
    """Thousands of small files cost a few sends, and no byte is lost."""
    pieces = [b"%d" % number * 100 for number in range(20_000)]
    gathered = list(context.gathered(pieces))

    assert len(gathered) < 20
    assert sha256(b"".join(gathered)) == sha256(b"".join(pieces))
