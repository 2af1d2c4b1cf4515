"""Lockfile and store to the complete build context: what `render` writes and `build` sends."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envlock.image import bootstrap, render, wheels
from envlock.image.context import MARKER, Item, below, from_bytes, from_file
from envlock.image.wheels import Wheel
from envlock.lockfile import ImageBase, Lockfile
from envlock.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What a person may choose that is no part of the lockfile, and never changes the image's content."""

    registry: str = ""
    template: Path | None = None


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
    text = render.dockerfile_text(lock, choices.registry, choices.template)
    with store.using():
        items = [from_bytes("Dockerfile", text.encode()), from_bytes(MARKER, f"{lock.inputs()}\n".encode())]
        if isinstance(lock.base, ImageBase):
            items += _debs(lock, store)
        else:
            items.append(from_file("base.tar", bootstrap.base_tar(lock, store)))
        items += [from_file(f"files{held.path}", store.path(held.sha256, held.source)) for held in lock.files]
        locked = tuple(Wheel(file=wheel.file, path=store.path(wheel.sha256, wheel.file)) for wheel in lock.python)
        with wheels.planned(locked, lock.environment.python, lock.environment.interpreter) as tree:
            items += below("venv", tree.items)
            yield Context(dockerfile=text, items=tuple(items), clashes=tree.clashes)


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
