"""The base: an image's tag fixed by its digest, and what its package database says.

The engine is handed in: this module knows only what it asks of one.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from envlock.digest import Digest
from envlock.errors import EngineError, SpecError
from envlock.lock.archive import parse_paragraph
from envlock.lockfile import ImageBase


class ResolvedImage(Protocol):
    """What an engine says of an image it has fetched and hashed."""

    @property
    def digest(self) -> Digest: ...
    @property
    def config(self) -> Digest: ...
    @property
    def diff_ids(self) -> tuple[Digest, ...]: ...


class BaseEngine(Protocol):
    """What is asked of a container engine (`envlock.image.engine.Engine`)."""

    def resolve(self, reference: str, platform: str) -> ResolvedImage: ...
    def read_file(self, reference: str, path: str) -> bytes: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseFacts:
    """What is known of a base image's inside: its suite, and its installed packages by name."""

    suite: str
    versions: tuple[tuple[str, str], ...]
    status: bytes


def parts_of(reference: str) -> tuple[str, str, str]:
    """Return `(registry, repository, tag)` of `[REGISTRY/]REPOSITORY:TAG`.

    What stands before the first slash is a registry when it looks like a host, as Docker reads it.
    """
    name, _, tag = reference.rpartition(":")
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first, rest, tag
    return "", name, tag


def pinned_reference(reference: str, pinned: ImageBase | None) -> str:
    """Return `reference` by the digest it was locked with, or as it is when it was not."""
    registry, repository, tag = parts_of(reference)
    if pinned is None or (pinned.repository, pinned.tag) != (repository, tag):
        return reference
    return f"{registry}/{repository}@{pinned.digest}" if registry else f"{repository}@{pinned.digest}"


def resolve_image(wanted: str, reference: str, platform: str, engine: BaseEngine) -> ImageBase:
    """Return the image `reference` (the tag `wanted`, or its locked digest); no registry's name is in it."""
    found = engine.resolve(reference, platform)
    _, repository, tag = parts_of(wanted)
    return ImageBase(
        repository=repository, tag=tag, digest=found.digest, config=found.config, diff_ids=tuple(found.diff_ids)
    )


def look_inside(reference: str, engine: BaseEngine, where: str) -> BaseFacts:
    """Return the Debian suite and installed packages of an image that the engine holds.

    Raises `SpecError` when it is not made of Debian packages: nothing could be told of its glibc.
    """
    try:
        status = engine.read_file(reference, "/var/lib/dpkg/status")
        release = engine.read_file(reference, "/usr/lib/os-release").decode("utf-8", "replace")
    except EngineError as error:
        if not error.message.startswith("no such file"):
            raise
        raise SpecError(
            "the image holds no Debian package database",
            where=where,
            key="base.image",
            hint="only images made from Debian can be a base",
        ) from None
    fields: dict[str, Any] = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    suite = str(fields.get("VERSION_CODENAME", "")).strip('"')
    if str(fields.get("ID", "")).strip('"') != "debian" or not suite:
        raise SpecError("the image is not made from a Debian release", where=where, key="base.image")
    installed = []
    for text in status.decode("utf-8", "replace").split("\n\n"):
        package = parse_paragraph(text)
        if package.get("Status", "").endswith(" installed") and "Package" in package:
            installed.append((package["Package"], package.get("Version", "")))
    return BaseFacts(suite=suite, versions=tuple(sorted(installed)), status=status)
