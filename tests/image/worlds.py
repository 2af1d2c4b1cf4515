"""Small real environments for tests of the image: wheels, a tiny root file system, a store, a lockfile.

The base of these lockfiles is a Debian one whose `base.tar` lies in the store already,
made by hand: no mmdebstrap is needed, and what follows it is the real thing.
"""

import base64
import dataclasses
import hashlib
import io
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from samples import lock as sample_lock
from samples import sha

from envlock.digest import sha256, sha256_file
from envlock.image import bootstrap, layout
from envlock.image.layertar import Entry, RangeSource, entries
from envlock.lock.needed import base_key
from envlock.lockfile import DebPackage, LockedFile, Lockfile, PythonPackage
from envlock.store import Store

EPOCH = 1_700_000_000


# ---- tars ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Thing:
    """One entry of a tar that a test makes; `data` None is a folder unless `link` is given."""

    name: str
    data: bytes | None = b""
    mode: int = 0o644
    link: str = ""
    hard: bool = False
    uid: int = 0
    gid: int = 0
    mtime: int = EPOCH
    uname: str = ""
    pax: tuple[tuple[str, str], ...] = ()


def tar_of(*things: Thing, form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar of `things`, in their order, as Python's tarfile writes it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for thing in things:
            info = tarfile.TarInfo(thing.name)
            info.mode, info.mtime, info.uid, info.gid, info.uname = (
                thing.mode, thing.mtime, thing.uid, thing.gid, thing.uname,
            )  # fmt: skip
            info.pax_headers = dict(thing.pax)
            if thing.link:
                info.type, info.linkname = (tarfile.LNKTYPE if thing.hard else tarfile.SYMTYPE), thing.link
            elif thing.data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(thing.data)
            archive.addfile(info, io.BytesIO(thing.data or b""))
    return buffer.getvalue()


def read_tar(data: bytes, folder: Path) -> list[tuple[Entry, bytes]]:
    """Return the entries of a tar with their contents, as our own reader gives them."""
    path = folder / "read.tar"
    path.write_bytes(data)
    with open(path, "rb") as stream:
        found = list(entries(RangeSource(stream.fileno(), 0, len(data), "a test"), "a test"))
        return [(entry, data[entry.offset : entry.offset + entry.size]) for entry in found]


def saved_archive(
    layers: list[bytes], settings: Mapping[str, object] | None = None, claimed: list[bytes] | None = None
) -> bytes:
    """Return an archive as an engine saves it (Docker before 25); `claimed` are the layers its config names."""
    import json

    config = json.dumps(
        {
            "architecture": "amd64", "os": "linux", "config": dict(settings or {}),
            "rootfs": {"type": "layers", "diff_ids": [str(sha256(layer)) for layer in claimed or layers]},
        }
    ).encode()  # fmt: skip
    name = f"{sha256(config).hex}.json"
    manifest = [{"Config": name, "RepoTags": ["a:1"], "Layers": [f"l{n}/layer.tar" for n in range(len(layers))]}]
    things = [Thing(name, config), Thing("manifest.json", json.dumps(manifest).encode())]
    for number, layer in enumerate(layers):
        things += [Thing(f"l{number}/", None, 0o755), Thing(f"l{number}/layer.tar", layer)]
    return tar_of(*things)


def in_pieces(data: bytes, size: int = 7001) -> Iterator[bytes]:
    """Yield `data` in pieces of an odd size, as a network gives it."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


def layer_bytes(image: layout.OutputImage) -> dict[str, bytes]:
    """Return the bytes of each layer of an image by its owner."""
    return {layer.owner: b"".join(layer.pieces()) for layer in image.layers}


# ---- wheels ----------------------------------------------------------------------------


def wheel(
    folder: Path,
    name: str,
    files: Mapping[str, bytes],
    version: str = "1.0",
    scripts: str = "",
    damaged: str = "",
    record: bytes | None = None,
    programs: tuple[str, ...] = (),
) -> Path:
    """Write a wheel with `files` and return its path; `damaged` names a file whose bytes are not what RECORD says."""
    info = f"{name}-{version}.dist-info"
    held = dict(files)
    held[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    held[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if scripts:
        held[f"{info}/entry_points.txt"] = scripts.encode()
    rows = [
        f"{_csv(path)},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for path, data in held.items()
    ]
    held[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode() if record is None else record
    if damaged:
        held[damaged] = held[damaged][:-1] + b"?"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in held.items():
            member = zipfile.ZipInfo(path)
            member.external_attr = (0o100755 if path in programs else 0o100644) << 16
            archive.writestr(member, data)
    return target


def _csv(path: str) -> str:
    return f'"{path}"' if "," in path else path


def locked_wheel(path: Path, store: Store) -> PythonPackage:
    """Put a wheel into the store and return it as it is locked."""
    digest, size = sha256_file(path)
    with open(path, "rb") as stream:
        store.add(stream, digest, path.name)
    name, version = path.name.split("-")[:2]
    return PythonPackage(
        name=name.lower().replace("_", "-"), version=version, index="default", file=path.name, size=size, sha256=digest
    )


# ---- a whole environment ---------------------------------------------------------------

ROOT_FILES = (
    Thing("bin", None, 0o755),
    Thing("bin/sh", b"#!no shell\n", 0o755),
    Thing("etc", None, 0o755),
    Thing("etc/os-release", b"ID=tiny\n"),
    Thing("opt", None, 0o755),
    Thing("srv", None, 0o2775, gid=8),
    Thing("tmp", None, 0o1777),
    Thing("usr", None, 0o755),
    Thing("usr/bin", None, 0o755),
    Thing("usr/bin/perl", b"perl" * 500, 0o755),
    Thing("usr/bin/perl5", mode=0o755, link="usr/bin/perl", hard=True),
    Thing("usr/bin/python3", link="python3.11"),
    Thing("usr/bin/python3.11", b"\x7fELF", 0o755),
    Thing("usr/bin/su", b"setuid", 0o4755),
    Thing("var", None, 0o755),
)


def world(folder: Path, text: bytes = b"VALUE = 1\n", number: int = 0) -> tuple[Store, Lockfile, Path]:
    """Return a store, a lockfile without an image, and the folder where the spec's files lie.

    `text` is the content of one module of one wheel; another `number` is another base.
    """
    store = Store(folder / "store")
    first = wheel(folder / "wheels", "alpha", {"alpha/__init__.py": text, "alpha/data.bin": bytes(range(256)) * 40})
    second = wheel(
        folder / "wheels", "beta_lib", {"beta_lib.py": b"def main():\n    print('beta')\n"},
        scripts="[console_scripts]\nbeta = beta_lib:main\n",
    )  # fmt: skip
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models/a.bin").write_bytes(b"weights" * 1000)
    digest, size = sha256_file(folder / "models/a.bin")
    held = sample_lock()
    lock = dataclasses.replace(
        held,
        environment=dataclasses.replace(held.environment, name="tiny", interpreter="/usr/bin/python3.11"),
        apt=(deb("tiny", f"1.{number}"),),
        python=(locked_wheel(first, store), locked_wheel(second, store)),
        files=tuple(
            LockedFile(path=path, source="models/a.bin", size=size, sha256=digest)
            for path in ("/models/a.bin", "/srv/b.bin")
        ),
        image=None,
        goldens=(),
    )
    things = (*ROOT_FILES, Thing("etc/number", b"%d\n" % number))
    store.add_derived(bootstrap.KIND, base_key(lock), io.BytesIO(tar_of(*things)))
    return store, lock, folder


def deb(name: str, version: str) -> DebPackage:
    """Return a Debian package that is named and nowhere."""
    return DebPackage(
        name=name,
        version=version,
        architecture="all",
        file=f"pool/main/{name}_{version}_all.deb",
        size=1,
        sha256=sha(name),
    )


def locked_debs(paths: tuple[Path, ...], store: Store) -> Iterator[DebPackage]:
    for path in paths:
        shown = subprocess.run(
            ["dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", path],
            capture_output=True, check=True,
        )  # fmt: skip
        name, version, architecture = shown.stdout.decode().split()
        digest, size = sha256_file(path)
        with open(path, "rb") as stream:
            store.add(stream, digest, path.name)
        yield DebPackage(
            name=name, version=version, architecture=architecture, file=f"pool/{path.name}", size=size, sha256=digest
        )
