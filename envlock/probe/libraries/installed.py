"""What lies on disk beside what was loaded: toolkits, an image's variables, empty files. Information only.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import os
from typing import Iterable, List, Mapping, Sequence, Tuple

from envlock.probe.libraries.kinds import kind_of

_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64", "/usr/local/cuda/lib64", "/run/opengl-driver/lib",
)  # fmt: skip
_VARIABLES = ("CUDA_VERSION", "NV_CUDNN_VERSION", "NCCL_VERSION", "NVIDIA_REQUIRE_CUDA")
_MOST = 1 << 20


def toolkits(root: str) -> List[Tuple[str, str]]:
    """Return each CUDA toolkit below /usr/local with the versions that its `version.json` tells."""
    found = []
    for name in _names(root + "/usr/local"):
        path = "/usr/local/{}".format(name)
        if name.startswith("cuda") and not os.path.islink(root + path):
            try:
                with open("{}{}/version.json".format(root, path), "rb") as stream:
                    said = toolkit(stream.read(_MOST))
            except OSError:
                continue
            found.append(("toolkit " + path, said))
    return found


def toolkit(text: bytes) -> str:
    """Return runtime and compiler as a `version.json` tells them.

    Not its entry `cuda`: that of CUDA 12.6.3 holds a date.
    """
    try:
        document = json.loads(text.decode("utf-8"))
        said = [
            (word, str(document[key]["version"]))
            for word, key in (("runtime", "cuda_cudart"), ("compiler", "cuda_nvcc"))
            if key in document
        ]
    except (ValueError, KeyError, TypeError):
        return "(its version.json cannot be read)"
    return ", ".join("{} {}".format(*pair) for pair in said) or "(its version.json names no runtime)"


def variables(environment: Mapping[str, str]) -> List[Tuple[str, str]]:
    """Return what an image's variables say about CUDA; they stay when the libraries are replaced."""
    return [("variable " + name, environment[name]) for name in _VARIABLES if environment.get(name)]


def system_cudnn(listing: str) -> List[Tuple[str, str]]:
    """Return the cuDNN files in the output of `ldconfig -p`; a process of wheels loads none of them."""
    found = []
    for line in listing.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        kind = kind_of(name.split(" ")[0])
        if arrow and kind is not None and kind.family == "cudnn":
            found.append(("ldconfig " + name.split(" ")[0], path))
    return found


def empty(root: str, folders: Iterable[str]) -> Sequence[str]:
    """Return the libraries of 0 bytes in `folders` and in those where drivers and toolkits lie."""
    found = []
    for folder in dict.fromkeys((*folders, *_FOLDERS)):
        for name in _names(root + folder):
            if ".so" not in name or not (name.startswith("libnvidia") or kind_of(name)):
                continue
            path = "{}/{}".format(folder.rstrip("/"), name)
            try:
                held = os.stat(root + path)
            except OSError:
                continue
            if held.st_size == 0:
                found.append(path)
    return tuple(dict.fromkeys(found))


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
