"""Images as archives: what an engine saves, spooled and hashed; what every engine loads, written.

Written is the hybrid form: an OCI layout with a `manifest.json` that points into it,
uncompressed, since a pure OCI layout is refused by Docker before 25 and compressed bytes
depend on the compressor. The archive's own bytes carry no identity; config and layers do.
"""

import contextlib
import errno
import hashlib
import json
import os
import posixpath
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envlock import files
from envlock.digest import Digest, canonical_json
from envlock.errors import IntegrityError
from envlock.image import layertar, tarwriter
from envlock.image.layertar import CHUNK, DIRECTORY, HARD_LINK, REGULAR, SYMLINK, Entry

_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_MAX_DOCUMENT = 16 << 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A range of the spool: its digest is that of the bytes there."""

    offset: int
    size: int
    digest: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class Spooled:
    """A saved image in a temporary file without a name: every layer is what its diff id says."""

    descriptor: int
    document: dict[str, Any]
    config: Digest
    layers: tuple[Member, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLayer:
    """A layer to write: `pieces` gives its bytes, anew at each call."""

    owner: str
    diff_id: Digest
    size: int
    pieces: Callable[[], Iterator[bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputImage:
    """An image to write: its config and manifest as they are hashed, and its layers in order."""

    config: bytes
    manifest: bytes
    layers: tuple[OutputLayer, ...]


# ---- reading -------------------------------------------------------------------------


class Spool:
    """An unnamed temporary file that bytes are appended to, hashed on the way."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.end = 0

    def append(self, pieces: Iterable[bytes | memoryview]) -> Member:
        """Write `pieces` at the end and return where they are."""
        state = hashlib.sha256()
        offset = self.end
        for piece in pieces:
            state.update(piece)
            view = memoryview(piece)
            while view:
                written = os.pwrite(self.descriptor, view, self.end)
                view = view[written:]
                self.end += written
        return Member(offset=offset, size=self.end - offset, digest=Digest.from_hex(state.hexdigest()))


@contextlib.contextmanager
def spool(folder: Path) -> Iterator[Spool]:
    """Give a spool in `folder`; it dies with the process, whatever ends it."""
    with _unnamed(folder) as descriptor:
        try:
            yield Spool(descriptor)
        except OSError as error:
            raise files.storage_error(error, folder) from error


@contextlib.contextmanager
def spooled(chunks: Iterator[bytes], folder: Path, where: str) -> Iterator[Spooled]:
    """Give the one image of the archive in `chunks`, held in an unnamed file in `folder`.

    The file dies with the process, whatever ends it. Raises `IntegrityError` when a layer
    is not what the config says or the archive is not in order.
    """
    with spool(folder) as target:
        yield receive(chunks, target, where)


@contextlib.contextmanager
def _unnamed(folder: Path) -> Iterator[int]:
    try:
        try:
            descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
            descriptor, name = tempfile.mkstemp(dir=folder, prefix=".envlock-spool-")
            os.unlink(name)
    except OSError as error:
        raise files.storage_error(error, folder) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Archive:
    """The members of a saved archive by name, links followed."""

    def __init__(self, target: Spool, where: str) -> None:
        self._spool = target
        self.descriptor = target.descriptor
        self.where = where
        self._members: dict[str, Member] = {}
        self._links: dict[str, str] = {}

    def read(self, chunks: Iterator[bytes]) -> None:
        source = layertar.StreamSource(chunks, self.where)
        for entry in layertar.entries(source, self.where):
            name = entry.name.decode("utf-8", "surrogateescape")
            if entry.kind == REGULAR:
                self._members[name] = self._spool.append(source.pieces(entry.size))
            elif entry.kind in (SYMLINK, HARD_LINK):
                target = entry.link.decode("utf-8", "surrogateescape")
                folder = posixpath.dirname(name) if entry.kind == SYMLINK else ""
                self._links[name] = posixpath.normpath(posixpath.join(folder, target))
            elif entry.kind != DIRECTORY:
                raise IntegrityError(f"holds {name!r}, which is no file", where=self.where)

    def member(self, named: object) -> Member:
        name = named
        for _ in range(16):
            if not isinstance(name, str):
                break
            name = posixpath.normpath(name)
            if name in self._members:
                return self._members[name]
            name = self._links.get(name)
        raise IntegrityError(f"names {named!r} and does not hold it", where=self.where)

    def document(self, name: object) -> tuple[Any, Digest]:
        found = self.member(name)
        if found.size > _MAX_DOCUMENT:
            raise IntegrityError(f"{name} has {found.size} bytes", where=self.where)
        try:
            return json.loads(os.pread(self.descriptor, found.size, found.offset)), found.digest
        except (ValueError, RecursionError):
            raise IntegrityError(f"{name} is not JSON", where=self.where) from None

    def layer(self, name: object) -> Member:
        """Return a layer as plain tar: one stored compressed is inflated at the spool's end."""
        found = self.member(name)
        if os.pread(self.descriptor, 2, found.offset) != _GZIP:
            return found
        return self._spool.append(self._inflated(found))

    def _inflated(self, found: Member) -> Iterator[bytes]:
        inflate = zlib.decompressobj(wbits=31)
        total = 0
        position = found.offset
        try:
            while position < found.offset + found.size:
                data = os.pread(self.descriptor, min(CHUNK, found.offset + found.size - position), position)
                position += len(data)
                while data:
                    piece = inflate.decompress(data, CHUNK)
                    total += len(piece)
                    if total > layertar.MAX_FILE:
                        raise IntegrityError("holds a layer that inflates without end", where=self.where)
                    yield piece
                    data = inflate.unconsumed_tail
        except zlib.error as error:
            raise IntegrityError(f"holds a layer that is not gzip ({error})", where=self.where) from None
        if not inflate.eof or inflate.unused_data:
            raise IntegrityError("holds a layer that is cut off, or followed by something", where=self.where)


def receive(chunks: Iterator[bytes], target: Spool, where: str) -> Spooled:
    """Append the archive in `chunks` to `target` and return its one image."""
    archive = _Archive(target, where)
    archive.read(chunks)
    manifests, _ = archive.document("manifest.json")
    if not isinstance(manifests, list) or len(manifests) != 1 or not isinstance(manifests[0], dict):
        raise IntegrityError("manifest.json does not name one image", where=where)
    document, config = archive.document(manifests[0].get("Config"))
    try:
        diff_ids = [Digest.parse(text) for text in document["rootfs"]["diff_ids"]]
        names = list(manifests[0]["Layers"])
    except (KeyError, TypeError, ValueError):
        raise IntegrityError("the config names no layers", where=where) from None
    if len(names) != len(diff_ids) or not names:
        raise IntegrityError(f"holds {len(names)} layers, its config names {len(diff_ids)}", where=where)
    layers = tuple(archive.layer(name) for name in names)
    for index, (layer, diff_id) in enumerate(zip(layers, diff_ids, strict=True)):
        if layer.digest != diff_id:
            raise IntegrityError(
                f"layer {index + 1} of {len(layers)} has digest {layer.digest}, its config names {diff_id}", where=where
            )
    return Spooled(descriptor=target.descriptor, document=document, config=config, layers=layers)


def member_pieces(spool: Spooled, member: Member) -> Iterator[bytes]:
    """Yield the bytes of one layer of a spooled image."""
    for start in range(member.offset, member.offset + member.size, CHUNK):
        yield os.pread(spool.descriptor, min(CHUNK, member.offset + member.size - start), start)


# ---- writing -------------------------------------------------------------------------


def manifest_of(config: bytes, layers: tuple[OutputLayer, ...]) -> bytes:
    """Return the OCI manifest in canonical JSON."""
    return canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPE,
            "config": {"mediaType": _CONFIG_TYPE, "digest": _digest(config), "size": len(config)},
            "layers": [{"mediaType": _LAYER_TYPE, "digest": layer.diff_id, "size": layer.size} for layer in layers],
        }
    )


def _digest(data: bytes) -> Digest:
    return Digest.from_hex(hashlib.sha256(data).hexdigest())


def hybrid(image: OutputImage, name: str) -> Iterator[bytes]:
    """Yield the archive that every engine loads, under the full `name` (`REGISTRY/REPOSITORY:TAG`)."""
    manifest = _digest(image.manifest)
    index = {
        "schemaVersion": 2,
        "mediaType": _INDEX_TYPE,
        "manifests": [
            {
                "mediaType": _MANIFEST_TYPE,
                "digest": manifest,
                "size": len(image.manifest),
                "annotations": {
                    "io.containerd.image.name": name,
                    "org.opencontainers.image.ref.name": name.rpartition(":")[2],
                },
            }
        ],
    }
    listed = {
        "Config": _blob(_digest(image.config)),
        "RepoTags": [name],
        "Layers": [_blob(layer.diff_id) for layer in image.layers],
    }
    yield from _small("oci-layout", canonical_json({"imageLayoutVersion": "1.0.0"}))
    yield from _small("index.json", canonical_json(index))
    yield from _small("manifest.json", canonical_json([listed]))
    yield _header("blobs", DIRECTORY, 0) + _header("blobs/sha256", DIRECTORY, 0)
    yield from _small(_blob(_digest(image.config)), image.config)
    yield from _small(_blob(manifest), image.manifest)
    written: set[Digest] = set()
    for layer in image.layers:
        if layer.diff_id in written:
            continue
        written.add(layer.diff_id)
        yield _header(_blob(layer.diff_id), REGULAR, layer.size)
        yield from layer.pieces()
        yield tarwriter.padding(layer.size)
    yield tarwriter.END


def _blob(digest: Digest) -> str:
    return f"blobs/sha256/{digest.hex}"


def _header(name: str, kind: bytes, size: int) -> bytes:
    mode = 0o755 if kind == DIRECTORY else 0o644
    return tarwriter.header(name.encode(), Entry(name=b"", kind=kind, mode=mode, uid=0, gid=0, size=size), 0)


def _small(name: str, data: bytes) -> Iterator[bytes]:
    yield _header(name, REGULAR, len(data)) + data + tarwriter.padding(len(data))
