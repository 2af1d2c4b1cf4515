"""What the tests of the shipped integrations share: a program on a path, lockfiles, and a command of theirs."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cli.program import environment
from samples import gpu_facts, host, lock

from envlock import lockfile
from envlock.difference import locked_part
from envlock.lockfile import host_of
from envlock.probe import probe
from envlock.registry import REGISTRY

ROOT = Path(__file__).resolve().parents[2]
INTEGRATIONS = ROOT / "integrations"
INSTALLED = "/usr/local/bin/envlock"
NODE_LOCK = "/etc/envlock/node.lock.toml"


def program(folder: Path) -> Path:
    """Return a program `envlock` of its own folder: this very checkout."""
    path = folder / "bin/envlock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m envlock "$@"\n')
    path.chmod(0o755)
    return path


def lock_of_this_host(folder: Path) -> Path:
    """Return a lockfile that this host matches."""
    facts, gpus = locked_part(probe(), REGISTRY)
    path = folder / "this.lock.toml"
    path.write_text(lockfile.render(lock(host_of(facts, [dict(gpu.facts) for gpu in gpus]))))
    return path


def lock_of_another_host(folder: Path) -> Path:
    """Return a lockfile that no host of ours matches."""
    path = folder / "other.lock.toml"
    path.write_text(lockfile.render(lock(host([gpu_facts()]))))
    return path


def here(text: str, envlock: Path, locked: Path) -> str:
    """Return a command line of an integration with the places of a node replaced by those of this test."""
    assert INSTALLED in text
    return text.replace(INSTALLED, str(envlock)).replace(NODE_LOCK, str(locked))


def run(argv: list[str] | str, cwd: Path, **changed: str) -> "subprocess.CompletedProcess[str]":
    """Run a command, a text by bash, in `cwd` and return how it ended."""
    command = ["bash", "-c", argv] if isinstance(argv, str) else argv
    return subprocess.run(
        command, cwd=cwd, env=_bare(changed), capture_output=True, text=True, check=False, timeout=300
    )


def _bare(changed: Mapping[str, str]) -> dict[str, str]:
    steering = ("GITHUB_", "RUNNER_", "CI_", "SLURM")
    kept = {name: text for name, text in environment().items() if not name.startswith(steering)}
    return {**kept, **changed}
