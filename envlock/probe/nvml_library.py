"""Which NVML library is loaded: the system's, or the one that ENVLOCK_NVML_LIBRARY names.

Loaded before the binding loads it, because the binding says "not found" to whatever keeps
a library from being loaded: a file of no bytes, another architecture, a stub.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Mapping

from envlock.probe.nvml_binding import NO_LIBRARY, NOT_LOADED

VARIABLE = "ENVLOCK_NVML_LIBRARY"
NAME = "libnvidia-ml.so.1"
QUIET = 3  # NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH: no GPU is woken, and none is needed
_WSL = "/usr/lib/wsl/lib"
_HEADER = 20  # ELF identification, type and machine


class Unusable(Exception):
    """Raised when no NVML library can be used; `number` is NVML's code for it, or -1."""

    def __init__(self, words: str, number: int = -1) -> None:
        super().__init__(words)
        self.number = number


def load(pynvml: Any, environment: Mapping[str, str]) -> Dict[str, str]:
    """Load the library for the module `pynvml` and return where it lies; raises `Unusable`.

    `library` is the path of the loaded file, links followed, `library_version` the version
    in its name; both are empty where they cannot be told.
    """
    if getattr(pynvml, "nvmlLib", None) is None:
        from ctypes import CDLL

        chosen = environment.get(VARIABLE, "")
        if chosen:
            _check_chosen(chosen)
        try:
            pynvml.nvmlLib = CDLL(chosen or NAME)
        except OSError as error:
            raise _unloadable(chosen, str(error)) from None
        path = os.path.realpath(chosen) if chosen else _mapped()
    else:
        path = ""
    if "/stubs/" in path:
        raise Unusable("{} is the stub that programs are linked with, not a driver's library".format(path))
    match = re.search(r"\.so\.(\d+(?:\.\d+)+)$", path)
    return {"library": path, "library_version": match.group(1) if match else ""}


def begin(environment: Mapping[str, str], gpus: bool) -> None:
    """Start the library in a thread: waking GPUs takes longer than importing the binding.

    Says nothing: `load`, and then the binding's own start, which waits for this one, meet
    whatever is wrong again.
    """
    import _thread
    from ctypes import CDLL

    try:
        chosen = environment.get(VARIABLE, "")
        if chosen:
            _check_chosen(chosen)
        start = CDLL(chosen or NAME).nvmlInitWithFlags
    except (Unusable, OSError, AttributeError):
        return
    if "/stubs/" not in (os.path.realpath(chosen) if chosen else _mapped()):
        _thread.start_new_thread(start, (0 if gpus else QUIET,))


def remark(number: int, found: Mapping[str, str]) -> str:
    """Return what the library's place adds to the error `number` of its start; empty when nothing."""
    path, version = found.get("library", ""), found.get("library_version", "")
    if number == NOT_LOADED and os.path.exists("{}/{}".format(_WSL, NAME)) and not path.startswith(_WSL):
        return "; {} is not the library of this WSL: name {}/{} in {}".format(path, _WSL, NAME, VARIABLE)
    if version:
        return "; the library is version {}".format(version)
    return "; the library is {}".format(path) if path else ""


def _check_chosen(path: str) -> None:
    where = "{}={}: ".format(VARIABLE, path)
    if not os.path.isabs(path):
        raise Unusable(where + "not an absolute path")
    try:
        with open(path, "rb") as stream:
            header = stream.read(_HEADER)
    except OSError as error:
        raise Unusable(where + (error.strerror or str(error)).lower()) from None
    if not header:
        raise Unusable(where + "the file is empty")
    if not header.startswith(b"\x7fELF"):
        raise Unusable(where + "not a library (no ELF file)")
    with open("/proc/self/exe", "rb") as stream:
        own = stream.read(_HEADER)
    # Class, byte order and machine: the loader says of a foreign machine that there is no such file.
    if (header[4:6], header[18:20]) != (own[4:6], own[18:20]):
        raise Unusable(where + "built for another architecture than this Python")


def _unloadable(chosen: str, words: str) -> Unusable:
    if chosen:
        return Unusable("{}={}: cannot be loaded: {}".format(VARIABLE, chosen, words.replace(chosen + ": ", "")))
    if "No such file" in words:
        return Unusable("there is no NVML library ({})".format(NAME), NO_LIBRARY)
    return Unusable("the NVML library cannot be loaded: {}".format(words), NO_LIBRARY)


def _mapped() -> str:
    """Return the path of the NVML library in this process; empty when it cannot be told."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
            found = sorted({line.split(None, 5)[5].strip() for line in stream if "/libnvidia-ml.so" in line})
    except (OSError, IndexError):
        return ""
    return found[0] if found else ""
