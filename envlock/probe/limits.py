"""Mounts, control groups and containers: what of this machine a process may use.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple

from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, VALUE, Observed, absent
from envlock.probe import ranges
from envlock.probe.host import Absent, Host, observe

_MOUNTS = "/proc/self/mountinfo"
_CGROUPS = "/proc/self/cgroup"
_STATUS = "/proc/self/status"
_GROUP_NAMES = ("docker", "kubepods", "libpod", "containerd", "crio", "lxc", "garden")


class Mount(NamedTuple):
    """One line of mountinfo: `root` of the file system is mounted at `point`."""

    root: str
    point: str
    kind: str
    device: str
    options: tuple[str, ...]


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Return the mounts in the text of /proc/self/mountinfo (proc_pid_mountinfo(5))."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if dash and len(left) >= 5 and len(right) >= 2:
            options = right[2].split(",") if len(right) > 2 else []
            mounts.append(Mount(_unescape(left[3]), _unescape(left[4]), right[0], right[1], tuple(options)))
    return tuple(mounts)


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def read(host: Host) -> Dict[str, Observed]:
    """Return the CPUs and CPU time that a process may use, the cgroup version, and the container."""
    return {
        "cpu.usable": observe(_STATUS, lambda: _usable(host.read(_STATUS))),
        "cpu.limit": observe("cgroup", lambda: _limit(host)),
        "container.cgroup": observe(_MOUNTS, lambda: cgroup_version(parse_mounts(host.read(_MOUNTS)))),
        "container.inside": _inside(host),
    }


def _usable(text: str) -> int:
    for line in text.splitlines():
        key, _, found = line.partition(":")
        if key == "Cpus_allowed_list":
            return len(ranges.parse(found))
    raise Absent(FAILED, "no line `Cpus_allowed_list`")


def cgroup_version(mounts: tuple[Mount, ...]) -> str:
    """Return `v2`, `v1`, or `hybrid` when a version 2 tree is mounted beside version 1's."""
    kinds = {mount.kind for mount in mounts}
    if "cgroup2" in kinds and "cgroup" in kinds:
        return "hybrid"
    if "cgroup2" in kinds:
        return "v2"
    if "cgroup" in kinds:
        return "v1"
    raise Absent(NOT_SUPPORTED, "no control groups are mounted")


def _limit(host: Host) -> int:
    """Return the lowest CPU time limit from this process's group up to the mounted root."""
    mounts = parse_mounts(host.read(_MOUNTS))
    limits: list[int | None] = []
    looked = False
    for line in host.read(_CGROUPS).splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if number == "0" and not controllers:
            folders = _folders(mounts, "cgroup2", "", path)
            limits.extend(_quota_v2(_optional(host, folder + "/cpu.max")) for folder in folders)
        elif "cpu" in controllers.split(","):
            folders = _folders(mounts, "cgroup", "cpu", path)
            limits.extend(_quota_v1(host, folder) for folder in folders)
        else:
            continue
        looked = looked or bool(folders)
    if not looked:
        raise Absent(FAILED, "the control group of this process is not mounted here")
    found = [limit for limit in limits if limit is not None]
    if not found:
        raise Absent(NOT_SUPPORTED, "no limit is set")
    return min(found)


def _folders(mounts: tuple[Mount, ...], kind: str, option: str, path: str) -> list[str]:
    """Return the folders of the group `path` and its ancestors, as far as they are mounted."""
    if ".." in path.split("/"):
        raise Absent(HIDDEN, "this process is outside of its control group namespace")
    for mount in mounts:
        if mount.kind == kind and (not option or option in mount.options):
            inner = path
            if mount.root != "/" and (path + "/").startswith(mount.root.rstrip("/") + "/"):
                inner = path[len(mount.root.rstrip("/")) :]
            parts = [part for part in inner.split("/") if part]
            return ["/".join([mount.point, *parts[:count]]) for count in range(len(parts), -1, -1)]
    return []


def _optional(host: Host, path: str) -> str:
    """Return the file's text; empty when the group has no such file (the root group has none)."""
    try:
        return host.read(path).strip()
    except FileNotFoundError:
        return ""


def _quota_v2(text: str) -> int | None:
    quota, _, period = text.partition(" ")
    return None if quota == "max" else _quota(quota, period)


def _quota_v1(host: Host, folder: str) -> int | None:
    return _quota(_optional(host, folder + "/cpu.cfs_quota_us"), _optional(host, folder + "/cpu.cfs_period_us"))


def _quota(quota: str, period: str) -> int | None:
    if not quota or int(quota) < 0:
        return None
    if int(period) <= 0:
        raise ValueError("a period of {}".format(period))
    return int(quota) * 1000 // int(period)


def _inside(host: Host) -> Observed:
    source = _MOUNTS + " and marker files"
    try:
        marker, name = _marker(host)
        root = [mount for mount in parse_mounts(host.read(_MOUNTS)) if mount.point == "/"][-1:]
        first = host.read("/proc/1/comm").strip()
    except OSError as error:
        return absent(FAILED, source, (error.strerror or str(error)).lower())
    if not root:
        return absent(FAILED, source, "no mount at /")
    whole = root[0].root == "/" and root[0].kind not in ("overlay", "fuse.fuse-overlayfs", "aufs", "zfs")
    if name and not whole:
        return Observed(VALUE, name, source, marker)
    if name:
        # An image's files turned into a machine's disk keep the image's marker file.
        return Observed(VALUE, "no", source, "{} is there, but / is {} mounted whole".format(marker, root[0].device))
    if whole or first in ("systemd", "init"):
        return Observed(VALUE, "no", source)
    return absent(FAILED, source, "/ is a {} mount, and no marker names an engine".format(root[0].kind))


def _marker(host: Host) -> tuple[str, str]:
    """Return the first sign of a container and the name it stands for; both empty when there is none."""
    for path, name in (
        ("/.singularity.d", "apptainer"),
        ("/var/run/secrets/kubernetes.io", "kubernetes"),
        ("/run/.containerenv", "podman"),
        ("/.dockerenv", "docker"),
    ):
        if host.exists(path):
            return path, name
    if host.exists("/run/systemd/container"):
        return "/run/systemd/container", host.read("/run/systemd/container").strip() or "container"
    groups = host.read(_CGROUPS)
    name = next((name for name in _GROUP_NAMES for end in "/-.\n" if "/" + name + end in groups), "")
    return (_CGROUPS, name) if name else ("", "")
