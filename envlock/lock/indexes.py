"""Where this host takes Python packages from: its own pip and uv configuration.

uv does not read pip's configuration, so what pip would use is read here and handed to uv.
Any of uv's own index variables wins over all of pip's. Only what says *where from* is
taken; what would change *which* (constraints, pre-releases, a cut-off date) is left out:
that belongs in the spec.
"""

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

# uv's variables that say where from and how; the rest of UV_* would change what is locked.
_UV_WHERE = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX")
_UV_HOW = (
    "UV_CACHE_DIR",
    "UV_HTTP_TIMEOUT",
    "UV_HTTP_RETRIES",
    "UV_INSECURE_HOST",
    "UV_KEYRING_PROVIDER",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "UV_INDEX_STRATEGY",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Indexes:
    """Where from: uv's arguments, uv's environment, local wheel folders, a CA file, and logins by host."""

    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    folders: tuple[Path, ...]
    certificates: str | None
    logins: tuple[tuple[str, tuple[str, str]], ...]


def of_host(variables: Mapping[str, str]) -> Indexes:
    """Return where this host takes Python packages from, with `variables` as its environment."""
    kept = {name: text for name, text in variables.items() if not name.startswith("UV_") or _is_where_or_how(name)}
    pip = _pip_settings(variables)
    if any(variables.get(name) for name in _UV_WHERE):
        addresses = [word for name in _UV_WHERE for word in variables.get(name, "").split()]
        arguments: list[str] = []
    else:
        arguments, addresses = _pip_arguments(pip)
    certificates = variables.get("SSL_CERT_FILE") or pip.get("cert") or variables.get("REQUESTS_CA_BUNDLE") or None
    if certificates:
        kept.setdefault("SSL_CERT_FILE", certificates)
    return Indexes(
        arguments=tuple(arguments),
        environment=tuple(sorted(kept.items())),
        folders=tuple(folder for address in addresses if (folder := _folder(address)) is not None),
        certificates=certificates,
        logins=tuple(_logins(addresses)),
    )


def without_indexes(environment: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return uv's environment without any place to take packages from."""
    return tuple(pair for pair in environment if pair[0] not in _UV_WHERE)


def _is_where_or_how(name: str) -> bool:
    return (
        name in _UV_WHERE
        or name in _UV_HOW
        or (name.startswith("UV_INDEX_") and name.endswith(("_USERNAME", "_PASSWORD")))
    )


def _pip_arguments(pip: Mapping[str, str]) -> tuple[list[str], list[str]]:
    arguments: list[str] = []
    addresses: list[str] = []
    if pip.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        arguments.append("--no-index")
    else:
        for key in ("index-url", "extra-index-url"):
            for address in pip.get(key, "").split():
                arguments += [f"--{key}", address]
                addresses.append(address)
        # pip takes the best version of all its indexes; uv by default stops at the first that has the name.
        arguments += ["--index-strategy", "unsafe-best-match"]
    for address in pip.get("find-links", "").split():
        arguments += ["--find-links", address]
        addresses.append(address)
    return arguments, addresses


def _folder(address: str) -> Path | None:
    parts = urlsplit(address)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
    elif parts.scheme in ("", address.split(":")[0]) and "://" not in address:
        path = Path(address).expanduser()
    else:
        return None
    return path if path.is_dir() else None


def _logins(addresses: list[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    for address in addresses:
        parts = urlsplit(address.split("=", 1)[-1] if "=http" in address else address)
        if parts.username is not None and parts.hostname:
            yield parts.hostname, (unquote(parts.username), unquote(parts.password or ""))


def _pip_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings by name: its files in pip's order, `[install]` over `[global]`, then PIP_*.

    The places are those of pip's documentation ("Configuration", "Location").
    """
    found: dict[str, str] = {}
    if variables.get("PIP_CONFIG_FILE") != os.devnull:
        for path in _pip_files(variables):
            parser = configparser.RawConfigParser()
            try:
                parser.read(path, "utf-8")
            except (configparser.Error, UnicodeDecodeError, OSError):
                continue  # pip's own file, pip's own error: uv then works without it
            for section in ("global", "install", "download"):
                if parser.has_section(section):
                    found.update({key.replace("_", "-"): text for key, text in parser.items(section)})
    for name, text in variables.items():
        if name.startswith("PIP_") and text:
            found[name[4:].lower().replace("_", "-")] = text
    return found


def _pip_files(variables: Mapping[str, str]) -> Iterator[Path]:
    for folder in reversed(variables.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    home = Path(variables.get("HOME", "/nonexistent"))
    yield home / ".pip" / "pip.conf"
    yield Path(variables.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if chosen := variables.get("PIP_CONFIG_FILE"):
        yield Path(chosen)
