"""Distribution, kernel parameters, memory."""

import os
from pathlib import Path

import pytest
from recorded_host import RecordedHost

from envlock.facts import FAILED, NOT_SUPPORTED, value
from envlock.probe import system


def test_distribution_and_release(tmp_path: Path) -> None:
    """ID and VERSION_ID name the distribution."""
    found = system.read(RecordedHost(tmp_path, {"/etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"'}))

    assert found["system.distribution"] == value("ubuntu")
    assert found["system.distribution_version"] == value("22.04")


def test_point_release_of_debian(tmp_path: Path) -> None:
    """Debian's point release is in a file of its own."""
    tree = {"/etc/os-release": 'ID=debian\nVERSION_ID="12"\n', "/etc/debian_version": "12.11\n"}

    assert system.read(RecordedHost(tmp_path, tree))["system.distribution_version"] == value("12.11")


@pytest.mark.parametrize("text", ["trixie/sid\n", "120.1\n"])
def test_other_text_is_no_point_release(tmp_path: Path, text: str) -> None:
    """A text that does not begin with the release is not taken for its point release."""
    tree = {"/etc/os-release": "ID=debian\nVERSION_ID=12\n", "/etc/debian_version": text}

    assert system.read(RecordedHost(tmp_path, tree))["system.distribution_version"] == value("12")


def test_release_of_the_vendor_folder(tmp_path: Path) -> None:
    """Where /etc has no os-release, the one in /usr/lib counts."""
    tree = {"/usr/lib/os-release": "ID=fedora\nVERSION_ID=41\n"}

    assert system.read(RecordedHost(tmp_path, tree))["system.distribution"] == value("fedora")


def test_rolling_distribution(tmp_path: Path) -> None:
    """A distribution without numbers gives its build, or says that it has none."""
    one = system.read(RecordedHost(tmp_path / "1", {"/etc/os-release": "ID=arch\nBUILD_ID=rolling\n"}))
    two = system.read(RecordedHost(tmp_path / "2", {"/etc/os-release": "NAME=Guix\n"}))

    assert one["system.distribution_version"] == value("rolling")
    assert two["system.distribution"] == value("linux")
    assert two["system.distribution_version"].outcome == NOT_SUPPORTED


def test_host_without_release_file_is_failed(tmp_path: Path) -> None:
    """Without the file nothing is known of the distribution."""
    found = system.read(RecordedHost(tmp_path, {}))

    assert {found["system.distribution"].outcome, found["system.distribution_version"].outcome} == {FAILED}


def test_release_file_is_read_as_a_shell_reads_it() -> None:
    """Quotes of both kinds and escapes are taken off, comments and broken lines passed over, the last one wins."""
    text = 'NAME=\'Odd Linux\'\n# no\nPRETTY="a \\"b\\" \\$5 \\\\"\nBROKEN LINE\nV=1\nV=2\nOPEN="x\n'

    assert system.parse_release(text) == {
        "NAME": "Odd Linux",
        "PRETTY": 'a "b" $5 \\',
        "V": "2",
        "OPEN": '"x',
    }


def test_only_parameters_that_matter_are_kept() -> None:
    """Secrets, addresses and names on the kernel's command line are never recorded."""
    line = "BOOT_IMAGE=/vmlinuz root=UUID=1 mitigations=off token=secret isolcpus=2-3 nosmt nvidia.NVreg_X=1 -- nosmt\n"

    assert system.parameters(line) == ("mitigations=off", "isolcpus=2-3", "nosmt", "nvidia.NVreg_X=1")


def test_no_parameter_that_matters_is_an_empty_value(tmp_path: Path) -> None:
    """A line without any of them is a value: none of them is set."""
    assert system.read(RecordedHost(tmp_path, {"/proc/cmdline": "quiet\n"}))["system.kernel_parameters"] == value(())


def test_features_that_the_kernel_lacks_are_not_supported(tmp_path: Path) -> None:
    """A kernel without huge pages or NUMA balancing has answered; a host without /sys and /proc has not."""
    keys = ("system.transparent_hugepage", "system.numa_balancing")
    tree = {"/sys/kernel/mm/x": "", "/proc/sys/kernel/x": ""}
    blind = system.read(RecordedHost(tmp_path / "1", {}))
    found = system.read(RecordedHost(tmp_path / "2", tree))

    assert {found[key].outcome for key in keys} == {NOT_SUPPORTED}
    assert {blind[key].outcome for key in keys} == {FAILED}


def test_memory_is_in_mebibytes() -> None:
    """MemTotal counts, whole MiB."""
    assert system.memory("MemTotal:       24683656 kB\nMemFree:  1 kB\n") == 24105


def test_huge_pages_are_the_word_in_brackets() -> None:
    """The word in brackets is in force."""
    assert system.chosen("always [madvise] never\n") == "madvise"


@pytest.mark.parametrize(
    ("path", "text", "key"),
    [
        ("/proc/meminfo", "MemFree: 1 kB\n", "system.memory"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "always\n", "system.transparent_hugepage"),
        ("/proc/sys/kernel/osrelease", "\n", "system.kernel"),
    ],
)
def test_text_that_is_not_understood_is_failed(tmp_path: Path, path: str, text: str, key: str) -> None:
    """A file without the expected text fails its fact."""
    assert system.read(RecordedHost(tmp_path, {path: text}))[key].outcome == FAILED


CORPUS = os.environ.get("ENVLOCK_CORPUS", "")


@pytest.mark.skipif(not CORPUS, reason="ENVLOCK_CORPUS is not set")
@pytest.mark.parametrize(
    ("name", "expected"),
    [("amazon2016", ("amzn", "2016.03")), ("arch", ("arch", "rolling")), ("centos7", ("centos", "7")),
     ("debian12", ("debian", "12")), ("opensuse15", ("opensuse-leap", "15.2")), ("oracle7", ("ol", "7.5")),
     ("sles12", ("sles", "12.1")), ("ubuntu2204", ("ubuntu", "22.04")), ("quotes-and-escapes", ("odd", "1.1"))],
)  # fmt: skip
def test_recorded_releases_read_as_expected(tmp_path: Path, name: str, expected: tuple[str, str]) -> None:
    """Each recorded os-release gives its distribution and release."""
    text = (Path(CORPUS) / "hosts" / "os-release" / f"{name}.txt").read_text(encoding="utf-8")
    found = system.read(RecordedHost(tmp_path, {"/etc/os-release": text}))

    assert expected == (found["system.distribution"].value, found["system.distribution_version"].value)
