"""Differences: two lockfiles, two fact documents, or one of each, side by side.

Pure. Where `envlock.drift` asks whether a host is as it was locked, this asks what is not
the same on two sides of equal rank: no rule excuses a change here. What one side does
not record (an image never built, a golden never run) is unknown, not a difference.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from envlock.digest import digest_of
from envlock.drift import GPU_COUNT, Comparison, Drift, Kind, Verdict, compare_facts, locked_part
from envlock.facts import FAILED, Device, Facts, Observed, absent, value
from envlock.lockfile import DebianBase, Golden, GpuGroup, Host, Lockfile, Rule
from envlock.policy import Policy
from envlock.registry import REGISTRY, Entry
from envlock.rules import NOT_KNOWN_WHEN_LOCKED

NOT_RECORDED = "(not recorded)"

T = TypeVar("T")


class Change(StrEnum):
    """What happened to one thing from the first side to the second."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    OTHER_FILE = "other-file"  # the same version, and other bytes
    UNKNOWN = "unknown"  # one side does not say


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One difference. `before` and `after` are for people, empty where there is nothing."""

    section: str
    key: str
    change: Change
    before: str = ""
    after: str = ""
    device: str = ""
    because: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """All differences by section; `allowed` could not be told, and both lockfiles allow it by name."""

    found: tuple[Difference, ...] = ()
    allowed: tuple[Difference, ...] = ()

    @property
    def verdict(self) -> Verdict:
        changes = {difference.change for difference in self.found}
        if changes - {Change.UNKNOWN}:
            return Verdict.DRIFT
        return Verdict.UNKNOWN if changes else Verdict.MATCH

    def count(self, change: Change) -> int:
        return sum(1 for difference in self.found if difference.change is change)


def diff_lockfiles(before: Lockfile, after: Lockfile) -> Differences:
    """Return what differs between two lockfiles, in the order of the file's sections."""
    found = [
        *_pairs("environment", _environment(before), _environment(after)),
        *_pairs("base", _base(before), _base(after)),
        *_packages("python", before.python, after.python),
        *_packages("apt", before.apt, after.apt),
        *_pairs(
            "file",
            {held.path: f"{held.sha256} ({held.source})" for held in before.files},
            {held.path: f"{held.sha256} ({held.source})" for held in after.files},
        ),
        *_pairs("determinism", _determinism(before), _determinism(after)),
        *_pairs("policy", _policy(before), _policy(after)),
    ]
    hosts = _diff_hosts(before, after)
    found += [*hosts.found, *_images(before, after), *_goldens(before.goldens, after.goldens)]
    return Differences(found=tuple(found), allowed=hosts.allowed)


def diff_facts(before: Facts, after: Facts, registry: Mapping[str, Entry] = REGISTRY) -> Differences:
    """Return what differs between two hosts in the facts that a lockfile holds.

    What differs in normal life is left out: the registry says which facts those are.
    """
    return _of_sides(_side(before, registry), _side(after, registry), frozenset(), registry)


def diff_lock_with_facts(
    lock: Lockfile, facts: Facts, policy: Policy, registry: Mapping[str, Entry] = REGISTRY
) -> Differences:
    """Return what differs between the host of `lock` and `facts`, as the lockfile's policy judges it."""
    return _of_comparison(compare_facts(lock.host, facts, policy, registry))


def reverse(differences: Differences) -> Differences:
    """Return the differences as seen from the other side."""

    def turned(difference: Difference) -> Difference:
        other = {Change.ADDED: Change.REMOVED, Change.REMOVED: Change.ADDED}
        return Difference(
            section=difference.section,
            key=difference.key,
            change=other.get(difference.change, difference.change),
            before=difference.after,
            after=difference.before,
            device=difference.device,
            because=difference.because,
        )

    return Differences(
        found=tuple(turned(item) for item in differences.found),
        allowed=tuple(turned(item) for item in differences.allowed),
    )


# ---- sections of a lockfile ----------------------------------------------------------------


def _pairs(section: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[Difference]:
    """Yield what differs between two tables of text, in the order of the first, then the second."""
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) == after.get(key):
            continue
        change = Change.ADDED if key not in before else Change.REMOVED if key not in after else Change.CHANGED
        yield Difference(section=section, key=key, change=change, before=before.get(key, ""), after=after.get(key, ""))


def _environment(lock: Lockfile) -> dict[str, str]:
    environment = lock.environment
    return {
        "name": environment.name,
        "platform": environment.platform,
        "python": environment.python,
        "interpreter": environment.interpreter,
        "epoch": str(environment.epoch),
        "spec": environment.spec,
        "inputs": lock.inputs(),
    }


def _base(lock: Lockfile) -> dict[str, str]:
    base = lock.base
    if isinstance(base, DebianBase):
        indexes = {f"index.{index.suite}": f"{index.sha256} ({' '.join(index.components)})" for index in base.indexes}
        return {"kind": "debian", "suite": base.suite, **indexes}
    layers = {f"diff-ids[{index}]": str(diff_id) for index, diff_id in enumerate(base.diff_ids)}
    return {
        "kind": "image",
        "repository": base.repository,
        "tag": base.tag,
        "digest": base.digest,
        "config": base.config,
        **layers,
    }


def _packages(section: str, before: tuple[Any, ...], after: tuple[Any, ...]) -> Iterable[Difference]:
    """Yield packages that came, went, changed version, or kept it with another file."""
    old = {package.name: package for package in before}
    new = {package.name: package for package in after}
    for name in sorted({*old, *new}):
        left, right = old.get(name), new.get(name)
        if left == right:
            continue
        if left is None or right is None:
            change = Change.ADDED if left is None else Change.REMOVED
            yield Difference(
                section=section, key=name, change=change,
                before=left.version if left else "", after=right.version if right else "",
            )  # fmt: skip
        elif left.version != right.version:
            yield Difference(section=section, key=name, change=Change.CHANGED, before=left.version, after=right.version)
        else:
            yield Difference(
                section=section, key=name, change=Change.OTHER_FILE, before=_file_of(left, right),
                after=_file_of(right, left),
                because=f"both are {left.version}",
            )  # fmt: skip


def _file_of(package: Any, other: Any) -> str:
    return str(package.sha256) if package.file == other.file else f"{package.file} {package.sha256}"


def _determinism(lock: Lockfile) -> dict[str, str]:
    held = lock.determinism
    return {
        "profile": held.profile,
        "threads": str(held.threads),
        **{f"env.{name}": text for name, text in held.env},
        **{
            f"torch.{name}": str(switch).lower() if isinstance(switch, bool) else str(switch)
            for name, switch in held.torch
        },
    }


def _policy(lock: Lockfile) -> dict[str, str]:
    rules = {f"rules.{rule.key}": f"{rule.rule} ({rule.severity}, unknown: {rule.unknown})" for rule in lock.policy}
    return {"profile": lock.policy_profile, **rules}


def _images(before: Lockfile, after: Lockfile) -> Iterable[Difference]:
    if before.image is None or after.image is None:
        if before.image is not after.image:
            yield Difference(
                section="image", key="config", change=Change.UNKNOWN,
                before=before.image.config if before.image else NOT_RECORDED,
                after=after.image.config if after.image else NOT_RECORDED,
                because="`envlock build` records it",
            )  # fmt: skip
        return
    old = {"config": str(before.image.config), **_layers(before)}
    new = {"config": str(after.image.config), **_layers(after)}
    yield from _pairs("image", old, new)


def _layers(lock: Lockfile) -> dict[str, str]:
    layers = lock.image.layers if lock.image else ()
    return {f"layer[{index}] {layer.owner}": str(layer.diff_id) for index, layer in enumerate(layers)}


def _goldens(before: tuple[Golden, ...], after: tuple[Golden, ...]) -> Iterable[Difference]:
    old = {golden.platform: golden for golden in before}
    new = {golden.platform: golden for golden in after}
    for platform in sorted({*old, *new}):
        name = f"class {digest_of([list(pair) for pair in platform]).short}"
        left, right = old.get(platform), new.get(platform)
        if left is None or right is None:
            yield Difference(
                section="golden", key=name, change=Change.UNKNOWN,
                before=_outputs_text(left), after=_outputs_text(right),
                because="`envlock canary run --record` on a host of this class records it",
            )  # fmt: skip
        elif left != right:
            yield from _one_golden(name, left, right)


def _one_golden(name: str, before: Golden, after: Golden) -> Iterable[Difference]:
    heads = [
        {
            "suite": golden.suite,
            "image": str(golden.image or NOT_RECORDED),
            **{f"settings.{key}": text for key, text in golden.settings},
            **{f"outputs.{key}": text for key, text in golden.outputs},
        }
        for golden in (before, after)
    ]
    for difference in _pairs("golden", *heads):
        yield Difference(
            section="golden", key=f"{name} {difference.key}", change=difference.change,
            before=difference.before, after=difference.after,
        )  # fmt: skip
    if dict(before.outputs) == dict(after.outputs) and before.outputs != after.outputs:
        yield Difference(section="golden", key=f"{name} order of outputs", change=Change.CHANGED)


def _outputs_text(golden: Golden | None) -> str:
    return f"{len(golden.outputs)} outputs" if golden else NOT_RECORDED


# ---- hosts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """The comparable facts of one side: of the host, and of each GPU with its place."""

    host: dict[str, Observed]
    gpus: tuple[tuple[str, Mapping[str, Observed]], ...]


def _side(facts: Facts, registry: Mapping[str, Entry]) -> _Side:
    host, gpus = locked_part(facts, registry)
    return _Side(host, tuple((gpu.ident, gpu.facts) for gpu in gpus))


def _side_of_lock(host: Host) -> _Side:
    gpus = [dict(group.facts) for group in host.gpus for _ in range(group.count)]
    return _Side(dict(host.facts), tuple((f"#{index}", facts) for index, facts in enumerate(gpus)))


def _diff_hosts(before: Lockfile, after: Lockfile) -> Differences:
    if before.host is None and after.host is None:
        return Differences()
    if before.host is None or after.host is None:
        text = [NOT_RECORDED if lock.host is None else f"{len(lock.host.facts)} facts" for lock in (before, after)]
        missing = Difference(
            section="host", key="facts", change=Change.UNKNOWN, before=text[0], after=text[1],
            because="`envlock lock` records them",
        )  # fmt: skip
        return Differences(found=(missing,))
    allowed = _allowed(before) & _allowed(after)
    return _of_sides(_side_of_lock(before.host), _side_of_lock(after.host), allowed, REGISTRY)


def _allowed(lock: Lockfile) -> frozenset[str]:
    return frozenset(rule.key for rule in lock.policy if rule.unknown == "allow" and "*" not in rule.key)


def _of_sides(before: _Side, after: _Side, allowed: frozenset[str], registry: Mapping[str, Entry]) -> Differences:
    """Compare two sides, each fact exactly; a fact that one side does not hold is unknown on both."""
    keys = {*before.host, *after.host}
    gpu_keys = {key for side in (before, after) for _, facts in side.gpus for key in facts}
    left, right = _filled(before, keys, gpu_keys), _filled(after, keys, gpu_keys)
    if GPU_COUNT not in keys:
        left.host[GPU_COUNT], right.host[GPU_COUNT] = value(len(left.gpus)), value(len(right.gpus))
    host = Host(
        facts=tuple(sorted(left.host.items(), key=lambda pair: pair[0])),
        gpus=tuple(
            GpuGroup(count=1, facts=tuple(sorted(held.items(), key=lambda pair: pair[0]))) for _, held in left.gpus
        ),
    )
    facts = Facts(right.host, [Device("gpu", ident, held) for ident, held in right.gpus])
    rules = tuple(Rule(key=key, rule="exact", unknown="allow") for key in sorted(allowed))
    return _of_comparison(compare_facts(host, facts, Policy(rules=rules, units=(), where="diff"), registry))


def _filled(side: _Side, keys: set[str], gpu_keys: set[str]) -> _Side:
    nothing = absent(FAILED, detail="one side does not hold it")
    return _Side(
        {key: side.host.get(key, nothing) for key in keys},
        tuple((ident, {key: facts.get(key, nothing) for key in gpu_keys}) for ident, facts in side.gpus),
    )


_CHANGES = {
    Kind.CHANGED: Change.CHANGED,
    Kind.MISSING: Change.REMOVED,
    Kind.EXTRA: Change.ADDED,
    Kind.UNANSWERED: Change.UNKNOWN,
}


def _of_comparison(comparison: Comparison) -> Differences:
    return Differences(found=_each(_of_drift, comparison.drifts), allowed=_each(_of_drift, comparison.allowed))


def _of_drift(drift: Drift) -> Difference:
    return Difference(
        section="host",
        key=drift.key,
        device=drift.device,
        change=_CHANGES[drift.kind],
        before=drift.expected,
        after=drift.observed,
        because=_because(drift),
    )


def _because(drift: Drift) -> str:
    if drift.because == NOT_KNOWN_WHEN_LOCKED:
        return "the other side has no answer"
    return drift.because or (drift.fix if drift.kind is Kind.UNANSWERED else "")


def _each(make: Callable[[Drift], T], items: tuple[Drift, ...]) -> tuple[T, ...]:
    return tuple(make(item) for item in items)
