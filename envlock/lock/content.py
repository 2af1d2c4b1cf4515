"""What goes into the image: the base and the packages, as they were locked or resolved anew."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from envlock import spec as specs
from envlock.errors import CouldNotTell, NetworkError, SpecError
from envlock.facts import Facts
from envlock.lock import base as bases
from envlock.lock import debian, fetch, python
from envlock.lock.base import BaseEngine
from envlock.lock.indexes import Indexes
from envlock.lock.python import Wheel
from envlock.lock.target import Target
from envlock.lockfile import DebianBase, DebPackage, ImageBase, Lockfile, PythonPackage
from envlock.spec import Spec
from envlock.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What is to be locked: `where` is the spec's path, `previous` the lockfile as it is.

    `today` (in UTC) decides which waivers hold. `upgrade` lets every version move,
    `upgrade_packages` those of these names (Debian or Python); `update_host` observes
    `[host]` anew.
    """

    spec: Spec
    where: Path
    today: date
    previous: Lockfile | None = None
    seed: Lockfile | None = None
    upgrade: bool = False
    upgrade_packages: frozenset[str] = frozenset()
    offline: bool = False
    update_host: bool = False

    @property
    def pins(self) -> Lockfile | None:
        """The lockfile whose versions are preferred, if any."""
        return None if self.upgrade else self.previous or self.seed


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """What `lock` uses of the world; `engine` is asked for only when the base is an image."""

    store: Store
    indexes: Indexes
    probe: Callable[[], Facts]
    engine: Callable[[], BaseEngine]
    say: Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """The base and the packages on top of it."""

    base: DebianBase | ImageBase
    apt: tuple[DebPackage, ...]
    python: tuple[PythonPackage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _System:
    """The base and its Debian packages, with the versions of all packages the target will have."""

    base: DebianBase | ImageBase
    apt: tuple[DebPackage, ...]
    versions: dict[str, str]


def content(request: Request, ports: Ports) -> Content:
    """Return what goes into the image, all of it in the store.

    With an unchanged spec what was locked is taken as it is, unless a merge put it together. Raises `fetch.GoneError`
    naming packages that no source has any more, unless they were only wished for (a seed).
    """
    pins = request.pins
    if pins is not None and not request.upgrade_packages and _settled(pins, request.spec):
        held = Content(base=pins.base, apt=pins.apt, python=pins.python)
        try:
            _fetch_locked(held, request, ports)
            return held
        except fetch.GoneError as gone:
            if request.previous is not None:
                raise
            ports.say(f"{gone.message}; resolving again")
    return _resolve(request, ports)


def _settled(pins: Lockfile, spec: Spec) -> bool:
    return pins.environment.spec == spec.digest() and not pins.environment.merged


def _fetch_locked(held: Content, request: Request, ports: Ports) -> None:
    debs = [deb for deb in held.apt if not ports.store.holds(deb.sha256)]
    wheels = [wheel for wheel in held.python if not ports.store.holds(wheel.sha256)]
    if request.offline and (debs or wheels):
        raise fetch.refuse_offline([*debs, *wheels])
    fetch.fetch_debs(debs, request.spec.platform, ports.store, ports.say)
    fetch.fetch_wheels(wheels, _anything(request.spec), ports.store, ports.indexes, ports.say)


def _anything(spec: Spec) -> Target:
    """Return a target that could run any wheel of the spec's Python: for finding files already chosen."""
    return Target(platform=spec.platform, python=f"{spec.python.version}.99", glibc=(2, 99))


def _resolve(request: Request, ports: Ports) -> Content:
    ports.say("resolving Debian packages")
    system = _resolve_system(request, ports)
    missing = [deb for deb in system.apt if not ports.store.holds(deb.sha256)]
    fetch.fetch_debs(missing, request.spec.platform, ports.store, ports.say)
    target = target_of(request.spec, system.versions, str(request.where))
    ports.say(f"resolving Python packages for Python {target.python}, glibc {target.glibc[0]}.{target.glibc[1]}")
    wheels = _resolve_python(request, ports, target)
    packages = fetch.bring_wheels(wheels, ports.store, ports.indexes, ports.say)
    return Content(base=system.base, apt=system.apt, python=packages)


# ---- the base and its Debian packages ----------------------------------------------------


def _resolve_system(request: Request, ports: Ports) -> _System:
    spec = request.spec
    if isinstance(spec.base, specs.ImageBase):
        return _system_of_image(spec.base, request, ports)
    asked = debian.Wanted(
        suite=spec.base.suite, components=spec.base.components, platform=spec.platform, packages=spec.apt
    )
    resolved = _debs(asked, request, ports)
    indexes = resolved.indexes
    if request.offline and request.pins is not None and isinstance(request.pins.base, DebianBase):
        indexes = request.pins.base.indexes
    return _System(
        base=DebianBase(suite=spec.base.suite, indexes=indexes),
        apt=resolved.packages,
        versions={deb.name: deb.version for deb in resolved.packages},
    )


def _system_of_image(wanted: specs.ImageBase, request: Request, ports: Ports) -> _System:
    engine = ports.engine()
    pinned = request.pins.base if request.pins is not None else None
    held = pinned if isinstance(pinned, ImageBase) else None
    reference = bases.pinned_reference(wanted.reference, held)
    if not request.offline:
        base = bases.resolve_image(wanted.reference, reference, request.spec.platform, engine)
    elif held is not None and reference != wanted.reference:
        base = held
    else:
        raise CouldNotTell("`base.image` is not locked, and its registry needs a network", where=request.where)
    inside = bases.look_inside(reference, engine, str(request.where))
    packages: tuple[DebPackage, ...] = ()
    if request.spec.apt:
        asked = debian.Wanted(
            suite=inside.suite,
            components=("main",),
            platform=request.spec.platform,
            packages=request.spec.apt,
            status=inside.status,
        )
        packages = _debs(asked, request, ports).packages
    return _System(
        base=base, apt=packages, versions={**dict(inside.versions), **{deb.name: deb.version for deb in packages}}
    )


def _debs(asked: debian.Wanted, request: Request, ports: Ports) -> debian.Resolved:
    pins = [deb for deb in request.pins.apt if deb.name not in request.upgrade_packages] if request.pins else []
    held = [
        (deb, ports.store.path(deb.sha256, f"{deb.name} {deb.version}"))
        for deb in pins
        if ports.store.holds(deb.sha256)
    ]
    resolved = debian.resolve(asked, pins, held, request.offline, str(request.where))
    now = {deb.name: deb.version for deb in resolved.packages}
    _moved_on([(pin.name, pin.version, now[pin.name]) for pin in resolved.vanished], "archive", request, ports)
    return resolved


def _moved_on(gone: Sequence[tuple[str, str, str]], place: str, request: Request, ports: Ports) -> None:
    """Name what is gone: an error when it was locked, a word when it was only wished for (a seed)."""
    if not gone:
        return
    names = ", ".join(f"{name} {version} (now {now})" for name, version, now in gone)
    if request.previous is not None:
        raise NetworkError(f"no longer in the {place}: {names}", where=request.where, hint=fetch.GONE)
    ports.say(f"no longer in the {place}: {names}")


# ---- Python ----------------------------------------------------------------------------


def _resolve_python(request: Request, ports: Ports, target: Target) -> tuple[Wheel, ...]:
    spec = request.spec
    wanted = python.Wanted(
        target=target,
        requirements=spec.python.requirements,
        torch_backend=spec.python.torch_backend,
        exclude_newer=spec.python.exclude_newer,
    )
    pins = (
        [wheel for wheel in request.pins.python if wheel.name not in request.upgrade_packages] if request.pins else []
    )
    if request.offline:
        held = [pin for pin in pins if ports.store.holds(pin.sha256)]
        return python.resolve_held(wanted, held, ports.store, ports.indexes, str(request.where))
    wheels = python.resolve(wanted, pins, ports.indexes, str(request.where))
    now = {wheel.name: wheel.version for wheel in wheels}
    moved = [pin for pin in pins if now.get(pin.name, pin.version) != pin.version]
    gone = [pin for pin in moved if not fetch.offered(pin, target, ports.indexes)]
    _moved_on([(pin.name, pin.version, now[pin.name]) for pin in gone], "index", request, ports)
    return wheels


def target_of(spec: Spec, versions: Mapping[str, str], where: str) -> Target:
    """Return the target that the versions of its Debian packages make.

    Raises `SpecError` when there is no glibc among them, or not the interpreter that Debian would bring.
    """
    if "libc6" not in versions:
        raise SpecError("the target has no `libc6`, so its glibc is not known", where=where, key="base")
    series = spec.python.version
    full = f"{series}.0"
    for name in (f"python{series}-minimal", f"python{series}"):
        if name in versions:
            # The upstream version of a Debian one: after the epoch, before the revision.
            full = versions[name].split(":")[-1].split("-")[0].split("+")[0].split("~")[0]
            break
    else:
        if spec.python.interpreter in (f"/usr/bin/python{series}", "/usr/bin/python3"):
            # Debian's own: `python3` leads to the one version that the suite has.
            raise SpecError(
                f"no locked package brings Python {series} as {spec.python.interpreter!r}",
                where=where,
                key="python.interpreter",
                hint=f"add `python{series}` to `apt.packages`; if the suite has none, take the version that it has",
            )
    return Target(platform=spec.platform, python=full, glibc=debian.glibc_of(versions["libc6"]))
