"""`lock` end to end against a signed archive and an index of our own."""

import dataclasses
import re
from pathlib import Path

import pytest
import samples
from lock_project import Site

from envlock import lockfile
from envlock.digest import sha256
from envlock.errors import CouldNotTell, IntegrityError, NetworkError, SpecError, StorageError, UsageError
from envlock.facts import Facts, absent, value
from envlock.lock import archive, fetch
from envlock.lockfile import DebPackage, Lockfile, PythonPackage, Rule


def packages(lock: Lockfile) -> list[DebPackage | PythonPackage]:
    return [*lock.apt, *lock.python]


def versions(lock: Lockfile) -> dict[str, str]:
    return {package.name: package.version for package in packages(lock)}


def test_the_whole_set_is_locked_and_in_the_store(site: Site) -> None:
    """Essential packages, what was asked for, what that needs; nothing recommended, nothing for other systems."""
    lock = site.lock()

    assert versions(lock) == {
        "base-files": "12",
        "dash": "0.5",
        "libc6": "2.36-9",
        "usr-is-merged": "37",
        "python3.11": "3.11.2-6",
        "tool": "1.0-1",
        "tool-data": "1.0-1",
        "app": "1.0",
        "lib": "1.1",
    }
    for package in packages(lock):
        path = site.store.path(package.sha256, package.name)
        assert path.stat().st_size == package.size
    assert lockfile.parse(lockfile.render(lock).encode(), "x") == lock


def test_no_address_reaches_the_lockfile(site: Site) -> None:
    """Neither the mirror's host nor its port, nor a path of this machine."""
    text = lockfile.render(site.lock())

    for secret in ("127.0.0.1", str(site.server.port), str(site.folder), "http"):
        assert secret not in text


def test_locking_again_asks_no_network_and_changes_no_byte(site: Site) -> None:
    """What is locked stays locked, whatever has appeared since."""
    first = site.lock()
    site.index.wheel("lib", "1.2")
    site.archive.deb("libc6", "2.36-10")
    site.archive.publish()
    site.server.seen.clear()

    assert lockfile.render(site.lock(previous=first)) == lockfile.render(first)
    assert site.server.seen == []


def test_a_changed_spec_moves_nothing_it_need_not_move(site: Site) -> None:
    """With a new requirement the old versions are preferred, Debian's and Python's."""
    first = site.lock()
    site.index.wheel("lib", "1.2")
    site.index.wheel("more", "3.0")
    site.archive.deb("libc6", "2.36-10")
    site.archive.publish()

    found = site.lock(('["app"]', '["app", "more"]'), previous=first)

    assert versions(found) == {**versions(first), "more": "3.0"}
    assert found.inputs() != first.inputs()


def test_upgrade_moves_everything(site: Site) -> None:
    """`--upgrade` takes what is newest now."""
    first = site.lock()
    site.index.wheel("lib", "1.2")
    site.archive.deb("libc6", "2.36-10", suite="bookworm-security")
    site.archive.publish()

    found = site.lock(previous=first, upgrade=True)

    assert (versions(found)["lib"], versions(found)["libc6"]) == ("1.2", "2.36-10")
    assert next(deb for deb in found.apt if deb.name == "libc6").file.startswith("pool/updates/")


def test_upgrade_package_moves_only_that_one(site: Site) -> None:
    """One name, Debian's or Python's, and all others stay."""
    first = site.lock()
    site.index.wheel("lib", "1.2")
    site.archive.deb("libc6", "2.36-10")
    site.archive.publish()

    python = site.lock(previous=first, upgrade_packages=frozenset({"lib"}))
    debian = site.lock(previous=first, upgrade_packages=frozenset({"libc6"}))

    assert versions(python) == {**versions(first), "lib": "1.2"}
    assert versions(debian) == {**versions(first), "libc6": "2.36-10"}


def test_upgrading_a_package_that_is_not_locked_is_an_error(site: Site) -> None:
    """A slip of the pen would otherwise upgrade nothing, silently."""
    first = site.lock()

    with pytest.raises(UsageError, match="no package 'libb' is locked"):
        site.lock(previous=first, upgrade_packages=frozenset({"libb"}))


def test_a_version_gone_from_the_archive_is_kept_while_the_store_has_it(site: Site) -> None:
    """A mirror that moved on forces nothing: the locked package is still at hand."""
    first = site.lock()
    site.archive.withdraw("libc6", "2.36-9")
    site.archive.deb("libc6", "2.36-10")
    site.archive.publish()
    site.index.wheel("more", "3.0")

    found = site.lock(('["app"]', '["app", "more"]'), previous=first)

    assert versions(found)["libc6"] == "2.36-9"
    assert found.apt == first.apt


def test_a_version_gone_from_everywhere_is_named(site: Site) -> None:
    """Never a newer one silently: the error says which package, and what to type."""
    first = site.lock()
    site.archive.withdraw("libc6", "2.36-9")
    site.archive.deb("libc6", "2.36-10")
    site.archive.publish()
    site.store.gc(set(), set())

    with pytest.raises(NetworkError, match=r"no longer in the archive: libc6 2.36-9 \(now 2.36-10\)"):
        site.lock(("[python]", "[determinism]\nthreads = 3\n[python]"), previous=first)
    with pytest.raises(fetch.GoneError, match=r"no mirror of this host has: libc6 2.36-9") as caught:
        site.lock(previous=first)

    assert "--upgrade-package" in (caught.value.hint or "")
    assert caught.value.exit_code == 3


def test_a_wheel_gone_from_the_index_is_named(site: Site) -> None:
    """The same for Python: a preferred version that vanished does not move in silence."""
    first = site.lock()
    site.index.remove(site.index.root / "files" / "lib-1.1-py3-none-any.whl")
    site.store.gc(set(), set())

    with pytest.raises(fetch.GoneError, match=r"no index of this host has: lib 1.1"):
        site.lock(previous=first)
    with pytest.raises(NetworkError, match=r"no longer in the index: lib 1.1 \(now 1.0\)"):
        site.lock(("[python]", "[determinism]\nthreads = 3\n[python]"), previous=first)


def test_a_seed_s_versions_are_wishes(site: Site) -> None:
    """What another lockfile has is taken while it can be had; what is gone is told and replaced."""
    seed = site.lock()
    site.index.wheel("lib", "1.2")
    assert versions(site.lock(seed=seed)) == versions(seed)

    site.archive.withdraw("libc6", "2.36-9")
    site.archive.deb("libc6", "2.36-10")
    site.archive.publish()
    site.store.gc(set(), set())
    site.said.clear()
    found = site.lock(seed=seed)

    assert versions(found) == {**versions(seed), "libc6": "2.36-10"}
    assert any("no longer in the archive: libc6 2.36-9 (now 2.36-10)" in line for line in site.said)


def test_offline_uses_the_store_even_for_a_changed_spec(site: Site) -> None:
    """Without a network what is at hand is resolved from; nothing is asked."""
    first = site.lock()
    site.server.seen.clear()

    same = site.lock(previous=first, offline=True)
    changed = site.lock(('["python3.11", "tool"]', '["python3.11"]'), previous=first, offline=True)

    assert same == first
    assert versions(changed) == {
        name: version for name, version in versions(first).items() if name not in ("tool", "tool-data")
    }
    assert site.server.seen == []


def test_offline_says_what_is_missing(site: Site) -> None:
    """An empty store, or a requirement it cannot satisfy: exit 3, with the names."""
    first = site.lock()

    with pytest.raises(CouldNotTell, match="without a network there is only what the store holds"):
        site.lock(('["app"]', '["app", "more"]'), previous=first, offline=True)
    site.store.gc(set(), set())
    with pytest.raises(CouldNotTell, match=r"not in the store: base-files 12, dash 0\.5, libc6 2\.36-9"):
        site.lock(previous=first, offline=True)


def test_goldens_and_image_stay_while_the_inputs_are_equal(site: Site) -> None:
    """A relock that changes nothing in the image keeps its digest and its goldens; another drops them, and says so."""
    sample = samples.lock()
    first = dataclasses.replace(site.lock(), image=sample.image, goldens=sample.goldens)

    kept = site.lock(("[python]", '[policy.rules]\n"cpu.architecture" = { rule = "ignore" }\n[python]'), previous=first)
    assert (kept.image, kept.goldens) == (first.image, first.goldens)

    site.said.clear()
    dropped = site.lock(("[python]", "[determinism]\nthreads = 3\n[python]"), previous=first)
    assert (dropped.image, dropped.goldens) == (None, ())
    assert any(line.startswith("the inputs have changed: dropped the image digest") for line in site.said)


def test_the_host_is_kept_until_it_is_asked_for(site: Site) -> None:
    """Relocking on a laptop does not make the laptop the golden host."""
    first = dataclasses.replace(site.lock(), host=samples.host())

    assert site.lock(previous=first).host == samples.host()
    assert site.lock(previous=first, update_host=True).host != samples.host()


def test_a_fact_that_was_hidden_is_allowed_by_name(site: Site) -> None:
    """What could not be observed when locking is in the policy with its reason: nothing passes silently."""
    rules = {rule.key: rule for rule in site.lock().policy}

    assert rules["cpu.microcode"].unknown == "allow"
    assert "hidden when it was locked" in rules["cpu.microcode"].reason
    assert rules["cpu.architecture"].unknown == "error"


def test_the_spec_s_rules_win_over_the_registry_s(site: Site) -> None:
    """And a rule for a fact that does not exist is a slip of the pen."""
    rule = '[policy.rules]\n"cpu.architecture" = { rule = "ignore", severity = "warning" }\n[python]'

    assert Rule(key="cpu.architecture", rule="ignore", severity="warning") in site.lock(("[python]", rule)).policy
    with pytest.raises(UsageError, match="no such fact"):
        site.lock(("[python]", rule.replace("cpu.architecture", "cpu.architectur")))


def test_a_waiver_that_has_ended_is_not_written(site: Site) -> None:
    """It would be an error in every check: the spec is named, with its key and what to do."""
    rule = '[policy.rules]\n"cpu.architecture" = { rule = "exact", reason = "x", waived-until = DAY }\n[python]'

    kept = site.lock(("[python]", rule.replace("DAY", "2026-11-30")))
    assert {held.key: held.until for held in kept.policy}["cpu.architecture"] == "2026-11-30"
    with pytest.raises(SpecError) as caught:
        site.lock(("[python]", rule.replace("DAY", "2026-11-29")))
    assert str(caught.value).endswith(
        'the waiver ended on 2026-11-29, at `policy.rules."cpu.architecture".waived-until`'
    )
    assert "a later day" in (caught.value.hint or "")


def test_the_strict_profile_allows_nothing_and_says_what_will_be_unknown(site: Site) -> None:
    """Every rule is an error, and what was hidden is named, so that a person can allow it."""
    found = site.lock(("[python]", '[policy]\nprofile = "strict"\n[python]'))

    assert found.policy_profile == "strict"
    assert {(rule.severity, rule.unknown) for rule in found.policy} == {("error", "error")}
    (said,) = [line for line in site.said if line.startswith("warning: not known of the golden host")]
    assert "allowed by no rule: cpu.microcode;" in said


def test_what_no_check_can_find_is_named_once(site: Site) -> None:
    """A fact that can change bits and was not told is allowed by name: who locks is told, unless the spec says so."""
    told = "not known of this host, so no check can hold another one against it: cpu.microcode"
    first = site.lock()
    assert [line for line in site.said if line == told]
    site.said.clear()
    site.lock(previous=first)
    assert told not in site.said
    rule = '[policy.rules]\n"cpu.microcode" = {rule = "exact", unknown = "allow"}\n[python]'
    site.lock(("[python]", rule))
    assert told not in site.said


def test_a_warning_about_the_host_is_said_when_it_is_observed(site: Site) -> None:
    """A driver that gave no answer is told loudly, and once: not when the host is kept."""
    count = {"nvidia.gpu_count": absent("failed", detail="NVML: driver not loaded")}
    first = site.lock(probed=Facts({"cpu.architecture": value("x86_64"), **count}))
    told = "warning: this host may have GPUs, and the driver did not say how many (NVML: driver not loaded)"

    assert [line for line in site.said if line.startswith(told)]
    assert {rule.key: rule.unknown for rule in first.policy}["nvidia.gpu_count"] == "error"
    site.said.clear()
    site.lock(previous=first)
    assert not [line for line in site.said if line.startswith(told)]
    assert [line for line in site.said if "allowed by no rule: nvidia.gpu_count;" in line]


def test_files_are_hashed_where_they_lie(site: Site) -> None:
    """A model's digest and size are locked; a missing one is named."""
    table = '[[file]]\nsource = "model.bin"\npath = "/opt/model.bin"\n'
    (site.folder / "model.bin").write_bytes(b"weights")

    lock = site.lock(("[python]", table + "[python]"))

    assert (lock.files[0].size, lock.files[0].sha256) == (7, sha256(b"weights"))
    (site.folder / "model.bin").unlink()
    with pytest.raises(SpecError, match=r"no such file: 'model.bin', at `file.source`"):
        site.lock(("[python]", table + "[python]"))


def test_a_mirror_that_serves_other_bytes_is_exit_4(site: Site) -> None:
    """A package altered on the way is named; nothing of it is stored."""
    path = next(site.archive.root.glob("debian/pool/main/tool/*.deb"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")

    with pytest.raises(IntegrityError, match=r"the mirrors serve other bytes than were locked: tool 1.0-1") as caught:
        site.lock()

    assert caught.value.exit_code == 4


def test_an_index_that_serves_other_bytes_is_exit_4(site: Site) -> None:
    """The same for a wheel."""
    site.server.replaced["/files/lib-1.1-py3-none-any.whl"] = b"evil"

    with pytest.raises(IntegrityError, match=r"lib-1.1-py3-none-any.whl: has digest sha256:"):
        site.lock()


def test_an_unsigned_or_foreign_index_is_refused(site: Site) -> None:
    """Without a good signature nothing is believed, and the lockfile is not written."""
    site.archive.publish(sign=False)

    with pytest.raises(NetworkError, match="the Debian indexes cannot be fetched and verified"):
        site.lock()


def test_an_expired_index_asks_about_the_clock(site: Site) -> None:
    """An index past its time is refused, and the hint names both causes (debuerreotype#201)."""
    site.archive.publish(until="Fri, 02 Jan 2026 00:00:00 UTC")

    with pytest.raises(NetworkError, match="expired") as caught:
        site.lock()
    assert caught.value.hint is not None
    assert "is this host's clock right" in caught.value.hint


def test_an_altered_package_list_is_refused(site: Site) -> None:
    """The list must fit the signed hashes (rules_distroless#253)."""
    path = site.archive.root / "debian/dists/bookworm/main/binary-amd64/Packages"
    path.write_text(path.read_text().replace("Depends: libc6\n", "Depends: libc5\n"))

    with pytest.raises(NetworkError, match="cannot be fetched and verified"):
        site.lock()


def test_the_platform_of_the_spec_decides(site: Site) -> None:
    """arm64 is locked on any host, with its own packages."""
    site.archive.deb("base-files", "12", architecture="arm64", Essential="yes", Depends="libc6")
    site.archive.deb("dash", "0.5", architecture="arm64", Essential="yes")
    for name, version in (("libc6", "2.36-9"), ("python3.11", "3.11.2-6"), ("tool", "2")):
        site.archive.deb(name, version, architecture="arm64")
    site.archive.publish()

    lock = site.lock(('name = "small"', 'name = "small"\nplatform = "linux/arm64"'))

    assert {deb.architecture for deb in lock.apt} == {"arm64", "all"}
    assert versions(lock)["tool"] == "2"


@pytest.mark.parametrize("path", ["/usr/bin/python3.12", "/usr/bin/python3"])
def test_an_interpreter_that_no_package_brings_is_named(site: Site, path: str) -> None:
    """A suite without this Python: told when locking, not when the image fails to build."""
    says = f"no locked package brings Python 3.12 as '{path}', at `python.interpreter`"
    with pytest.raises(SpecError, match=re.escape(says)):
        site.lock(('version = "3.11"', f'version = "3.12"\ninterpreter = "{path}"'))


def test_apt_is_not_asked_where_it_could_write_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk its index reader waits without an end: told at once instead."""
    monkeypatch.setattr(archive, "_LEAST_ROOM", 1 << 62)

    with pytest.raises(StorageError, match="no space left on device"):
        site.lock()


@pytest.mark.parametrize(
    "said",
    [b"E: Write error - write (28: No space left on device)\n", b"E: IO Error saving source cache\n"],
)
def test_a_disk_that_fills_up_under_apt_is_no_fault_of_the_mirror(said: bytes, tmp_path: Path) -> None:
    """What apt 2.6 says on a full disk: the hint is about space, not about the network."""
    fault = archive.refused(said, tmp_path)

    assert (type(fault), fault.hint) == (StorageError, "free some space on this disk, then run this again")
    assert isinstance(archive.refused(b"E: Failed to fetch", tmp_path), NetworkError)
