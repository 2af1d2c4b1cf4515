"""The whole probe: complete, quiet about nothing, and never raising."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from recorded_host import RecordedHost, cpuinfo, pci_gpu

from envlock.errors import UsageError
from envlock.facts import FAILED, NO_PERMISSION, NOT_SUPPORTED, Facts, absent
from envlock.probe import probe
from envlock.probe.host import Host, deferred, observe
from envlock.registry import GPU, HOST, in_scope

HOST_KEYS = [entry.key for entry in in_scope(HOST)]


def test_this_host_reports_every_fact() -> None:
    """Every registered fact is there, in registry order, with a value or a reason."""
    facts = probe()

    assert list(facts.host) == HOST_KEYS
    for gpu in facts.gpus():
        assert list(gpu.facts) == [entry.key for entry in in_scope(GPU)]
    assert [key for key, seen in facts.host.items() if not seen.has_value and not seen.detail] == []


def test_this_host_has_no_fault_of_envlock() -> None:
    """No reader breaks, and none forgets a fact."""
    assert [key for key, seen in probe().host.items() if "a fault of envlock" in seen.detail] == []


def test_facts_of_this_host_can_be_read_back() -> None:
    """The document gives the same facts when it is read."""
    facts = probe()
    again = Facts.from_document(facts.to_document(), "test")

    assert again.to_document() == facts.to_document()
    assert again.digest() == facts.digest()


def test_recorded_tree_holds_files_and_no_calls(tmp_path: Path) -> None:
    """A tree elsewhere gives its files; what would have been a call fails, and is not taken from this machine."""
    RecordedHost(tmp_path, {"/proc/cpuinfo": cpuinfo(3), **pci_gpu()})

    facts = probe(tmp_path)

    assert facts.host["cpu.threads"].value == 3
    assert facts.host["system.libc"] == absent(FAILED)
    assert facts.host["python.version"].detail == "not part of this recorded host"
    assert [gpu.facts["gpu.pci_id"].value for gpu in facts.gpus()] == ["10de:2330"]


def test_empty_tree_is_all_absent(tmp_path: Path) -> None:
    """A host of which nothing can be read has no value at all, and not a single "0 GPUs"."""
    facts = probe(tmp_path)

    assert [key for key, seen in facts.host.items() if seen.has_value] == []
    assert facts.host["nvidia.gpu_count"].outcome == FAILED
    assert {key for key, seen in facts.host.items() if seen.outcome == NOT_SUPPORTED} == {
        "container.containerd", "container.engine", "container.engine_version", "container.runc",
    }  # fmt: skip


class Broken(Host):
    """A host on which every call and file raises what no reader expects."""

    def read(self, path: str) -> str:
        raise RuntimeError("broken")

    def names(self, path: str) -> tuple[str, ...]:
        raise RuntimeError("broken")

    def exists(self, path: str) -> bool:
        raise RuntimeError("broken")

    def program(self, name: str) -> str | None:
        raise RuntimeError("broken")

    def machine(self) -> str:
        raise RuntimeError("broken")

    libc = machine

    def python(self) -> tuple[str, str]:
        raise RuntimeError("broken")


def test_reader_that_breaks_is_a_failed_fact(tmp_path: Path) -> None:
    """A fault of envlock itself is a failure of its facts, in words, and no exception."""
    facts = probe(host=Broken(tmp_path))

    assert list(facts.host) == HOST_KEYS
    assert {seen.outcome for seen in facts.host.values()} == {FAILED}
    assert facts.host["nvidia.gpu_count"].detail == "a fault of envlock: RuntimeError: broken"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_said(tmp_path: Path) -> None:
    """A file that this user may not read is "no permission"."""
    host = RecordedHost(tmp_path, {"/proc/meminfo": "MemTotal: 1 kB\n"})
    (tmp_path / "proc/meminfo").chmod(0)

    assert probe(host=host).host["system.memory"].outcome == NO_PERMISSION


def test_file_that_may_not_be_read_is_no_permission() -> None:
    """A refusal of the kernel is told from a missing file and from a broken one."""

    def refuse() -> str:
        raise PermissionError(13, "Permission denied")

    def missing() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    def broken() -> str:
        raise OSError(5, "Input/output error")

    assert observe("f", refuse) == absent(NO_PERMISSION)
    assert observe("f", missing) == absent(FAILED)
    assert observe("f", missing, NOT_SUPPORTED, "a kernel without it").detail == "a kernel without it"
    assert observe("f", broken).detail == "input/output error"


def test_deferred_failure_is_raised_when_it_is_waited_for() -> None:
    """What fails to start is a failure of the answer."""

    def start() -> Callable[[], str]:
        raise OSError(5, "no")

    wait = deferred(start)
    with pytest.raises(OSError, match="no"):
        wait()


def test_only_reads_what_it_keeps(tmp_path: Path) -> None:
    """A prefix keeps its facts and starts nothing for the others."""

    class Counting(RecordedHost):
        def program(self, name: str) -> str | None:
            raise AssertionError(name)

        def output(self, argv: Sequence[str]) -> object:  # type: ignore[override]
            raise AssertionError(argv)

    facts = probe(host=Counting(tmp_path, {"/proc/cpuinfo": cpuinfo()}), only="cpu.m")

    assert list(facts.host) == ["cpu.model_name", "cpu.model", "cpu.microcode"]


def test_only_a_gpu_fact_reads_the_gpus(tmp_path: Path) -> None:
    """A prefix of GPU facts gives the GPUs with just those."""
    facts = probe(host=RecordedHost(tmp_path, pci_gpu()), only="gpu.pci_")

    assert facts.host == {}
    assert [list(gpu.facts) for gpu in facts.gpus()] == [["gpu.pci_id"]]


def test_only_without_a_fact_is_refused() -> None:
    """A prefix that no fact has is a slip of the pen."""
    with pytest.raises(UsageError, match="no fact starts with 'cpux'") as caught:
        probe(only="cpux")

    assert caught.value.hint == "facts start with container., cpu., gpu., nvidia., python., system."


def test_bytes_that_are_not_text_stay_visible(tmp_path: Path) -> None:
    """A broken byte in a file is kept as an escape."""
    assert probe(host=RecordedHost(tmp_path, {"/proc/sys/kernel/osrelease": "6.1\xff\n"})).host[
        "system.kernel"
    ].value == ("6.1\\xff")


def test_gpus_alone_say_why_there_are_none(tmp_path: Path) -> None:
    """A document of GPU facts without a GPU tells the reason, which stands in no fact of it."""
    bus = {"/sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n"}
    none = probe(host=RecordedHost(tmp_path / "1", bus), only="gpu.")
    dead = probe(host=RecordedHost(tmp_path / "2", {**bus, "/dev/nvidiactl": ""}), only="gpu.name")

    assert none.notes == ("no GPU is listed: this host has none",)
    assert [note.startswith("no GPU is listed: no NVIDIA driver is loaded") for note in dead.notes] == [True]
    assert probe(host=RecordedHost(tmp_path / "3", bus)).notes == ()
