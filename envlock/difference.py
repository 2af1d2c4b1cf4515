"""Differences: two hosts side by side, from lockfiles or from facts.

Pure. Where `envlock.drift` asks whether a host is as it was locked, this asks what is not
the same on two sides of equal rank: no rule excuses a change here. What one side does
not record is unknown, not a difference. Whole lockfiles: `envlock.lockdiff`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import TypeVar

from envlock.drift import GPU_COUNT, Comparison, Drift, Kind, Verdict, compare_facts, locked_part, unanswered
from envlock.facts import FAILED, Device, Facts, Observed, absent, value
from envlock.lockfile import GpuGroup, Host, Lockfile, Rule
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
    """All differences by section; `allowed` could not be told, and both lockfiles allow it by name.

    `waived` is excused by a waiver of the lockfile that holds today: of a lockfile and facts only.
    """

    found: tuple[Difference, ...] = ()
    allowed: tuple[Difference, ...] = ()
    waived: tuple[Difference, ...] = ()

    @property
    def verdict(self) -> Verdict:
        changes = {difference.change for difference in self.found}
        if changes - {Change.UNKNOWN}:
            return Verdict.DRIFT
        return Verdict.UNKNOWN if changes else Verdict.MATCH

    def count(self, change: Change) -> int:
        return sum(1 for difference in self.found if difference.change is change)


def diff_facts(before: Facts, after: Facts, registry: Mapping[str, Entry] = REGISTRY) -> Differences:
    """Return what differs between two hosts in the facts that a lockfile holds.

    What differs in normal life is left out: the registry says which facts those are.
    """
    left, right = _side(before, registry), _side(after, registry)
    if not (left.host or left.gpus or right.host or right.gpus):
        # Two documents of a part that is not there, such as `--only gpu.` without a GPU.
        fix = "compare documents that hold facts: `envlock probe --format json`"
        return _of_comparison(unanswered("host", "(no fact in either)", "(not compared)", fix))
    return _of_sides(left, right, frozenset(), registry)


def diff_lock_with_facts(
    lock: Lockfile, facts: Facts, policy: Policy, today: date, registry: Mapping[str, Entry] = REGISTRY
) -> Differences:
    """Return what differs between the host of `lock` and `facts`, as the lockfile's policy judges it.

    A waiver that has ended by `today` (in UTC) is a difference too: the lockfile's own.
    """
    return _of_comparison(compare_facts(lock.host, facts, policy, today, registry))


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
        waived=tuple(turned(item) for item in differences.waived),
    )


# ---- hosts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """The comparable facts of one side: of the host, and of each GPU with its place."""

    host: dict[str, Observed]
    gpus: tuple[tuple[str, Mapping[str, Observed]], ...]
    looked: bool = True
    """Whether GPUs were looked for: a document limited to other facts lists none."""


def _side(facts: Facts, registry: Mapping[str, Entry]) -> _Side:
    host, gpus = locked_part(facts, registry)
    return _Side(host, tuple((gpu.ident, gpu.facts) for gpu in gpus), facts.covers("gpu."))


def _side_of_lock(host: Host) -> _Side:
    gpus = [dict(group.facts) for group in host.gpus for _ in range(group.count)]
    return _Side(dict(host.facts), tuple((f"#{index}", facts) for index, facts in enumerate(gpus)))


def diff_hosts(before: Lockfile, after: Lockfile) -> Differences:
    """Return what differs between the hosts of two lockfiles."""
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
    if GPU_COUNT not in keys and (before.gpus or after.gpus):
        left.host[GPU_COUNT], right.host[GPU_COUNT] = _listed(before), _listed(after)
    host = Host(
        facts=tuple(sorted(left.host.items(), key=lambda pair: pair[0])),
        gpus=tuple(
            GpuGroup(count=1, facts=tuple(sorted(held.items(), key=lambda pair: pair[0]))) for _, held in left.gpus
        ),
    )
    facts = Facts(right.host, [Device("gpu", ident, held) for ident, held in right.gpus])
    rules = tuple(Rule(key=key, rule="exact", unknown="allow") for key in sorted(allowed))
    # No rule waives anything here, so the day does not matter.
    return _of_comparison(compare_facts(host, facts, Policy(rules=rules, units=(), where="diff"), date.max, registry))


def _listed(side: _Side) -> Observed:
    return value(len(side.gpus)) if side.looked else absent(FAILED, detail="GPUs were not looked for")


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
    Kind.EXPIRED: Change.CHANGED,
}


def _of_comparison(comparison: Comparison) -> Differences:
    return Differences(
        found=_each(_of_drift, comparison.drifts),
        allowed=_each(_of_drift, comparison.allowed),
        waived=_each(_of_drift, comparison.waived),
    )


def _of_drift(drift: Drift) -> Difference:
    expired = drift.kind is Kind.EXPIRED
    return Difference(
        section="policy" if expired else "host",
        key=f"rules.{drift.key}" if expired else drift.key,
        device=drift.device,
        change=_CHANGES[drift.kind],
        before=drift.expected,
        after=drift.observed,
        because=_because(drift),
    )


def _because(drift: Drift) -> str:
    if drift.because == NOT_KNOWN_WHEN_LOCKED:
        return "the other side has no answer"
    if drift.until:
        return f"waived until {drift.until}: {drift.because}" if drift.kind is not Kind.EXPIRED else drift.because
    if drift.kind is Kind.CHANGED:
        return ""  # what a setting falls back to is not one side's story
    return drift.because or (drift.fix if drift.kind is Kind.UNANSWERED else "")


def _each(make: Callable[[Drift], T], items: tuple[Drift, ...]) -> tuple[T, ...]:
    return tuple(make(item) for item in items)
