"""What an engine really holds of an image: read from the archive it saves, and hashed.

Nothing here is written to a disk. Both archive forms are understood: Docker's own
(`manifest.json`, a config, `layer.tar` files) and the OCI layout with `manifest.json`.
"""

import hashlib
import io
import json
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from envlock.digest import Digest
from envlock.errors import EngineError, IntegrityError
from envlock.image.containers import created
from envlock.image.registry import pull, registry_digest
from envlock.image.transport import EngineRefused

if TYPE_CHECKING:
    from envlock.image.engine import Engine

_CHUNK = 1 << 20
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


def read_saved(chunks: Iterator[bytes], what: str) -> SavedImage:
    """Return what the archive in `chunks` holds, every layer and config hashed.

    Raises `IntegrityError` when a layer is not what the config says, when one is
    missing, or when the archive is damaged; what `chunks` raises passes through.
    """
    digests: dict[str, Digest] = {}
    kept: dict[str, bytes] = {}
    links: dict[str, str] = {}
    try:
        _read_members(chunks, digests, kept, links)
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise IntegrityError(f"the archive that the engine saved is damaged ({error})", where=what) from error
    entry = _manifest_entry(kept, what)
    config_name = _followed(str(entry.get("Config", "")), links)
    config_text = kept.get(config_name)
    if config_text is None:
        raise IntegrityError("the saved archive holds no config", where=what)
    config = _object(config_text, what)
    rootfs = config.get("rootfs")
    try:
        diff_ids = tuple(Digest.parse(item) for item in rootfs["diff_ids"]) if isinstance(rootfs, dict) else ()
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(f"the saved config names no layers ({error})", where=what) from error
    layers = entry.get("Layers")
    found = tuple(digests.get(_followed(str(name), links)) for name in layers) if isinstance(layers, list) else ()
    if not diff_ids or found != diff_ids:
        raise IntegrityError(_difference(found, diff_ids), where=what)
    return SavedImage(
        config=digests[config_name],
        diff_ids=diff_ids,
        platform="/".join(str(config[key]) for key in ("os", "architecture", "variant") if config.get(key)),
        document=config_text.decode("utf-8", "replace"),
    )


def _read_members(
    chunks: Iterator[bytes], digests: dict[str, Digest], kept: dict[str, bytes], links: dict[str, str]
) -> None:
    total = 0
    reader = cast("IO[bytes]", ChunkReader(chunks))
    with tarfile.open(fileobj=reader, mode="r|", bufsize=_CHUNK) as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            if name in digests or name in links:
                raise ValueError(f"two entries named {name!r}")
            if member.issym() or member.islnk():
                base = posixpath.dirname(name) if member.issym() else ""
                links[name] = posixpath.normpath(posixpath.join(base, member.linkname))
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is None:
                continue
            state = hashlib.sha256()
            keep = member.size <= _KEPT and total + member.size <= _KEPT_TOTAL
            parts = []
            while chunk := stream.read(_CHUNK):
                state.update(chunk)
                if keep:
                    parts.append(chunk)
            digests[name] = Digest.from_hex(state.hexdigest())
            if keep:
                kept[name] = b"".join(parts)
                total += member.size


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


def _followed(name: str, links: dict[str, str]) -> str:
    name = posixpath.normpath(name)
    for _ in range(_MAX_LINKS):
        if name not in links:
            break
        name = links[name]
    return name


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
            except (tarfile.TarError, ValueError, EOFError) as error:
                raise EngineError(f"the engine sent a damaged archive ({error})", where=where) from error
            finally:
                chunks.close()
            if isinstance(found, bytes):
                return found
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), found))
    raise EngineError("too many symbolic links", where=where)


def _one_file(chunks: Iterator[bytes], where: str, limit: int) -> bytes | str:
    """Return the bytes of the only file in the archive, or the target of a symbolic link."""
    reader = cast("IO[bytes]", ChunkReader(chunks))
    with tarfile.open(fileobj=reader, mode="r|") as archive:
        member = archive.next()
        if member is None:
            raise EngineError("no such file", where=where)
        if member.issym():
            return member.linkname
        stream = archive.extractfile(member) if member.isreg() else None
        if stream is None:
            raise EngineError("is no regular file", where=where)
        if member.size > limit:
            raise EngineError(f"larger than {limit} bytes", where=where)
        return stream.read()
