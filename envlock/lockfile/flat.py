"""A lockfile as flat entries, each under a key of its own, and back.

Pure. An entry is the least thing that two people can change apart from each other: one
package, one fact, one rule, one variable. What only makes sense whole stays one entry:
a base image; a base of another kind; GPUs that cannot be told apart by their name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from envlock.digest import Digest
from envlock.facts import Observed
from envlock.lockfile.values import (
    DebianBase,
    Determinism,
    Environment,
    GpuGroup,
    Host,
    Lockfile,
    ordered_groups,
)


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Any = _Absent()
"""What stands for an entry that a lockfile does not have: equal to no value, not even None."""

Key = tuple[str, ...]
Entries = Mapping[Key, Any]

_ENVIRONMENT = ("name", "platform", "python", "interpreter", "epoch")


@dataclass(frozen=True, kw_only=True, slots=True)
class Grain:
    """How finely the lockfiles of one merge are taken apart: as finely as all of them can be."""

    suites: tuple[str, ...] | None
    """The suites of `[[base.index]]`, when every side lists the same ones; else None."""
    host: bool
    """Whether each fact is an entry; else `[host]` is one."""
    gpus: frozenset[str] | None
    """The GPU names whose facts are entries, other groups being whole; None: all groups are one entry."""


def grain_of(sides: Iterable[Lockfile]) -> Grain:
    """Return the grain for lockfiles that are to be merged."""
    held = tuple(sides)
    suites = {
        tuple(index.suite for index in side.base.indexes) if isinstance(side.base, DebianBase) else None
        for side in held
    }
    same = next(iter(suites)) if len(suites) == 1 else None
    hosts = [side.host for side in held if side.host is not None]
    names = [[_name(group) for group in host.gpus] for host in hosts]
    alike = any(len(set(found)) != len(found) for found in names)
    return Grain(
        suites=same if same is not None and len(set(same)) == len(same) else None,
        host=len(hosts) == len(held),
        gpus=None if alike or not names else frozenset(set(names[0]).intersection(*names[1:])),
    )


def flat(lock: Lockfile, grain: Grain) -> dict[Key, Any]:
    """Return the entries of `lock` but for image, goldens and what says how it came about (spec digest, merged)."""
    determinism = lock.determinism
    return {
        **{("environment", name): getattr(lock.environment, name) for name in _ENVIRONMENT},
        **dict(_base(lock, grain)),
        ("determinism", "profile"): determinism.profile,
        ("determinism", "threads"): determinism.threads,
        **{("env", name): text for name, text in determinism.env},
        **{("torch", name): switch for name, switch in determinism.torch},
        **dict(_host(lock.host, grain)),
        ("policy", "profile"): lock.policy_profile,
        **{("rule", rule.key): rule for rule in lock.policy},
        **{("python", wheel.name): wheel for wheel in lock.python},
        **{("apt", deb.name): deb for deb in lock.apt},
        **{("file", held.path): held for held in lock.files},
    }


def _base(lock: Lockfile, grain: Grain) -> Iterator[tuple[Key, Any]]:
    if grain.suites is None or not isinstance(lock.base, DebianBase):
        yield ("base",), lock.base
        return
    yield ("base", "suite"), lock.base.suite
    for index in lock.base.indexes:
        yield ("base", "index", index.suite), index


def _host(host: Host | None, grain: Grain) -> Iterator[tuple[Key, Any]]:
    if host is None or not grain.host:
        yield ("host",), host
        return
    yield from ((("fact", key), seen) for key, seen in host.facts)
    if grain.gpus is None:
        yield ("gpu",), host.gpus
        return
    for group in host.gpus:
        name = _name(group)
        if name not in grain.gpus:
            yield ("gpu", name), group
            continue
        yield ("gpu", name, "count"), group.count
        yield from ((("gpu", name, "fact", key), seen) for key, seen in group.facts)


def _name(group: GpuGroup) -> str:
    name = dict(group.facts).get("gpu.name")
    return name.text() if name is not None else ""


def whole(entries: Entries, spec: Digest, grain: Grain) -> Lockfile:
    """Return the lockfile of `entries` made for the spec of that digest, with no image or golden."""
    return Lockfile(
        environment=Environment(**{name: entries["environment", name] for name in _ENVIRONMENT}, spec=spec),
        base=_whole_base(entries, grain),
        apt=_under(entries, "apt"),
        python=_under(entries, "python"),
        files=_under(entries, "file"),
        determinism=Determinism(
            profile=entries["determinism", "profile"],
            threads=entries["determinism", "threads"],
            env=_pairs(entries, "env"),
            torch=_pairs(entries, "torch"),
        ),
        host=_whole_host(entries),
        policy_profile=entries["policy", "profile"],
        policy=_under(entries, "rule"),
    )


def _whole_base(entries: Entries, grain: Grain) -> Any:
    if ("base",) in entries:
        return entries["base",]
    indexes = tuple(entries["base", "index", suite] for suite in grain.suites or ())
    return DebianBase(suite=entries["base", "suite"], indexes=indexes)


def _whole_host(entries: Entries) -> Host | None:
    if ("host",) in entries:
        return entries["host",]  # type: ignore[no-any-return]
    facts: tuple[tuple[str, Observed], ...] = _pairs(entries, "fact")
    if ("gpu",) in entries:
        return Host(facts=facts, gpus=entries["gpu",])
    groups = [held for key, held in entries.items() if key[0] == "gpu" and len(key) == 2]
    for name in sorted({key[1] for key in entries if key[0] == "gpu" and len(key) > 2}):
        held = {key[3]: seen for key, seen in entries.items() if key[:3] == ("gpu", name, "fact")}
        groups.append(GpuGroup(count=entries["gpu", name, "count"], facts=tuple(sorted(held.items()))))
    return Host(facts=facts, gpus=ordered_groups(tuple(groups)))


def _under(entries: Entries, section: str) -> tuple[Any, ...]:
    return tuple(value for _, value in _pairs(entries, section))


def _pairs(entries: Entries, section: str) -> tuple[tuple[str, Any], ...]:
    found = {key[1]: value for key, value in entries.items() if key[0] == section}
    return tuple((name, found[name]) for name in sorted(found))
