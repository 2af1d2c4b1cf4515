"""Debian packages: the exact set that apt would install, from a signed index.

apt resolves (`envlock.lock.archive`), for the spec's platform and suite. What is locked
of each package comes from the verified index: version, architecture, pool file, size and
SHA-256; never where it was fetched.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envlock.digest import Digest
from envlock.errors import IntegrityError, NetworkError, SpecError, ToolError
from envlock.lock import archive
from envlock.lock.archive import Archive
from envlock.lock.mirrors import Mirrors, host_mirrors, sources_of
from envlock.lock.redact import redact
from envlock.lockfile import AptIndex, DebPackage

ARCHITECTURES = {"linux/amd64": "amd64", "linux/arm64": "arm64"}

_INSTALLS = re.compile(r"Inst (?P<name>\S+) (?:\[\S+\] )?\((?P<version>\S+) .*\[(?P<architecture>[a-z0-9]+)\]\)")
_NOT_FOUND = re.compile(r"E: (?:Unable to locate package|Couldn't find any package by .*?|Package) '?([a-z0-9.+-]+)'?")
_LIBC = re.compile(r"(?:\d+:)?(\d+)\.(\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is asked of apt: packages on top of a suite's essential ones, or of an image's own.

    `status` is the dpkg status of the base image, None for a bootstrap.
    """

    suite: str
    components: tuple[str, ...]
    platform: str
    packages: tuple[str, ...]
    status: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """What apt answered; `vanished` are pins that neither the archive nor the store has any more.

    `indexes` is empty when no archive was asked.
    """

    packages: tuple[DebPackage, ...]
    indexes: tuple[AptIndex, ...]
    vanished: tuple[DebPackage, ...]


def resolve(
    wanted: Wanted, pins: Sequence[DebPackage], held: Sequence[tuple[DebPackage, Path]], offline: bool, where: str
) -> Resolved:
    """Return the packages to install, preferring the versions in `pins`.

    `held` are pins at hand with their paths: they stay choosable when the archive has
    moved on, and are all there is to choose from `offline`. `where` names the spec in
    errors. Raises `SpecError` for a package that does not exist or cannot be installed,
    `NetworkError`, `ToolError`.
    """
    mirrors = Mirrors(main=(), security=(), keyring="") if offline else host_mirrors()
    with archive.opened(ARCHITECTURES[wanted.platform], mirrors) as apt:
        sources = () if offline else sources_of(wanted.suite, mirrors)
        if held:
            apt.offer(held)
        apt.update(sources, wanted.components)
        if wanted.status is not None:
            apt.set_status(wanted.status)
        indexes = tuple(
            AptIndex(suite=source.suite, components=wanted.components, sha256=apt.index_digest(source))
            for source in sources
        )
        available = _available(apt, pins)
        apt.prefer({pin.name: pin.version for pin in pins if _key(pin) in available})
        chosen = _simulate(apt, wanted, where)
        packages = _described(apt, chosen)
    names = {package.name for package in packages}
    vanished = tuple(pin for pin in pins if pin.name in names and _key(pin) not in available)
    return Resolved(packages=packages, indexes=indexes, vanished=vanished)


def _key(pin: DebPackage) -> tuple[str, str]:
    return pin.name, pin.version


def _available(apt: Archive, pins: Sequence[DebPackage]) -> set[tuple[str, str]]:
    if not pins:
        return set()
    shown = apt.show([f"{pin.name}={pin.version}" for pin in pins])
    return {(fields.get("Package", ""), fields.get("Version", "")) for fields in shown}


def _simulate(apt: Archive, wanted: Wanted, where: str) -> list[tuple[str, str, str]]:
    packages = list(wanted.packages)
    if wanted.status is None:
        # `usr-is-merged` is what a fresh root file system has; without it apt takes `usrmerge` and all of perl.
        packages = ["?essential", *_existing(apt, ["usr-is-merged"]), *packages]
    elif not packages:
        return []
    finished = apt.simulate(packages)
    if finished.status != 0:
        raise _refused(finished.stdout + finished.stderr, wanted, where)
    found = []
    for line in finished.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith("Inst "):
            match = _INSTALLS.match(line)
            if match is None:
                raise ToolError(f"`apt-get` said something unexpected: {line!r}")
            found.append((match["name"], match["version"], match["architecture"]))
    return found


def _existing(apt: Archive, names: list[str]) -> list[str]:
    return sorted({fields["Package"] for fields in apt.show(names) if "Package" in fields})


def _refused(output: bytes, wanted: Wanted, where: str) -> SpecError:
    text = redact(output.decode("utf-8", "replace"))
    if found := _NOT_FOUND.search(text):
        name = found.group(1)
        key = f"apt.packages[{wanted.packages.index(name)}]" if name in wanted.packages else "apt.packages"
        return SpecError(
            f"{wanted.suite} has no package {name!r} for {wanted.platform}",
            where=where,
            key=key,
            hint="is the name right, and the component (`base.components`) that holds it listed?",
        )
    lines = [line for line in text.splitlines() if line.startswith((" ", "E:")) and line.strip()]
    said = "".join(f"\n  {line.strip()}" for line in lines[-12:])
    return SpecError(f"`apt.packages` cannot be installed together:{said}", where=where)


def _described(apt: Archive, chosen: list[tuple[str, str, str]]) -> tuple[DebPackage, ...]:
    if not chosen:
        return ()
    shown: dict[tuple[str, str, str], dict[str, str]] = {}
    for fields in apt.show([f"{name}={version}" for name, version, _ in chosen]):
        key = (fields.get("Package", ""), fields.get("Version", ""), fields.get("Architecture", ""))
        if shown.setdefault(key, fields).get("SHA256") != fields.get("SHA256"):
            raise IntegrityError(f"the archive has two different files for {key[0]} {key[1]}")
    return tuple(_deb(shown, key) for key in sorted(chosen))


def _deb(shown: dict[tuple[str, str, str], dict[str, str]], key: tuple[str, str, str]) -> DebPackage:
    fields = shown.get(key)
    if fields is None:
        raise NetworkError(f"the index holds no entry for {key[0]} {key[1]} [{key[2]}]")
    try:
        return DebPackage(
            name=key[0],
            version=key[1],
            architecture=key[2],
            file=fields["Filename"],
            size=int(fields["Size"]),
            sha256=Digest.from_hex(fields["SHA256"]),
        )
    except (KeyError, ValueError) as fault:
        raise IntegrityError(f"the index entry of {key[0]} {key[1]} is not complete ({fault})") from None


def glibc_of(version: str) -> tuple[int, int]:
    """Return `(2, 36)` for a Debian version of libc6 such as `2.36-9+deb12u14`; `ValueError` otherwise."""
    found = _LIBC.match(version)
    if found is None:
        raise ValueError(f"not a version of libc6: {version!r}")
    return int(found.group(1)), int(found.group(2))
