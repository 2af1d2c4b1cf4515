"""Clearing up after an envlock that was killed: its containers and its temporary images."""

import time
from typing import TYPE_CHECKING, Any

from envlock.image import owner

if TYPE_CHECKING:
    from envlock.image.engine import Engine


def reap(engine: "Engine", older: float) -> tuple[str, ...]:
    """Remove what nobody will remove any more; return the names of what was removed.

    A thing of this boot and PID namespace goes when its process is gone. A thing from
    elsewhere goes when it is more than `older` seconds old. Raises `EngineError`.
    """
    removed = []
    now = time.time()
    for container in engine.containers(owner.LABEL):
        labels = container.get("Labels")
        mark = owner.parse(str(labels.get(owner.LABEL, ""))) if isinstance(labels, dict) else None
        if _is_left_over(mark, container.get("Created"), now, older):
            ident = str(container.get("Id", ""))
            engine.remove_container(ident)
            removed.append(f"container {ident[:12]}")
    for name in engine.images(f"{owner.TEMPORARY}:*"):
        mark = owner.parse(name.rpartition(":")[2])
        # The creation time of an image is its content's (an epoch), not its name's: no age is known.
        if _is_left_over(mark, None, now, older):
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
