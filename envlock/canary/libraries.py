"""The shared libraries a process has loaded, each with its ELF build id.

A build id (`.note.gnu.build-id`) names one build of one library, whatever its file name
or version says. Read from the file's own program headers (System V ABI, "Note Section";
NT_GNU_BUILD_ID is 3), with nothing installed.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, Dict, Iterable, List, Tuple

NO_BUILD_ID = "(no build id)"

_PT_NOTE = 4
_NT_GNU_BUILD_ID = 3
_MOST_NOTES = 1 << 16

# Libraries whose code computes what the suite hashes, by the start of their file names.
_DECIDING = (
    "libtorch.so", "libtorch_cpu", "libtorch_cuda", "libtorch_hip", "libtorch_xpu", "libc10",
    "libgomp", "libiomp5", "libomp", "libm.so", "libmvec", "libmkl", "libopenblas", "libblis", "libarm_compute",
    "libcuda.so", "libcudart", "libcublas", "libcudnn", "libcufft", "libcusolver", "libcusparse", "libcurand",
    "libnvrtc", "libamdhip64", "libhipblas", "librocblas", "libMIOpen", "libmiopen",
)  # fmt: skip


def loaded(maps: str) -> List[str]:
    """Return the paths of executable files mapped by a process, from the text of /proc/PID/maps."""
    paths = set()
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
            paths.add(fields[5])
    return sorted(paths)


def build_id(stream: BinaryIO) -> str:
    """Return the build id of the ELF file in `stream` as hex, or why there is none.

    Raises `ValueError` when it is no ELF file that can be read.
    """
    head = stream.read(64)
    if len(head) < 52 or head[:4] != b"\x7fELF":
        raise ValueError("not an ELF file")
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    if wide:
        offset = struct.unpack_from(order + "Q", head, 32)[0]
        size, count = struct.unpack_from(order + "HH", head, 54)
    else:
        offset = struct.unpack_from(order + "I", head, 28)[0]
        size, count = struct.unpack_from(order + "HH", head, 42)
    for index in range(count):
        stream.seek(offset + index * size)
        header = stream.read(size)
        if len(header) < size:
            raise ValueError("the ELF program headers are cut off")
        if struct.unpack_from(order + "I", header)[0] != _PT_NOTE:
            continue
        start, length = struct.unpack_from(order + ("8xQ16xQ" if wide else "4xI8xI"), header)
        stream.seek(start)
        found = _in_notes(stream.read(min(length, _MOST_NOTES)), order)
        if found:
            return found
    return NO_BUILD_ID


def _in_notes(notes: bytes, order: str) -> str:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from(order + "III", notes, at)
        name = notes[at + 12 : at + 12 + name_size].rstrip(b"\x00")
        begin = at + 12 + _aligned(name_size)
        if name == b"GNU" and kind == _NT_GNU_BUILD_ID and size:
            return notes[begin : begin + size].hex()
        at = begin + _aligned(size)
    return ""


def _aligned(size: int) -> int:
    return (size + 3) & ~3


def read(maps_path: str = "/proc/self/maps") -> List[Dict[str, str]]:
    """Return name, path and build id of each library this process has loaded, by path."""
    with open(maps_path, encoding="utf-8", errors="surrogateescape") as stream:
        paths = loaded(stream.read())
    found = []
    for path in paths:
        try:
            with open(path, "rb") as binary:
                identity = build_id(binary)
        except (OSError, ValueError, struct.error) as error:
            identity = "(unreadable: {})".format(error)
        shown = path.encode("utf-8", "replace").decode("utf-8")
        found.append({"name": os.path.basename(shown), "path": shown, "build-id": identity})
    return found


def deciding(libraries: Iterable[Dict[str, str]]) -> Tuple[Tuple[str, str], ...]:
    """Return name and build id of those libraries that compute what the suite hashes."""
    return tuple(sorted({(item["name"], item["build-id"]) for item in libraries if item["name"].startswith(_DECIDING)}))
