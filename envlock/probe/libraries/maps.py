"""The files that a process has mapped, from the text of /proc/PID/maps (proc(5)).

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

DELETED = " (deleted)"


class Mapped(NamedTuple):
    """One executable file of a process.

    `span` is the first executable mapping as /proc/PID/map_files names it; `device` and
    `inode` are the file's as the kernel prints them. `deleted`: the name leads to no file,
    or to another one, while the process still runs this one.
    """

    path: str
    span: str
    device: str
    inode: int
    deleted: bool


def executable(maps: str) -> List[Mapped]:
    """Return the files of which a process may execute code, each once, by path.

    A newline in a name is `\\012` in the text, as the kernel writes it, and stays so.
    """
    found: Dict[Tuple[str, int], Mapped] = {}
    # Not splitlines: a name may hold what Python takes for the end of a line.
    for line in maps.split("\n"):
        fields = line.split(None, 5)
        if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
            path = fields[5]
            deleted = path.endswith(DELETED)
            key = (path, int(fields[4]) if fields[4].isdigit() else 0)
            path = path[: -len(DELETED)] if deleted else path
            found.setdefault(key, Mapped(path, _span(fields[0]), fields[3], key[1], deleted))
    return sorted(found.values(), key=lambda item: (item.path, item.deleted))


def _span(text: str) -> str:
    """Return an address range as /proc/PID/map_files spells it: without leading zeros."""
    return "-".join(part.lstrip("0") or "0" for part in text.split("-"))
