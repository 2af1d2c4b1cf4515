"""What `make bench` measures is what its row says."""

import os
from datetime import date
from pathlib import Path

import pytest
from fakes.compiler import compiler

from bench import locks, nvml
from envlock import lockstore


def test_rows_after_the_gpus_are_about_this_machine(tmp_path: Path) -> None:
    """A row that simulates GPUs leaves no variable behind with which the next row would see them."""
    compiler()
    before = dict(os.environ)

    lock, environment = nvml.prepare("on", tmp_path)

    assert dict(os.environ) == before
    assert "attach=90000" in Path(environment["ENVLOCK_FAKE_NVML"]).read_text()
    host = lockstore.read(lock).host
    assert host is not None
    assert sum(group.count for group in host.gpus) == 8


def test_check_is_measured_on_a_lockfile_of_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lockfile that `check` reads is made from this host as it is now: it matches."""
    from envlock import checks
    from envlock.policy import policy_of_lock

    monkeypatch.delenv("ENVLOCK_NVML_LIBRARY", raising=False)
    lock = lockstore.read(locks.of_this_host(tmp_path / "host.lock.toml"))

    comparison, _ = checks.check(lock, policy_of_lock(lock, "host"), None, None, date(2026, 1, 1))

    assert comparison.verdict.exit_code == 0
