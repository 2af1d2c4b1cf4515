"""What an engine holds, proved: saved, hashed, compared with the locked image.

A load that succeeds proves nothing, and `inspect` only claims: an engine may take altered
bytes and show the expected digests. A difference is a value, broken bytes are an error.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from envlock import files
from envlock.digest import Digest, digest_of
from envlock.errors import EngineError
from envlock.image import saved
from envlock.image.engine import Engine
from envlock.lockfile import Image, Layer
from envlock.store import Store

_NOTES = "image-proof"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One layer (or the config) that is not the locked one; an empty text where there is none.

    `entries` are the first files that differ, when the engine still holds the locked image.
    """

    what: str
    locked: str
    found: str
    entries: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What an engine's saved bytes show against a locked image: the same when `differences` is empty."""

    reference: str
    config: Digest
    diff_ids: tuple[Digest, ...]
    differences: tuple[Difference, ...]


def prove(engine: Engine, reference: str, image: Image) -> Proof:
    """Save `reference` from the engine, hash all of it, and compare with the locked `image`.

    Raises `IntegrityError` when a layer's bytes are not what the image's config says,
    `EngineError` when the engine has no such image or fails.
    """
    if engine.inspect_image(reference) is None:
        raise EngineError(f"the engine has no image `{reference}`", hint="`envlock build` makes it")
    found = saved.read_saved(engine.save(reference), reference)
    return Proof(
        reference=reference,
        config=found.config,
        diff_ids=found.diff_ids,
        differences=differences(image, found.config, found.diff_ids),
    )


def differences(locked: Image, config: Digest, diff_ids: tuple[Digest, ...]) -> tuple[Difference, ...]:
    """Return how an image with `config` and `diff_ids` differs from the locked one."""
    found = []
    for index in range(max(len(locked.layers), len(diff_ids))):
        layer = locked.layers[index] if index < len(locked.layers) else None
        other = diff_ids[index] if index < len(diff_ids) else None
        if layer is None or layer.diff_id != other:
            what = f"layer {index + 1}" + (f" ({layer.owner})" if layer is not None else "")
            found.append(Difference(what=what, locked=str(layer.diff_id) if layer else "", found=str(other or "")))
    if config != locked.config:
        found.insert(0, Difference(what="config", locked=str(locked.config), found=str(config)))
    return tuple(found)


def image_differences(locked: Image, found: Image) -> tuple[Difference, ...]:
    """Return how two recorded images differ, layers matched by their owner."""
    if locked == found:
        return ()
    listed = [Difference(what="config", locked=str(locked.config), found=str(found.config))]
    owners = list(dict.fromkeys(layer.owner for layer in (*locked.layers, *found.layers)))
    for owner in owners:
        one, other = _of(locked, owner), _of(found, owner)
        if [layer.diff_id for layer in one] != [layer.diff_id for layer in other]:
            listed.append(Difference(what=f"layer {owner}", locked=_described(one), found=_described(other)))
    return tuple(listed)


def _of(image: Image, owner: str) -> list[Layer]:
    return [layer for layer in image.layers if layer.owner == owner]


def _described(layers: list[Layer]) -> str:
    return ", ".join(f"{layer.diff_id} ({layer.size} bytes)" for layer in layers)


# ---- remembering a proof ---------------------------------------------------------------


def remember(engine: Engine, store: Store, name: str, image: Image) -> None:
    """Note that this engine's image of this Id was saved and hashed by us."""
    ident = engine.image_id(name)
    record = json.dumps({"id": ident, "config": image.config}, sort_keys=True).encode()
    files.write_atomic(_note(store, engine, name), record + b"\n")


def proven(engine: Engine, store: Store, name: str, image: Image) -> bool:
    """Return whether the engine holds, under `name`, an image that was proven to be `image`.

    It is our own earlier proof of this engine and image Id that is believed, not what
    `inspect` says of the layers; `prove` does the whole work again.
    """
    note = _note(store, engine, name)
    if not note.exists():
        return False
    try:
        held = json.loads(files.read_bytes(note))
    except ValueError:
        return False
    found = engine.inspect_image(name)
    return found is not None and held == {"id": found.get("Id"), "config": str(image.config)}


def _note(store: Store, engine: Engine, name: str) -> Path:
    key = digest_of({"engine": engine.transport.endpoint.url, "name": name})
    return store.root / _NOTES / f"{key.hex}.json"


def reference_of(engine: Engine, image: Image) -> str | None:
    """Return the Id under which `engine` may hold `image`, in either kind of store; None when it does not.

    It is where to look, not a proof of what is there.
    """
    ident = str(image.manifest if engine.info.containerd_store else image.config)
    return ident if engine.inspect_image(ident) is not None else None
