"""Draining a node of Slurm, with a `scontrol` of our own on PATH."""

import os
from pathlib import Path

import pytest

from envlock import slurm
from envlock.errors import ToolError, UsageError

SCONTROL = """#!/bin/sh
printf '%s\\n' "$*" >>"$SCONTROL_LOG"
case $1 in
  show) printf 'NodeName=%s Arch=x86_64 State=%s ThreadsPerCore=1\\n' "$3" "$SCONTROL_STATE" ;;
  update) exit "${SCONTROL_STATUS:-0}" ;;
esac
"""


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real program `scontrol` that writes down how it was called; returns that file."""
    program = tmp_path / "bin/scontrol"
    program.parent.mkdir()
    program.write_text(SCONTROL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SCONTROL_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("SCONTROL_STATE", "IDLE")
    return tmp_path / "log"


def test_a_node_is_drained_with_its_reason(scontrol: Path) -> None:
    """The reason is one argument, whatever it holds."""
    assert slurm.drain("n001", "envlock: drift; $(id)") == "drained n001"
    assert scontrol.read_text().splitlines() == [
        "show node n001 -o",
        "update nodename=n001 state=drain reason=envlock: drift; $(id)",
    ]


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN*", "MIXED+DRAIN", "DRAINED", "FAILING"])
def test_a_node_out_of_service_keeps_its_reason(scontrol: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """Somebody took it away and said why: that is not written over."""
    monkeypatch.setenv("SCONTROL_STATE", state)
    assert slurm.drain("n001", "envlock: drift") == f"n001 is {state} already: left as it is"
    assert "update" not in scontrol.read_text()


@pytest.mark.parametrize("name", ["n[001-128]", "n001,n002", "ALL nodes", "", "-a", "n001 state=resume"])
def test_only_one_node_is_ever_named(scontrol: Path, name: str) -> None:
    """A name that could mean several nodes, or an option, is refused before anything runs."""
    with pytest.raises(UsageError, match="not the name of one node"):
        slurm.drain(name, "envlock: drift")
    assert not scontrol.exists()


def test_a_refusal_of_slurm_is_an_error(scontrol: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not said that a node was drained when it was not."""
    monkeypatch.setenv("SCONTROL_STATUS", "1")
    with pytest.raises(ToolError, match="`scontrol` failed with status 1"):
        slurm.drain("n001", "envlock: drift")


def test_no_slurm_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a hint."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="`scontrol` is not installed"):
        slurm.drain("n001", "envlock: drift")


def test_a_dry_run_says_the_command_as_a_shell_takes_it() -> None:
    """Quoted, so that it can be copied."""
    assert slurm.dry("n001", "envlock: it's") == (
        "would run: scontrol update nodename=n001 state=drain 'reason=envlock: it'\"'\"'s'"
    )
