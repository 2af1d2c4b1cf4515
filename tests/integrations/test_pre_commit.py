"""The hook for pre-commit, run by pre-commit itself."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from shipped import ROOT, run

HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def test_the_manifest_is_one() -> None:
    """By pre-commit's own reader."""
    ended = run([sys.executable, "-m", "pre_commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")], ROOT)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("envlock.toml", True),
        ("sub/envlock.toml", True),
        ("lockfiles/a.lock.toml", True),
        ("requirements-gpu.txt", True),
        ("pyproject.toml", True),
        ("README.md", False),
        ("notenvlock.toml.md", False),
        ("src/requirements.py", False),
    ],
)
def test_the_hook_runs_for_what_decides(path: str, expected: bool) -> None:
    """A change of the spec, a lockfile, or what a spec may name."""
    assert (re.search(HOOKS[0]["files"], path) is not None) is expected


def git(folder: Path, *arguments: str) -> None:
    settings = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True)


def clone_of_this_tree(folder: Path) -> Path:
    """Return a repository with the files of this working tree that are, or are about to be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode != 0:
        pytest.skip("not a Git working tree")
    for name in map(os.fsdecode, filter(None, listed.stdout.split(b"\0"))):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "tree")
    return folder


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pre_commit") is None, reason="pre-commit is not installed")
def test_pre_commit_runs_it(tmp_path: Path) -> None:
    """Installed by pre-commit from a repository of this tree: fresh passes, stale fails with the reason."""
    source, project = tmp_path / "envlock", tmp_path / "project"
    source.mkdir()
    (project / "lockfiles").mkdir(parents=True)
    clone_of_this_tree(source)
    shutil.copy2(ROOT / "examples/torch-cpu/envlock.toml", project)
    shutil.copy2(ROOT / "lockfiles/torch-cpu.lock.toml", project / "lockfiles")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "spec and lockfile")

    def hook() -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "pre_commit", "try-repo", str(source), HOOKS[0]["id"], "--all-files"]
        return run(argv, project, PRE_COMMIT_HOME=str(tmp_path / "home"))

    ended = hook()
    if re.search("No matching distribution|Could not fetch|connection", ended.stdout, re.IGNORECASE):
        pytest.skip("no index to install from")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Passed" in ended.stdout

    spec = project / "envlock.toml"
    spec.write_text(spec.read_text().replace("threads = 2", "threads = 4"))
    stale = hook()
    assert stale.returncode == 1
    assert "is stale" in stale.stdout
