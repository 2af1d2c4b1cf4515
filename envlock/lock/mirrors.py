"""Where this host takes Debian from: its own apt sources, else its bootstrap tools' default.

Both forms of sources are read (sources.list(5): one line each, and deb822). apt itself
lists only sources whose indexes it has fetched, and fresh machines have fetched none.
"""

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envlock import process
from envlock.errors import ToolError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
INSTALL = "install Debian's `apt` and `debian-archive-keyring`, or lock on a Debian machine"
ROLLING = ("sid", "unstable", "experimental")

_QUERY_SECONDS = 120
_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)")
_DEFAULT_MIRROR = re.compile(r"""(?:DEF_MIRROR=|\bdefault_mirror\s*=\s*)["']?(https?://[A-Za-z0-9./_-]+)""")
_TOOLS = ("/usr/share/debootstrap/functions", "/usr/sbin/debootstrap", "/usr/bin/mmdebstrap")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mirrors:
    """Base addresses, and the keyring that verifies them.

    `main` serves a suite and its `-updates`, `security` its `-security`.
    """

    main: tuple[str, ...]
    security: tuple[str, ...]
    keyring: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A suite (`bookworm-security`) at one address, with its components and keyring (`` for apt's own)."""

    uri: str
    suite: str
    components: tuple[str, ...] = ()
    keyring: str = ""


def apt_environment(**more: str) -> dict[str, str]:
    """Return the environment in which apt runs: this one, speaking plain English."""
    return {**os.environ, "LC_ALL": "C", "LANG": "C", "DEBIAN_FRONTEND": "noninteractive", **more}


def apt_paths(*names: str) -> tuple[Path, ...]:
    """Return where this host's apt has its `Dir::...` files; a name ends in `/f` for a file, `/d` for a folder."""
    if shutil.which("apt-get") is None:
        raise ToolError("`apt-get` is not installed, and Debian packages are resolved by it", hint=INSTALL)
    argv = ["apt-config", "shell"]
    for index, name in enumerate(names):
        argv += [f"P{index}", name]
    output = process.check(argv, _QUERY_SECONDS, env=apt_environment(), hint=INSTALL).decode("utf-8", "replace")
    found = dict(item.split("=", 1) for item in shlex.split(output))
    return tuple(Path(found.get(f"P{index}", "/nonexistent")) for index in range(len(names)))


def host_mirrors() -> Mirrors:
    """Return the Debian mirrors of this host.

    Raises `ToolError` when apt is missing or nothing names a mirror.
    """
    main: list[str] = []
    security: list[str] = []
    keyring = ""
    for source in host_sources():
        if not _is_debian(source):
            continue
        # Before bullseye the security suite was `buster/updates`.
        kind = security if source.suite.endswith(("-security", "/updates")) else main
        if source.uri not in kind:
            kind.append(source.uri)
        keyring = keyring or source.keyring
    if not main:
        main = [_tool_default()]
    if not security:
        security = [re.sub(r"/debian$", "/debian-security", uri) for uri in main]
    return Mirrors(main=tuple(main), security=tuple(security), keyring=keyring or str(KEYRING))


def host_sources() -> list[Source]:
    """Return every binary source of this host's apt, in apt's order."""
    single, folder = apt_paths("Dir::Etc::sourcelist/f", "Dir::Etc::sourceparts/d")
    paths = [single]
    if folder.is_dir():
        paths += sorted(path for path in folder.iterdir() if path.suffix in (".list", ".sources"))
    found: list[Source] = []
    for path in paths:
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:
            continue
        found += parse_deb822(text) if path.suffix == ".sources" else parse_list(text)
    return found


def parse_list(text: str) -> list[Source]:
    """Return the binary sources in a one-line-style file."""
    found = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.partition("#")[0].strip())
        if match is None:
            continue
        options = dict(item.split("=", 1) for item in (match["options"] or "").split() if "=" in item)
        found.append(
            Source(
                uri=match["uri"].rstrip("/"),
                suite=match["suite"],
                components=tuple(match["components"].split()),
                keyring=_keyring(options.get("signed-by", "")),
            )
        )
    return found


def parse_deb822(text: str) -> list[Source]:
    """Return the binary sources in a deb822-style file."""
    found = []
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", lines):
        fields = {name.lower(): value for name, value in _fields(stanza)}
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                found.append(
                    Source(
                        uri=uri.rstrip("/"),
                        suite=suite,
                        components=tuple(fields.get("components", "").split()),
                        keyring=_keyring(fields.get("signed-by", "")),
                    )
                )
    return found


def _fields(stanza: str) -> Iterator[tuple[str, str]]:
    """Yield `(name, value)` of a deb822 stanza; continuation lines are joined by blanks."""
    for match in re.finditer(r"^(\S+):[ \t]*(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE):
        yield match[1], " ".join(match[2].split())


def _keyring(text: str) -> str:
    """Return the first keyring file named; a key written into the source itself is not one."""
    first = re.split(r"[,\s]", text.strip())[0]
    return first if first.startswith("/") else ""


def _is_debian(source: Source) -> bool:
    if "main" not in source.components:
        return False
    return "debian-archive" in source.keyring or source.uri.rsplit("/", 1)[-1] in ("debian", "debian-security")


def _tool_default() -> str:
    """Return the mirror that the bootstrap tools of this host would take by themselves."""
    for program in _TOOLS:
        try:
            text = Path(program).read_text("utf-8", "replace")
        except OSError:
            continue
        if found := _DEFAULT_MIRROR.search(text):
            return found.group(1).rstrip("/")
    raise ToolError(
        "no Debian mirror is configured on this host",
        hint="add one to apt's sources (`/etc/apt/sources.list.d/debian.sources`), or install `debootstrap`",
    )


def sources_of(suite: str, mirrors: Mirrors) -> tuple[Source, ...]:
    """Return the suite with its `-updates` and `-security`; a rolling suite stands alone."""
    found = [Source(uri=mirrors.main[0], suite=suite)]
    if suite not in ROLLING:
        found.append(Source(uri=mirrors.main[0], suite=f"{suite}-updates"))
        found.append(Source(uri=mirrors.security[0], suite=f"{suite}-security"))
    return tuple(found)
