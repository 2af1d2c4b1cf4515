"""Which NVML library is loaded: the system's, or the one that ENVLOCK_NVML_LIBRARY names.

Loaded before the binding loads it, because the binding says "not found" to whatever keeps
a library from being loaded: a file of no bytes, another architecture, a stub.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Mapping

from envlock.nvml_start import NAME, QUIET, VARIABLE, Unusable, check_chosen, mapped
from envlock.probe.nvml.binding import NO_LIBRARY, NOT_LOADED

_WSL = "/usr/lib/wsl/lib"

__all__ = ["NAME", "QUIET", "VARIABLE", "Unusable", "load", "remark"]


def load(pynvml: Any, environment: Mapping[str, str]) -> Dict[str, str]:
    """Load the library for the module `pynvml` and return where it lies; raises `Unusable`.

    `library` is the path of the loaded file, links followed, `library_version` the version
    in its name; both are empty where they cannot be told.
    """
    if getattr(pynvml, "nvmlLib", None) is None:
        from ctypes import CDLL

        chosen = environment.get(VARIABLE, "")
        if chosen:
            check_chosen(chosen)
        try:
            pynvml.nvmlLib = CDLL(chosen or NAME)
        except OSError as error:
            raise _unloadable(chosen, str(error)) from None
        path = os.path.realpath(chosen) if chosen else mapped()
    else:
        path = ""
    if "/stubs/" in path:
        raise Unusable("{} is the stub that programs are linked with, not a driver's library".format(path))
    match = re.search(r"\.so\.(\d+(?:\.\d+)+)$", path)
    return {"library": path, "library_version": match.group(1) if match else ""}


def remark(number: int, found: Mapping[str, str]) -> str:
    """Return what the library's place adds to the error `number` of its start; empty when nothing."""
    path, version = found.get("library", ""), found.get("library_version", "")
    if number == NOT_LOADED and os.path.exists("{}/{}".format(_WSL, NAME)) and not path.startswith(_WSL):
        return "; {} is not the library of this WSL: name {}/{} in {}".format(path, _WSL, NAME, VARIABLE)
    if version:
        return "; the library is version {}".format(version)
    return "; the library is {}".format(path) if path else ""


def _unloadable(chosen: str, words: str) -> Unusable:
    if chosen:
        return Unusable("{}={}: cannot be loaded: {}".format(VARIABLE, chosen, words.replace(chosen + ": ", "")))
    if "No such file" in words:
        return Unusable("there is no NVML library ({})".format(NAME), NO_LIBRARY)
    return Unusable("the NVML library cannot be loaded: {}".format(words), NO_LIBRARY)
