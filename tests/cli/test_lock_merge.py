"""`envlock lock --merge` as a person meets it: through Git, with its own words and codes."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
import samples
from program import Ended, environment, envlock

from envlock import lockfile, lockstore
from envlock.facts import value
from envlock.lockfile import Lockfile, PythonPackage, Rule

NAME = "lockfiles/sample.lock.toml"
DRIVER = f"{sys.executable} -m envlock lock --merge %O %A %B"

Change = Callable[[Lockfile], Lockfile]


def package(name: str, version: str) -> Change:
    """Return the change that puts a version of a package into a lockfile."""
    wheel = PythonPackage(
        name=name, version=version, index="default", file=f"{name}-{version}-py3-none-any.whl", size=10,
        sha256=samples.sha(f"{name} {version}"),
    )  # fmt: skip

    def change(lock: Lockfile) -> Lockfile:
        held = {**{each.name: each for each in lock.python}, name: wheel}
        changed = dataclasses.replace(lock, python=tuple(held[key] for key in sorted(held)))
        return dataclasses.replace(changed, image=None, goldens=())

    return change


def kernel(version: str) -> Change:
    return lambda lock: dataclasses.replace(lock, host=samples.host(changed={"system.kernel": value(version)}))


def rule(key: str, text: str) -> Change:
    def change(lock: Lockfile) -> Lockfile:
        held = {**{each.key: each for each in lock.policy}, key: Rule(key=key, rule=text)}
        return dataclasses.replace(lock, policy=tuple(held[name] for name in sorted(held)))

    return change


@dataclass
class Repository:
    """A Git repository with one lockfile, and Git with no configuration but the repository's own."""

    folder: Path
    home: Path

    @property
    def lock(self) -> Path:
        return self.folder / NAME

    def git(self, *arguments: str) -> Ended:
        people = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        kept = {name: text for name, text in environment().items() if not name.startswith(("GIT_", "XDG_"))}
        ended = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env={**kept, **people, "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def done(self, *arguments: str) -> str:
        ended = self.git(*arguments)
        assert ended.code == 0, ended.out + ended.err
        return ended.out

    def commit(self, *changes: Change, start: Lockfile | None = None) -> None:
        """Change the lockfile as it is, or as `start`, and commit it."""
        held = start or lockstore.read(self.lock)
        for change in changes:
            held = change(held)
        self.lock.parent.mkdir(exist_ok=True)
        self.lock.write_text(lockfile.render(held))
        self.done("add", "-A")
        self.done("commit", "-qm", "change")

    def branches(self, ours: Change, theirs: Change) -> None:
        """Commit `theirs` on the branch `theirs`, `ours` on `main`, which is then the one in use."""
        self.done("checkout", "-qb", "theirs")
        self.commit(theirs)
        self.done("checkout", "-q", "main")
        self.commit(ours)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    found = Repository(tmp_path / "project", tmp_path / "home")
    found.folder.mkdir()
    found.home.mkdir()
    found.done("init", "-qb", "main")
    found.done("config", "merge.envlock.driver", DRIVER)
    found.done("config", "merge.envlock.recursive", "binary")
    (found.folder / ".gitattributes").write_text("*.lock.toml text eol=lf merge=envlock\n")
    found.commit(start=samples.lock())
    return found


# ---- clean -----------------------------------------------------------------------------------


def test_git_merge_takes_both_sides(repository: Repository) -> None:
    """A package there; a fact and a rule here: one lockfile that reads, nothing left beside it."""
    repository.branches(lambda lock: rule("system.kernel", ">=6.1")(kernel("6.2")(lock)), package("rich", "14.1"))
    repository.done("merge", "-q", "theirs", "-m", "both")
    found = lockstore.read(repository.lock)

    assert [wheel.name for wheel in found.python] == ["numpy", "rich", "torch"]
    assert found.host == samples.host(changed={"system.kernel": value("6.2")})
    assert {each.key: each.rule for each in found.policy}["system.kernel"] == ">=6.1"
    assert not found.environment.merged
    assert repository.done("status", "--porcelain", "--ignored") == ""


def test_git_rebase_takes_both_sides(repository: Repository) -> None:
    """Packages of both: clean, and marked as never resolved together; Git shows our words."""
    repository.branches(package("rich", "14.1"), package("sympy", "1.14"))
    ended = repository.git("rebase", "theirs")
    found = lockstore.read(repository.lock)

    assert ended.code == 0, ended.err
    assert "nobody has resolved these packages as one set: `envlock lock` does" in ended.out + ended.err
    assert [wheel.name for wheel in found.python] == ["numpy", "rich", "sympy", "torch"]
    assert found.environment.merged
    assert repository.done("status", "--porcelain", "--ignored") == ""


def test_without_the_driver_git_would_have_made_a_lockfile_that_nobody_can_read(repository: Repository) -> None:
    """What the driver is for: merged as text, the same change does not fit its own inputs, and is refused."""
    repository.done("config", "--remove-section", "merge.envlock")
    repository.branches(package("zz", "14.1"), package("aa", "1.14"))
    repository.git("merge", "-q", "theirs", "-m", "both")
    ended = envlock("check", "-l", repository.lock)

    assert ended.code == 2
    assert "holds a merge conflict" in ended.err or "does not fit the file's content" in ended.err


def test_a_file_that_both_sides_added_is_merged_without_a_base(repository: Repository) -> None:
    """Git hands over an empty file as base."""
    repository.done("checkout", "-q", "--orphan", "other")
    repository.commit(package("rich", "14.1"), start=samples.lock())
    ended = repository.git("merge", "-q", "--allow-unrelated-histories", "main", "-m", "both")

    assert ended.code == 0, ended.out + ended.err
    assert [wheel.name for wheel in lockstore.read(repository.lock).python] == ["numpy", "rich", "torch"]


def test_a_history_that_crosses_is_merged(repository: Repository) -> None:
    """Two merge bases that themselves conflict: Git's inner merge leaves no markers for us to stumble over."""
    repository.branches(package("torch", "2.13.1"), package("torch", "2.13.2"))
    repository.done("branch", "left")
    repository.done("branch", "right", "theirs")
    for branch, other, also in (("main", "right", package("rich", "14.1")), ("theirs", "left", kernel("6.2"))):
        repository.done("checkout", "-q", branch)
        repository.git("merge", "-q", other, "-m", "cross")
        repository.commit(package("torch", "2.13.1"), also, start=samples.lock())
    assert len(repository.done("merge-base", "--all", "main", "theirs").split()) == 2
    ended = repository.git("merge", "-q", "main", "-m", "again")
    found = lockstore.read(repository.lock)

    assert ended.code == 0, ended.out + ended.err
    assert {wheel.name: wheel.version for wheel in found.python} == {
        "numpy": "2.4.6",
        "rich": "14.1",
        "torch": "2.13.1",
    }
    assert found.host == samples.host(changed={"system.kernel": value("6.2")})


def test_an_old_lockfile_is_merged_with_a_new_one(repository: Repository) -> None:
    """One side still has format version 1: it is brought to today's first, and the result is today's."""
    repository.done("checkout", "-qb", "theirs")
    old = lockfile.render(dataclasses.replace(kernel("6.2")(samples.lock()), policy_profile="default"))
    repository.lock.write_text(old.replace("lock-version = 2", "lock-version = 1"))
    repository.done("commit", "-qam", "old")
    repository.done("checkout", "-q", "main")
    repository.commit(package("rich", "14.1"))
    repository.done("merge", "-q", "theirs", "-m", "both")
    found = lockstore.read(repository.lock)

    assert (found.lock_version, found.policy_profile) == (2, "bits")
    assert found.host == samples.host(changed={"system.kernel": value("6.2")})


# ---- conflicts ---------------------------------------------------------------------------------


def test_git_reports_a_conflict_with_our_words(repository: Repository) -> None:
    """Exit 1, the file unmerged, markers around one block; settled by hand it is read by `lock`, and by no one else."""
    repository.branches(
        package("torch", "2.13.1"), lambda lock: package("rich", "14.1")(package("torch", "2.14.1")(lock))
    )
    ended = repository.git("merge", "theirs")
    text = repository.lock.read_text()

    assert ended.code == 1
    assert "conflict: python torch: base 2.13.0, ours 2.13.1, theirs 2.14.1\n" in ended.err
    assert "1 conflict: keep one side of each, then run `envlock lock`\n" in ended.err
    assert f"CONFLICT (content): Merge conflict in {NAME}" in ended.out
    assert repository.done("status", "--porcelain", NAME) == f"UU {NAME}\n"
    assert text.count("<<<<<<< ours\n") == 1
    assert 'name = "rich"' in text[: text.index("<<<<<<< ours")]
    refused = envlock("check", "-l", repository.lock)
    assert refused.code == 2
    assert "hint: resolve the conflict: keep one side of each marked part, then run `envlock lock`" in refused.err

    settled = text[: text.index("<<<<<<< ours")] + text[text.index("=======\n") + 8 :].replace(">>>>>>> theirs\n", "")
    found = lockfile.parse(settled.encode(), "x", edited=True)
    assert {wheel.name: wheel.version for wheel in found.python}["torch"] == "2.14.1"
    assert found.environment.merged


def test_a_conflict_stops_a_rebase(repository: Repository) -> None:
    """Git waits for a person, with the entry named."""
    repository.branches(kernel("6.2"), kernel("6.3"))
    ended = repository.git("rebase", "theirs")

    assert ended.code == 1
    assert "conflict: fact system.kernel: base 6.1.0-18-amd64, ours 6.3, theirs 6.2\n" in ended.err
    assert repository.done("status", "--porcelain", NAME) == f"UU {NAME}\n"


@pytest.mark.parametrize("branch", ["main", "theirs"])
def test_a_side_that_is_broken_is_named_and_our_file_stays(repository: Repository, branch: str) -> None:
    """Git marks the file as unmerged, and its content is ours to the byte."""
    repository.branches(kernel("6.2"), kernel("6.3"))
    repository.done("checkout", "-q", branch)
    repository.lock.write_text(repository.lock.read_text().replace("epoch = 1700000000", "epoch = 1.5"))
    repository.done("commit", "-qam", "broken")
    repository.done("checkout", "-q", "main")
    before = repository.lock.read_bytes()
    ended = repository.git("merge", "theirs")

    assert ended.code == 1
    side = "ours" if branch == "main" else "theirs"
    assert f"error: {side} (" in ended.err
    assert "unexpected type float (expected integer), at `environment.epoch`" in ended.err
    assert repository.lock.read_bytes() == before
    assert repository.done("status", "--porcelain", NAME) == f"UU {NAME}\n"


# ---- the command itself ------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """Return BASE, OURS and THEIRS under names such as Git gives."""
    paths = [tmp_path / f".merge_file_{name}" for name in ("base", "ours", "theirs")]
    for path, change in zip(paths, (kernel("6.1"), package("torch", "3"), package("torch", "4")), strict=True):
        path.write_text(lockfile.render(change(samples.lock())))
    return paths


def test_the_result_is_the_file_ours_and_nothing_else_is_left(three: list[Path]) -> None:
    """No temporary file, no lock beside a file that is Git's own; standard output, which may be Git's, is empty."""
    three[2].write_text(three[0].read_text())
    ended = envlock("lock", "--merge", *three)

    assert (ended.code, ended.out) == (0, ""), ended.err
    assert lockstore.read(three[1]).python[1].version == "3"
    assert sorted(path.name for path in three[0].parent.iterdir()) == sorted(path.name for path in three)


def test_a_named_lockfile_is_held_while_it_is_merged(tmp_path: Path, three: list[Path]) -> None:
    """By hand, into a lockfile that another envlock is writing: refused, nothing changed."""
    from envlock import files

    named = tmp_path / "x.lock.toml"
    named.write_bytes(three[1].read_bytes())
    with files.exclusive(named):
        ended = envlock("lock", "--merge", three[0], named, three[2])

    assert ended.code == 2
    assert "another envlock is writing this file" in ended.err
    assert named.read_bytes() == three[1].read_bytes()


def test_line_ends_of_another_system_are_no_difference(three: list[Path]) -> None:
    """A side with CRLF is what it says; the result has LF."""
    three[2].write_bytes(three[0].read_bytes().replace(b"\n", b"\r\n"))
    ended = envlock("lock", "--merge", *three)

    assert ended.code == 0, ended.err
    assert b"\r" not in three[1].read_bytes()


@pytest.mark.parametrize("spoilt", [0, 1, 2])
@pytest.mark.parametrize("data", [b"nonsense", b"lock-version = 99\n", b"\xff", b"<<<<<<< a\n=======\n>>>>>>> b\n"])
def test_any_broken_side_is_named_and_ours_is_untouched(three: list[Path], spoilt: int, data: bytes) -> None:
    """Exit 2, which Git takes for a conflict; the file is what it was."""
    three[spoilt].write_bytes(data)
    before = three[1].read_bytes()
    ended = envlock("lock", "--merge", *three)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {('base', 'ours', 'theirs')[spoilt]} ({three[spoilt]}): ")
    assert "Traceback" not in ended.err
    assert three[1].read_bytes() == before


def test_an_ancestor_that_git_made_up_with_a_conflict_says_what_is_missing(three: list[Path]) -> None:
    """A history that crosses, and a setup without its second line: the hint is that line."""
    three[0].write_text(three[0].read_text().replace("[base]", "<<<<<<< ours\n[base]\n=======\n>>>>>>> theirs", 1))
    before = three[1].read_bytes()
    ended = envlock("lock", "--merge", *three)

    assert ended.code == 2
    assert "hint: `git config merge.envlock.recursive binary` lets it make none; then merge again" in ended.err
    assert three[1].read_bytes() == before


@pytest.mark.parametrize("empty", [1, 2])
def test_an_empty_side_is_broken_but_an_empty_base_is_none(three: list[Path], empty: int) -> None:
    """Nothing in common is a way to begin; nothing on a side is a lost file."""
    three[0].write_bytes(b"")
    assert envlock("lock", "--merge", *three).code == 1
    three[1].write_text(lockfile.render(samples.lock()))
    three[empty].write_bytes(b"")
    ended = envlock("lock", "--merge", *three)

    assert ended.code == 2
    assert "is empty" in ended.err


def test_a_file_that_is_not_there_is_named(three: list[Path]) -> None:
    """A missing base is a slip: taken for an empty one, what was removed would come back in silence."""
    three[0].unlink()
    ended = envlock("lock", "--merge", *three)

    assert ended.code == 2
    assert f"error: {three[0]}: no such file" in ended.err


def test_the_conflicts_are_one_json_document(three: list[Path]) -> None:
    """The schema of the documentation holds, and a program needs no sentence."""
    ended = envlock("lock", "--merge", *three, "--format", "json", "-q")
    schema = json.loads((Path(__file__).parents[2] / "docs/schema/lock-merge-result.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(ended.document, schema)

    assert ended.code == 1
    assert ended.document["verdict"] == "drift"
    assert ended.document["conflicts"][0] == {
        "entry": "python torch", "base": "2.13.0", "ours": "3", "theirs": "4",
    }  # fmt: skip
    assert ended.err == "conflict: python torch: base 2.13.0, ours 3, theirs 4\n"


@pytest.mark.parametrize("option", ["--check", "--locked", "--frozen", "--upgrade", "--update-host"])
def test_merging_is_nothing_else(three: list[Path], option: str) -> None:
    """With another wish it is a usage error, and nothing is written."""
    before = three[1].read_bytes()
    ended = envlock("lock", option, "--merge", *three)

    assert ended.code == 2
    assert f"`--merge` and `{option}` contradict each other" in ended.err
    assert three[1].read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_3_and_ours_stays(three: list[Path]) -> None:
    """The disk is at fault, not a lockfile."""
    three[0].parent.chmod(0o500)
    ended = envlock("lock", "--merge", *three)
    three[0].parent.chmod(0o700)

    assert ended.code == 3
