"""Where a library came from: its place, by path, name and mount.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Callable, FrozenSet

from envlock.probe.libraries.kinds import kind_of
from envlock.probe.libraries.values import (
    COMPAT,
    CONDA,
    DRIVER,
    MOUNTED_DRIVER,
    OTHER,
    STUB,
    SYSTEM,
    TOOLKIT,
    WHEEL,
)

_TOOLKIT = re.compile(r"/cuda(-[0-9.]+)?/|/hpc_sdk/|/cuda/[0-9.]+/|/targets/[a-z0-9_]+-linux/lib/")
_SYSTEM = re.compile(r"/(usr/(local/)?)?lib(32|64|x32)?/")
# Where container runtimes and WSL put the driver as one mounted folder.
_DRIVER_FOLDERS = ("/usr/lib/wsl/", "/run/opengl-driver/", "/usr/local/nvidia/", "/usr/local/cuda/driver/")


def mount_points(mountinfo: str) -> FrozenSet[str]:
    """Return the mount points in the text of /proc/PID/mountinfo (proc(5)), but for `/`."""
    points = set()
    for line in mountinfo.split("\n"):
        fields = line.split(" ")
        if len(fields) > 4 and fields[4] != "/":
            points.add(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), fields[4]))
    return frozenset(points)


def place_of(
    path: str, mounts: FrozenSet[str], is_conda: Callable[[str], bool], is_site: Callable[[str], bool] = lambda _: False
) -> str:
    """Return the place of the library at `path`.

    `mounts` are the mount points of the process; `is_conda` tells whether a folder is a
    conda environment, `is_site` whether wheels are installed in it. A mount counts when it
    is of that very file, or of a folder that holds nothing but a driver: a home or data
    volume says nothing.
    """
    name = path.rpartition("/")[2]
    kind = kind_of(name)
    if "/stubs/" in path:
        return STUB
    if re.search(r"/compat(_\w+)?/", path) and kind is not None and kind.driver:
        return COMPAT
    if "/site-packages/" in path or "/dist-packages/" in path:
        return WHEEL
    if any(is_conda(path[: match.start()]) for match in re.finditer(r"/", path) if match.start()):
        return CONDA
    if kind is not None and kind.driver:
        if path in mounts or any(path.startswith(folder) for folder in _DRIVER_FOLDERS if folder.rstrip("/") in mounts):
            return MOUNTED_DRIVER
        if _SYSTEM.match(path) or path.startswith(_DRIVER_FOLDERS):
            return DRIVER
    if _TOOLKIT.search(path):
        return TOOLKIT
    if _SYSTEM.match(path):
        return SYSTEM
    return WHEEL if any(is_site(path[: match.start()]) for match in re.finditer(r"/", path) if match.start()) else OTHER
