"""Control groups, affinity, and whether this is a container."""

from pathlib import Path

import pytest
from recorded_host import RecordedHost

from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, Observed, value
from envlock.probe import limits

ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
V2 = "30 27 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "31 27 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
OVERLAY = "40 1 0:50 / / rw,relatime - overlay overlay rw\n"


def read(
    root: Path, mounts: str = ROOT + V2, groups: str = "0::/\n", first: str = "systemd", **tree: str
) -> dict[str, Observed]:
    return limits.read(
        RecordedHost(
            root,
            {
                "/proc/self/mountinfo": mounts,
                "/proc/self/cgroup": groups,
                "/proc/self/status": "Name:\tx\nCpus_allowed_list:\t0-3,8\n",
                "/proc/1/comm": first + "\n",
                **tree,
            },
        )
    )


def test_usable_cpus_are_counted(tmp_path: Path) -> None:
    """The affinity of the process counts, not the CPUs of the host."""
    assert read(tmp_path)["cpu.usable"] == value(5)


@pytest.mark.parametrize(("mounts", "version"), [(V2, "v2"), (V1, "v1"), (V1 + V2, "hybrid")])
def test_cgroup_version(tmp_path: Path, mounts: str, version: str) -> None:
    """The mounts say which version is in force."""
    assert read(tmp_path, ROOT + mounts)["container.cgroup"] == value(version)


def test_no_cgroup_is_not_supported(tmp_path: Path) -> None:
    """Mounts without any control group are an answer."""
    assert read(tmp_path, ROOT)["container.cgroup"].outcome == NOT_SUPPORTED


def test_lowest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    """A parent's lower limit binds its children (version 2)."""
    seen = read(
        tmp_path,
        groups="0::/a/b\n",
        **{"/sys/fs/cgroup/a/b/cpu.max": "400000 100000\n", "/sys/fs/cgroup/a/cpu.max": "250000 100000\n"},
    )["cpu.limit"]

    assert seen == value(2500)


def test_limit_of_version_1(tmp_path: Path) -> None:
    """Quota and period of version 1, in a container whose own group is mounted as the root."""
    mounts = ROOT + "31 27 0:27 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    seen = read(
        tmp_path,
        mounts,
        "4:cpu:/docker/x/sub\n",
        **{
            "/sys/fs/cgroup/cpu/sub/cpu.cfs_quota_us": "150000\n",
            "/sys/fs/cgroup/cpu/sub/cpu.cfs_period_us": "100000\n",
        },
    )["cpu.limit"]

    assert seen == value(1500)


@pytest.mark.parametrize("text", ["max 100000\n", None])
def test_no_limit_is_not_supported(tmp_path: Path, text: str | None) -> None:
    """A group that was looked at and sets no limit is an answer."""
    tree = {} if text is None else {"/sys/fs/cgroup/cpu.max": text}
    seen = read(tmp_path, **tree)["cpu.limit"]

    assert (seen.outcome, seen.detail) == (NOT_SUPPORTED, "no limit is set")


def test_group_that_is_not_mounted_is_failed(tmp_path: Path) -> None:
    """A group that could not be looked at is not "no limit"."""
    assert read(tmp_path, ROOT)["cpu.limit"].outcome == FAILED


def test_group_outside_of_the_namespace_is_hidden(tmp_path: Path) -> None:
    """A path that leads out of the namespace names a group that cannot be seen."""
    assert read(tmp_path, groups="0::/../other\n")["cpu.limit"].outcome == HIDDEN


@pytest.mark.parametrize("text", ["250000 0\n", "many 100000\n"])
def test_limit_that_is_no_limit_is_failed(tmp_path: Path, text: str) -> None:
    """A quota that is not a number, or a period of zero, is not understood."""
    assert read(tmp_path, **{"/sys/fs/cgroup/cpu.max": text})["cpu.limit"].outcome == FAILED


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("/.dockerenv", "", "docker"),
        ("/run/.containerenv", "", "podman"),
        ("/.singularity.d/runscript", "", "apptainer"),
        ("/var/run/secrets/kubernetes.io/token", "", "kubernetes"),
        ("/run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
    ],
)
def test_marker_with_a_container_root_names_the_container(tmp_path: Path, path: str, text: str, name: str) -> None:
    """A marker file and a root that is an overlay are a container."""
    assert read(tmp_path, OVERLAY, first="sh", **{path: text})["container.inside"] == value(name)


def test_group_names_the_container(tmp_path: Path) -> None:
    """Without a marker file the control group names the engine."""
    seen = read(tmp_path, OVERLAY, "4:cpu:/docker/0123456789ab\n", "sh")["container.inside"]

    assert seen == value("docker")


def test_marker_on_a_machine_of_its_own_is_no_container(tmp_path: Path) -> None:
    """A virtual machine whose disk was made from an image keeps the marker, and is no container."""
    seen = read(tmp_path, **{"/.dockerenv": ""})["container.inside"]

    assert seen == value("no")
    assert "/.dockerenv is there" in seen.detail


def test_plain_host_is_no_container(tmp_path: Path) -> None:
    """A file system mounted whole, without a marker, is no container."""
    assert read(tmp_path)["container.inside"] == value("no")


def test_overlay_without_a_name_cannot_tell(tmp_path: Path) -> None:
    """An overlay that nothing names may be a container or a live system."""
    assert read(tmp_path, OVERLAY, first="sh")["container.inside"].outcome == FAILED


def test_mount_points_with_blanks_are_read() -> None:
    """Octal escapes in mountinfo are the letters they stand for."""
    assert limits.parse_mounts("1 2 0:3 / /a\\040b rw shared:1 - tmpfs none rw\n")[0].point == "/a b"
