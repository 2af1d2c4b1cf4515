"""Lockfile and store to the complete build context: what `render` writes and `build` sends."""

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envlock.errors import CouldNotTell, IntegrityError
from envlock.image import bootstrap, render, wheels
from envlock.image.context import MARKER, Item, below, from_bytes, from_file
from envlock.image.wheels import Wheel
from envlock.lockfile import ImageBase, LockedFile, Lockfile
from envlock.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What a person may choose that is no part of the lockfile, and never changes the image's content."""

    registry: str = ""
    fresh: bool = False
    """Make the base anew, although the store has it."""
    template: Path | None = None
    base: str = ""
    """How the engine at hand calls the base image, when it has it under no registry's name."""
    folder: Path = Path()
    """Where the spec lies, and with it the sources of model and data files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """A complete build context: the Dockerfile's text, every item, and what wheels disagree about."""

    dockerfile: str
    items: tuple[Item, ...]
    clashes: tuple[str, ...]


@contextlib.contextmanager
def context(lock: Lockfile, store: Store, choices: Choices) -> Iterator[Context]:
    """Give the context of `lock`, its files from `store`, for the time of the block.

    Every file is hashed before it is used. Raises `CouldNotTell` for one that the store
    does not hold, `IntegrityError` for one that is not what the lockfile says.
    """
    text = render.dockerfile_text(lock, choices.registry, choices.template, choices.base)
    with store.using():
        items = [from_bytes("Dockerfile", text.encode()), from_bytes(MARKER, f"{lock.inputs()}\n".encode())]
        if isinstance(lock.base, ImageBase):
            items += _debs(lock, store)
        else:
            items.append(from_file("base.tar", bootstrap.base_tar(lock, store, choices.fresh)))
        items += [from_locked(f"files{held.path}", choices.folder / held.source, held) for held in lock.files]
        locked = tuple(Wheel(file=wheel.file, path=store.path(wheel.sha256, wheel.file)) for wheel in lock.python)
        with wheels.planned(locked, lock.environment.python, lock.environment.interpreter) as tree:
            items += below("venv", tree.items)
            yield Context(dockerfile=text, items=tuple(items), clashes=tree.clashes)


def from_locked(path: str, source: Path, held: LockedFile) -> Item:
    """Return a model or data file of the context; its bytes are hashed while they are read."""
    if not source.is_file():
        raise CouldNotTell(
            "no such file",
            where=source,
            hint="name the spec with `-f` (files lie beside it), or put it back",
        )
    return Item(path=path, mode=0o644, size=held.size, content=lambda: _hashed(source, held))


def _hashed(source: Path, held: LockedFile) -> Iterator[bytes]:
    state = hashlib.sha256()
    for chunk in from_file(held.path, source).chunks():
        state.update(chunk)
        yield chunk
    if state.hexdigest() != held.sha256.hex:
        raise IntegrityError(
            f"has digest sha256:{state.hexdigest()}, locked is {held.sha256}",
            where=source,
            hint="`envlock lock` locks the file as it is now",
        )


def _debs(lock: Lockfile, store: Store) -> list[Item]:
    if not lock.apt:
        return []
    packages = "".join(f"{deb.name} {deb.version}\n" for deb in lock.apt)
    items = [
        from_bytes("debs/install.sh", render.built_in("install-debs.sh").encode(), 0o755),
        from_bytes("debs/packages", packages.encode()),
        from_bytes("debs/epoch", f"{lock.environment.epoch}\n".encode()),
    ]
    for deb in lock.apt:
        name = f"{deb.name}_{deb.version.replace(':', '%3a')}_{deb.architecture}.deb"
        items.append(from_file(f"debs/{name}", store.path(deb.sha256, deb.file)))
    return items
