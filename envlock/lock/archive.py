"""apt as the resolver of another machine: a private folder, an empty or foreign dpkg status.

The host lends its mirrors, proxies and credentials (its own apt configuration), never its
suite, architecture, pins or installed packages. Nothing outside the private folder is
written. What apt verifies (InRelease signatures, the hashes below them) is verified here.
"""

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from envlock import process
from envlock.digest import Digest, sha256_file
from envlock.errors import NetworkError, ToolError
from envlock.lock.redact import redact
from envlock.lockfile import DebPackage

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
INSTALL = "install Debian's `apt` and `debian-archive-keyring`, or lock on a Debian machine"
ROLLING = ("sid", "unstable", "experimental")

_UPDATE_SECONDS = 600
_QUERY_SECONDS = 120
_TARGET_FORMAT = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)|$(SIGNED_BY)"
_LENT = re.compile(r'Acquire::(?:http|https|ftp|Retries|ForceIPv[46]|Queue-Mode)(?:::[^ ]*)? ".*";')
_DEFAULT_MIRROR = re.compile(r"""(?:DEF_MIRROR=|\bdefault_mirror\s*=\s*)["']?(https?://[A-Za-z0-9./_-]+)""")
_ENV = {"LC_ALL": "C", "LANG": "C", "DEBIAN_FRONTEND": "noninteractive"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mirrors:
    """Where this host takes Debian from: base addresses, and the keyring that verifies them.

    `main` serves a suite and its `-updates`, `security` its `-security`.
    """

    main: tuple[str, ...]
    security: tuple[str, ...]
    keyring: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One line of the private sources: a suite (`bookworm-security`) at the first mirror that has it."""

    uri: str
    suite: str


def environment(**more: str) -> dict[str, str]:
    """Return the environment in which apt runs: this one, speaking plain English."""
    return {**os.environ, **_ENV, **more}


def host_mirrors() -> Mirrors:
    """Return the Debian mirrors of this host's apt configuration, else those of its bootstrap tools.

    Raises `ToolError` when apt is missing or nothing names a mirror.
    """
    if shutil.which("apt-get") is None:
        raise ToolError("`apt-get` is not installed, and Debian packages are resolved by it", hint=INSTALL)
    output = process.check(
        ["apt-get", "indextargets", "--format", _TARGET_FORMAT, "Created-By: Packages"],
        _QUERY_SECONDS,
        env=environment(),
        hint=INSTALL,
    )
    main: list[str] = []
    security: list[str] = []
    keyring = ""
    for line in output.decode("utf-8", "replace").splitlines():
        uri, release, component, origin, signed_by = (line.split("|") + [""] * 5)[:5]
        if not _is_debian(uri, component, origin):
            continue
        # apt says `stable-security` and, for releases before bullseye, `buster/updates`.
        kind = security if release.endswith(("-security", "/updates")) else main
        if uri.rstrip("/") not in kind:
            kind.append(uri.rstrip("/"))
        keyring = keyring or (signed_by if signed_by.startswith("/") else "")
    if not main:
        main = [_tool_default()]
    if not security:
        security = [re.sub(r"/debian$", "/debian-security", uri) for uri in main]
    return Mirrors(main=tuple(main), security=tuple(security), keyring=keyring or str(KEYRING))


def _is_debian(uri: str, component: str, origin: str) -> bool:
    if component.split("/")[-1] != "main":
        return False
    if origin:
        return origin in ("Debian", "Debian-Security")
    return uri.rstrip("/").endswith(("/debian", "/debian-security"))


def _tool_default() -> str:
    """Return the mirror that the bootstrap tools of this host would take by themselves."""
    for program in ("/usr/share/debootstrap/functions", "/usr/sbin/debootstrap", "/usr/bin/mmdebstrap"):
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


class Archive:
    """A private apt: its sources, its lists, and questions to them."""

    def __init__(self, folder: Path, architecture: str, mirrors: Mirrors) -> None:
        self.folder = folder
        self.architecture = architecture
        self.mirrors = mirrors
        self._env = environment(APT_CONFIG=str(folder / "apt.conf"))
        for name in (
            "state/lists/partial",
            "cache/archives/partial",
            "etc/preferences.d",
            "etc/sources.list.d",
            "etc/apt.conf.d",
        ):
            (folder / name).mkdir(parents=True)
        (folder / "state" / "status").touch()
        conf = _configuration(folder, architecture)
        (folder / "apt.conf").touch(mode=0o600)  # it may hold a proxy's password
        (folder / "apt.conf").write_text(conf, "utf-8")

    def set_status(self, status: bytes) -> None:
        """Resolve against the packages of this dpkg status instead of none."""
        (self.folder / "state" / "status").write_bytes(status)

    def offer(self, held: Sequence[tuple[DebPackage, Path]]) -> None:
        """Make an index of our own of packages already at hand, each at its path.

        Their bytes were hashed against the lockfile just now, so no signature is asked for.
        """
        local = self.folder / "local"
        local.mkdir()
        stanzas = []
        for deb, path in held:
            control = process.check(["dpkg-deb", "--field", str(path)], _QUERY_SECONDS, env=self._env, hint=INSTALL)
            where = f"Filename: {deb.file}\nSize: {deb.size}\nSHA256: {deb.sha256.hex}\n"
            stanzas.append(control.decode("utf-8", "replace").rstrip("\n") + "\n" + where)
        (local / "Packages").write_text("\n".join(stanzas), "utf-8")

    def update(self, sources: tuple[Source, ...], components: tuple[str, ...]) -> None:
        """Fetch and verify the indexes of `sources`. Raises `NetworkError`."""
        if sources and not Path(self.mirrors.keyring).exists():
            raise ToolError(
                "there is no keyring to verify Debian's archive with",
                where=self.mirrors.keyring,
                hint="install Debian's `debian-archive-keyring`",
            )
        option = f"signed-by={self.mirrors.keyring}"
        lines = [f"deb [{option}] {source.uri} {source.suite} {' '.join(components)}\n" for source in sources]
        if (self.folder / "local").exists():
            lines.append(f"deb [trusted=yes] file:{self.folder}/local ./\n")
        (self.folder / "etc" / "sources.list").write_text("".join(lines), "utf-8")
        finished = process.run(
            ["apt-get", "update", "-qq", "--error-on=any"], _UPDATE_SECONDS, env=self._env, hint=INSTALL
        )
        if finished.status != 0:
            raise NetworkError(
                "the Debian indexes cannot be fetched and verified" + _said(finished.stderr),
                hint="is the mirror of this host's apt configuration reachable, and does it have the suite?",
            )

    def index_digest(self, source: Source) -> Digest:
        """Return the digest of the signed index (`InRelease`, else `Release`) of `source`."""
        suite = source.suite.replace("/", "_")
        for name in ("InRelease", "Release"):
            for path in sorted((self.folder / "state" / "lists").glob(f"*_dists_{suite}_{name}")):
                return sha256_file(path)[0]
        raise ToolError(f"apt left no index for `{source.suite}`")

    def prefer(self, pins: dict[str, str]) -> None:
        """Prefer these versions by package name over any other, newer ones too."""
        stanzas = [
            f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n" for name, version in sorted(pins.items())
        ]
        (self.folder / "etc" / "preferences").write_text("\n".join(stanzas), "utf-8")

    def simulate(self, packages: list[str]) -> process.Finished:
        """Return what apt says to `install PACKAGES` without recommended ones."""
        return process.run(
            ["apt-get", "-s", "-q", "-y", "--no-install-recommends", "install", *packages],
            _QUERY_SECONDS,
            env=self._env,
            hint=INSTALL,
        )

    def show(self, packages: list[str]) -> list[dict[str, str]]:
        """Return the index paragraphs of `NAME=VERSION` (or all versions of `NAME`), fields by name."""
        output = process.run(["apt-cache", "show", *packages], _QUERY_SECONDS, env=self._env, hint=INSTALL).stdout
        return [parse_paragraph(text) for text in output.decode("utf-8", "replace").split("\n\n") if text.strip()]

    def download(self, wanted: list[tuple[str, Path, Digest]]) -> process.Finished:
        """Fetch `(address, file, digest)` each with apt's own methods, which check the digest."""
        argv = ["/usr/lib/apt/apt-helper", "-q", "download-file"]
        for address, path, digest in wanted:
            argv += [address, str(path), f"SHA256:{digest.hex}"]
        return process.run(argv, 60 + 30 * len(wanted), env=self._env, hint=INSTALL)


def parse_paragraph(text: str) -> dict[str, str]:
    """Return the single-line fields of one control paragraph, by name."""
    fields = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith((" ", "\t")):
            fields[name] = value.strip()
    return fields


def _said(stderr: bytes) -> str:
    lines = [line for line in redact(stderr.decode("utf-8", "replace")).splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-8:])


def _configuration(folder: Path, architecture: str) -> str:
    dump = process.check(["apt-config", "dump"], _QUERY_SECONDS, env=environment(), hint=INSTALL).decode(
        "utf-8", "replace"
    )
    lent = [line for line in dump.splitlines() if _LENT.fullmatch(line)]
    shell = process.check(
        ["apt-config", "shell", "NETRC", "Dir::Etc::netrc/f", "PARTS", "Dir::Etc::netrcparts/d"],
        _QUERY_SECONDS,
        env=environment(),
    ).decode("utf-8", "replace")
    login = dict(item.split("=", 1) for item in shlex.split(shell))
    lines = [
        *lent,
        f'Dir "{folder}/";',
        f'Dir::State "{folder}/state";',
        f'Dir::State::status "{folder}/state/status";',
        f'Dir::Cache "{folder}/cache";',
        f'Dir::Etc "{folder}/etc";',
        f'Dir::Etc::netrc "{login.get("NETRC", "")}";',
        f'Dir::Etc::netrcparts "{login.get("PARTS", "")}";',
        f'APT::Architecture "{architecture}";',
        f'APT::Architectures {{ "{architecture}"; }};',
        'APT::Sandbox::User "";',
        'APT::Install-Recommends "false";',
        'Acquire::Languages "none";',
        # apt counts itself as essential unless told otherwise; an image needs no apt.
        'pkgCacheGen::ForceEssential ",";',
        "",
    ]
    return "\n".join(lines)


@contextmanager
def opened(architecture: str, mirrors: Mirrors) -> Iterator[Archive]:
    """Give a private apt in a temporary folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="envlock-apt-") as folder:
        yield Archive(Path(folder), architecture, mirrors)


def sources_of(suite: str, mirrors: Mirrors) -> tuple[Source, ...]:
    """Return the suite with its `-updates` and `-security`; a rolling suite stands alone."""
    found = [Source(uri=mirrors.main[0], suite=suite)]
    if suite not in ROLLING:
        found.append(Source(uri=mirrors.main[0], suite=f"{suite}-updates"))
        found.append(Source(uri=mirrors.security[0], suite=f"{suite}-security"))
    return tuple(found)
