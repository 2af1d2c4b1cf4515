"""`lock`: a spec and what was locked before, to a lockfile whose packages are in the store.

What is locked stays locked: with an unchanged spec nothing is resolved again, and with a
changed one the old versions are preferred. Only `upgrade` moves a version, and a version
that no source has any more is an error that names it. Another lockfile can lend its
versions as a seed: those are wishes, and the ones that are gone are told and replaced.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from envlock import policy
from envlock.errors import CouldNotTell, NetworkError, SpecError, UsageError
from envlock.facts import Facts
from envlock.lock import base as bases
from envlock.lock import debian, fetch, models, python, settings
from envlock.lock.base import BaseEngine
from envlock.lock.indexes import Indexes
from envlock.lock.target import Target
from envlock.lockfile import (
    DebianBase,
    DebPackage,
    Environment,
    Host,
    ImageBase,
    Lockfile,
    PythonPackage,
    Rule,
    host_of,
)
from envlock.registry import GPU, HOST, in_scope
from envlock.spec import ImageBase as WantedImage
from envlock.spec import Spec
from envlock.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What is to be locked: `where` is the spec's path, `previous` the lockfile as it is.

    `upgrade` lets every version move, `upgrade_packages` those of these names (Debian or
    Python); `update_host` observes `[host]` anew.
    """

    spec: Spec
    where: Path
    previous: Lockfile | None = None
    seed: Lockfile | None = None
    upgrade: bool = False
    upgrade_packages: frozenset[str] = frozenset()
    offline: bool = False
    update_host: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """What `lock` uses of the world; `engine` is asked for only when the base is an image."""

    store: Store
    indexes: Indexes
    probe: Callable[[], Facts]
    engine: Callable[[], BaseEngine]
    say: Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Content:
    """What is in the image: the base and the packages."""

    base: DebianBase | ImageBase
    apt: tuple[DebPackage, ...]
    python: tuple[PythonPackage, ...]


def lock(request: Request, ports: Ports) -> Lockfile:
    """Return the lockfile for `request.spec`; every package it names is then in the store.

    Call it inside `ports.store.using()`, and write the result before leaving: what is
    fetched must not be collected in between.
    """
    where = str(request.where)
    python.check_requirements(request.spec.python.requirements, where)
    determinism = settings.determinism_of(request.spec.determinism, where)
    files = models.locked_files(request.spec.files, request.where.parent, where)
    _known_names(request)
    content = _content(request, ports)
    host = _host(request, ports)
    found = Lockfile(
        environment=_environment(request.spec),
        base=content.base,
        apt=content.apt,
        python=content.python,
        files=files,
        determinism=determinism,
        host=host,
        policy_profile=request.spec.policy_profile,
        policy=_policy(request.spec, host, where),
    )
    return _keep_results(found, request.previous, ports.say)


def _environment(spec: Spec) -> Environment:
    return Environment(
        name=spec.name,
        platform=spec.platform,
        python=spec.python.version,
        interpreter=spec.python.interpreter,
        epoch=spec.epoch,
        spec=spec.digest(),
    )


def _known_names(request: Request) -> None:
    """Refuse an `upgrade_packages` name that is not locked: it would upgrade nothing, silently."""
    if request.previous is None and request.upgrade_packages:
        raise UsageError("there is no lockfile yet, so no package of it can be upgraded", where=request.where)
    if request.previous is None:
        return
    known = {deb.name for deb in request.previous.apt} | {wheel.name for wheel in request.previous.python}
    for name in sorted(request.upgrade_packages - known):
        raise UsageError(f"no package {name!r} is locked", where=request.where, hint="names are those of the lockfile")


# ---- base and packages -----------------------------------------------------------------


def _content(request: Request, ports: Ports) -> _Content:
    pins = request.previous or request.seed
    moving = request.upgrade or bool(request.upgrade_packages)
    if pins is not None and not moving and pins.environment.spec == request.spec.digest():
        held = _Content(base=pins.base, apt=pins.apt, python=pins.python)
        try:
            _fetch_locked(held, request, ports)
            return held
        except fetch.GoneError as gone:
            if request.previous is not None:
                raise
            ports.say(f"{gone.message}; resolving again")
    if request.offline:
        raise CouldNotTell(
            "the spec has changed since it was locked, and resolving needs a network",
            where=request.where,
            hint="run `envlock lock` once without `--offline`",
        )
    return _resolve(request, ports)


def _fetch_locked(content: _Content, request: Request, ports: Ports) -> None:
    debs = [deb for deb in content.apt if not ports.store.holds(deb.sha256)]
    wheels = [wheel for wheel in content.python if not ports.store.holds(wheel.sha256)]
    if request.offline and (debs or wheels):
        raise fetch.refuse_offline([*debs, *wheels])
    fetch.fetch_debs(debs, request.spec.platform, ports.store, ports.say)
    if wheels:
        # What is installed in a base image is not locked by name: its Python is only needed for markers.
        target = _target(request.spec, {deb.name: deb.version for deb in content.apt}, None)
        fetch.fetch_wheels(wheels, target, ports.store, ports.indexes, ports.say)


def _resolve(request: Request, ports: Ports) -> _Content:
    pins = None if request.upgrade else request.previous or request.seed
    spec = request.spec
    where = str(request.where)
    ports.say("resolving Debian packages")
    base, apt, versions = _resolve_system(request, ports, pins)
    fetch.fetch_debs([deb for deb in apt if not ports.store.holds(deb.sha256)], spec.platform, ports.store, ports.say)
    target = _target(spec, versions, where)
    ports.say(f"resolving Python packages for Python {target.python}, glibc {target.glibc[0]}.{target.glibc[1]}")
    wanted = python.Wanted(
        target=target,
        requirements=spec.python.requirements,
        torch_backend=spec.python.torch_backend,
        exclude_newer=spec.python.exclude_newer,
    )
    wheels = python.resolve(
        wanted, pins.python if pins else (), request.upgrade_packages, ports.indexes, request.offline, where
    )
    return _Content(base=base, apt=apt, python=fetch.bring_wheels(wheels, ports.store, ports.indexes, ports.say))


def _resolve_system(
    request: Request, ports: Ports, pins: Lockfile | None
) -> tuple[DebianBase | ImageBase, tuple[DebPackage, ...], dict[str, str]]:
    """Return the base, its Debian packages, and the versions of all packages the target will have."""
    spec = request.spec
    base: DebianBase | ImageBase
    if isinstance(spec.base, WantedImage):
        engine = ports.engine()
        base = bases.resolve_image(spec.base.reference, spec.platform, engine)
        inside = bases.look_inside(spec.base.reference, engine, str(request.where))
        asked = debian.Wanted(
            suite=inside.suite, components=("main",), platform=spec.platform, packages=spec.apt, status=inside.status
        )
        packages = _debs(request, ports, asked, pins).packages if spec.apt else ()
        versions = dict(inside.versions)
    else:
        asked = debian.Wanted(
            suite=spec.base.suite, components=spec.base.components, platform=spec.platform, packages=spec.apt
        )
        resolved = _debs(request, ports, asked, pins)
        base = DebianBase(suite=spec.base.suite, indexes=resolved.indexes)
        packages = resolved.packages
        versions = {}
    versions.update({deb.name: deb.version for deb in packages})
    return base, packages, versions


def _debs(request: Request, ports: Ports, asked: debian.Wanted, pins: Lockfile | None) -> debian.Resolved:
    kept = [deb for deb in pins.apt if deb.name not in request.upgrade_packages] if pins else []
    resolved = debian.resolve(asked, kept, str(request.where))
    if resolved.vanished:
        now = {deb.name: deb.version for deb in resolved.packages}
        names = ", ".join(f"{pin.name} {pin.version} (now {now[pin.name]})" for pin in resolved.vanished)
        if request.previous is not None:
            raise NetworkError(f"no longer in the archive: {names}", where=request.where, hint=fetch.GONE)
        ports.say(f"moved on: {names}")
    return resolved


def _target(spec: Spec, versions: Mapping[str, str], where: str | None) -> Target:
    """Return the target that the versions of its Debian packages make."""
    libc = versions.get("libc6")
    if libc is None and where is not None:
        raise SpecError("the target has no `libc6`, so its glibc is not known", where=where, key="base")
    series = spec.python.version
    full = next(
        (versions[name] for name in (f"python{series}-minimal", f"python{series}") if name in versions), f"{series}.0"
    )
    upstream = full.partition(":")[2] or full
    digits = upstream.split("-")[0].split("+")[0].split("~")[0]
    return Target(
        platform=spec.platform,
        python=digits if digits.startswith(f"{series}.") else f"{series}.0",
        glibc=debian.glibc_of(libc) if libc else (2, 28),
    )


# ---- host and policy -------------------------------------------------------------------


def _host(request: Request, ports: Ports) -> Host:
    """Return `[host]`: as it was locked, unless there is none yet or it shall be observed anew.

    Relocking on another machine must not quietly make that one the golden host.
    """
    if request.previous is not None and request.previous.host is not None and not request.update_host:
        return request.previous.host
    ports.say("observing this host")
    facts = ports.probe()
    host_keys = {entry.key for entry in in_scope(HOST, locked_only=True)}
    gpu_keys = {entry.key for entry in in_scope(GPU, locked_only=True)}
    return host_of(
        {key: seen for key, seen in facts.host.items() if key in host_keys},
        [{key: seen for key, seen in gpu.facts.items() if key in gpu_keys} for gpu in facts.gpus()],
    )


def _policy(spec: Spec, host: Host, where: str) -> tuple[Rule, ...]:
    rules = {rule.key: rule for rule in policy.default_rules(host)}
    for override in spec.policy:
        rules[override.key] = Rule(
            key=override.key,
            rule=override.rule,
            severity=override.severity,
            unknown=override.unknown,
            reason=override.reason,
        )
    ordered = tuple(rules[key] for key in sorted(rules))
    locked = tuple(key for facts in (host.facts, *(group.facts for group in host.gpus)) for key, _ in facts)
    policy.policy_of(ordered, where, locked)
    return ordered


def _keep_results(found: Lockfile, previous: Lockfile | None, say: Callable[[str], None]) -> Lockfile:
    """Return `found` with the image and goldens of `previous`, when they still belong to it."""
    if previous is None:
        return found
    if previous.inputs() == found.inputs():
        return dataclasses.replace(found, image=previous.image, goldens=previous.goldens)
    dropped = []
    if previous.image is not None:
        dropped.append("the image digest (`envlock build` makes it anew)")
    if previous.goldens:
        dropped.append(f"{len(previous.goldens)} golden outputs (`envlock canary run --record` makes them anew)")
    if dropped:
        say(f"the inputs have changed: dropped {' and '.join(dropped)}")
    return found
