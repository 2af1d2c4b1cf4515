"""apt as the resolver of another machine: a private folder, an empty or foreign dpkg status.

The host lends its mirrors, proxies and credentials (its own apt configuration), never its
suite, architecture, pins or installed packages. Nothing outside the private folder is
written. What apt verifies (InRelease signatures, the hashes below them) is verified here.
"""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from envlock import files, process
from envlock.digest import Digest, sha256_file
from envlock.errors import EnvlockError, NetworkError, StorageError, ToolError
from envlock.lock.mirrors import INSTALL, Mirrors, Source, apt_environment, apt_paths
from envlock.lock.redact import redact
from envlock.lockfile import DebPackage

_UPDATE_SECONDS = 600
_QUERY_SECONDS = 120
_LEAST_ROOM = 8 << 20
_FULL = (b"No space left on device", b"IO Error saving source cache")  # the second without its reason (apt 2.6)
_LENT = re.compile(r'Acquire::(?:http|https|ftp|Retries|ForceIPv[46]|Queue-Mode)(?:::[^ ]*)? ".*";')


class Archive:
    """A private apt: its sources, its lists, and questions to them."""

    def __init__(self, folder: Path, architecture: str, mirrors: Mirrors) -> None:
        self.folder = folder
        self.architecture = architecture
        self.mirrors = mirrors
        # What apt and dpkg-deb leave when killed lies in our folder, which the next lock clears.
        self._env = apt_environment(APT_CONFIG=str(folder / "apt.conf"), TMPDIR=str(folder))
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
        self._refuse_full()
        finished = process.run(
            ["apt-get", "update", "-qq", "--error-on=any"], _UPDATE_SECONDS, env=self._env, hint=INSTALL
        )
        if finished.status != 0:
            raise refused(finished.stderr, self.folder.parent)

    def _refuse_full(self) -> None:
        """Raise `StorageError` where apt could only wait: its index reader hangs when it cannot write at all."""
        room = os.statvfs(self.folder)
        if room.f_bavail * room.f_frsize < _LEAST_ROOM:
            raise _full(self.folder.parent)

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
            # apt's `file` method would leave the file where it is: `copy` brings it.
            argv += [re.sub("^file:", "copy:", address), str(path), f"SHA256:{digest.hex}"]
        return process.run(argv, 60 + 30 * len(wanted), env=self._env, hint=INSTALL)


def refused(stderr: bytes, folder: Path) -> EnvlockError:
    """Return why apt, working below `folder`, has no indexes: the disk, else the network or a signature."""
    if any(words in stderr for words in _FULL):
        return _full(folder)
    return NetworkError("the Debian indexes cannot be fetched and verified" + _said(stderr), hint=_update_hint(stderr))


def _full(folder: Path) -> StorageError:
    return files.storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), folder)


def parse_paragraph(text: str) -> dict[str, str]:
    """Return the single-line fields of one control paragraph, by name."""
    fields = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith((" ", "\t")):
            fields[name] = value.strip()
    return fields


def _update_hint(stderr: bytes) -> str:
    if b"expired" in stderr or b"not valid yet" in stderr:
        return "is this host's clock right (`date`)? if it is, the mirror is no longer kept up: use another one"
    return "is the mirror of this host's apt configuration reachable, and does it have the suite?"


def _said(stderr: bytes) -> str:
    lines = [line for line in redact(stderr.decode("utf-8", "replace")).splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-8:])


def _configuration(folder: Path, architecture: str) -> str:
    dump = process.check(["apt-config", "dump"], _QUERY_SECONDS, env=apt_environment(), hint=INSTALL).decode(
        "utf-8", "replace"
    )
    lent = [line for line in dump.splitlines() if _LENT.fullmatch(line)]
    netrc, parts = apt_paths("Dir::Etc::netrc/f", "Dir::Etc::netrcparts/d")
    lines = [
        *lent,
        f'Dir "{folder}/";',
        f'Dir::State "{folder}/state";',
        f'Dir::State::status "{folder}/state/status";',
        f'Dir::Cache "{folder}/cache";',
        f'Dir::Etc "{folder}/etc";',
        f'Dir::Etc::netrc "{netrc}";',
        f'Dir::Etc::netrcparts "{parts}";',
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
    with files.scratch("apt") as folder:
        yield Archive(folder, architecture, mirrors)
