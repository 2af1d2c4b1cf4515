"""What is wrong with the libraries that a process loaded, in words. Pure.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

from envlock.facts import Observed
from envlock.probe.libraries.driver_findings import of_driver
from envlock.probe.libraries.kinds import BY_STEM, cuda_major
from envlock.probe.libraries.values import (
    ERROR,
    INFORMATION,
    SEVERITIES,
    STUB,
    WARNING,
    Finding,
    Library,
)

_FAMILIES = {"cudnn": "cuDNN", "cublas": "cuBLAS", "nvrtc": "NVRTC"}

Facts = Mapping[str, Observed]


def of_process(libraries: Sequence[Library], where: str, driver: Facts) -> List[Finding]:
    """Return the findings about one process, named by `where`, worst first.

    `driver` holds the facts `nvidia.driver`, `nvidia.kernel_driver` and `nvidia.cuda` as
    far as they were observed.
    """
    found = [
        *_mixed(libraries, where),
        *_twice(libraries, where),
        *_two_majors(libraries, where),
        *_stubs(libraries, where),
        *_deleted(libraries, where),
        *_changed(libraries, where),
        *of_driver(libraries, where, driver),
    ]
    return sorted(found, key=lambda item: SEVERITIES.index(item.severity))


def _mixed(libraries: Sequence[Library], where: str) -> Iterator[Finding]:
    """Libraries that must be of one release, and are not."""
    for family, title in _FAMILIES.items():
        members = [item for item in libraries if BY_STEM[item.kind].family == family]
        origins: Dict[Tuple[str, str, str], List[Library]] = {}
        for item in members:
            origins.setdefault(_origin(item), []).append(item)
        versions = {item.told_version() for item in members if item.told_version() and _comparable(item, members)}
        if len(members) > 1 and (len(origins) > 1 or len(versions) > 1):
            said = "; ".join(
                "{} from {}".format(", ".join(item.name for item in items), _from(items[0]))
                for items in origins.values()
            )
            yield Finding(
                "mixed-" + family,
                ERROR,
                "{} is put together from more than one installation: {}".format(title, said),
                where,
                tuple(item.path for item in members),
                "its parts are built for each other: another part brings other kernels, or fails when it is used",
                "keep one {}: take the other one's folder out of LD_LIBRARY_PATH, or remove its package".format(title),
            )


def _origin(item: Library) -> Tuple[str, str, str]:
    owner = "{} {}".format(item.package.name, item.package.version) if item.package else ""
    return item.place, item.path.rpartition("/")[0], owner


def _comparable(item: Library, members: Sequence[Library]) -> bool:
    """Tell whether the version of `item` is written as those of the others: all by packages, or none."""
    return all((other.package is None) == (item.package is None) for other in members)


def _from(item: Library) -> str:
    folder = item.path.rpartition("/")[0]
    if item.package is not None:
        return "{} {} ({}, {})".format(item.package.name, item.package.version, item.place, folder)
    version = item.told_version()
    return "{} ({})".format(folder, ", ".join(part for part in (item.place, version) if part))


def _twice(libraries: Sequence[Library], where: str) -> Iterator[Finding]:
    """One library under one name, from two files."""
    by_name: Dict[str, List[Library]] = {}
    for item in libraries:
        by_name.setdefault(item.name, []).append(item)
    for name, items in by_name.items():
        # Copies of mixed families are told above, with all their parts.
        if len(items) > 1 and BY_STEM[items[0].kind].family not in _FAMILIES:
            yield Finding(
                "loaded-twice",
                WARNING,
                "{} is loaded twice: from {}".format(name, " and from ".join(_from(item) for item in items)),
                where,
                tuple(item.path for item in items),
                "each copy has its own state, and which one a call reaches depends on the order of loading",
                "find who loads the second one: an absolute path in code, LD_LIBRARY_PATH, LD_PRELOAD",
            )


def _two_majors(libraries: Sequence[Library], where: str) -> Iterator[Finding]:
    majors: Dict[int, List[Library]] = {}
    for item in libraries:
        major = cuda_major(item.name)
        if major is not None:
            majors.setdefault(major, []).append(item)
    if len(majors) > 1:
        said = "; ".join(
            "CUDA {}: {}".format(major, ", ".join(item.name for item in majors[major])) for major in sorted(majors)
        )
        yield Finding(
            "two-cuda-majors",
            ERROR,
            "libraries of two CUDA majors are loaded in one process: {}".format(said),
            where,
            tuple(item.path for items in majors.values() for item in items),
            "two runtimes share one GPU context: memory and streams of one are unknown to the other",
            "install frameworks that were built for one CUDA major",
        )


def _stubs(libraries: Sequence[Library], where: str) -> Iterator[Finding]:
    for item in libraries:
        if item.place == STUB:
            yield Finding(
                "stub",
                ERROR,
                "{} is the stub for the linker, not the driver's library: {}".format(item.name, item.path),
                where,
                (item.path,),
                "a stub answers every call with an error, or with nothing",
                "take the folder `stubs` out of LD_LIBRARY_PATH and of /etc/ld.so.conf.d, then run `ldconfig`",
            )


def _deleted(libraries: Sequence[Library], where: str) -> Iterator[Finding]:
    gone = [item for item in libraries if item.deleted]
    if gone:
        yield Finding(
            "deleted",
            ERROR,
            "it runs libraries whose files were deleted or replaced meanwhile: {}".format(
                ", ".join(item.path for item in gone)
            ),
            where,
            tuple(item.path for item in gone),
            "what runs is not what is installed; the next start takes the new files",
            "start the process again" + ("; after a driver update, reload the module or reboot" * _any_driver(gone)),
        )


def _any_driver(libraries: Sequence[Library]) -> bool:
    return any(BY_STEM[item.kind].driver for item in libraries)


def _changed(libraries: Sequence[Library], where: str) -> Iterator[Finding]:
    for item in libraries:
        owner = item.package
        if owner is not None and owner.size is not None and item.size.has_value and item.size.value != owner.size:
            yield Finding(
                "changed-file",
                ERROR,
                "{} is {} bytes, but {} {} installed {} bytes".format(
                    item.path, item.size.text(), owner.name, owner.version, owner.size
                ),
                where,
                (item.path,),
                "the package's version says nothing about a file that something else wrote",
                "install the package again: `pip install --force-reinstall --no-deps {}=={}`".format(
                    owner.name, owner.version
                ),
            )


def of_installed(wheels: Sequence[Tuple[str, str]], loaded: Sequence[Library], site: str) -> List[Finding]:
    """Return whether wheels of two CUDA majors lie in one folder `site`; of those loaded `of_process` tells."""
    majors: Dict[str, List[str]] = {}
    for name, version in wheels:
        major = major_of_wheel(name, version)
        if major:
            majors.setdefault(major, []).append("{} {}".format(name, version))
    if len(majors) < 2 or len({cuda_major(item.name) for item in loaded} - {None}) > 1:
        return []
    said = "; ".join(
        "CUDA {}: {}".format(major, ", ".join(sorted(majors[major])[:4])) for major in sorted(majors, key=int)
    )
    return [
        Finding(
            "installed-beside",
            INFORMATION,
            "wheels of two CUDA majors are installed side by side: {}".format(said),
            site,
            (),
            "which one is loaded depends on who loads first",
            "make a new environment with what was built for one CUDA major",
        )
    ]


def major_of_wheel(name: str, version: str) -> str:
    """Return the CUDA major that one of NVIDIA's wheels belongs to, `` when its name does not say.

    Up to CUDA 12 the major is in the name (`nvidia-cublas-cu12`); from 13 on it is the
    version's (`nvidia-cuda-runtime 13.0.96`), but for what has a version of its own.
    """
    match = re.fullmatch(r"nvidia-.+-cu(\d{2})", name)
    if match:
        return match.group(1)
    if name in ("nvidia-cuda-runtime", "nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "cuda-toolkit"):
        return version.split(".")[0]
    return ""


def of_search_path(empty: Sequence[str]) -> List[Finding]:
    """Return what is wrong with the folders that the loader searches: `empty` are libraries of 0 bytes."""
    if not empty:
        return []
    return [
        Finding(
            "empty-library",
            WARNING,
            "libraries of 0 bytes lie where the loader searches: {}".format(", ".join(empty)),
            "",
            tuple(empty),
            "the loader fails on them, or a library is taken from another folder instead",
            "remove them and install the driver again: a container runtime leaves them when a mount fails",
        )
    ]
