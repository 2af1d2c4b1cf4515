"""Building the canonical image of a lockfile, and proving what an engine holds of it.

Steps: the context is streamed to the engine and built there; the built image is saved and
made canonical; the canonical image is loaded, saved again and hashed: only that proves it.
A difference is a value of this module, never an exception.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from envlock import files
from envlock.digest import Digest, digest_of
from envlock.errors import EngineError, IntegrityError
from envlock.image import assemble, dockerfile, layout, render, saved
from envlock.image.canonical import canonical, recorded, shape_of
from envlock.image.context import gathered, tar_stream
from envlock.image.engine import Engine, temporary_tag
from envlock.image.layout import OutputImage, Spooled
from envlock.image.plan import Choices, context
from envlock.lockfile import Image, ImageBase, Layer, Lockfile
from envlock.store import Store

Say = Callable[[str], None]

_PROOF = "image-proof"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One layer (or the config) that is not the locked one; an empty text where there is none."""

    what: str
    locked: str
    found: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What an engine's saved bytes show against a locked image: the same when `differences` is empty."""

    reference: str
    config: Digest
    diff_ids: tuple[Digest, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """What `build` made: the image as recorded, and under which name the engine holds it."""

    image: Image
    reference: str
    differences: tuple[Difference, ...]


def full_name(lock: Lockfile) -> str:
    """Return the name under which the image is loaded: complete, so that no engine adds a registry."""
    return f"localhost/envlock/{lock.environment.name}:{lock.inputs().short}"


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
    if config == locked.config:
        return ()
    found = []
    for index in range(max(len(locked.layers), len(diff_ids))):
        layer = locked.layers[index] if index < len(locked.layers) else None
        other = diff_ids[index] if index < len(diff_ids) else None
        if layer is None or layer.diff_id != other:
            what = f"layer {index + 1}" + (f" ({layer.owner})" if layer is not None else "")
            found.append(Difference(what=what, locked=str(layer.diff_id) if layer else "", found=str(other or "")))
    return (Difference(what="config", locked=str(locked.config), found=str(config)), *found)


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


# ---- building --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What is asked of `build`: the image's full `name` in the engine, an archive to write, and how.

    With `by_engine` the engine's own builder does the work even where nothing has to
    run; `cache` lets it reuse its steps.
    """

    name: str
    output: Path | None = None
    by_engine: bool = False
    cache: bool = True
    choices: Choices = dataclasses.field(default_factory=Choices)


def build(engine: Engine, lock: Lockfile, store: Store, say: Say, order: Order) -> Built:
    """Build `lock`, load the canonical image, prove it, and return it with its differences.

    Where nothing has to run, the layers are assembled here from the same context that a
    builder would get. A temporary image is removed whatever happens; one of a killed run
    is removed by the next (`Engine.reap`).
    """
    refuse_foreign_platform(engine, lock)
    engine.reap()
    with context(lock, store, order.choices) as made:
        for clash in made.clashes:
            say(f"two wheels bring {clash}; the last one is taken")
        _fetch_base(engine, lock, say, order.choices)
        instructions = dockerfile.parse(made.dockerfile, "the Dockerfile")
        if not order.by_engine and assemble.is_enough(instructions):
            say("assembling the layers")
            base = engine.save(base_reference(lock, order.choices)) if isinstance(lock.base, ImageBase) else None
            with assemble.assembled(instructions, made.items, base, lock.environment.epoch, store.root) as image:
                return _finished(engine, lock, store, say, order, image)
        tag = temporary_tag()
        try:
            say("building")
            engine.build(tar_stream(made.items, lock.environment.epoch), tag, nocache=not order.cache)
            return from_image(engine, lock, store, say, order, tag)
        finally:
            engine.remove_image(tag)


def from_image(engine: Engine, lock: Lockfile, store: Store, say: Say, order: Order, reference: str) -> Built:
    """Like `build`, from an image that somebody built from the rendered folder."""
    say("reading what was built")
    with layout.spooled(engine.save(reference), store.root, reference) as image:
        return _finished(engine, lock, store, say, order, image)


def refuse_foreign_platform(engine: Engine, lock: Lockfile) -> None:
    """Raise `EngineError` when the engine's machine cannot run the lockfile's platform."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    native = names.get(engine.info.architecture, engine.info.architecture)
    wanted = lock.environment.platform.rpartition("/")[2]
    if native and native != wanted:
        raise EngineError(
            f"the engine is on {native}, the lockfile is for {wanted}", hint="build it on a machine of that platform"
        )


def base_reference(lock: Lockfile, choices: Choices) -> str:
    """Return the name of the locked base image, with the chosen registry before it."""
    return render.values_of(lock, choices.registry).base_image


def _fetch_base(engine: Engine, lock: Lockfile, say: Say, choices: Choices) -> None:
    reference = base_reference(lock, choices)
    if reference and engine.inspect_image(reference) is None:
        say(f"fetching {reference}")
        engine.pull(reference, lock.environment.platform)


def _finished(engine: Engine, lock: Lockfile, store: Store, say: Say, order: Order, spool: Spooled) -> Built:
    """Make an image canonical, load it under its name, prove it."""
    image = canonical(spool, shape_of(lock), order.name)
    record = recorded(image)
    if order.output is not None:
        write_layout(image, order.name, order.output)
    say(f"loading it as {order.name}")
    engine.load(gathered(layout.hybrid(image, order.name)))
    say("proving it: what the engine holds is saved and hashed")
    proof = prove(engine, order.name, record)
    if proof.differences:
        raise IntegrityError(
            "the engine gives back another image than the one it was given",
            where=order.name,
            hint="the engine's store may be damaged: remove the image there, then build again",
        )
    remember(engine, store, order.name, record)
    found = image_differences(lock.image, record) if lock.image is not None else ()
    return Built(image=record, reference=order.name, differences=found)


def write_layout(image: OutputImage, name: str, path: Path) -> None:
    """Write the image as one archive that every engine loads, whole or not at all."""
    with files.replacing(path) as target:
        for piece in gathered(layout.hybrid(image, name)):
            target.write(piece)


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
    return store.root / _PROOF / f"{key.hex}.json"


def layers_text(image: Image) -> Iterator[str]:
    """Yield one line per layer for a person: owner, megabytes, digest."""
    for layer in image.layers:
        yield f"{layer.owner:<20} {layer.size / 1e6:>9.1f} MB  {layer.diff_id.short}"
