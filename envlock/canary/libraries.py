"""The shared libraries this process has loaded, each with its ELF build id, and which of them decide.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
from typing import Dict, Iterable, List, Tuple

from envlock.probe.libraries.elf import build_id
from envlock.probe.libraries.maps import DELETED, executable

# Libraries whose code computes what the suite hashes, by the start of their file names.
_DECIDING = (
    "libtorch.so", "libtorch_cpu", "libtorch_cuda", "libtorch_hip", "libtorch_xpu", "libc10",
    "libgomp", "libiomp5", "libomp", "libm.so", "libmvec", "libmkl", "libopenblas", "libblis", "libarm_compute",
    "libcuda.so", "libcudart", "libcublas", "libcudnn", "libcufft", "libcusolver", "libcusparse", "libcurand",
    "libnvrtc", "libnvJitLink", "libnvidia-ptxjitcompiler", "libnvidia-nvvm",
    "libamdhip64", "libhipblas", "librocblas", "libMIOpen", "libmiopen",
)  # fmt: skip


def read(maps_path: str = "/proc/self/maps") -> List[Dict[str, str]]:
    """Return name, path and build id of each library this process has loaded, by path."""
    with open(maps_path, encoding="utf-8", errors="surrogateescape") as stream:
        mapped = executable(stream.read())
    found = []
    # A deleted file keeps the kernel's word for it: what now lies under its name is another one.
    for path in [item.path + DELETED * item.deleted for item in mapped]:
        try:
            with open(path, "rb") as binary:
                identity = build_id(binary)
        except (OSError, ValueError) as error:
            identity = "(unreadable: {})".format(error)
        shown = path.encode("utf-8", "replace").decode("utf-8")
        found.append({"name": os.path.basename(shown), "path": shown, "build-id": identity})
    return found


def deciding(libraries: Iterable[Dict[str, str]]) -> Tuple[Tuple[str, str], ...]:
    """Return name and build id of those libraries that compute what the suite hashes."""
    return tuple(sorted({(item["name"], item["build-id"]) for item in libraries if item["name"].startswith(_DECIDING)}))
