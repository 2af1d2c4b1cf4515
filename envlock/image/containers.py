"""Containers of one engine: made with a mark, started, watched, and always removed."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from envlock.errors import EngineError
from envlock.image import owner

if TYPE_CHECKING:
    from envlock.image.engine import Engine

_QUICK = 60.0
_CREATE = 600.0  # storage without layers (vfs) copies the whole image


@contextlib.contextmanager
def created(engine: "Engine", config: dict[str, Any]) -> Iterator[str]:
    """Create a container from `config` (the engine API's own form), and remove it after the block.

    It carries the mark of this process, so that the next run removes it when this one is
    killed. Its name is the engine's choice: a clash of names is 409 on Docker, 500 on Podman.
    """
    labels = {**config.get("Labels", {}), owner.LABEL: str(owner.own_mark())}
    found = engine.transport.call(
        "cannot create the container", "POST", "/containers/create", deadline=_CREATE, body={**config, "Labels": labels}
    )
    ident = found.get("Id") if isinstance(found, dict) else None
    if not isinstance(ident, str) or not ident.isalnum():
        raise EngineError("cannot create the container: the engine's answer names none")
    try:
        yield ident
    finally:
        engine.remove_container(ident)


def start(engine: "Engine", ident: str) -> None:
    """Start a created container; `EngineError` when its program cannot be run."""
    engine.transport.call("cannot start the container", "POST", f"/containers/{quote(ident)}/start", deadline=_QUICK)


def kill(engine: "Engine", ident: str) -> None:
    """Kill a container; one that has ended is no error."""
    with contextlib.suppress(EngineError):
        engine.transport.call("cannot kill the container", "POST", f"/containers/{quote(ident)}/kill", deadline=10.0)


def wait(engine: "Engine", ident: str, deadline: float) -> None:
    """Wait for a container's end; `EngineError` when it has not come within `deadline` seconds."""
    engine.transport.call(
        "cannot wait for the container", "POST", f"/containers/{quote(ident)}/wait", deadline=deadline
    )


def inspect(engine: "Engine", ident: str) -> dict[str, Any]:
    """Return what the engine says about a container."""
    what = "cannot inspect the container"
    found = engine.transport.call(what, "GET", f"/containers/{quote(ident)}/json", deadline=_QUICK)
    if not isinstance(found, dict):
        raise EngineError(f"{what}: the engine's answer is no description of a container")
    return found
