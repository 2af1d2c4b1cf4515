"""Who made a container or a temporary image, so that the next run can clear up after a killed one.

The mark says which process it was: its pid and start time, in which PID namespace of
which boot, on which host. Read from another place (an engine may be shared), a mark
only tells that it cannot be known whether its process lives.
"""

import contextlib
import hashlib
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

LABEL = "dev.envlock.owner"
TEMPORARY = "envlock-temporary"
"""The repository of every temporary image; its tag is the mark of its process."""

_MARK = re.compile(r"p(\d{1,10})-t(\d{1,20})-([0-9a-f]{12})(?:-([0-9a-f]{8})-[0-9a-f]{8})?")

GONE = "gone"
ALIVE = "alive"
UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """One process: `started` in clock ticks since boot, `place` its boot and PID namespace."""

    pid: int
    started: int
    place: str

    def __str__(self) -> str:
        return f"p{self.pid}-t{self.started}-{self.place}"


def own_mark() -> Mark:
    """Return the mark of this process."""
    return Mark(pid=os.getpid(), started=_started(os.getpid()) or 0, place=_place())


def parse(text: str) -> Mark | None:
    """Return the mark that `text` is or, as an image's tag, begins with; None when it is none."""
    found = _MARK.fullmatch(text)
    if found is None:
        return None
    return Mark(pid=int(found[1]), started=int(found[2]), place=found[3])


def born(tag: str) -> int | None:
    """Return when a temporary image's tag was made, in seconds since 1970."""
    found = _MARK.fullmatch(tag)
    return int(found[4], 16) if found is not None and found[4] else None


def state(mark: Mark) -> str:
    """Return `gone` or `alive`; `unknown` for a process of another boot or PID namespace."""
    if mark.place != _place():
        return UNKNOWN
    return ALIVE if _started(mark.pid) == mark.started else GONE


def temporary_tag() -> str:
    """Return a new image name that `reap` removes once this process is gone."""
    return f"{TEMPORARY}:{own_mark()}-{int(time.time()):08x}-{secrets.token_hex(4)}"


def _place() -> str:
    boot = namespace = ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as stream:
        boot = stream.read().strip()
    with contextlib.suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]


def _started(pid: int) -> int | None:
    """Return the start time of `pid` in clock ticks since boot (proc(5), field 22), None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
