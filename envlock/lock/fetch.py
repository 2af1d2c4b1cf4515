"""What is locked, brought into the store: Debian packages by apt, wheels by uv's answer or a folder.

The lockfile says what, by SHA-256; the host says where from. Nothing here changes a lockfile.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from envlock import files
from envlock.digest import Digest, sha256_file
from envlock.errors import CouldNotTell, IntegrityError, NetworkError
from envlock.lock import archive, debian, python
from envlock.lock.download import Downloader
from envlock.lock.indexes import Indexes
from envlock.lock.mirrors import Mirrors, host_mirrors
from envlock.lock.python import Wheel
from envlock.lock.target import Target
from envlock.lockfile import DebPackage, PythonPackage
from envlock.store import Store

Say = Callable[[str], None]

GONE = "`envlock lock --upgrade-package NAME` takes a newer one; a mirror that still has it serves this one"


class GoneError(NetworkError):
    """Packages that are locked and that no source of this host has any more (exit 3)."""


def refuse_offline(packages: Sequence[DebPackage | PythonPackage]) -> CouldNotTell:
    """Return the error that names what the store lacks when no network may be used."""
    names = ", ".join(f"{package.name} {package.version}" for package in packages[:5])
    more = f" and {len(packages) - 5} more" if len(packages) > 5 else ""
    return CouldNotTell(f"not in the store: {names}{more}", hint="run `envlock lock` once without `--offline`")


def _told(packages: Sequence[DebPackage | PythonPackage], kind: str, say: Say) -> None:
    size = sum(package.size for package in packages)
    say(f"fetching {len(packages)} {kind} ({size / 1e6:.0f} MB)")


# ---- Debian packages -------------------------------------------------------------------


def fetch_debs(packages: Sequence[DebPackage], platform: str, store: Store, say: Say) -> None:
    """Bring `packages` into the store; raises `GoneError` or `IntegrityError` naming them."""
    if not packages:
        return
    _told(packages, "Debian packages", say)
    mirrors = host_mirrors()
    left = list(packages)
    spoiled: set[str] = set()
    with (
        archive.opened(debian.ARCHITECTURES[platform], mirrors) as apt,
        files.scratch("debs") as folder,
    ):
        for round_number in range(len({*mirrors.main, *mirrors.security})):
            wanted = [
                (address, folder / deb.sha256.hex, deb)
                for deb in left
                if (address := _address(deb, mirrors, round_number))
            ]
            if not wanted:
                continue
            apt.download([(address, path, deb.sha256) for address, path, deb in wanted])
            for _, path, deb in wanted:
                if _take(path, deb, store):
                    left.remove(deb)
                elif any(left_over.exists() for left_over in (path, path.with_name(path.name + ".FAILED"))):
                    # apt keeps bytes that do not fit their hash under this name.
                    spoiled.add(deb.name)
                    path.unlink(missing_ok=True)
            if not left:
                return
    names = ", ".join(f"{deb.name} {deb.version}" for deb in left)
    if spoiled & {deb.name for deb in left}:
        raise IntegrityError(f"the mirrors serve other bytes than were locked: {names}")
    raise GoneError(f"no mirror of this host has: {names}", hint=GONE)


def _address(deb: DebPackage, mirrors: Mirrors, round_number: int) -> str | None:
    """Return where to try `deb` in this round: the archive its pool path points to first, then the other."""
    of_security = deb.file.startswith("pool/updates/")
    first, second = (mirrors.security, mirrors.main) if of_security else (mirrors.main, mirrors.security)
    ordered = list(dict.fromkeys([*first, *second]))
    return f"{ordered[round_number]}/{deb.file}" if round_number < len(ordered) else None


def _take(path: Path, deb: DebPackage, store: Store) -> bool:
    if not path.exists() or sha256_file(path)[0] != deb.sha256:
        return False
    with open(path, "rb") as stream:
        store.add(stream, deb.sha256, f"{deb.name} {deb.version}", deb.size)
    path.unlink()
    return True


# ---- wheels ----------------------------------------------------------------------------


def bring_wheels(wheels: Sequence[Wheel], store: Store, indexes: Indexes, say: Say) -> tuple[PythonPackage, ...]:
    """Bring freshly resolved wheels into the store and return them as they are locked."""
    needed = [wheel for wheel in wheels if not store.holds(wheel.sha256)]
    if needed:
        sizes = [wheel.size for wheel in needed if wheel.size is not None]  # not every index tells them
        size = f" ({sum(sizes) / 1e6:.0f} MB)" if len(sizes) == len(needed) else ""
        say(f"fetching {len(needed)} wheels{size}")
    downloader = Downloader(store, indexes)
    for wheel in needed:
        downloader.bring(wheel.url, wheel.sha256, wheel.size, wheel.file)
    return tuple(
        PythonPackage(
            name=wheel.name,
            version=wheel.version,
            index="default",
            file=wheel.file,
            size=store.path(wheel.sha256, wheel.file).stat().st_size,
            sha256=wheel.sha256,
        )
        for wheel in wheels
    )


def fetch_wheels(packages: Sequence[PythonPackage], target: Target, store: Store, indexes: Indexes, say: Say) -> None:
    """Bring locked wheels into the store, from a wheel folder, else from where uv finds them now."""
    if not packages:
        return
    _told(packages, "wheels", say)
    downloader = Downloader(store, indexes)
    left = [package for package in packages if not _from_folder(package, store, indexes)]
    for backend in sorted({_backend(package) for package in left}):
        group = [package for package in left if _backend(package) == backend]
        addresses = _addresses(group, backend or None, target, indexes)
        for package in group:
            downloader.bring(addresses[package.file], package.sha256, package.size, package.file)


def _from_folder(package: PythonPackage, store: Store, indexes: Indexes) -> bool:
    for folder in indexes.folders:
        path = folder / package.file
        if path.is_file() and sha256_file(path)[0] == package.sha256:
            with open(path, "rb") as stream:
                store.add(stream, package.sha256, package.file, package.size)
            return True
    return False


def _backend(package: PythonPackage) -> str:
    """Return uv's torch backend that a local version such as `2.13.0+cu126` names, or nothing."""
    from envlock.spec import TORCH_BACKEND

    local = package.version.partition("+")[2]
    return local if TORCH_BACKEND.fullmatch(local) else ""


def offered(package: PythonPackage, target: Target, indexes: Indexes) -> bool:
    """Return whether any source of this host still has this version of `package`."""
    backend = _backend(package) or None
    wanted = python.Wanted(target=target, requirements=(f"{package.name}=={package.version}",), torch_backend=backend)
    return bool(python.listed(wanted, indexes))


def _addresses(
    packages: Sequence[PythonPackage], backend: str | None, target: Target, indexes: Indexes
) -> dict[str, str]:
    """Return where each locked file can be had now; `GoneError` or `IntegrityError` names the others."""
    wanted = python.Wanted(
        target=target,
        requirements=tuple(f"{package.name}=={package.version}" for package in packages),
        torch_backend=backend,
    )
    listed: dict[str, list[tuple[Digest, str]]] = {}
    for name, digest, url in python.listed(wanted, indexes):
        listed.setdefault(name, []).append((digest, url))
    found: dict[str, str] = {}
    gone = []
    for package in packages:
        offered = listed.get(package.file, [])
        fitting = [url for digest, url in offered if digest == package.sha256]
        if fitting:
            found[package.file] = fitting[0]
        elif offered:
            raise IntegrityError(
                f"the index has other bytes under this name: {offered[0][0]}, locked is {package.sha256}",
                where=package.file,
                hint="does this host use another index than the one it was locked from?",
            )
        else:
            gone.append(f"{package.name} {package.version}")
    if gone:
        raise GoneError(f"no index of this host has: {', '.join(gone)}", hint=GONE)
    return found
