"""What an engine really holds of an image: read from the archive it saves, and hashed.

Nothing here is written to a disk. Both archive forms are understood: Docker's own
(`manifest.json`, a config, `layer.tar` files) and the OCI layout with `manifest.json`.
"""

import hashlib
import io
import json
import posixpath
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envlock.digest import Digest
from envlock.errors import EngineError, IntegrityError
from envlock.image import layertar
from envlock.image.containers import created
from envlock.image.failures import EngineRefused
from envlock.image.layertar import CHUNK
from envlock.image.registry import pull, registry_digest

if TYPE_CHECKING:
    from envlock.image.engine import Engine

_KEPT = 4 << 20  # a member up to this size is kept: configs and manifests are
_KEPT_TOTAL = 64 << 20
_MAX_LINKS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedImage:
    """One image as its saved bytes say: the digest of its config, and of each layer in order."""

    config: Digest
    diff_ids: tuple[Digest, ...]
    platform: str
    document: str
    """The config's JSON text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A tag resolved: `digest` is what a registry serves it under, the others are its content.

    For a name with several platforms `digest` is that of the index; `config` and
    `diff_ids` are the chosen platform's.
    """

    registry: str
    repository: str
    tag: str | None
    digest: Digest
    config: Digest
    diff_ids: tuple[Digest, ...]
    platform: str


class ChunkReader(io.RawIOBase):
    """A readable file over an iterator of chunks; what was read is forgotten."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Return exactly `size` bytes while there are as many; all that is left without one."""
        parts = []
        left = -1 if size is None else size
        while left:
            if not self._rest:
                chunk = next(self._chunks, None)
                if chunk is None:
                    break
                self._rest = memoryview(chunk)
                continue
            part = self._rest if left < 0 else self._rest[:left]
            self._rest = self._rest[len(part) :]
            parts.append(part)
            left = left if left < 0 else left - len(part)
        return b"".join(parts)


class _Members:
    """The files of a saved archive: their digests, the small ones' bytes, and the links between names."""

    def __init__(self) -> None:
        self.digests: dict[str, Digest] = {}
        self.contents: dict[str, Digest] = {}  # of what is inside a compressed layer
        self.kept: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._total = 0

    def read(self, chunks: Iterator[bytes], what: str) -> None:
        source = layertar.StreamSource(chunks, what)
        for entry in layertar.entries(source, what):
            name = entry.name.decode("utf-8", "surrogateescape")
            if entry.kind == layertar.REGULAR:
                self._add(name, entry.size, source.pieces(entry.size), what)
            elif entry.kind in (layertar.SYMLINK, layertar.HARD_LINK):
                target = entry.link.decode("utf-8", "surrogateescape")
                base = posixpath.dirname(name) if entry.kind == layertar.SYMLINK else ""
                self._links[name] = posixpath.normpath(posixpath.join(base, target))

    def _add(self, name: str, size: int, pieces: Iterator[memoryview], what: str) -> None:
        state = hashlib.sha256()
        inside: _Inflated | None = None
        keep = size <= _KEPT and self._total + size <= _KEPT_TOTAL
        parts = []
        for number, piece in enumerate(pieces):
            state.update(piece)
            if number == 0 and bytes(piece[:2]) == b"\x1f\x8b":
                inside = _Inflated(what)
            if inside is not None:
                inside.update(piece)
            if keep:
                parts.append(bytes(piece))
        self.digests[name] = Digest.from_hex(state.hexdigest())
        if inside is not None:
            self.contents[name] = inside.digest()
        if keep:
            self.kept[name] = b"".join(parts)
            self._total += size

    def followed(self, name: object) -> str:
        found = posixpath.normpath(str(name))
        for _ in range(_MAX_LINKS):
            if found not in self._links:
                break
            found = self._links[found]
        return found

    def layer(self, name: object) -> Digest | None:
        """Return the digest of a layer as plain tar, None when there is no such file.

        A containerd store gives the layers of what it built or fetched compressed, as they are.
        """
        found = self.followed(name)
        return self.contents.get(found) or self.digests.get(found)


class _Inflated:
    """The digest of what is inside a gzip stream; nothing of it is kept."""

    def __init__(self, what: str) -> None:
        self._state = hashlib.sha256()
        self._inflate = zlib.decompressobj(wbits=31)
        self._length = 0
        self._what = what

    def update(self, piece: bytes | memoryview) -> None:
        data = bytes(piece)
        try:
            while data:
                if self._inflate.eof:
                    raise IntegrityError("a saved layer is followed by something", where=self._what)
                out = self._inflate.decompress(data, CHUNK)
                self._length += len(out)
                if self._length > layertar.MAX_FILE:
                    raise IntegrityError("a saved layer inflates without end", where=self._what)
                self._state.update(out)
                data = self._inflate.unconsumed_tail or self._inflate.unused_data
        except zlib.error as error:
            raise IntegrityError(f"a saved layer is not gzip ({error})", where=self._what) from None

    def digest(self) -> Digest:
        while not self._inflate.eof:
            out = self._inflate.decompress(b"", CHUNK)
            if not out:
                raise IntegrityError("a saved layer is cut off", where=self._what)
            self._state.update(out)
        return Digest.from_hex(self._state.hexdigest())


def read_saved(chunks: Iterator[bytes], what: str) -> SavedImage:
    """Return what the archive in `chunks` holds, every layer and config hashed.

    Raises `IntegrityError` when a layer is not what the config says, when one is
    missing, or when the archive is damaged; what `chunks` raises passes through.
    """
    members = _Members()
    members.read(chunks, what)
    entry = _manifest_entry(members.kept, what)
    config_name = members.followed(entry.get("Config", ""))
    config_text = members.kept.get(config_name)
    if config_text is None:
        raise IntegrityError("the saved archive holds no config", where=what)
    config = _object(config_text, what)
    rootfs = config.get("rootfs")
    try:
        diff_ids = tuple(Digest.parse(item) for item in rootfs["diff_ids"]) if isinstance(rootfs, dict) else ()
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(f"the saved config names no layers ({error})", where=what) from error
    layers = entry.get("Layers")
    found = tuple(members.layer(name) for name in layers) if isinstance(layers, list) else ()
    if not diff_ids or found != diff_ids:
        raise IntegrityError(_difference(found, diff_ids), where=what)
    return SavedImage(
        config=members.digests[config_name],
        diff_ids=diff_ids,
        platform="/".join(str(config[key]) for key in ("os", "architecture", "variant") if config.get(key)),
        document=config_text.decode("utf-8", "replace"),
    )


def _manifest_entry(kept: dict[str, bytes], what: str) -> dict[str, Any]:
    text = kept.get("manifest.json")
    if text is None:
        raise IntegrityError("the saved archive holds no manifest.json", where=what)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IntegrityError("manifest.json in the saved archive is not JSON", where=what) from error
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], dict):
        raise IntegrityError("manifest.json in the saved archive does not name one image", where=what)
    return found[0]


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IntegrityError("the saved config is not JSON", where=what) from error
    if not isinstance(found, dict):
        raise IntegrityError("the saved config is not a JSON object", where=what)
    return found


def _difference(found: tuple[Digest | None, ...], expected: tuple[Digest, ...]) -> str:
    if len(found) != len(expected):
        return f"the saved archive holds {len(found)} layers, its config names {len(expected)}"
    if not expected:
        return "the image has no layers"
    at = next(index for index, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other)
    return f"layer {at + 1} of {len(expected)} has digest {found[at] or '(missing)'}, its config names {expected[at]}"


def resolve(engine: "Engine", text: str, platform: str, deadline: float) -> Resolved:
    """Fetch `text` for `platform` and return its digests, the content's from our own hashing."""
    reference = pull(engine, text, platform, deadline)
    digest = registry_digest(engine, reference)
    by_digest = f"{reference.name}@{digest}"
    saved = read_saved(engine.save(by_digest, deadline=deadline), by_digest)
    if saved.platform != platform and not saved.platform.startswith(f"{platform}/"):
        raise EngineError(
            f"image `{reference}` is for {saved.platform or 'no platform'}, not for {platform}",
            hint="choose an image that exists for this platform",
        )
    return Resolved(
        registry=reference.registry,
        repository=reference.repository,
        tag=reference.tag,
        digest=digest,
        config=saved.config,
        diff_ids=saved.diff_ids,
        platform=platform,
    )


def read_file(engine: "Engine", reference: str, path: str, limit: int) -> bytes:
    """Return the regular file `path` of image `reference`, links followed inside the image.

    Raises `EngineError` when it is not there, is no regular file, or is larger than `limit`.
    """
    where = f"{reference}:{path}"
    with created(engine, {"Image": reference, "Cmd": ["envlock"], "NetworkDisabled": True}) as ident:
        for _ in range(_MAX_LINKS):
            chunks = engine.transport.stream(
                f"cannot read `{path}` from image `{reference}`",
                "GET",
                f"/containers/{ident}/archive",
                deadline=300.0,
                params={"path": path},
            )
            try:
                found = _one_file(chunks, where, limit)
            except EngineRefused as refused:
                if refused.status == 404:
                    raise EngineError("no such file in the image", where=where) from None
                raise
            finally:
                chunks.close()
            if isinstance(found, bytes):
                return found
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), found))
    raise EngineError("too many symbolic links", where=where)


def _one_file(chunks: Iterator[bytes], where: str, limit: int) -> bytes | str:
    """Return the bytes of the only file in the archive, or the target of a symbolic link."""
    source = layertar.StreamSource(chunks, where)
    for entry in layertar.entries(source, where):
        if entry.kind == layertar.SYMLINK:
            return entry.link.decode("utf-8", "surrogateescape")
        if entry.kind != layertar.REGULAR:
            raise EngineError("is no regular file", where=where)
        if entry.size > limit:
            raise EngineError(f"larger than {limit} bytes", where=where)
        return source.read(entry.size)
    raise EngineError("no such file", where=where)
