"""Python packages: uv resolves, `packaging` reads its answer, one wheel is chosen for each.

uv runs as a program for the target (never this host), binary only, with hashes. Its
answer, a PEP 751 file, is checked here again: one wheel per package that fits the
target's tags, its name and version as announced, a SHA-256 of full length.
"""

import dataclasses
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envlock import files, process
from envlock.digest import Digest
from envlock.errors import CouldNotTell, EnvlockError, IntegrityError, NetworkError, SpecError, ToolError
from envlock.lock.indexes import Indexes, without_indexes
from envlock.lock.redact import redact
from envlock.lock.target import Target
from envlock.lockfile import PythonPackage
from envlock.store import Store

if TYPE_CHECKING:
    from packaging.pylock import PackageWheel

_SECONDS = 900
_YANKED = re.compile(r"`([^`]+)` is yanked(?: \(reason: \"?(.*?)\"?\))?")
_UNREACHABLE = re.compile(
    r"(?i)error sending request|dns error|failed to fetch|connection (?:refused|reset)|timed out|network (?:was|is) "
    r"(?:disabled|unreachable)|status (?:code )?(?:429|5\d\d)"
)
_DATE = "T23:59:59Z"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is asked of uv: PEP 508 `requirements` for one `target`."""

    target: Target
    requirements: tuple[str, ...]
    torch_backend: str | None = None
    exclude_newer: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """One chosen wheel: `url` says where it can be had now, and is never locked."""

    name: str
    version: str
    file: str
    sha256: Digest
    url: str
    size: int | None


def check_requirements(requirements: Sequence[str], where: str) -> None:
    """Refuse what cannot be locked: no PEP 508, or an address in place of an index."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in requirements:
        key = "python.requirements"
        try:
            requirement = Requirement(text)
        except InvalidRequirement as fault:
            reason = str(fault).splitlines()[0]
            raise SpecError(f"{text!r} is not a PEP 508 requirement: {reason}", where=where, key=key) from None
        if requirement.url is not None:
            raise SpecError(
                f"{requirement.name!r} is asked for by address, which a lockfile cannot hold",
                where=where,
                key=key,
                hint="put the wheel into a folder that pip's `find-links` names, and ask for its version",
            )


def resolve(
    wanted: Wanted, pins: Sequence[PythonPackage], indexes: Indexes, where: str, more: Sequence[str] = ()
) -> tuple[Wheel, ...]:
    """Return one wheel per package, preferring the versions in `pins`.

    `where` names the spec in errors, `more` are further arguments of uv. With a torch
    backend the host's own sources are asked first when a local version is pinned
    (`torch==2.13.0+cpu`): a wheel folder of the site must win over an index far away.
    Raises `SpecError`, `NetworkError`, `ToolError`, `IntegrityError`.
    """
    if not wanted.requirements:
        return ()
    backends: list[str | None] = [wanted.torch_backend]
    if wanted.torch_backend and any("+" in text for text in wanted.requirements):
        backends.insert(0, None)
    first: EnvlockError | None = None
    for backend in backends:
        try:
            text = _compile(wanted, backend, pins, indexes, where, more)
        except (SpecError, NetworkError) as error:
            first = first or error
            continue
        return choose(text, wanted.target, where)
    assert first is not None
    raise first


def resolve_held(
    wanted: Wanted, held: Sequence[PythonPackage], store: Store, indexes: Indexes, where: str
) -> tuple[Wheel, ...]:
    """Return one wheel per package out of those `held` in the store, without a network."""
    with files.scratch("wheels") as folder:
        for package in held:
            (folder / package.file).symlink_to(store.path(package.sha256, package.file))
        here = dataclasses.replace(indexes, arguments=(), environment=without_indexes(indexes.environment))
        alone = dataclasses.replace(wanted, torch_backend=None)
        try:
            return resolve(alone, held, here, where, ("--offline", "--no-index", "--find-links", str(folder)))
        except (SpecError, NetworkError) as error:
            raise CouldNotTell(
                f"{error.message}\n  and without a network there is only what the store holds",
                where=where,
                hint="run `envlock lock` once without `--offline`",
            ) from None


def listed(wanted: Wanted, indexes: Indexes) -> list[tuple[str, Digest, str]]:
    """Return `(file, digest, address)` of every wheel that the indexes have for exact requirements.

    One that they cannot satisfy gives nothing, and takes nothing from the others.
    """
    from packaging.pylock import Pylock

    backends = [None, wanted.torch_backend] if wanted.torch_backend else [None]
    found: list[tuple[str, Digest, str]] = []
    for backend in backends:
        try:
            text = _compile(wanted, backend, (), indexes, "the lockfile", ("--no-deps", "--refresh"))
        except SpecError:
            if len(wanted.requirements) > 1:
                each = [dataclasses.replace(wanted, requirements=(text,)) for text in wanted.requirements]
                return [file for one in each for file in listed(one, indexes)]
            continue
        for package in Pylock.from_dict(tomllib.loads(text.decode("utf-8"))).packages:
            for wheel in package.wheels or ():
                chosen = _wheel(package.name, str(package.version), wheel, "the lockfile")
                found.append((chosen.file, chosen.sha256, chosen.url))
    return found


def find_uv() -> str:
    """Return the path of the program uv: that of its distribution, else the one on PATH."""
    try:
        import uv

        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
        if found is None:
            raise ToolError(
                "`uv` is not installed, and Python packages are resolved by it", hint="`pip install uv`"
            ) from None
        return found


def _compile(
    wanted: Wanted,
    backend: str | None,
    pins: Sequence[PythonPackage],
    indexes: Indexes,
    where: str,
    more: Sequence[str],
) -> bytes:
    with files.scratch("uv") as folder:
        (folder / "requirements.in").write_text("\n".join(wanted.requirements) + "\n", "utf-8")
        # uv takes the versions of the file it is to write as preferences.
        (folder / "pylock.toml").write_text(_preferences(pins), "utf-8")
        argv = [
            *(find_uv(), "pip", "compile", "requirements.in", "-o", "pylock.toml", "--format", "pylock.toml"),
            *("--generate-hashes", "--no-build", "--no-header", "--no-annotate", "--color", "never", "--no-progress"),
            *("--python", sys.executable),
            *("--python-version", wanted.target.python, "--python-platform", wanted.target.uv_platform()),
            *indexes.arguments,
            # uv keeps an index's answers for minutes; what is locked is what there is now.
            *(more or ("--refresh",)),
        ]
        if backend is not None:
            argv += ["--torch-backend", backend]
        if wanted.exclude_newer is not None:
            date = wanted.exclude_newer
            argv += ["--exclude-newer", date if "T" in date else date + _DATE]
        finished = process.run(argv, _SECONDS, env=dict(indexes.environment), cwd=str(folder), hint="`pip install uv`")
        said = redact(finished.stderr.decode("utf-8", "replace"))
        if finished.status != 0:
            raise _refused(said, where)
        if found := _YANKED.search(said):
            reason = f": {found.group(2)}" if found.group(2) else ""
            raise SpecError(
                f"{found.group(1)!r} has been yanked from its index{reason}",
                where=where,
                key="python.requirements",
                hint="ask for another version",
            )
        return (folder / "pylock.toml").read_bytes()


def _preferences(pins: Sequence[PythonPackage]) -> str:
    packages = [f'[[packages]]\nname = "{pin.name}"\nversion = "{pin.version}"\n' for pin in pins]
    head = 'lock-version = "1.0"\ncreated-by = "envlock"\n'
    return head + ("\n".join(packages) if packages else "packages = []\n")


def _refused(said: str, where: str) -> EnvlockError:
    lines = [line.strip() for line in said.splitlines() if line.strip()][-12:]
    text = "`python.requirements` cannot be resolved:" + "".join(f"\n  {line}" for line in lines)
    if _UNREACHABLE.search(said):
        hint = "is the index of this host's pip or uv configuration reachable?"
        return NetworkError(text, where=where, hint=hint)
    return SpecError(text, where=where)


def choose(text: bytes, target: Target, where: str) -> tuple[Wheel, ...]:
    """Return the best wheel for `target` of each package in the PEP 751 file `text`, by name.

    Raises `SpecError` for a package without one, `IntegrityError` for a file that
    contradicts itself.
    """
    from packaging.pylock import PackageWheel, Pylock, PylockSelectError, PylockValidationError

    try:
        lock: Pylock = Pylock.from_dict(tomllib.loads(text.decode("utf-8")))
        markers: Any = target.markers()
        selected = list(lock.select(environment=markers, tags=target.tags()))
    except PylockSelectError as fault:
        raise SpecError(
            f"{redact(str(fault))} (wanted: {target.machine}, glibc {target.glibc[0]}.{target.glibc[1]}, "
            f"Python {target.python})",
            where=where,
            key="python.requirements",
        ) from None
    except (PylockValidationError, tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise IntegrityError(f"uv's answer is no valid pylock.toml: {redact(str(fault))}", where=where) from None
    chosen = []
    for package, file in selected:
        if not isinstance(file, PackageWheel):
            raise SpecError(
                f"{package.name!r} has no wheel for this target, only source",
                where=where,
                key="python.requirements",
                hint="build a wheel of it, put it into a folder that pip's `find-links` names, and lock again",
            )
        chosen.append(_wheel(package.name, str(package.version), file, where))
    return tuple(sorted(chosen, key=lambda wheel: wheel.name))


def _wheel(name: str, version: str, wheel: "PackageWheel", where: str) -> Wheel:
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        found_name, found_version, _, _ = parse_wheel_filename(wheel.filename)
    except InvalidWheelFilename as fault:
        raise IntegrityError(f"{fault}", where=where) from None
    if found_name != name or str(found_version) != version:
        raise IntegrityError(f"{wheel.filename!r} is announced as {name} {version}", where=where)
    try:
        digest = Digest.from_hex(wheel.hashes.get("sha256", ""))
    except ValueError:
        raise IntegrityError(f"the index gives no SHA-256 for {wheel.filename!r}", where=where) from None
    address = wheel.url or (Path(wheel.path).absolute().as_uri() if wheel.path else "")
    return Wheel(name=name, version=version, file=wheel.filename, sha256=digest, url=address, size=wheel.size)
