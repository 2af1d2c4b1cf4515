"""A build in which nothing has to run, done without a builder.

A Dockerfile of `FROM`, `ADD base.tar`, `COPY` and settings says completely what the image
holds: its layers can be put together from the context as they are. That is what an
engine's builder would do in three copies; the canonical image is the same (a test builds
both ways). What has a `RUN` goes to an engine.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from envlock.digest import Digest
from envlock.errors import IntegrityError
from envlock.image import layout, tarwriter
from envlock.image.context import FOLDER_MODE, Item, checked, gathered, ordered, tar_entry
from envlock.image.dockerfile import Instruction
from envlock.image.layout import Member, Spooled

_SETTINGS = {"USER": "User", "CMD": "Cmd", "ENTRYPOINT": "Entrypoint", "WORKDIR": "WorkingDir"}
_BASE_TAR = Instruction("ADD", ("base.tar", "/"))


def is_enough(instructions: Iterable[Instruction]) -> bool:
    """Return whether these instructions can be followed here, with nothing to run."""
    return all(_is_known(item) for item in instructions)


def _is_known(item: Instruction) -> bool:
    if item.keyword == "COPY":
        return not any(word.startswith("--") or set(word) & set("*?[") for word in item.arguments)
    if item.keyword in ("USER", "WORKDIR"):
        return len(item.arguments) == 1
    if item.keyword in ("CMD", "ENTRYPOINT"):
        return item.is_array
    return item == _BASE_TAR or item.keyword in ("ARG", "FROM", "ENV", "LABEL")


@contextlib.contextmanager
def assembled(
    instructions: tuple[Instruction, ...],
    items: tuple[Item, ...],
    base: Iterator[bytes] | None,
    epoch: int,
    folder: Path,
) -> Iterator[Spooled]:
    """Give the image that `instructions` make of the context `items`, as if an engine had saved it.

    `base` is the saved archive of the base image, None for `FROM scratch`. Everything
    lies in an unnamed file in `folder`.
    """
    with layout.spool(folder) as target:
        layers: list[Member] = []
        settings: dict[str, Any] = {}
        if base is not None:
            below = layout.receive(base, target, "the base image")
            layers += below.layers
            settings = dict(below.document.get("config") or {})
        context = {item.path: item for item in ordered(items)}
        for item in instructions:
            if item == _BASE_TAR:
                layers.append(target.append(checked(_needed(context, "base.tar"))))
        copies = [item for item in instructions if item.keyword == "COPY"]
        if copies:
            layers.append(target.append(gathered(_copied(copies, context, epoch))))
        for item in instructions:
            _set(settings, item)
        yield Spooled(
            descriptor=target.descriptor,
            document={"config": settings},
            config=Digest.from_hex("0" * 64),
            layers=tuple(layers),
        )


def _needed(context: dict[str, Item], path: str) -> Item:
    if path not in context:
        raise IntegrityError("the Dockerfile names a file that the context does not hold", where=path)
    return context[path]


def _copied(copies: list[Instruction], context: dict[str, Item], epoch: int) -> Iterator[bytes]:
    """Yield one layer with all that is copied; a later copy of a path replaces an earlier one."""
    found: dict[str, Item] = {}
    for item in copies:
        *sources, target = item.arguments
        for source in sources:
            for placed in _placed(context, source.rstrip("/"), target.lstrip("/")):
                found[placed.path] = placed
    for path in sorted(found, key=str.encode):
        yield from tar_entry(found[path], epoch)
    yield tarwriter.END


def _placed(context: dict[str, Item], source: str, target: str) -> Iterator[Item]:
    """Yield the items of one source under their path in the image.

    As COPY does: of a folder its content is copied, a file keeps its name below a target
    that ends with `/`. Folders above are left to the layer's reader: those that are there
    keep their modes, missing ones are made.
    """
    held = _needed(context, source)
    if not held.folder:
        path = target + source.rpartition("/")[2] if target.endswith("/") or not target else target
        yield replace(held, path=path)
        return
    root = target.rstrip("/")
    if root:
        yield Item(path=root, mode=FOLDER_MODE, size=0, folder=True)
    for path, item in context.items():
        if path.startswith(f"{source}/"):
            yield replace(item, path=f"{root}/{path[len(source) + 1 :]}".lstrip("/"))


def _set(settings: dict[str, Any], item: Instruction) -> None:
    if item.keyword in ("ENV", "LABEL"):
        pairs = dict(zip(item.arguments[::2], item.arguments[1::2], strict=True))
        if item.keyword == "LABEL":
            settings["Labels"] = {**(settings.get("Labels") or {}), **pairs}
        else:
            held = dict(text.partition("=")[::2] for text in settings.get("Env") or ())
            settings["Env"] = [f"{name}={value}" for name, value in {**held, **pairs}.items()]
    elif item.keyword in ("CMD", "ENTRYPOINT"):
        settings[_SETTINGS[item.keyword]] = list(item.arguments)
        if item.keyword == "ENTRYPOINT" and "Cmd" in settings:
            settings.pop("Cmd")  # of the base: an ENTRYPOINT resets it
    elif item.keyword in _SETTINGS:
        settings[_SETTINGS[item.keyword]] = item.arguments[0]
