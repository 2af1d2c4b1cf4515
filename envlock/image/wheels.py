"""Locked wheels as the files of a virtual environment, without pip and without a copy on disk.

The `installer` library decides what goes where; here its destination only takes notes,
and each file is inflated from its wheel when it is asked for, its hash compared with the
wheel's RECORD on the way. No bytecode, no direct_url.json: the tree depends on the
lockfile alone. The layout is that of `venv` (PEP 405), as it will lie in the image.
"""

import base64
import contextlib
import hashlib
import io
import stat
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from installer import install
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import Hash, InvalidRecordEntry, RecordEntry, parse_record_file
from installer.scripts import Script
from installer.sources import WheelFile
from installer.utils import fix_shebang

from envlock.errors import IntegrityError
from envlock.image.context import FOLDER_MODE, Item, from_bytes

VENV = "/opt/venv"
_SHEBANG = f"{VENV}/bin/python"
_CHUNK = 1 << 20
_FILE, _PROGRAM = 0o644, 0o755
_HASHES = ("sha256", "sha384", "sha512")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """One wheel to install: its file name, and where its bytes are."""

    file: str
    path: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """The planned tree: `items` relative to the environment's root, and what wheels disagree about."""

    items: tuple[Item, ...]
    clashes: tuple[str, ...]


class _Unread(WheelFile):  # type: ignore[misc]  # mypy is told to skip `installer`
    """A wheel whose members are named, not opened: the plan needs none of their bytes."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        super().__init__(archive)
        self.archive = archive
        self.where = name
        seen: set[str] = set()
        for info in archive.infolist():
            _check_member(info, seen, name)
        rows = {row[0]: row for row in parse_record_file(self.read_dist_info("RECORD").splitlines())}
        self.records = {path: RecordEntry.from_elements(*row) for path, row in rows.items()}

    def get_contents(self) -> Iterator[Any]:
        for info in self.archive.infolist():
            name = info.filename
            if name.endswith(("/", ".dist-info/RECORD.jws", ".dist-info/RECORD.p7s")):
                continue
            if name.endswith(".dist-info/RECORD"):
                continue  # written anew, with what the installation adds
            record = self.records.get(name)
            if record is None or record.hash_ is None or record.hash_.name not in _HASHES:
                raise IntegrityError(f"holds {name!r}, for which its RECORD has no sha256", where=self.where)
            mode = info.external_attr >> 16
            program = stat.S_ISREG(mode) and bool(mode & 0o111)
            yield (name, str(record.hash_), ""), _Member(self, info), program


class _Member(io.BytesIO):
    """Stands for one member of a wheel where `installer` expects its open stream."""

    def __init__(self, wheel: _Unread, info: zipfile.ZipInfo) -> None:
        super().__init__()
        self.wheel = wheel
        self.info = info


def _check_member(info: zipfile.ZipInfo, seen: set[str], where: str) -> None:
    name = info.filename
    parts = name.removesuffix("/").split("/")
    if name in seen:
        raise IntegrityError(f"holds two members {name!r}", where=where)
    seen.add(name)
    if name.startswith("/") or "\\" in name or not name.isprintable() or {"", ".", ".."} & set(parts):
        raise IntegrityError(f"holds the unsafe name {name!r}", where=where)
    if stat.S_ISLNK(info.external_attr >> 16) or info.flag_bits & 0x1:
        raise IntegrityError(f"holds a link or an encrypted member, {name!r}", where=where)


class _Plan(WheelDestination):  # type: ignore[misc]
    """Takes notes of what `installer` would write, as items of the tree."""

    def __init__(self, python: str) -> None:
        self.site = f"lib/python{python}/site-packages"
        self.include = f"include/site/python{python}"
        self.items: dict[str, Item] = {}
        self.hashes: dict[str, str] = {}
        self.clashes: list[str] = []
        self.wheel: _Unread

    def _root(self, scheme: str) -> str:
        roots = {"purelib": self.site, "platlib": self.site, "scripts": "bin", "data": ""}
        return roots.get(scheme, f"{self.include}/{self.wheel.distribution}")

    def _note(self, item: Item, digest: str) -> None:
        held = self.hashes.get(item.path)
        if held is not None and held != digest:
            self.clashes.append(f"{item.path} (from {self.wheel.where})")
        self.items[item.path] = item
        self.hashes[item.path] = digest

    def write_script(self, name: str, module: str, attr: str, section: Any) -> RecordEntry:
        if "/" in name or name.startswith("."):
            raise IntegrityError(f"has a script with the unsafe name {name!r}", where=self.wheel.where)
        file_name, data = Script(name, module, attr, section).generate(_SHEBANG, "posix")
        return self._bytes("scripts", file_name, data, _PROGRAM)

    def _bytes(self, scheme: str, path: str, data: bytes, mode: int) -> RecordEntry:
        digest = Hash("sha256", _encoded(hashlib.sha256(data).digest()))
        self._note(from_bytes(_joined(self._root(scheme), path), data, mode), str(digest))
        return RecordEntry(path, digest, len(data))

    def write_file(self, scheme: Any, path: Any, stream: BinaryIO, is_executable: bool) -> RecordEntry:
        name = str(path)
        mode = _PROGRAM if is_executable or scheme == "scripts" else _FILE
        if not isinstance(stream, _Member):
            return self._bytes(scheme, name, stream.read(), mode)
        wheel, info = stream.wheel, stream.info
        record = wheel.records[info.filename]
        if scheme == "scripts":
            data = b"".join(_verified(wheel, info, record))
            with fix_shebang(io.BytesIO(data), _SHEBANG) as fixed:
                return self._bytes(scheme, name, fixed.read(), mode)
        digest = str(record.hash_)
        item = Item(
            path=_joined(self._root(scheme), name),
            mode=mode,
            size=info.file_size,
            content=lambda: _verified(wheel, info, record),
        )
        self._note(item, digest)
        return RecordEntry(name, record.hash_, info.file_size)

    def finalize_installation(self, scheme: Any, record_file_path: str, records: Any) -> None:
        rows = []
        for owner, record in records:
            below = self._root(owner)
            path = record.path if below == self.site else "../../../" + _joined(below, record.path)
            rows.append((path, str(record.hash_ or ""), str(record.size) if record.hash_ else ""))
        text = "".join(",".join(_csv(field) for field in row) + "\n" for row in sorted(rows))
        self._bytes(scheme, record_file_path, text.encode(), _FILE)


def _csv(field: str) -> str:
    return '"' + field.replace('"', '""') + '"' if set(field) & set(',"\r\n') else field


def _joined(root: str, path: str) -> str:
    return f"{root}/{path}" if root else path


def _encoded(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _verified(wheel: _Unread, info: zipfile.ZipInfo, record: RecordEntry) -> Iterator[bytes]:
    """Yield a member's bytes; raise at its end when they are not what RECORD says."""
    assert record.hash_ is not None  # get_contents refuses a member without
    state = hashlib.new(record.hash_.name)
    length = 0
    try:
        with wheel.archive.open(info) as stream:
            while chunk := stream.read(_CHUNK):
                state.update(chunk)
                length += len(chunk)
                yield chunk
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
        raise IntegrityError(f"member {info.filename!r} cannot be read ({error})", where=wheel.where) from error
    if length != info.file_size or _encoded(state.digest()) != record.hash_.value.rstrip("="):
        raise IntegrityError(f"member {info.filename!r} is not what its RECORD says", where=wheel.where)


@contextlib.contextmanager
def planned(wheels: tuple[Wheel, ...], python: str, interpreter: str) -> Iterator[Tree]:
    """Give the tree of `wheels` for Python `python` (`3.11`) at `interpreter`, while the wheels stay open.

    Two wheels that bring one path with different bytes: the later in the given order has
    it, and it is listed. Raises `IntegrityError` for a wheel that is not in order.
    """
    plan = _Plan(python)
    with contextlib.ExitStack() as stack:
        for wheel in wheels:
            try:
                archive = stack.enter_context(zipfile.ZipFile(wheel.path))
                # The store names blobs by digest; the library reads name and version from the file name.
                archive.filename = wheel.file
                plan.wheel = _Unread(archive, wheel.file)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # bytecode in a wheel is left out
                    install(plan.wheel, plan, {"INSTALLER": b"envlock\n"})
            except (zipfile.BadZipFile, InstallerError, InvalidRecordEntry, KeyError, ValueError) as error:
                raise IntegrityError(f"is not a wheel in order: {error}", where=wheel.file) from error
        for item in _skeleton(python, interpreter):
            plan.items[item.path] = item
        yield Tree(items=tuple(plan.items[path] for path in sorted(plan.items)), clashes=tuple(plan.clashes))


def _skeleton(python: str, interpreter: str) -> tuple[Item, ...]:
    config = f"home = {PurePosixPath(interpreter).parent}\ninclude-system-site-packages = false\nversion = {python}\n"
    return (
        from_bytes("pyvenv.cfg", config.encode(), _FILE),
        Item(path="bin/python", mode=0o777, size=0, link=interpreter),
        Item(path="bin/python3", mode=0o777, size=0, link="python"),
        Item(path=f"bin/python{python}", mode=0o777, size=0, link="python"),
        Item(path=f"lib/python{python}/site-packages", mode=FOLDER_MODE, size=0, folder=True),
    )
