"""Drift: what differs between the locked host and an observed one, as data.

Pure. A difference is a `Drift`, never an exception. What could not be told is a drift of
the kind `unanswered`: it is no difference, and it is no match either.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from envlock.errors import EXIT_DRIFT, EXIT_MATCH, EXIT_UNKNOWN
from envlock.facts import UNANSWERED, Device, Facts, Observed, value
from envlock.lockfile import MAX_GPUS, GpuGroup, Host, Rule
from envlock.pairing import pair
from envlock.policy import Policy, locked_keys, policy_of
from envlock.registry import REGISTRY, Entry
from envlock.rules import Ignore, Judge, Judgement, Outcome

GPU_COUNT = "nvidia.gpu_count"
"""How many GPUs there are; its rule judges missing and extra ones."""

NOT_OBSERVED = "(not observed)"
NOTHING_TO_JUDGE = "(no locked fact that a rule judges)"
RECORD_HOST = "run `envlock lock --update-host` on the golden host to record it"


class Kind(StrEnum):
    """What kind of drift it is."""

    CHANGED = "changed"
    MISSING = "missing"
    EXTRA = "extra"
    UNANSWERED = "unanswered"
    EXPIRED = "expired"  # a waiver whose day has passed


class Verdict(StrEnum):
    """The answer of a comparison; `exit_code` is the one of `docs/exit-codes.md`."""

    MATCH = "match"
    DRIFT = "drift"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        return {"match": EXIT_MATCH, "drift": EXIT_DRIFT, "unknown": EXIT_UNKNOWN}[self.value]


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """One difference. `device` is empty for the host itself, else the device's place (PCI bus id).

    `expected` and `observed` are for people; `because` says why there is no answer, or
    why it is allowed; `why` what the fact decides; `fix` how to put it right. `reset`: the
    observed value is what the hardware falls back to. `command` is the one line that
    puts it right, empty where no single command does. `until` is the last day of a
    waiver, as `2026-12-31`.
    """

    key: str
    device: str = ""
    expected: str
    observed: str
    kind: Kind
    severity: str = "error"
    because: str = ""
    why: str = ""
    fix: str = ""
    reset: bool = False
    command: str = ""
    until: str = ""

    @property
    def verdict(self) -> Verdict:
        """What this one drift alone would come to, were it an error."""
        return Verdict.UNKNOWN if self.kind is Kind.UNANSWERED else Verdict.DRIFT


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What a comparison found, and how much it looked at.

    `checked` counts pairs of facts that a rule other than `ignore` judged; `allowed`
    holds what could not be told and the policy allows by name, `waived` definite
    differences under a waiver that still holds, `same` the key and device of each fact
    that was judged the same.
    """

    drifts: tuple[Drift, ...] = ()
    allowed: tuple[Drift, ...] = ()
    waived: tuple[Drift, ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    checked: int = 0
    ignored: int = 0

    @property
    def verdict(self) -> Verdict:
        """`drift` outranks `unknown`. Warnings decide nothing: either answer would pass."""
        kinds = {drift.kind for drift in self.drifts if drift.severity == "error"}
        if kinds - {Kind.UNANSWERED}:
            return Verdict.DRIFT
        return Verdict.UNKNOWN if kinds else Verdict.MATCH

    def count(self, kind: Kind, severity: str = "error") -> int:
        return sum(1 for drift in self.drifts if drift.kind is kind and drift.severity == severity)

    def and_also(self, other: "Comparison") -> "Comparison":
        """Return both comparisons as one."""
        return Comparison(
            drifts=self.drifts + other.drifts,
            allowed=self.allowed + other.allowed,
            waived=self.waived + other.waived,
            same=self.same + other.same,
            checked=self.checked + other.checked,
            ignored=self.ignored + other.ignored,
        )


def unanswered(key: str, expected: str, observed: str, fix: str) -> Comparison:
    """Return the comparison that could not be made at all, and what would make it possible."""
    drift = Drift(key=key, expected=expected, observed=observed, kind=Kind.UNANSWERED, fix=fix)
    return Comparison(drifts=(drift,))


def drift_of_facts(
    host: Host, observed: Facts, rules: tuple[Rule, ...], registry: Mapping[str, Entry] = REGISTRY
) -> tuple[Drift, ...]:
    """Return only the drifts of `compare_facts` under the `rules` of a lockfile."""
    policy = policy_of(rules, "policy", locked_keys(host), registry)
    return compare_facts(host, observed, policy, registry).drifts


def compare_facts(
    host: Host | None, observed: Facts, policy: Policy, registry: Mapping[str, Entry] = REGISTRY
) -> Comparison:
    """Return how `observed` stands to the locked `host` under `policy`.

    Host facts are compared by key; GPUs as a multiset, paired so that as few facts as
    can be differ. `LockfileError` names a rule that cannot be used.
    """
    if host is None:
        return unanswered("host", "(not in the lockfile)", "(not compared)", RECORD_HOST)
    bench = _Bench(policy, registry)
    counted = _compare_gpus(bench, host, observed)
    # A GPU that is named as missing is not told a second time as a count.
    bench.facts([(key, seen) for key, seen in host.facts if key != GPU_COUNT or not counted], observed.host, "")
    found = bench.comparison()
    if not found.checked and not found.drifts and not found.allowed:
        # No fact locked, or every one ignored: nothing was looked at, so nothing is known to match.
        nothing = unanswered("host", NOTHING_TO_JUDGE, "(not compared)", RECORD_HOST)
        return nothing.and_also(found)
    return found


class _Bench:
    """Judges pairs of facts and keeps what they came to."""

    def __init__(self, policy: Policy, registry: Mapping[str, Entry]) -> None:
        self._policy = policy
        self._registry = registry
        self._judges: dict[str, tuple[Rule, Judge]] = {}
        self._drifts: list[Drift] = []
        self._allowed: list[Drift] = []
        self._checked = 0
        self._ignored = 0

    def comparison(self) -> Comparison:
        """Return what was found, what decides the verdict first."""
        return Comparison(
            drifts=tuple(sorted(self._drifts, key=_weight)),
            allowed=tuple(sorted(self._allowed, key=_weight)),
            checked=self._checked,
            ignored=self._ignored,
        )

    def rule(self, key: str) -> tuple[Rule, Judge]:
        if key not in self._judges:
            self._judges[key] = self._policy.judge_for(key)
        return self._judges[key]

    def judged(self, key: str, expected: Observed, observed: Observed | None) -> Judgement:
        judge = self.rule(key)[1]
        if observed is not None:
            return judge.judge(expected, observed)
        wanted = judge.judge(expected, expected)
        unknown = Outcome.SAME if isinstance(judge, Ignore) else Outcome.UNKNOWN
        return Judgement(outcome=unknown, expected=wanted.expected, observed=NOT_OBSERVED)

    def facts(self, locked: Iterable[tuple[str, Observed]], seen: Mapping[str, Observed], device: str) -> None:
        for key, expected in locked:
            judgement = self.judged(key, expected, seen.get(key))
            if isinstance(self.rule(key)[1], Ignore):
                self._ignored += 1
                continue
            self._checked += 1
            if judgement.outcome is not Outcome.SAME:
                kind = Kind.CHANGED if judgement.outcome is Outcome.DIFFERENT else Kind.UNANSWERED
                texts = (judgement.expected, judgement.observed)
                first, second = (
                    self._with_unit(key, text, held)
                    for text, held in zip(texts, (expected, seen.get(key)), strict=True)
                )
                self.add(key, device, kind, first, second, judgement.because)

    def _with_unit(self, key: str, text: str, held: Observed | None) -> str:
        """Return `text` with the fact's unit behind it, where it is the bare value."""
        entry = self._registry.get(key)
        bare = held is not None and held.has_value and text == held.text()
        return f"{text} {entry.unit}" if bare and entry and entry.unit else text

    def add(self, key: str, device: str, kind: Kind, expected: str, observed: str, because: str = "") -> bool:
        """Keep one drift; return whether it counts (an ignored one does not)."""
        rule, judge = self.rule(key)
        if isinstance(judge, Ignore):
            return False
        entry = self._registry.get(key)
        allowed = kind is Kind.UNANSWERED and rule.unknown == "allow"
        drift = Drift(
            key=key,
            device=device,
            expected=expected,
            observed=observed,
            kind=kind,
            severity=rule.severity,
            because=(rule.reason or because) if allowed else because,
            why=entry.why if entry else "",
            fix=entry.remedy if entry else "",
        )
        (self._allowed if allowed else self._drifts).append(drift)
        return True

    def cost(self, locked: tuple[tuple[str, Observed], ...], seen: Mapping[str, Observed]) -> int:
        """Return what pairing these two would cost: a difference outweighs any number of unknowns."""
        weight = {Outcome.SAME: 0, Outcome.UNKNOWN: 1, Outcome.DIFFERENT: 1000}
        return sum(weight[self.judged(key, expected, seen.get(key)).outcome] for key, expected in locked)


def _weight(drift: Drift) -> tuple[bool, bool, str, str]:
    return (drift.severity != "error", drift.kind is Kind.UNANSWERED, drift.key, drift.device)


def _compare_gpus(bench: _Bench, host: Host, observed: Facts) -> bool:
    """Compare the GPUs; return whether one was missing or more than locked."""
    gpus = observed.gpus()
    total = sum(group.count for group in host.gpus)
    locked_count = dict(host.facts).get(GPU_COUNT, value(total))
    count_fits = bench.judged(GPU_COUNT, locked_count, value(len(gpus))).outcome is Outcome.SAME
    # A group never gives more GPUs than there are to pair. Where the rule allows more GPUs
    # than were locked (`>=4`), the others are held against the groups all the same.
    room = len(gpus) if count_fits and len(gpus) > total else 0
    slots = [index for index, group in enumerate(host.gpus) for _ in range(room or min(group.count, len(gpus)))]
    pairs = _pairs(bench, host.gpus, slots, gpus)
    counted = False
    unsure = _unsure(dict(host.facts).get(GPU_COUNT, value(total)), total)
    kind = Kind.EXTRA if unsure is None else Kind.UNANSWERED
    for index, gpu in enumerate(gpus):
        if index in pairs:
            bench.facts(host.gpus[pairs[index]].facts, gpu.facts, gpu.ident)
        elif not count_fits:
            name = _name_of(gpu.facts)
            counted = bench.add(GPU_COUNT, gpu.ident, kind, "(no such GPU)", name, unsure or "") or counted
    if count_fits:
        return counted
    unsure = _unsure(observed.host.get(GPU_COUNT), len(gpus))
    kind = Kind.MISSING if unsure is None else Kind.UNANSWERED
    for index, group in enumerate(host.gpus):
        short = group.count - sum(1 for paired in pairs.values() if paired == index)
        if short:
            wanted = f"{group.count} x {_name_of(dict(group.facts))}"
            counted = bench.add(GPU_COUNT, "", kind, wanted, f"{group.count - short} of them", unsure or "") or counted
    return counted


def _pairs(bench: _Bench, groups: tuple[GpuGroup, ...], slots: list[int], gpus: tuple[Device, ...]) -> dict[int, int]:
    """Return for each paired GPU (by its index) the index of its group."""
    known: dict[tuple[int, tuple[Observed | None, ...]], int] = {}
    # Of equal pairings the one that keeps the order: two documents of one node are then
    # compared place by place. It never outweighs a difference.
    one_difference = 4 * MAX_GPUS

    def cost(slot: int, gpu: int) -> int:
        locked, seen = groups[slots[slot]].facts, gpus[gpu].facts
        place = (slots[slot], tuple(seen.get(key) for key, _ in locked))
        if place not in known:
            known[place] = bench.cost(locked, seen)
        return known[place] * one_difference + (slot != gpu)

    return {gpu: slots[slot] for slot, gpu in pair(len(slots), len(gpus), cost)}


def _unsure(seen: Observed | None, listed: int) -> str | None:
    """Return why it cannot be told how many GPUs there are; `None` when it can.

    A driver that gives no answer shows no GPU: that is not the same as no GPU.
    """
    if seen is None:
        return "how many GPUs there are was not observed"
    if seen.outcome in UNANSWERED:
        return seen.detail or seen.outcome.replace("-", " ")
    if seen.has_value and seen.value != listed:
        return f"{seen.text()} are there, {listed} answered"
    return None


def _name_of(facts: Mapping[str, Observed]) -> str:
    return facts["gpu.name"].text() if "gpu.name" in facts else "GPU"


def locked_part(facts: Facts, registry: Mapping[str, Entry]) -> tuple[dict[str, Observed], list[Device]]:
    """Return the facts that a lockfile holds: what the registry says is locked, and what it does not know."""

    def keep(held: Mapping[str, Observed]) -> dict[str, Observed]:
        return {key: seen for key, seen in held.items() if key not in registry or registry[key].locked}

    return keep(facts.host), [Device(gpu.kind, gpu.ident, keep(gpu.facts)) for gpu in facts.gpus()]
