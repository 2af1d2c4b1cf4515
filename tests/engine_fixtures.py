"""Small images for tests on a real engine, made from this interpreter: no registry, no network.

`python_image` holds a bare CPython at /opt/venv/bin/python (this one, copied with the
libraries it links to) and nothing else: no shell, no package manager.
"""

import hashlib
import io
import json
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

EPOCH = 1_700_000_000
_SKIPPED = {"test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "site-packages", "__pycache__"}


def tar_of(files: Mapping[str, bytes], modes: Mapping[str, int] | None = None) -> bytes:
    """Return a tar archive of `files` (path to bytes), sorted, with times and owners fixed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, EPOCH
            archive.addfile(entry)
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(files[name]), EPOCH, (modes or {}).get(name, 0o644)
            archive.addfile(entry, io.BytesIO(files[name]))
    return buffer.getvalue()


def archive_of(layers: list[bytes], name: str, env: Mapping[str, str] | None = None, **config: object) -> bytes:
    """Return an image archive that every engine loads: `layers` are tar archives, `name` is `REPOSITORY:TAG`."""
    digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
    document = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": "2023-11-14T22:13:20Z",
        "config": {"Env": [f"{key}={value}" for key, value in sorted((env or {}).items())], **config},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": "2023-11-14T22:13:20Z", "created_by": "test"} for _ in layers],
    }
    text = json.dumps(document, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar" for digest in digests]}]
    files = {config_name: text, "manifest.json": json.dumps(manifest).encode()}
    files.update({f"{digest}/layer.tar": layer for digest, layer in zip(digests, layers, strict=True)})
    return tar_of(files)


@cache
def python_layer() -> bytes:
    """Return a layer with this interpreter, its standard library and the libraries they link to."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    files: dict[str, bytes] = {}
    modes = {"opt/venv/bin/python": 0o755}
    executable = Path(sys.executable).resolve()
    files["opt/venv/bin/python"] = executable.read_bytes()
    standard = Path(sysconfig.get_path("stdlib"))
    linked = [executable]
    for path in sorted(standard.rglob("*")):
        inside = path.relative_to(standard)
        if _SKIPPED.intersection(inside.parts) or path.suffix not in (".py", ".so") or not path.is_file():
            continue
        files[f"opt/venv/lib/{version}/{inside}"] = path.read_bytes()
        if path.suffix == ".so":
            linked.append(path)
    listed = subprocess.run(["ldd", *map(str, linked)], capture_output=True, text=True, check=True).stdout
    libraries = sorted(set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listed, re.MULTILINE)))
    standard_place = next(Path(path).parent for path in libraries if Path(path).name.startswith("libc.so"))
    for path in libraries:
        # The loader's own path is written in the executable; the rest goes where libc is looked for.
        place = path if Path(path).name.startswith("ld-") else str(standard_place / Path(path).name)
        files[place.lstrip("/")] = Path(path).read_bytes()
        modes[place.lstrip("/")] = 0o755
    files["etc/passwd"] = b"root:x:0:0::/:/none\nenvlock:x:1000:1000::/:/none\n"
    return tar_of(files, modes)


def python_archive(name: str) -> bytes:
    """Return the archive of an image with a bare interpreter at /opt/venv/bin/python."""
    env = {"PATH": "/opt/venv/bin", "ENVLOCK_TEST": "from the image"}
    return archive_of([python_layer(), tar_of({"tmp/.keep": b""})], name, env)


def chunks(data: bytes, size: int = 1 << 20) -> Iterator[bytes]:
    """Return `data` in pieces."""
    for start in range(0, len(data), size):
        yield data[start : start + size]
