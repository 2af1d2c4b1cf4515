"""Building the canonical image of a lockfile, and recording or verifying its digest.

The context is assembled here, or built by the engine where something has to run; the
result is made canonical, loaded, saved again and hashed: only that proves it. A lockfile
that holds an image already is verified and never changed unasked.
"""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envlock import files, lockstore
from envlock.errors import EXIT_DRIFT, EXIT_MATCH, EngineError, IntegrityError, UsageError
from envlock.image import assemble, dockerfile, layout, render
from envlock.image.canonical import canonical, recorded, shape_of
from envlock.image.context import gathered, tar_stream
from envlock.image.engine import Engine, temporary_tag
from envlock.image.entries import first_differences
from envlock.image.layout import OutputImage, Spooled
from envlock.image.plan import Choices, context
from envlock.image.proof import Difference, image_differences, prove, proven, reference_of, remember
from envlock.lockfile import Image, ImageBase, Lockfile
from envlock.store import Store

Say = Callable[[str], None]

SCHEMA = "envlock.build/1"
_SHOWN = 5  # files named for each layer that differs
_NAME = re.compile(
    r"[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What is asked of `build`.

    `name` is the image's full name in the engine, `archive` a layout to write as well.
    With `by_engine` the engine's own builder works even where nothing has to run; without
    `cache` it reuses none of its steps, and the base is made anew. `built` names an image
    that somebody built from the rendered folder. `update` replaces a recorded digest;
    `force` builds although nothing changed, `paranoid` believes no earlier proof.
    """

    name: str
    archive: Path | None = None
    by_engine: bool = False
    cache: bool = True
    built: str | None = None
    update: bool = False
    force: bool = False
    paranoid: bool = False
    choices: Choices = dataclasses.field(default_factory=Choices)


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """The image that an engine holds under `reference`, and how it differs from the locked one.

    `outcome` is `recorded`, `match`, `unchanged` (held already, proved earlier), `drift`
    or `updated`.
    """

    image: Image
    reference: str
    differences: tuple[Difference, ...]
    outcome: str = "match"

    @property
    def exit_code(self) -> int:
        return EXIT_DRIFT if self.outcome == "drift" else EXIT_MATCH

    def to_document(self, path: Path, lock: Lockfile) -> dict[str, object]:
        """Return the result as its JSON document (`docs/schema/build-result.schema.json`)."""
        return {
            "schema": SCHEMA,
            "lockfile": str(path),
            "environment": lock.environment.name,
            "inputs": str(lock.inputs()),
            "outcome": self.outcome,
            "reference": self.reference,
            "config": str(self.image.config),
            "manifest": str(self.image.manifest),
            "layers": [
                {"owner": layer.owner, "diff-id": str(layer.diff_id), "size": layer.size} for layer in self.image.layers
            ],
            "differences": [
                {**dataclasses.asdict(difference), "entries": list(difference.entries)}
                for difference in self.differences
            ],
            "exit-code": self.exit_code,
        }


def full_name(lock: Lockfile) -> str:
    """Return the name under which the image is loaded: complete, so that no engine adds a registry."""
    return f"localhost/envlock/{lock.environment.name}:{lock.inputs().short}"


def run(path: Path, order: Order, connect: Callable[[], Engine], store: Store, say: Say) -> tuple[Built, Lockfile]:
    """Build the lockfile at `path`, and record the image or compare it with the recorded one.

    Other envlocks are kept from the lockfile meanwhile. Returns the lockfile as it is
    afterwards; it changes only when it held no image, or with `update`.
    """
    with lockstore.editing(path) as lock:
        order = order if order.name else dataclasses.replace(order, name=full_name(lock))
        engine = connect()
        if lock.image is not None and _is_done(engine, lock, lock.image, store, order, say):
            return Built(image=lock.image, reference=order.name, differences=(), outcome="unchanged"), lock
        built = build(engine, lock, store, say, order)
        if lock.image is None or (order.update and built.differences):
            outcome = "recorded" if lock.image is None else "updated"
            lock = lock.with_image(built.image)
            lockstore.write(path, lock)
            return dataclasses.replace(built, outcome=outcome), lock
        return dataclasses.replace(built, outcome="drift" if built.differences else "match"), lock


def _is_done(engine: Engine, lock: Lockfile, image: Image, store: Store, order: Order, say: Say) -> bool:
    """Return whether the engine holds the locked image, by our earlier proof or, `paranoid`, a new one."""
    if order.archive or order.built or order.by_engine or order.force or not order.cache:
        return False
    if not proven(engine, store, order.name, image):
        return False
    if not order.paranoid:
        return True
    say("proving it: what the engine holds is saved and hashed")
    return not prove(engine, order.name, image).differences


# ---- building --------------------------------------------------------------------------


def build(engine: Engine, lock: Lockfile, store: Store, say: Say, order: Order) -> Built:
    """Build `lock`, load the canonical image, prove it, and return it with its differences.

    Where nothing has to run, the layers are assembled here from the same context that a
    builder would get. A temporary image is removed whatever happens; one of a killed run
    is removed by the next (`Engine.reap`).
    """
    refuse_foreign_platform(engine, lock)
    engine.reap()
    if order.built is not None:
        say(f"reading {order.built}")
        with layout.spooled(engine.save(order.built), store.root, order.built) as image:
            return _finished(engine, lock, store, say, order, image)
    chosen = _with_base(engine, lock, say, order.choices)
    with context(lock, store, chosen) as made:
        for clash in made.clashes:
            say(f"two wheels bring {clash}; the last one is taken")
        instructions = dockerfile.parse(made.dockerfile, "the Dockerfile")
        if not order.by_engine and assemble.is_enough(instructions):
            say("assembling the layers")
            base = engine.save(chosen.base) if chosen.base else None
            with assemble.assembled(instructions, made.items, base, lock.environment.epoch, store.root) as image:
                return _finished(engine, lock, store, say, order, image)
        tag = temporary_tag()
        try:
            say("building in the engine")
            engine.build(tar_stream(made.items, lock.environment.epoch), tag, nocache=not order.cache)
            say("making it canonical")
            with layout.spooled(engine.save(tag), store.root, tag) as image:
                return _finished(engine, lock, store, say, order, image)
        finally:
            engine.remove_image(tag)


def refuse_foreign_platform(engine: Engine, lock: Lockfile) -> None:
    """Raise `EngineError` when the engine's machine cannot run the lockfile's platform."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    native = names.get(engine.info.architecture, engine.info.architecture)
    wanted = lock.environment.platform.rpartition("/")[2]
    if native and native != wanted:
        raise EngineError(
            f"the engine is on {native}, the lockfile is for {wanted}", hint="build it on a machine of that platform"
        )


def _with_base(engine: Engine, lock: Lockfile, say: Say, chosen: Choices) -> Choices:
    """Return the choices with the name under which the engine holds the base image, fetched if need be.

    A base that was loaded from an archive, as sites without a registry do, has no digest
    of a registry: it is found by its Id. Its layers are hashed afterwards all the same.
    """
    if not isinstance(lock.base, ImageBase):
        return chosen
    reference = render.values_of(lock, chosen.registry).base_image
    for known in (reference, str(lock.base.config), str(lock.base.digest)):
        if engine.inspect_image(known) is not None:
            return dataclasses.replace(chosen, base=known)
    say(f"fetching {reference}")
    engine.pull(reference, lock.environment.platform)
    return dataclasses.replace(chosen, base=reference)


def _finished(engine: Engine, lock: Lockfile, store: Store, say: Say, order: Order, spool: Spooled) -> Built:
    """Make an image canonical, load it under its name, prove it."""
    image = canonical(spool, shape_of(lock), order.name)
    record = recorded(image)
    if order.archive is not None:
        write_layout(image, order.name, order.archive)
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
    if found and lock.image is not None:
        found = _with_entries(engine, lock.image, store, found, image)
    return Built(image=record, reference=order.name, differences=found)


def _with_entries(
    engine: Engine, locked: Image, store: Store, found: tuple[Difference, ...], image: OutputImage
) -> tuple[Difference, ...]:
    """Return the differences with the first files that differ, if the engine still holds the locked image."""
    reference = reference_of(engine, locked)
    if reference is None:
        return found
    with layout.spooled(engine.save(reference), store.root, reference) as old:
        if old.config != locked.config:
            return found
        held = dict(zip([f"layer {layer.owner}" for layer in locked.layers], old.layers, strict=True))
        made = {f"layer {layer.owner}": layer for layer in image.layers}
        return tuple(
            dataclasses.replace(
                difference,
                entries=first_differences(
                    layout.member_pieces(old, held[difference.what]), made[difference.what].pieces(), _SHOWN
                ),
            )
            if difference.what in held and difference.what in made
            else difference
            for difference in found
        )


def write_layout(image: OutputImage, name: str, path: Path) -> None:
    """Write the image as one archive that every engine loads, whole or not at all."""
    with files.replacing(path) as target:
        for piece in gathered(layout.hybrid(image, name)):
            target.write(piece)


# ---- what a person asked for ------------------------------------------------------------


def choices(
    path: Path, spec: Path | None, registry: str, template: Path | None, allowed: bool, fresh: bool = False
) -> Choices:
    """Return what a person chose; `UsageError` for a template without the word that allows it.

    The spec lies where `spec` says, else beside the folder `lockfiles/` that holds `path`.
    """
    if template is not None and not allowed:
        raise UsageError(
            "a template of your own decides what the image holds",
            where=template,
            hint="add `--allow-custom-template` when you trust it",
        )
    folder = path.parent.parent if path.parent.name == lockstore.FOLDER else path.parent
    return Choices(
        registry=registry, template=template, fresh=fresh, folder=spec.parent if spec is not None else folder
    )


def checked_name(name: str) -> str:
    """Return an image name with a tag, complete with its registry; `UsageError` for another one."""
    if not name:
        return ""
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = name, "latest"
    first = repository.partition("/")[0]
    if not _NAME.fullmatch(f"{repository}:{tag}"):
        raise UsageError(f"not an image name: {name!r}", where="--tag", hint="like `localhost/team/model:1`")
    # Without a registry engines put different ones before it.
    complete = "/" in repository and ("." in first or ":" in first or first == "localhost")
    return f"{repository if complete else f'localhost/{repository}'}:{tag}"
