"""Which package owns a file: a wheel's RECORD, a conda package, a Debian package.

Read from the files that the package managers leave, with none of them installed and
whatever Python the files belong to: the process that is looked at may run another one.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import os
import re
from typing import Dict, Iterable, List, Optional, Tuple

from envlock.probe.libraries.values import CONDA, WHEEL, Package

_SITE = re.compile(r"(.*/(?:site|dist)-packages)/(.+)")
_MAX_FILE = 64 << 20  # torch's RECORD is 1.5 MB
_MAX_HEAD = 1 << 16
_DPKG_INFO = "/var/lib/dpkg/info"
_DPKG_STATUS = "/var/lib/dpkg/status"


def owners(root: str, files: Iterable[Tuple[str, str]]) -> Dict[str, Package]:
    """Return the package of each file that one owns; `files` are pairs of path and place.

    Paths are as seen below `root` (``: this process's own). A file that two wheels claim
    is the one's whose recorded size fits. What cannot be read owns nothing.
    """
    sites: Dict[str, List[str]] = {}
    prefixes: Dict[str, List[str]] = {}
    debian: List[str] = []
    for path, place in files:
        site = _site_of(root, path) if place == WHEEL else ""
        if site:
            sites.setdefault(site, []).append(path[len(site) + 1 :])
        elif place == CONDA:
            prefixes.setdefault(_conda_prefix(root, path), []).append(path)
        else:
            debian.append(path)
    found: Dict[str, Package] = {}
    for site, names in sites.items():
        for name, package in _wheels(root + site, names).items():
            found["{}/{}".format(site, name)] = package
    for prefix, paths in prefixes.items():
        found.update(_conda(root, prefix, paths))
    if debian:
        found.update(_debian(root, debian))
    return found


def is_conda(root: str, folder: str) -> bool:
    """Return whether `folder` is a conda environment."""
    return os.path.isdir("{}{}/conda-meta".format(root, folder))


def is_site(root: str, folder: str) -> bool:
    """Return whether wheels are installed in `folder`, whatever it is called (`pip install --target`)."""
    return any(name.endswith(".dist-info") for name in _names(root + folder))


def _site_of(root: str, path: str) -> str:
    match = _SITE.fullmatch(path)
    if match:
        return match.group(1)
    folder = os.path.dirname(path)
    while len(folder) > 1 and not is_site(root, folder):
        folder = os.path.dirname(folder)
    return folder if len(folder) > 1 else ""


def wheels_in(root: str, site: str) -> List[Tuple[str, str]]:
    """Return name and version of each wheel installed in a site-packages folder, by its folder's name."""
    found = []
    for name in _names(root + site):
        match = re.fullmatch(r"(.+)-([^-]+)\.dist-info", name)
        if match:
            found.append((re.sub(r"[-_.]+", "-", match.group(1)).lower(), match.group(2)))
    return found


def _wheels(site: str, names: List[str]) -> Dict[str, Package]:
    """Return the wheel of each of `names` by the RECORD files in `site` (PEP 376, PEP 627)."""
    found: Dict[str, Package] = {}
    lines = {name: re.compile(rb"(?m)^\"?%s\"?,([^,\r\n]*),([0-9]*)" % re.escape(os.fsencode(name))) for name in names}
    for folder in _names(site):
        if not folder.endswith(".dist-info"):
            continue
        record = _read("{}/{}/RECORD".format(site, folder), _MAX_FILE)
        for name, line in lines.items():
            match = line.search(record) if os.fsencode(name) in record else None
            if match is None:
                continue
            size = int(match.group(2)) if match.group(2) else None
            if name in found and not _fits(site, name, size):
                continue
            found[name] = _described("{}/{}".format(site, folder), folder, size)
    return found


def _fits(site: str, name: str, size: Optional[int]) -> bool:
    try:
        return os.stat("{}/{}".format(site, name)).st_size == size
    except OSError:
        return False


def _described(path: str, folder: str, size: Optional[int]) -> Package:
    head = _read(path + "/METADATA", _MAX_HEAD).decode("utf-8", "replace").replace("\r\n", "\n").split("\n\n", 1)[0]
    stem = folder[: -len(".dist-info")]
    name = re.search(r"(?im)^Name:[ \t]*(\S+)", head)
    version = re.search(r"(?im)^Version:[ \t]*(\S+)", head)
    return Package(
        "wheel",
        name.group(1) if name else stem.rpartition("-")[0].replace("_", "-"),
        version.group(1) if version else stem.rpartition("-")[2],
        size,
    )


def _conda_prefix(root: str, path: str) -> str:
    folder = os.path.dirname(path)
    while len(folder) > 1 and not is_conda(root, folder):
        folder = os.path.dirname(folder)
    return folder


def _conda(root: str, prefix: str, paths: List[str]) -> Dict[str, Package]:
    found: Dict[str, Package] = {}
    folder = "{}{}/conda-meta".format(root, prefix)
    wanted = {path: '"{}"'.format(path[len(prefix) + 1 :]).encode() for path in paths}
    for name in _names(folder):
        text = _read("{}/{}".format(folder, name), _MAX_FILE) if name.endswith(".json") else b""
        held = [path for path, needle in wanted.items() if needle in text]
        if held:
            try:
                document = json.loads(text.decode("utf-8"))
                package = Package("conda", str(document["name"]), str(document["version"]))
            except (ValueError, KeyError, TypeError):
                continue
            found.update(dict.fromkeys(held, package))
    return found


def _debian(root: str, paths: List[str]) -> Dict[str, Package]:
    """Return the Debian package of each path; on a merged /usr the package may say `/lib`."""
    wanted: Dict[bytes, str] = {}
    for path in paths:
        wanted[os.fsencode(path)] = path
        if path.startswith("/usr/lib"):
            wanted[os.fsencode(path[4:])] = path
    names: Dict[str, str] = {}
    folder = root + _DPKG_INFO
    for name in _names(folder):
        if not name.endswith(".list"):
            continue
        text = b"\n" + _read("{}/{}".format(folder, name), _MAX_FILE)
        for needle, path in wanted.items():
            if b"\n" + needle + b"\n" in text:
                names[path] = name[: -len(".list")].partition(":")[0]
    versions = _debian_versions(root, set(names.values()))
    return {path: Package("debian", name, versions[name]) for path, name in names.items() if name in versions}


def _debian_versions(root: str, names: "set[str]") -> Dict[str, str]:
    if not names:
        return {}
    found = {}
    for block in _read(root + _DPKG_STATUS, _MAX_FILE).decode("utf-8", "replace").split("\n\n"):
        package = re.search(r"(?m)^Package: (\S+)", block)
        version = re.search(r"(?m)^Version: (\S+)", block)
        if package and version and package.group(1) in names:
            found[package.group(1)] = version.group(1)
    return found


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(most)
    except OSError:
        return b""
