"""What is wrong between the loaded libraries and the driver, in words. Pure.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Iterator, Mapping, Optional, Sequence, Tuple

from envlock.facts import Observed
from envlock.probe.libraries import levels
from envlock.probe.libraries.kinds import cuda_major
from envlock.probe.libraries.values import COMPAT, ERROR, INFORMATION, STUB, UNKNOWN, WARNING, Finding, Library

# `nvidia-cuda-runtime-cu12` of an index, `cuda-cudart-12-4` of a distribution: their versions are CUDA's.
_RUNTIME = re.compile(r"cuda[-_](runtime|cudart)")
_DRIVER_FILE = re.compile(r"\.so\.(\d{3,4}(?:\.\d+)+)$")

Facts = Mapping[str, Observed]


def of_driver(libraries: Sequence[Library], where: str, driver: Facts) -> Iterator[Finding]:
    """Yield the findings about the libcuda in use, and about runtimes that the driver cannot run."""
    yield from _compat(libraries, where, driver)
    yield from _driver_too_old(libraries, where, driver)
    yield from _runtime_not_seen(libraries, where)


def _runtime_not_seen(libraries: Sequence[Library], where: str) -> Iterator[Finding]:
    """A driver's library without a runtime: the runtime may be inside of the program."""
    cuda = [item for item in libraries if item.kind == "libcuda" and item.place != STUB]
    if cuda and not any(item.kind == "libcudart" for item in libraries):
        yield Finding(
            "runtime-not-seen",
            INFORMATION,
            "{} is loaded and no CUDA runtime is: none is used, or one is linked into the program".format(cuda[0].name),
            where,
            (cuda[0].path,),
            "nvcc links the runtime statically unless told otherwise: its version, and that of any other library"
            " linked so, is in no file that could be looked at",
        )


def driver_version(item: Library) -> str:
    """Return the driver's version from the name of one of its files, `` when it has none."""
    match = _DRIVER_FILE.search(item.path)
    return match.group(1) if match else ""


def _compat(libraries: Sequence[Library], where: str, driver: Facts) -> Iterator[Finding]:
    """A libcuda that is not the loaded module's: by intent (compat), or by accident."""
    module = _value(driver, "nvidia.kernel_driver") or _value(driver, "nvidia.driver")
    for item in libraries:
        if item.kind != "libcuda" or item.place == STUB:
            continue
        version = driver_version(item)
        if item.place == COMPAT:
            yield _of_compat(item, version, module, where)
        elif version and module and version != module:
            yield Finding(
                "driver-mismatch",
                ERROR,
                "{} is of driver {}, the loaded kernel module of {}".format(item.path, version, module),
                where,
                (item.path,),
                "CUDA refuses to start, or already running processes use the old one",
                "reload the kernel module or reboot; in a container, start it again",
            )


def _of_compat(item: Library, version: str, module: str, where: str) -> Finding:
    older = bool(version and module) and _numbers(version) < _numbers(module)
    kernel = "the kernel module is {}".format(module) if module else "the kernel module's version is not known"
    return Finding(
        "compat-driver",
        ERROR if older else WARNING,
        "the forward compatibility package's libcuda {} is used instead of the driver's: {}{}".format(
            version or "(version not in its name)", kernel, ", which is newer" if older else ""
        ),
        where,
        (item.path,),
        "it compiles and schedules kernels: results follow this file, not the driver that `nvidia-smi` names",
        "take its folder `compat` out of the search path where the driver is new enough, and lock which one is meant",
    )


def _numbers(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _driver_too_old(libraries: Sequence[Library], where: str, driver: Facts) -> Iterator[Finding]:
    said = _level(libraries, driver)
    for item in libraries:
        runtime = _runtime(item)
        if runtime is None:
            continue
        text = "{} is CUDA {}".format(item.name, _shown(runtime))
        if said is None:
            if any(other.kind == "libcuda" for other in libraries):
                yield Finding(
                    "driver-level-unknown",
                    UNKNOWN,
                    "{}, and which CUDA the driver can run could not be told".format(text),
                    where,
                    (item.path,),
                    fix="install nvidia-ml-py beside envlock, or run the probe as the user of the process",
                )
            continue
        level, source = said
        verdict = levels.judged(level, (runtime[0], runtime[1] or 0))
        if verdict != levels.FITS:
            yield Finding(
                "driver-too-old",
                ERROR if verdict == levels.TOO_OLD else WARNING,
                "{}, the driver runs CUDA {}.{} ({})".format(text, level[0], level[1], source),
                where,
                (item.path,),
                levels.MINOR_WORDS if verdict == levels.MINOR else "CUDA refuses to start on this driver",
                "install a driver for CUDA {} or newer, or a framework built for CUDA {}".format(
                    _shown(runtime), level[0]
                ),
            )


def _runtime(item: Library) -> Optional[Tuple[int, Optional[int]]]:
    """Return the CUDA release of a runtime: by its own answer, else its package's version, else its soname's major.

    A library of another user's or container's process is not asked, and still needs a driver.
    """
    if item.kind != "libcudart":
        return None
    if item.version.has_value:
        return levels.level_of(item.version.text())
    if item.package is not None and _RUNTIME.search(item.package.name):
        level = levels.level_of(item.package.version)
        if level is not None:
            return level
    major = cuda_major(item.name)
    return None if major is None else (major, None)


def _shown(runtime: Tuple[int, Optional[int]]) -> str:
    return ".".join(str(part) for part in runtime if part is not None)


def _level(libraries: Sequence[Library], driver: Facts) -> Optional[Tuple[levels.Level, str]]:
    """Return the CUDA level in force and who said so: the loaded libcuda, else the host's driver."""
    for item in libraries:
        if item.kind != "libcuda" or item.place == STUB:
            continue
        said = levels.level_of(item.version.text()) if item.version.has_value else None
        level = said or levels.level_of_driver(driver_version(item))
        if level is not None:
            return level, item.path
        if item.place == COMPAT:
            return None  # the host's driver is not the one in use
    level = levels.level_of(_value(driver, "nvidia.cuda"))
    if level is not None:
        return level, "nvidia.cuda"
    # Where neither NVML nor nvidia-smi answers, /proc still tells the kernel module's version.
    version = _value(driver, "nvidia.driver") or _value(driver, "nvidia.kernel_driver")
    level = levels.level_of_driver(version)
    return (level, "driver {}".format(version)) if level is not None else None


def _value(driver: Facts, key: str) -> str:
    seen = driver.get(key)
    return seen.text() if seen is not None and seen.has_value else ""
