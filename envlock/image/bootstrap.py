"""The Debian base: a root file system made of exactly the locked packages.

mmdebstrap installs them from a local archive that holds nothing else, so no network and
no choice is left to it. What it gives is then checked against the lockfile and written
anew as our own tar: which mmdebstrap it was, and on which host it ran, leaves no trace.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from envlock import files, process
from envlock.errors import IntegrityError, ToolError
from envlock.image import layertar, tree
from envlock.image.context import gathered
from envlock.image.saved import ChunkReader
from envlock.image.volatile import is_volatile
from envlock.lock.needed import base_key
from envlock.lockfile import DebPackage, Lockfile
from envlock.store import Store

KIND = "debian-base"
_SCRATCH = "envlock-base-"
DEADLINE = 1800.0  # seconds: 13 s for 110 packages on two cores, more on a slow disk

_HINT = "on Debian or Ubuntu: `apt-get install mmdebstrap`"
# What apt and mmdebstrap leave of the host and of the way the tree was made.
_LEFT_BY_BOOTSTRAP = re.compile(
    rb"etc/apt/(sources\.list|sources\.list\.d/.+|apt\.conf\.d/99mmdebstrap|trusted\.gpg(~|\.d/.*~)?)"
    rb"|etc/dpkg/dpkg\.cfg\.d/99mmdebstrap|var/lib/apt/(extended_states|mirrors/.*|periodic/.*)"
    rb"|var/lib/dpkg/(cmethopt|diversions-old|statoverride-old)"
)
_STANZA = re.compile(rb"^(Package|Status|Version|Architecture):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def base_tar(lock: Lockfile, store: Store, fresh: bool = False) -> Path:
    """Return the path of `base.tar` in the store, made when it is not there yet, or `fresh`.

    Raises `ToolError` when mmdebstrap is missing or fails, `IntegrityError` when the
    tree does not hold exactly the locked packages.
    """
    # Under /var/tmp, readable by apt's and the user namespace's other users.
    scratch = Path(os.environ.get("TMPDIR") or "/var/tmp")
    files.remove_leftovers(scratch, re.escape(_SCRATCH))
    held = None if fresh else store.derived(KIND, base_key(lock))
    if held is not None:
        return held
    with store.using():
        return _make(lock, store, scratch)


def _make(lock: Lockfile, store: Store, scratch: Path) -> Path:
    if shutil.which("mmdebstrap") is None:
        raise ToolError("`mmdebstrap` is not installed; it makes the Debian base", hint=_HINT)
    try:
        with files.temporary_folder(scratch, _SCRATCH) as folder:
            folder.chmod(0o755)
            archive = folder / "archive"
            _write_archive(lock.apt, store, archive)
            made = folder / "tree.tar"
            _run_mmdebstrap(lock, archive, made)
            with open(made, "rb") as stream:
                pieces = gathered(canonical_tree(stream.fileno(), lock))
                return store.add_derived(KIND, base_key(lock), ChunkReader(pieces))
    except OSError as error:
        # Of a copy that fails, the second name is the file being written.
        raise files.storage_error(error, error.filename2 or error.filename or "the Debian base") from error


def _write_archive(debs: tuple[DebPackage, ...], store: Store, archive: Path) -> None:
    """Make `archive` a flat repository of `debs`, and nothing else (sources.list(5), exact path)."""
    archive.mkdir()
    environment = {**os.environ, "TMPDIR": str(archive.parent)}  # dpkg-deb leaves a folder when killed
    stanzas = []
    for deb in debs:
        name = f"{deb.name}_{deb.architecture}_{deb.sha256.hex}.deb"
        shutil.copyfile(store.path(deb.sha256, deb.file), archive / name)
        control = process.check(["dpkg-deb", "--field", str(archive / name)], 60, env=environment, hint=_HINT)
        found = {match[1].decode(): match[2].decode("utf-8", "replace") for match in _STANZA.finditer(control)}
        if (found.get("Package"), found.get("Version"), found.get("Architecture")) != (
            deb.name,
            deb.version,
            deb.architecture,
        ):
            raise IntegrityError(f"is not {deb.name} {deb.version} ({deb.architecture})", where=deb.file)
        digest = f"Filename: ./{name}\nSize: {deb.size}\nSHA256: {deb.sha256.hex}\n"
        stanzas.append(control.rstrip(b"\n") + b"\n" + digest.encode() + b"\n")
    (archive / "Packages").write_bytes(b"".join(stanzas))
    for path in (archive, *archive.iterdir()):
        path.chmod(0o755 if path is archive else 0o644)


def _run_mmdebstrap(lock: Lockfile, archive: Path, target: Path) -> None:
    architecture = lock.environment.platform.rpartition("/")[2]
    argv = [
        *_own_mounts(),
        "mmdebstrap",
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=custom",
        f"--architectures={architecture}",
        f"--include={','.join(deb.name for deb in lock.apt)}",
        "--format=tar",
        *_merged_usr(lock.apt, architecture),
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Sandbox::User "root"',
        "",
        str(target),
        f"deb [trusted=yes] copy:{archive} ./",
    ]
    # Nothing of the caller's environment: locale, proxies, DEBIAN_* and APT_CONFIG would be seen.
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC0",
        "TMPDIR": str(archive.parent),
        "SOURCE_DATE_EPOCH": str(lock.environment.epoch),
        "DEBIAN_FRONTEND": "noninteractive",
    }
    finished = process.run(argv, timeout=DEADLINE, env=environment, cwd="/", hint=_mmdebstrap_hint())
    process.checked(finished, "mmdebstrap", _mmdebstrap_hint())


def _own_mounts() -> list[str]:
    """Return what gives the command after it mounts of its own, where this process may have that.

    As root mmdebstrap mounts /proc, /sys and /dev/pts into the tree. When it is killed they
    would stay on the host, and the tree could not be removed; so they end with its processes.
    As another user its user namespace does the same.
    """
    prefix = ["unshare", "--mount", "--propagation", "private", "--"]
    if os.geteuid() != 0 or shutil.which(prefix[0]) is None:
        return []
    return prefix if process.run([*prefix, "true"], timeout=60).status == 0 else []


def _merged_usr(debs: tuple[DebPackage, ...], architecture: str) -> list[str]:
    """Return the hook that makes `/bin -> usr/bin` and its kin before anything is unpacked.

    Until Debian 12 no package brings these links: debootstrap makes them, and the package
    `usr-is-merged` only insists on them. From 13 on `base-files` brings them.
    """
    versions = {deb.name: deb.version for deb in debs}
    release = re.match(r"\d+", versions.get("base-files", ""))
    if "usr-is-merged" not in versions or release is None or int(release[0]) >= 13:
        return []
    folders = ["bin", "lib", "sbin", *(["lib32", "lib64", "libx32"] if architecture == "amd64" else [])]
    made = f'for d in {" ".join(folders)}; do mkdir -p "$1/usr/$d"; ln -s "usr/$d" "$1/$d"; done'
    return [f"--setup-hook={made}"]


def _mmdebstrap_hint() -> str | None:
    if os.geteuid() == 0:
        return None
    return "run it as root, or allow user namespaces (`apt-get install uidmap`)"


# ---- from mmdebstrap's tree to ours ----------------------------------------------------


def canonical_tree(descriptor: int, lock: Lockfile) -> Iterator[bytes]:
    """Yield the canonical tar of the tree in the tar file `descriptor`, after checking its packages."""
    where = "the tree that mmdebstrap made"
    source = layertar.RangeSource(descriptor, 0, os.fstat(descriptor).st_size, where)
    found: tree.Tree = {}
    tree.apply_layer(found, source, where)
    status = found.get(b"var/lib/dpkg/status")
    if status is None:
        raise IntegrityError("holds no dpkg status", where=where)
    check_packages(b"".join(tree.content(descriptor, status)), lock.apt, where)
    kept = {
        name: entry for name, entry in found.items() if not is_volatile(name) and not _LEFT_BY_BOOTSTRAP.fullmatch(name)
    }
    yield from tree.pieces(descriptor, kept, lock.environment.epoch)


def check_packages(status: bytes, debs: tuple[DebPackage, ...], where: str) -> None:
    """Raise `IntegrityError` unless dpkg's status names exactly `debs`, all of them installed."""
    found: dict[str, tuple[str, str]] = {}
    for stanza in status.split(b"\n\n"):
        fields = {match[1].decode(): match[2].decode("utf-8", "replace") for match in _STANZA.finditer(stanza)}
        if not fields:
            continue
        name = fields.get("Package", "")
        if fields.get("Status") != "install ok installed":
            raise IntegrityError(f"package {name} is not installed: {fields.get('Status')}", where=where)
        found[name] = (fields.get("Version", ""), fields.get("Architecture", ""))
    expected = {deb.name: (deb.version, deb.architecture) for deb in debs}
    if found != expected:
        odd = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise IntegrityError(f"does not hold exactly the locked packages: {', '.join(odd[:8])}", where=where)
