"""Names of images, and fetching one from its registry through the engine.

A registry is asked by the engine, with the credentials that docker's own configuration
holds for it. What comes is proved here: the archive that the engine saves is hashed.
"""

import base64
import json
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envlock.digest import Digest
from envlock.errors import EngineError, UsageError
from envlock.image.endpoints import redacted

if TYPE_CHECKING:
    from envlock.image.engine import Engine

_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_REGISTRY = re.compile(r"[A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """An image's name in parts; `registry` is empty for the engine's default, `tag` or `digest` may be None."""

    registry: str
    repository: str
    tag: str | None
    digest: Digest | None

    @property
    def name(self) -> str:
        """The registry and repository, as an engine wants them."""
        return f"{self.registry}/{self.repository}" if self.registry else self.repository

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}{f'@{self.digest}' if self.digest else ''}"


def parse_reference(text: str) -> Reference:
    """Return the parts of `[REGISTRY/]REPOSITORY[:TAG][@DIGEST]`; `UsageError` when it is none.

    The grammar is the distribution project's (`reference/reference.go`): what stands before
    the first slash is a registry when it holds a dot or a colon, or is `localhost`.
    """
    rest, at, digest_text = text.partition("@")
    head, slash, tail = rest.partition("/")
    is_registry = bool(slash) and ("." in head or ":" in head or head == "localhost")
    registry, path = (head, tail) if is_registry else ("", rest)
    repository, colon, tag = path.partition(":")
    valid = _REPOSITORY.fullmatch(repository) and (not registry or _REGISTRY.fullmatch(registry))
    if not valid or (colon and not _TAG.fullmatch(tag)):
        raise _no_name(text, "")
    try:
        digest = Digest.parse(digest_text) if at else None
    except ValueError as error:
        raise _no_name(text, f": {error}") from None
    return Reference(registry=registry, repository=repository, tag=tag or None, digest=digest)


def _no_name(text: str, why: str) -> UsageError:
    hint = "expected REPOSITORY:TAG or REPOSITORY@DIGEST"
    return UsageError(f"not the name of an image: {text!r}{why}", hint=hint)


def pull(engine: "Engine", text: str, platform: str, deadline: float) -> Reference:
    """Fetch `text` for `platform` (`linux/amd64`); a name with neither tag nor digest is refused."""
    reference = parse_reference(text)
    if reference.tag is None and reference.digest is None:
        raise UsageError(f"the image name {text!r} has neither a tag nor a digest")
    wanted = str(reference.digest) if reference.digest else reference.tag
    headers, trouble = credentials(reference)
    what = f"cannot fetch image `{reference}`"
    params = {"fromImage": reference.name, "tag": wanted, "platform": platform}
    try:
        for _ in engine.transport.messages(
            what, "POST", "/images/create", deadline=deadline, params=params, headers=headers
        ):
            pass
    except EngineError as error:
        error.hint = error.hint or trouble
        raise
    return reference


def registry_digest(engine: "Engine", reference: Reference) -> Digest:
    """Return the digest by which the image `reference` was fetched (of its manifest, or of its index).

    `EngineError` when the engine knows none: an image that was built or loaded never had one.
    """
    asked = f"{reference.name}@{reference.digest}" if reference.digest else str(reference)
    found = engine.inspect_image(asked)
    if found is None:
        raise EngineError(f"the engine has no image `{asked}` after it fetched it")
    if reference.digest is not None:
        return reference.digest
    for item in found.get("RepoDigests") or ():
        name, _, digest = str(item).partition("@")
        # Engines write a default registry's name out or leave it away: the repository decides.
        if name == reference.name or (not reference.registry and name.endswith(f"/{reference.repository}")):
            try:
                return Digest.parse(digest)
            except ValueError:
                continue
    raise EngineError(f"the engine knows no registry digest for `{asked}`")


def credentials(reference: Reference) -> tuple[dict[str, str], str | None]:
    """Return the header with the credentials for this one registry, and a hint when they could not be read.

    They are docker's own, from its configuration or its credential helper. Most images
    need none, so a helper that fails is told only when the registry refuses.
    """
    import docker.auth
    import docker.errors

    found: Any = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # docker-py warns of a missing helper, and then raises too
            registry, _ = docker.auth.resolve_repository_name(reference.name)
            found = docker.auth.load_config().resolve_authconfig(registry)
    except (docker.errors.DockerException, OSError, ValueError) as error:
        return {}, f"no credentials were sent: {redacted(str(error))}"
    if not found:
        return {}, None
    return {"X-Registry-Auth": base64.urlsafe_b64encode(json.dumps(found).encode()).decode()}, None
