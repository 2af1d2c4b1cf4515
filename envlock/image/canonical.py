"""The canonical image: what an engine built, with everything removed that is not content.

Base layers stay as they are, byte for byte. Everything above is reduced to the final
difference against the base (so it does not matter in how many steps, by which builder and
when it was made), cleared of volatile files, and split by owner: system packages, each
large Python distribution alone, the other ones, the environment's own files. So one
changed wheel changes one layer.
"""

import csv
import datetime
import hashlib
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from envlock.digest import Digest, canonical_json, sha256
from envlock.errors import IntegrityError, LockfileError
from envlock.image import tree
from envlock.image.context import gathered
from envlock.image.layertar import DIRECTORY, REGULAR, SYMLINK, Entry, RangeSource
from envlock.image.layout import Member, OutputImage, OutputLayer, Spooled, manifest_of
from envlock.image.tree import Tree
from envlock.image.volatile import is_volatile
from envlock.image.wheels import VENV
from envlock.lockfile import Image, ImageBase, Layer, Lockfile

LARGE = 50_000_000
"""Bytes from which a Python distribution has a layer of its own."""

_VENV = VENV.strip("/").encode()
_KEPT = (
    *("User", "Env", "Entrypoint", "Cmd", "Labels", "ExposedPorts", "Volumes"),
    *("StopSignal", "Healthcheck", "Shell", "OnBuild"),
)
_BUILDER_LABELS = frozenset(("io.buildah.version",))


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What the lockfile says about the image: `base` are the diff ids that stay untouched.

    `files` are paths of files of the environment, `interpreter` the path of its Python;
    none is looked for when it is empty.
    """

    epoch: int
    platform: str
    base: tuple[Digest, ...]
    files: frozenset[bytes]
    interpreter: bytes = b""


def shape_of(lock: Lockfile) -> Shape:
    """Return the shape of the image that `lock` describes."""
    return Shape(
        epoch=lock.environment.epoch,
        platform=lock.environment.platform,
        base=lock.base.diff_ids if isinstance(lock.base, ImageBase) else (),
        files=frozenset(held.path.lstrip("/").encode() for held in lock.files),
        interpreter=lock.environment.interpreter.encode(),
    )


def canonical(saved: Spooled, shape: Shape, where: str) -> OutputImage:
    """Return the canonical form of the image `saved`; its layers read from the same spool.

    Raises `IntegrityError` when its first layers are not the base's, or a layer is not in order.
    """
    count = len(shape.base)
    found = tuple(layer.digest for layer in saved.layers[:count])
    if found != shape.base:
        raise IntegrityError(
            "does not begin with the layers of the locked base",
            where=where,
            hint="build it from the base that the lockfile names: `envlock build --no-cache`",
        )
    final: Tree = {}
    for layer in saved.layers[:count]:
        tree.apply_layer(final, _source(saved, layer, where), where)
    base = dict(final)
    for layer in saved.layers[count:]:
        tree.apply_layer(final, _source(saved, layer, where), where)
    _refuse_without_interpreter(final, shape)
    kept = tuple(_base_layer(saved, layer) for layer in saved.layers[:count])
    made = tuple(
        _layer(saved.descriptor, owner, part, shape.epoch)
        for owner, part in _split(saved.descriptor, base, final, shape)
    )
    layers = kept + made
    config = canonical_config(saved.document, shape, layers)
    return OutputImage(config=config, manifest=manifest_of(config, layers), layers=layers)


def _refuse_without_interpreter(final: Tree, shape: Shape) -> None:
    found = tree.resolve(final, shape.interpreter) if shape.interpreter else None
    if shape.interpreter and (found is None or found.kind != REGULAR or not found.mode & 0o111):
        path = shape.interpreter.decode()
        raise LockfileError(
            f"the image has no interpreter {path}",
            key="environment.interpreter",
            hint="add its package to [apt] in the spec, or name another interpreter; then `envlock lock`",
        )


def recorded(image: OutputImage) -> Image:
    """Return `image` as the lockfile records it."""
    return Image(
        config=sha256(image.config),
        manifest=sha256(image.manifest),
        layers=tuple(Layer(owner=layer.owner, diff_id=layer.diff_id, size=layer.size) for layer in image.layers),
    )


def _source(saved: Spooled, layer: Member, where: str) -> RangeSource:
    return RangeSource(saved.descriptor, layer.offset, layer.size, where)


def _base_layer(saved: Spooled, layer: Member) -> OutputLayer:
    whole = Entry(name=b"", kind=REGULAR, mode=0, uid=0, gid=0, size=layer.size, offset=layer.offset)
    return OutputLayer(
        owner="base", diff_id=layer.digest, size=layer.size, pieces=lambda: tree.content(saved.descriptor, whole)
    )


def _layer(descriptor: int, owner: str, part: Tree, epoch: int) -> OutputLayer:
    def pieces() -> Iterator[bytes]:
        return gathered(tree.pieces(descriptor, part, epoch))

    state = hashlib.sha256()
    size = 0
    for piece in pieces():
        state.update(piece)
        size += len(piece)
    return OutputLayer(owner=owner, diff_id=Digest.from_hex(state.hexdigest()), size=size, pieces=pieces)


# ---- what belongs where ----------------------------------------------------------------


def _split(descriptor: int, base: Tree, final: Tree, shape: Shape) -> Iterator[tuple[str, Tree]]:
    """Yield each owner with its part of the difference, folders above included, in layer order."""
    changed = {
        name: entry
        for name, entry in final.items()
        if not is_volatile(name) and not ((held := base.get(name)) is not None and tree.same(descriptor, held, entry))
    }
    hidden = [name for name in base if name not in final and not is_volatile(name)]
    gone = set(hidden)
    whiteouts = [tree.whiteout(name) for name in hidden if not any(folder in gone for folder in tree.parents(name))]
    large = _large_distributions(descriptor, final)
    implied = _implied(changed, shape)
    parts: dict[str, Tree] = {}
    for name, entry in changed.items():
        if entry.kind == DIRECTORY and name in implied:
            continue  # it comes with what lies in it
        parts.setdefault(_owner(name, shape, large), {})[name] = entry
    for name, entry in whiteouts:
        parts.setdefault(_owner(name, shape, large), {})[name] = entry
    order = ("system", *sorted(owner for owner in parts if owner.startswith("python:")), "python", "files")
    normal: dict[int, Entry] = {}
    for owner in order:
        if owner in parts:
            yield owner, _normalised(_with_folders(parts[owner], final), shape, normal)


def _implied(changed: Tree, shape: Shape) -> set[bytes]:
    """Return the folders that come with what lies in them, so that they change no other owner's layer."""
    own = [name for name, entry in changed.items() if entry.kind != DIRECTORY and name.startswith(_VENV + b"/")]
    return {folder for path in (*own, *shape.files) for folder in tree.parents(path)}


def _owner(name: bytes, shape: Shape, large: Mapping[bytes, str]) -> str:
    if name == _VENV or name.startswith(_VENV + b"/"):
        return large.get(name, "python")
    return "files" if name in shape.files else "system"


def _with_folders(part: Tree, final: Tree) -> Tree:
    """Return `part` with every folder above its entries: an engine would make missing ones in its own way."""
    whole = dict(part)
    for name in part:
        for folder in tree.parents(name):
            if folder in whole:
                break
            whole[folder] = final[folder]
    return whole


def _normalised(part: Tree, shape: Shape, normal: dict[int, Entry]) -> Tree:
    """Return `part` with normal modes and owners for what the environment itself brings.

    `normal` keeps one new entry for each old one, so that hard links stay hard links.
    """
    found: Tree = {}
    for name, entry in part.items():
        if name == _VENV or name.startswith(_VENV + b"/") or name in shape.files:
            found[name] = normal.setdefault(id(entry), _normal(entry))
        elif entry.kind == SYMLINK:
            found[name] = replace(entry, mode=0o777)
        else:
            found[name] = entry
    return found


def _normal(entry: Entry) -> Entry:
    program = entry.kind == DIRECTORY or bool(entry.mode & 0o100)
    mode = 0o777 if entry.kind == SYMLINK else 0o755 if program else 0o644
    return replace(entry, mode=mode, uid=0, gid=0, capability=b"")


def _large_distributions(descriptor: int, final: Tree) -> dict[bytes, str]:
    """Return the owner of each file of a distribution of `LARGE` bytes or more, by its RECORD."""
    owners: dict[bytes, str] = {}
    for name, entry in final.items():
        parts = name.rsplit(b"/", 2)
        if len(parts) < 3 or parts[2] != b"RECORD" or not parts[1].endswith(b".dist-info"):
            continue
        if entry.kind != REGULAR or not name.startswith(_VENV + b"/"):
            continue
        data = b"".join(tree.content(descriptor, entry)).decode("utf-8", "surrogateescape")
        paths = _recorded_paths(parts[0].decode("utf-8", "surrogateescape"), data)
        held = [path for path in paths if path in final]
        if sum(final[path].size for path in held) >= LARGE:
            distribution = parts[1].removesuffix(b".dist-info").rpartition(b"-")[0].decode("utf-8", "replace")
            owners.update((path, f"python:{distribution.lower().replace('_', '-')}") for path in held)
    return owners


def _recorded_paths(site: str, data: str) -> list[bytes]:
    rows = csv.reader(data.splitlines())
    return [posixpath.normpath(f"{site}/{row[0]}").encode("utf-8", "surrogateescape") for row in rows if row]


# ---- config ----------------------------------------------------------------------------


def canonical_config(document: Mapping[str, Any], shape: Shape, layers: tuple[OutputLayer, ...]) -> bytes:
    """Return the config in canonical JSON: what decides how the image runs, and its layers."""
    created = datetime.datetime.fromtimestamp(shape.epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    held = document.get("config")
    settings = held if isinstance(held, dict) else {}
    config = {key: settings[key] for key in _KEPT if settings.get(key)}
    if "Labels" in config:
        labels = {name: text for name, text in config["Labels"].items() if name not in _BUILDER_LABELS}
        config["Labels"] = labels
    config["WorkingDir"] = settings.get("WorkingDir") or "/"
    system, _, architecture = shape.platform.partition("/")
    return canonical_json(
        {
            "architecture": architecture,
            "os": system,
            "created": created,
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": created, "created_by": f"envlock: {layer.owner}"} for layer in layers],
        }
    )
