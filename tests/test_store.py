"""The store: nothing in it but what its name says, whoever dies, races or meddles."""

import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envlock.digest import Digest, sha256
from envlock.errors import CouldNotTell, IntegrityError, StorageError
from envlock.store import Store, default_root

WORKER = """
import io, os, sys
from pathlib import Path
from envlock.digest import sha256
from envlock.store import Store
store = Store(Path(sys.argv[1]))
print("ready", flush=True)
for turn in range(int(sys.argv[3])):
    data = (b"%d" % ((int(sys.argv[2]) + turn) % 7)) * 200000
    store.add(io.BytesIO(data), sha256(data), "x")
    store.path(sha256(data), "x")
"""

COLLECTOR = """
import sys
from pathlib import Path
from envlock.store import Store
for _ in range(10):
    Store(Path(sys.argv[1])).gc(set(), set())
"""


def put(store: Store, data: bytes) -> Digest:
    store.add(io.BytesIO(data), sha256(data), "a.whl", len(data))
    return sha256(data)


def content(root: Path) -> list[str]:
    """Return the files of the blobs' folders by name, hidden ones too."""
    return sorted(path.name for path in (root / "blobs").rglob("*") if path.is_file())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_what_was_added_is_handed_out(store: Store) -> None:
    """A blob lies under its hash, read-only."""
    digest = put(store, b"hello")

    assert store.path(digest, "a.whl").read_bytes() == b"hello"
    with store.open(digest, "a.whl") as stream:
        assert stream.read() == b"hello"
    assert store.holds(digest)
    assert store.path(digest, "a.whl").stat().st_mode & 0o777 == 0o444
    assert content(store.root) == [digest.hex]


@pytest.mark.parametrize(
    ("data", "size", "message"),
    [
        (b"other", 5, "a.whl: has digest sha256:"),
        (b"hello world", 5, "a.whl: is longer than 5 bytes"),
        (b"hell", 5, "a.whl: has 4 bytes, expected 5"),
        (b"", None, "a.whl: has digest sha256:e3b0c44298fc"),
    ],
)
def test_other_bytes_than_expected_are_not_stored(store: Store, data: bytes, size: int | None, message: str) -> None:
    """Wrong, long, short or empty: an integrity error, and nothing stays behind."""
    with pytest.raises(IntegrityError) as caught:
        store.add(io.BytesIO(data), sha256(b"hello"), "a.whl", size)

    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 4
    assert content(store.root) == []


def test_an_endless_stream_is_cut_at_its_size(store: Store) -> None:
    """A server that never stops sending fills no disk."""

    class Endless:
        def read(self, size: int, /) -> bytes:
            return b"x" * size

    with pytest.raises(IntegrityError, match="is longer than 100 bytes"):
        store.add(Endless(), sha256(b""), "a.whl", 100)


def test_a_source_that_breaks_off_leaves_nothing(store: Store) -> None:
    """The error of the source comes through; the half blob is gone."""

    class Broken:
        def read(self, size: int, /) -> bytes:
            raise ConnectionResetError

    with pytest.raises(StorageError):
        store.add(Broken(), sha256(b"x"), "a.whl")

    assert content(store.root) == []


def test_a_missing_blob_says_what_fetches_it(store: Store) -> None:
    """Absent is not damaged: exit 3, with the command that brings it."""
    with pytest.raises(CouldNotTell, match=r"a.whl: is not in the store") as caught:
        store.path(sha256(b"none"), "a.whl")

    assert caught.value.hint == "`envlock lock` fetches it"
    assert not store.holds(sha256(b"none"))


@pytest.mark.parametrize("damage", [b"", b"hellp", b"hello, world"], ids=["emptied", "flipped", "longer"])
def test_a_damaged_blob_is_never_handed_out(store: Store, damage: bytes) -> None:
    """Present is not enough: what a power cut emptied or a hand changed is exit 4."""
    digest = put(store, b"hello")
    place = store.path(digest, "a.whl")
    place.chmod(0o644)
    place.write_bytes(damage)

    with pytest.raises(IntegrityError, match="is damaged in the store") as caught:
        store.path(digest, "a.whl")

    assert caught.value.exit_code == 4
    assert not store.holds(digest)
    assert put(store, b"hello") == digest
    assert store.path(digest, "a.whl").read_bytes() == b"hello"


def test_verify_finds_each_damaged_blob_and_repair_removes_it(store: Store) -> None:
    """Repaired means removed: the next `lock` fetches it anew."""
    good, bad = put(store, b"good"), put(store, b"bad")
    place = store.path(bad, "x")
    place.chmod(0o644)
    place.write_bytes(b"bat")

    assert store.verify(repair=False).broken == (str(bad),)
    assert store.verify(repair=True).broken == (str(bad),)
    assert store.verify(repair=False).broken == ()
    assert content(store.root) == [good.hex]


def test_what_was_derived_is_found_by_its_inputs(store: Store) -> None:
    """The key is what it was made from, the blob what came out."""
    key = sha256(b"inputs")

    assert store.derived("layer", key) is None
    made = store.add_derived("layer", key, io.BytesIO(b"layer bytes"))
    assert store.derived("layer", key) == made
    assert made.read_bytes() == b"layer bytes"
    assert store.derived("other", key) is None


def test_a_damaged_derived_artifact_is_as_good_as_none(store: Store) -> None:
    """It can be made again, so it is, rather than used or complained about."""
    key = sha256(b"inputs")
    made = store.add_derived("layer", key, io.BytesIO(b"layer bytes"))
    made.chmod(0o644)
    made.write_bytes(b"layer bytez")

    assert store.derived("layer", key) is None
    store.add_derived("layer", key, io.BytesIO(b"layer bytes"))
    assert store.derived("layer", key) == made


def test_a_record_that_was_cut_off_is_as_good_as_none(store: Store) -> None:
    """A record without a whole digest names nothing."""
    key = sha256(b"inputs")
    store.add_derived("layer", key, io.BytesIO(b"layer"))
    (store.root / "derived" / "layer" / key.hex).write_text("sha256:12")

    assert store.derived("layer", key) is None


def test_gc_keeps_what_is_needed_and_nothing_else(store: Store) -> None:
    """Needed blobs, and what is derived from needed keys, stay; a dry run removes nothing."""
    kept, dropped = put(store, b"kept"), put(store, b"dropped")
    key = sha256(b"key")
    store.add_derived("layer", key, io.BytesIO(b"derived"))
    store.add_derived("layer", sha256(b"old"), io.BytesIO(b"old derived"))
    (store.root / "blobs" / "sha256" / dropped.hex[:2] / ".envlock-tmp-x-999999999-0").write_bytes(b"left")
    (store.root / "derived" / "layer" / "not-a-digest").write_bytes(b"left")

    dry = store.gc({kept}, {key}, dry_run=True)
    assert store.holds(dropped)
    wet = store.gc({kept}, {key})

    assert dry == wet
    assert (wet.blobs, wet.derived) == (3, 2)
    assert content(store.root) == sorted([kept.hex, sha256(b"derived").hex])
    assert store.derived("layer", key) is not None


def test_gc_waits_while_the_store_is_in_use(store: Store) -> None:
    """What a lock has fetched and not yet written down is not collected under its hands."""
    digest = put(store, b"fetched")
    with store.using():
        child = subprocess.Popen([sys.executable, "-c", COLLECTOR, str(store.root)])
        time.sleep(0.4)
        assert child.poll() is None
        assert store.holds(digest)
    assert child.wait(timeout=30) == 0
    assert not store.holds(digest)


def test_many_writers_and_collectors_at_once(store: Store) -> None:
    """Eight writers of the same and of other blobs beside two collectors: no error, no damaged blob."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER.replace('store.path(sha256(data), "x")', ""), str(store.root), str(n), "10"],
            stdout=subprocess.DEVNULL,
        )
        for n in range(8)
    ]
    collectors = [subprocess.Popen([sys.executable, "-c", COLLECTOR, str(store.root)]) for _ in range(2)]

    assert [child.wait(timeout=120) for child in [*writers, *collectors]] == [0] * 10
    assert store.verify(repair=False).broken == ()


def test_kill_9_while_adding_leaves_no_half_blob(store: Store) -> None:
    """Thirty writers killed at random moments: every blob is whole, and what they left is cleaned up."""
    randomness = random.Random(11)
    for turn in range(30):
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", WORKER, str(store.root), str(turn), "100000"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(randomness.uniform(0, 0.03))
        child.send_signal(signal.SIGKILL)
        child.communicate()

    assert store.verify(repair=False).broken == ()
    for turn in range(7):
        put(store, (b"%d" % turn) * 200000)
    store.gc({sha256((b"%d" % turn) * 200000) for turn in range(7)}, set())
    assert len(content(store.root)) == 7


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: root.symlink_to(root.parent), "the store is no folder (or a symbolic link)"),
        (lambda root: (root.mkdir(), root.chmod(0o777)), "the store can be written by others"),
        (lambda root: (root.mkdir(0o700), (root / "thesis").write_text("")), "this folder is not empty and no store"),
        (lambda root: root.write_text(""), "file exists"),
    ],
    ids=["link", "open to others", "somebody's folder", "a file"],
)  # fmt: skip
def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path, make, message: str) -> None:  # type: ignore[no-untyped-def]
    """What others can write proves nothing, and what is no store is not made one."""
    root = tmp_path / "store"
    make(root)

    with pytest.raises(StorageError) as caught:
        Store(root)

    assert message in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_user_s_store_is_refused(tmp_path: Path) -> None:
    """Root, too, does not trust blobs that another user may change."""
    root = tmp_path / "store"
    Store(root)
    os.chown(root, 12345, 12345)

    with pytest.raises(StorageError, match="the store belongs to another user"):
        Store(root)


def test_where_the_store_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """ENVLOCK_STORE, then ENVLOCK_CACHE_DIR, then XDG_CACHE_HOME, then the home folder."""
    for name in ("ENVLOCK_STORE", "ENVLOCK_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert default_root() == Path("/home/me/.cache/envlock/store")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_root() == Path("/home/me/.cache/envlock/store")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert default_root() == Path("/var/cache/me/envlock/store")
    monkeypatch.setenv("ENVLOCK_CACHE_DIR", "/c")
    assert default_root() == Path("/c/store")
    monkeypatch.setenv("ENVLOCK_STORE", "/s")
    assert default_root() == Path("/s")


def test_a_large_blob_passes_through_little_memory(store: Store, tmp_path: Path) -> None:
    """Adding and hashing 300 MB takes less than 64 MiB more than an idle interpreter."""
    program = """
import hashlib, json, resource, sys
from pathlib import Path
from envlock.digest import Digest
from envlock.store import Store
store = Store(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with open(sys.argv[2], "rb") as stream:
    store.add(stream, Digest.from_hex(sys.argv[3]), "x")
store.path(Digest.from_hex(sys.argv[3]), "x")
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""
    large = tmp_path / "large"
    with open(large, "wb") as stream:
        stream.truncate(300 << 20)
    with open(large, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    finished = subprocess.run(
        [sys.executable, "-c", program, str(store.root), str(large), digest], capture_output=True, check=True
    )

    assert json.loads(finished.stdout) < 64 << 10
