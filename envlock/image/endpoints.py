"""Where a container engine may answer: DOCKER_HOST, the docker context, well-known sockets.

Only looks at the environment and at docker's own configuration files; nothing is
contacted here. An engine that a person named (DOCKER_HOST, DOCKER_CONTEXT, the current
context) is the only candidate: falling back to another one would put images where
nobody looks for them.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envlock.errors import EngineError
from envlock.files import read_bytes

_SCHEMES = ("unix", "tcp", "http", "https", "ssh")
_MAX_CONFIG = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsFiles:
    """The certificate files for a TCP engine; `verify` is false only when a person said so."""

    ca: Path | None
    cert: Path | None
    key: Path | None
    verify: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One place where an engine may answer: who named it, its address, its TLS files."""

    source: str
    url: str
    tls: TlsFiles | None = None

    @property
    def kind(self) -> str:
        """How the engine is reached (`unix`, `tcp`, `ssh`): an address may hold a user name, this never does."""
        scheme = self.url.split("://", 1)[0]
        return "tcp" if scheme in ("http", "https") else scheme

    @property
    def text(self) -> str:
        """The source and the address for a person, without user and password."""
        address = redacted(self.url)
        return self.source if self.source == address else f"{self.source} ({address})"


def redacted(text: str) -> str:
    """Return `text` with the user and password of every address in it hidden."""
    return re.sub(r"(://)[^/@\s]*@", r"\1***@", text)


def candidates(environ: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Return the places to try, in order.

    Raises `EngineError` when what a person named (an address, a context) cannot be used.
    """
    named = _named(environ)
    if named is not None:
        return (named,)
    sockets = ["/var/run/docker.sock"]
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime:
        sockets.append(f"{runtime}/docker.sock")
    sockets.append("/run/podman/podman.sock")
    if runtime:
        sockets.append(f"{runtime}/podman/podman.sock")
    return tuple(Endpoint(source=f"unix://{path}", url=f"unix://{path}") for path in sockets)


def _named(environ: Mapping[str, str]) -> Endpoint | None:
    host = environ.get("DOCKER_HOST")
    if host:
        return Endpoint(source="DOCKER_HOST", url=_checked(host, "DOCKER_HOST"), tls=_tls_from(environ))
    folder = _config_folder(environ)
    name = environ.get("DOCKER_CONTEXT")
    source = "DOCKER_CONTEXT"
    if not name and folder is not None:
        name = _current_context(folder)
        source = "docker context"
    if not name or name == "default":
        return None
    if folder is None:
        raise EngineError("names a docker context, but there is no home folder to read it from", where=source)
    return _context(folder, name, f"{source} `{name}`")


def _checked(url: str, source: str) -> str:
    if not url.startswith(tuple(f"{scheme}://" for scheme in _SCHEMES)):
        raise EngineError(
            f"not an address of an engine: {redacted(url)!r}",
            where=source,
            hint="expected unix:///PATH, tcp://HOST:PORT or ssh://USER@HOST",
        )
    return url


def _tls_from(environ: Mapping[str, str]) -> TlsFiles | None:
    verify = bool(environ.get("DOCKER_TLS_VERIFY"))
    if not verify and not environ.get("DOCKER_TLS"):
        return None
    folder = environ.get("DOCKER_CERT_PATH") or environ.get("DOCKER_CONFIG")
    base = Path(folder) if folder else Path(environ.get("HOME", "/")) / ".docker"
    return _tls_files(base, verify)


def _tls_files(folder: Path, verify: bool) -> TlsFiles:
    found = {name: path if (path := folder / f"{name}.pem").is_file() else None for name in ("ca", "cert", "key")}
    return TlsFiles(ca=found["ca"], cert=found["cert"], key=found["key"], verify=verify)


def _config_folder(environ: Mapping[str, str]) -> Path | None:
    if environ.get("DOCKER_CONFIG"):
        return Path(environ["DOCKER_CONFIG"])
    return Path(environ["HOME"]) / ".docker" if environ.get("HOME") else None


def _current_context(folder: Path) -> str | None:
    path = folder / "config.json"
    if not path.is_file():
        return None
    name = _json_object(path).get("currentContext")
    return name if isinstance(name, str) else None


def _context(folder: Path, name: str, source: str) -> Endpoint:
    # docker/cli cli/context/store: both folders are named by the SHA-256 of the context's name.
    ident = hashlib.sha256(name.encode()).hexdigest()
    path = folder / "contexts" / "meta" / ident / "meta.json"
    if not path.is_file():
        raise EngineError(
            "there is no such docker context",
            where=source,
            hint="`docker context ls` lists them; set DOCKER_HOST to name an engine yourself",
        )
    endpoints = _json_object(path).get("Endpoints")
    docker = endpoints.get("docker") if isinstance(endpoints, dict) else None
    host = docker.get("Host") if isinstance(docker, dict) else None
    if not isinstance(docker, dict) or not isinstance(host, str) or not host:
        raise EngineError("the context names no docker engine", where=source)
    certificates = folder / "contexts" / "tls" / ident / "docker"
    tls = _tls_files(certificates, not docker.get("SkipTLSVerify")) if certificates.is_dir() else None
    return Endpoint(source=source, url=_checked(host, source), tls=tls)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bytes(path, _MAX_CONFIG))
    except (ValueError, RecursionError) as error:
        raise EngineError(
            "docker's configuration is not JSON",
            where=path,
            hint="put the file right, or set DOCKER_HOST to name an engine yourself",
        ) from error
    if not isinstance(found, dict):
        raise EngineError("docker's configuration is not a JSON object", where=path)
    return found
