"""Lockfiles of format version 1, as envlock wrote them then: read by their own rules, and what they were."""

import dataclasses
import re
from pathlib import Path

import pytest
import samples

from envlock import lockfile, lockstore
from envlock.digest import Digest
from envlock.errors import LockfileError
from envlock.lockfile.migrating import STEPS, migrated

OLD = Path(__file__).parents[1] / "data" / "lockfiles"
TORCH = OLD / "torch-cpu-1.lock.toml"
GPUS = OLD / "gpu-node-1.lock.toml"


@pytest.mark.parametrize("path", [TORCH, GPUS], ids=["torch-cpu", "gpu-node"])
def test_an_old_lockfile_keeps_its_inputs_its_image_and_its_goldens(path: Path) -> None:
    """What was built and recorded stays valid: nothing that decides the image moves."""
    text = path.read_text()
    found = lockfile.parse(path.read_bytes(), "x")

    assert f'inputs = "{found.inputs()}"' in text
    assert found.image is not None
    assert len(found.goldens) == 1
    assert (found.lock_version, found.policy_profile) == (1, "bits")


@pytest.mark.parametrize("path", [TORCH, GPUS], ids=["torch-cpu", "gpu-node"])
def test_an_old_lockfile_is_written_in_today_s_format_and_differs_in_two_lines(path: Path) -> None:
    """The version and the profile's name; whoever reviews it sees nothing else."""
    found = lockfile.parse(path.read_bytes(), "x")
    text = lockfile.render(found)
    before, after = path.read_text().splitlines(), text.splitlines()

    assert [(old, new) for old, new in zip(before, after, strict=True) if old != new] == [
        ("lock-version = 1", "lock-version = 2"),
        ('profile = "default"', 'profile = "bits"'),
    ]
    assert lockfile.parse(text.encode(), "x") == found


def test_migrating_changes_no_document_that_it_was_given() -> None:
    """A step returns a new document; the old one can be shown beside it."""
    document = {"lock-version": 1, "policy": {"profile": "default"}}
    found, version = migrated(document, "x")

    assert version == 1
    assert found == {"lock-version": 2, "policy": {"profile": "bits"}}
    assert document == {"lock-version": 1, "policy": {"profile": "default"}}


def test_there_is_one_step_for_each_older_version() -> None:
    """Whoever raises the version writes the way to it."""
    assert sorted(STEPS) == list(range(1, lockfile.LOCK_VERSION))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"gpu.ecc" = {rule = "exact", severity = "error"',
            '"gpu.ecc" = {rule = "exact", severity = "error", reason = "x", waived-until = "2030-01-01"',
            'unknown key, at `policy.rules."gpu.ecc".waived-until`',
        ),
        ("epoch = ", "merged = true\nepoch = ", "unknown key, at `environment.merged`"),
        ("epoch = ", "merged = 7\nepoch = ", "unknown key, at `environment.merged`"),
    ],
)
def test_a_key_that_version_1_did_not_have_is_unknown_in_it(old: str, new: str, message: str) -> None:
    """A file that says version 1 is held to version 1: its key would mean nothing to an envlock of that time."""
    text = GPUS.read_text()
    assert old in text
    with pytest.raises(LockfileError) as caught:
        lockfile.parse(text.replace(old, new, 1).encode(), "x")

    assert str(caught.value) == f"x: {message}"
    assert caught.value.hint == "it came with format version 2, and this file says that it is version 1"


@pytest.mark.parametrize(
    "line", ["environment = 1", "policy = []", "policy = {rules = 3}", "policy = {rules = {a = 1}, profile = 3}"]
)
def test_a_broken_old_lockfile_is_refused_by_the_reader_not_by_the_step(line: str) -> None:
    """Whatever shape a document has, the answer is a sentence."""
    with pytest.raises(LockfileError, match="x: "):
        lockfile.parse(f"lock-version = 1\n{line}\n".encode(), "x")


@pytest.mark.parametrize("rest", ["", "environment = 1.5\n", "[future]\nday = 2026-01-01\n", "[[python]]\nname = 1\n"])
def test_a_newer_version_is_refused_before_any_other_complaint(rest: str) -> None:
    """What the future puts into its tables is not ours to judge."""
    with pytest.raises(LockfileError) as caught:
        lockfile.parse(f"lock-version = 3\n{rest}".encode(), "x")

    assert str(caught.value) == "x: format version 3 is newer than this envlock reads (2), at `lock-version`"
    assert caught.value.exit_code == 2
    assert (caught.value.hint or "").startswith("use a newer envlock than this one (")


def test_writing_an_old_lockfile_says_that_its_bytes_change(tmp_path: Path) -> None:
    """The next writer brings it to today's format; the one after finds nothing to do."""
    path = tmp_path / "x.lock.toml"
    path.write_bytes(TORCH.read_bytes())
    with lockstore.editing(path) as held:
        assert lockstore.write(path, held)
    with lockstore.editing(path) as held:
        assert not lockstore.write(path, held)
        assert held.lock_version == 2


# ---- what a hand or a merge of text left ---------------------------------------------------


def test_a_writer_takes_what_no_longer_fits_as_merged_without_its_results() -> None:
    """The image and the goldens were another content's; the packages are nobody's until they are resolved."""
    lock = samples.lock()
    text = re.sub(r"(?m)^inputs = .*$", f'inputs = "{samples.sha("other")}"', lockfile.render(lock))
    found = lockfile.parse(text.encode(), "x", edited=True)

    assert found == dataclasses.replace(
        lock, environment=dataclasses.replace(lock.environment, merged=True), image=None, goldens=()
    )
    with pytest.raises(LockfileError, match="does not fit the file's content"):
        lockfile.parse(text.encode(), "x")


def test_a_writer_reads_what_fits_as_it_is() -> None:
    """Nothing is marked that nobody touched."""
    lock = samples.lock()

    assert lockfile.parse(lockfile.render(lock).encode(), "x", edited=True) == lock
    assert isinstance(lock.inputs(), Digest)
