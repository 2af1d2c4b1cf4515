"""Watching a program where it cannot be followed: looking at it and its children again and again.

What is loaded and gone between two looks is not seen, and that is said: a list made so
is never "all".

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Dict, List, Optional, Sequence, Set

from envlock.probe.libraries.launching import launch, not_started
from envlock.probe.libraries.tracing import Followed, Look, kill

INTERVAL = 0.02
"""Seconds between two looks; longer where a look takes more than a tenth of it."""

_SHARE = 10
_GRACE = 5.0


def watch(command: Sequence[str], look: Look, deadline: Optional[float], why: str) -> Followed:
    """Run `command` to its end, or for `deadline` seconds, and call `look` with it and its children meanwhile.

    `why` says why it is not followed. Raises `ToolError` when it cannot be started.
    """
    launched = launch(command)
    failure = launched.open()
    if failure:
        os.waitpid(launched.pid, 0)
        raise not_started(command, failure)
    seen: Set[int] = set()
    longest = [INTERVAL]
    try:
        status = _until_its_end(launched.pid, look, deadline, seen, longest)
    except BaseException:
        kill(launched.pid, signal.SIGTERM)
        raise
    gap = (
        "{}, so it was looked at again and again, up to {:.2g} s apart: a library that was loaded and gone in"
        " between, or by a process that lived no longer, was not seen".format(why, max(longest))
    )
    return Followed(status, len(seen), (gap,))


def _until_its_end(
    root: int, look: Look, deadline: Optional[float], seen: Set[int], longest: List[float]
) -> Optional[int]:
    until = None if deadline is None else time.monotonic() + deadline
    ending = False
    below: List[int] = []
    before = time.monotonic()
    while True:
        begun = time.monotonic()
        longest[0], before = max(longest[0], begun - before), begun
        for pid in [root, *_descendants(root)]:
            try:
                look(pid, pid)
                seen.add(pid)
            except OSError:
                continue  # gone meanwhile
        pid, status = os.waitpid(root, os.WNOHANG)
        if pid:
            for child in below:
                kill(child, signal.SIGKILL)
            return None if ending else status
        now = time.monotonic()
        if until is not None and now >= until:
            below = below or _descendants(root)
            kill(root, signal.SIGKILL if ending else signal.SIGTERM)
            ending, until = True, now + _GRACE
        time.sleep(max(INTERVAL, _SHARE * (now - begun)))


def _descendants(root: int) -> List[int]:
    """Return the processes below `root`, by the parents that procfs names."""
    parents: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/{}/stat".format(name), "rb") as stream:
                    # The name in parentheses may hold anything: the fields follow its last parenthesis.
                    parent = int(stream.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            parents.setdefault(parent, []).append(int(name))
    found: List[int] = []
    pending = [root]
    while pending:
        children = parents.get(pending.pop(), [])
        found += children
        pending += children
    return found
