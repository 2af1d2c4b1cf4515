"""The Debian base: exactly the locked packages, and nothing of the host."""

import dataclasses
import errno
import io
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from samples import lock as sample_lock
from worlds import EPOCH, Thing, deb, locked_debs, read_tar, tar_of

from envlock import files
from envlock.digest import sha256, sha256_file
from envlock.errors import CouldNotTell, IntegrityError, StorageError, ToolError
from envlock.image import bootstrap
from envlock.lock.needed import base_key
from envlock.lockfile import DebPackage, Lockfile
from envlock.store import Store


def lock_of(*debs: DebPackage) -> Lockfile:
    return dataclasses.replace(sample_lock(), apt=debs)


def status(*stanzas: tuple[str, str, str, str]) -> bytes:
    return "".join(
        f"Package: {name}\nStatus: {state}\nMaintainer: x\nArchitecture: {architecture}\nVersion: {version}\n\n"
        for name, state, architecture, version in stanzas
    ).encode()


OK = "install ok installed"
DEBS = (deb("a", "1.0"), deb("b", "2:3.0-1"))


def test_exactly_the_locked_packages_pass() -> None:
    """Name, version, architecture and state of each."""
    bootstrap.check_packages(status(("a", OK, "all", "1.0"), ("b", OK, "all", "2:3.0-1")), DEBS, "x")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (status(("a", OK, "all", "1.0")), "exactly the locked packages: b"),
        (status(("a", OK, "all", "1.0"), ("b", OK, "all", "3.0-1")), "exactly the locked packages: b"),
        (status(("a", OK, "amd64", "1.0"), ("b", OK, "all", "2:3.0-1")), "exactly the locked packages: a"),
        (status(("a", OK, "all", "1.0"), ("b", OK, "all", "2:3.0-1"), ("c", OK, "all", "1")), "packages: c"),
        (status(("a", "install ok unpacked", "all", "1.0")), "package a is not installed"),
        (b"", "exactly the locked packages: a, b"),
    ],
)
def test_a_tree_with_other_packages_is_refused(found: bytes, words: str) -> None:
    """A pin to a vanished version must never install the newest one in silence (autoware#6934)."""
    with pytest.raises(IntegrityError, match=words):
        bootstrap.check_packages(found, DEBS, "x")


def test_what_the_host_and_the_tool_leave_is_not_in_the_base(tmp_path: Path) -> None:
    """Sources, resolver, host name, logs, caches, device nodes, bytecode: gone; content stays."""
    left = [
        "etc/apt/sources.list", "etc/apt/sources.list.d/0000x.list", "etc/apt/apt.conf.d/99mmdebstrap",
        "etc/dpkg/dpkg.cfg.d/99mmdebstrap", "etc/hostname", "etc/resolv.conf", "etc/machine-id", "var/log/apt/term.log",
        "var/cache/ldconfig/aux-cache", "var/lib/dpkg/status-old", "var/cache/debconf/templates.dat",
        "usr/lib/python3.11/__pycache__/os.cpython-311.pyc", "var/lib/apt/extended_states", "dev/console",
    ]  # fmt: skip
    content = ["etc/apt/apt.conf.d/01autoremove", "usr/bin/x", "etc/ld.so.cache"]
    things = [Thing(f"./{name}", b"x", mtime=9) for name in [*left, *content]]
    tree = tmp_path / "tree.tar"
    tree.write_bytes(
        tar_of(Thing("./", None, 0o755), Thing("./var/lib/dpkg/status", status(("a", OK, "all", "1"))), *things)
    )
    with open(tree, "rb") as stream:
        made = b"".join(bootstrap.canonical_tree(stream.fileno(), lock_of(deb("a", "1"))))
    found = [entry.name.decode() for entry, _ in read_tar(made, tmp_path) if entry.kind == b"0"]

    assert found == sorted(["var/lib/dpkg/status", *content])


def test_the_key_is_over_what_decides_the_base() -> None:
    """Packages, epoch and platform; not the name of the environment, not the wheels."""
    lock = lock_of(*DEBS)
    other = dataclasses.replace(lock.environment, epoch=EPOCH + 1)

    assert base_key(lock) == base_key(dataclasses.replace(lock, python=(), files=()))
    assert base_key(lock) != base_key(lock_of(DEBS[0]))
    assert base_key(lock) != base_key(dataclasses.replace(lock, environment=other))


def test_without_mmdebstrap_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very command, and exit 3: it could not be told."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ToolError, match="`mmdebstrap` is not installed") as caught:
        bootstrap.base_tar(lock_of(*DEBS), Store(tmp_path / "store"))
    assert caught.value.hint == "on Debian or Ubuntu: `apt-get install mmdebstrap`"
    assert caught.value.exit_code == 3


def test_the_merged_usr_links_are_made_only_where_no_package_brings_them() -> None:
    """Debian 12 with `usr-is-merged`: yes. With `usrmerge`, or Debian 13: no."""
    twelve, thirteen = deb("base-files", "12.4+deb12u15"), deb("base-files", "13.8")
    merged = deb("usr-is-merged", "37")

    assert bootstrap._merged_usr((twelve, merged), "amd64") != []
    assert "lib64" not in bootstrap._merged_usr((twelve, merged), "arm64")[0]
    assert bootstrap._merged_usr((twelve, deb("usrmerge", "37")), "amd64") == []
    assert bootstrap._merged_usr((thirteen, merged), "amd64") == []


# ---- the real thing ----------------------------------------------------------------------


@pytest.mark.slow
def test_two_bootstraps_give_the_same_bytes(
    essential: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another store, umask, time zone, locale, home and temporary folder: one digest; and nothing stays behind."""
    digests = []
    for number, (umask, zone) in enumerate(((0o022, "UTC"), (0o077, "Asia/Tokyo"))):
        scratch = tmp_path / f"scratch{number}"
        scratch.mkdir()
        scratch.chmod(0o755)
        monkeypatch.setenv("TMPDIR", str(scratch))
        monkeypatch.setenv("TZ", zone)
        monkeypatch.setenv("HOME", f"/nonexistent{number}")
        monkeypatch.setenv("LC_ALL", ("C", "de_DE.UTF-8")[number])
        store = Store(tmp_path / f"store{number}")
        lock = lock_of(*locked_debs(essential, store))
        held = os.umask(umask)
        try:
            path = bootstrap.base_tar(lock, store)
        finally:
            os.umask(held)
        digests.append(sha256_file(path)[0])
        assert list(scratch.iterdir()) == []
        assert bootstrap.base_tar(lock, store) == path
    assert digests[0] == digests[1]
    text = path.read_bytes()
    for trace in (os.uname().nodename.encode(), b"envlock", b"/work", str(tmp_path).encode()):
        assert len(trace) < 6 or not re.search(rb"\b" + re.escape(trace) + rb"\b", text), trace


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even by one that finds the base in the store, and so makes none; a living process keeps its folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    left = tmp_path / f"envlock-base-{os.getppid()}-x"
    left.mkdir()
    store = Store(tmp_path / "store")
    lock = lock_of(*DEBS)
    held = store.add_derived(bootstrap.KIND, base_key(lock), io.BytesIO(b"base"))

    with files.temporary_folder(tmp_path, "envlock-base-") as living:
        assert bootstrap.base_tar(lock, store) == held
        assert (left.exists(), living.exists()) == (False, True)


def test_what_the_bootstrap_mounts_ends_with_it(tmp_path: Path) -> None:
    """A killed mmdebstrap leaves no /proc and /sys mounted in a tree that nobody can remove."""
    prefix = bootstrap._own_mounts()
    if not prefix:
        pytest.skip("this process may not have mounts of its own")
    (tmp_path / "m").mkdir()
    script = f"mount -t tmpfs none {tmp_path}/m && grep -c {tmp_path}/m /proc/self/mounts"
    seen = subprocess.run([*prefix, "sh", "-c", script], capture_output=True, text=True, check=True).stdout

    assert seen.strip() == "1"
    assert f"{tmp_path}/m" not in Path("/proc/self/mounts").read_text()


def test_a_full_disk_names_the_file_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that fails names two files: the one in the store is well."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed")

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(shutil, "copyfile", full)
    store = Store(tmp_path / "store")
    store.add(io.BytesIO(b"deb"), sha256(b"deb"), "a.deb")
    held = dataclasses.replace(deb("a", "1"), sha256=sha256(b"deb"), size=3)

    with pytest.raises(StorageError, match=rf"{tmp_path}/envlock-base-.*: no space left on device"):
        bootstrap.base_tar(lock_of(held), store)


def test_a_package_that_the_store_lacks_is_named(tmp_path: Path) -> None:
    """With what brings it there; nothing is fetched by `build`."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed")
    with pytest.raises(CouldNotTell, match=r"pool/main/a_1\.0_all\.deb: is not in the store") as caught:
        bootstrap.base_tar(lock_of(*DEBS), Store(tmp_path / "store"))
    assert caught.value.hint == "`envlock lock` fetches it"


@pytest.mark.skipif(
    shutil.which("dpkg-deb") is None or shutil.which("mmdebstrap") is None, reason="no dpkg-deb, mmdebstrap"
)
def test_a_package_that_is_another_one_is_refused(tmp_path: Path) -> None:
    """The bytes are right and the name is not: a lockfile edited by hand."""
    root = tmp_path / "pkg"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        "Package: real\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
    )
    (root / "DEBIAN").chmod(0o755)
    subprocess.run(
        ["dpkg-deb", "--build", "--root-owner-group", root, tmp_path / "real.deb"], capture_output=True, check=True
    )
    store = Store(tmp_path / "store")
    digest, size = sha256_file(tmp_path / "real.deb")
    with open(tmp_path / "real.deb", "rb") as stream:
        store.add(stream, digest, "real.deb")
    wrong = dataclasses.replace(deb("other", "1"), sha256=digest, size=size)

    with pytest.raises(IntegrityError, match=r"is not other 1 \(all\)"):
        bootstrap.base_tar(lock_of(wrong), store)
