"""Clearing up after an envlock that was killed: its containers and its temporary images."""

import contextlib
import time
from typing import TYPE_CHECKING, Any

from envlock.image import owner
from envlock.image.failures import EngineRefused

if TYPE_CHECKING:
    from envlock.image.engine import Engine


def reap(engine: "Engine", older: float) -> tuple[str, ...]:
    """Remove what nobody will remove any more; return the names of what was removed.

    A thing of this boot and PID namespace goes when its process is gone. A thing from
    elsewhere goes when it is more than `older` seconds old. What the engine refuses to
    remove (another envlock is at it, or it is in use) stays for the next time. Raises
    `EngineError` when the engine does not answer.
    """
    removed = []
    now = time.time()
    for container in engine.containers(owner.LABEL):
        labels = container.get("Labels")
        mark = owner.parse(str(labels.get(owner.LABEL, ""))) if isinstance(labels, dict) else None
        ident = str(container.get("Id", ""))
        if _is_left_over(mark, container.get("Created"), now, older):
            with contextlib.suppress(EngineRefused):
                engine.remove_container(ident)
                removed.append(f"container {ident[:12]}")
    for name in engine.images(f"{owner.TEMPORARY}:*"):
        tag = name.rpartition(":")[2]
        if _is_left_over(owner.parse(tag), owner.born(tag), now, older):
            with contextlib.suppress(EngineRefused):
                engine.remove_image(name)
                removed.append(f"image {name}")
    return tuple(removed)


def _is_left_over(mark: owner.Mark | None, created: Any, now: float, older: float) -> bool:
    if mark is None:
        return False
    found = owner.state(mark)
    if found != owner.UNKNOWN:
        return found == owner.GONE
    return isinstance(created, int) and now - created > older
