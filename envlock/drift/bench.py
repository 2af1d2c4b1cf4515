"""The bench: pairs of facts are judged on it, and what they come to is kept."""

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import date

from envlock import waivers
from envlock.drift.ended import ended_waiver, listed
from envlock.drift.settings import PENDING, PERSISTENCE, for_devices, restoring
from envlock.drift.values import Comparison, Drift, Kind
from envlock.facts import Observed
from envlock.lockfile import Rule
from envlock.policy import CUDA_RUNTIME, Policy, fits
from envlock.registry import Entry
from envlock.rules import Ignore, Judge, Judgement, Outcome

NOT_OBSERVED = "(not observed)"
NO_ITEM = "(none)"

_WEIGHT = {Outcome.SAME: 0, Outcome.UNKNOWN: 1, Outcome.DIFFERENT: 1000}


class Bench:
    """Judges pairs of facts under one policy on one day, and keeps what they came to.

    What is judged `elsewhere`, by these keys, has its waivers judged there too.
    """

    def __init__(
        self, policy: Policy, today: date, registry: Mapping[str, Entry], elsewhere: tuple[str, ...] = ()
    ) -> None:
        self._elsewhere = elsewhere
        self._policy = policy
        self._today = today
        self._registry = registry
        self._judges: dict[str, tuple[Rule, Judge]] = {}
        self._drifts: list[Drift] = []
        self._allowed: list[Drift] = []
        self._waived: list[Drift] = []
        self._same: list[tuple[str, str]] = []
        self._came_to: dict[str, set[Outcome]] = {}
        self._checked = 0
        self._ignored = 0

    def comparison(self) -> Comparison:
        """Return what was found, what decides the verdict first."""
        return Comparison(
            drifts=tuple(sorted([*_with_commands(self._drifts), *self._expired()], key=_weight)),
            allowed=tuple(sorted(self._allowed, key=_weight)),
            waived=tuple(sorted(self._waived, key=_weight)),
            same=tuple(self._same),
            checked=self._checked,
            ignored=self._ignored,
        )

    def ignores(self, key: str) -> bool:
        return isinstance(self._rule(key)[1], Ignore)

    def _rule(self, key: str) -> tuple[Rule, Judge]:
        if key not in self._judges:
            self._judges[key] = self._policy.judge_for(key)
        return self._judges[key]

    def judged(self, key: str, expected: Observed, observed: Observed | None) -> Judgement:
        judge = self._rule(key)[1]
        if observed is not None:
            return judge.judge(expected, observed)
        wanted = judge.judge(expected, expected)
        unknown = Outcome.SAME if isinstance(judge, Ignore) else Outcome.UNKNOWN
        return Judgement(outcome=unknown, expected=wanted.expected, observed=NOT_OBSERVED)

    def weight(self, key: str, expected: Observed, observed: Observed | None) -> int:
        """Return what it costs to pair these two: a difference outweighs any number of unknowns."""
        return _WEIGHT[self.judged(key, expected, observed).outcome]

    def facts(self, locked: Mapping[str, Observed], seen: Mapping[str, Observed], device: str, skip: str = "") -> None:
        """Judge every fact of `locked` but `skip` against the one in `seen`."""
        for key, expected in locked.items():
            if key == skip:
                continue
            rule, judge = self._rule(key)
            if isinstance(judge, Ignore):
                self._ignored += 1
                continue
            observed = seen.get(key)
            judgement = self.judged(key, expected, observed)
            if judgement.outcome is Outcome.DIFFERENT and self._told_by_mode(key, locked, seen):
                self._came_to.setdefault(rule.key, set()).add(Outcome.DIFFERENT)
                continue
            self._checked += 1
            if judgement.outcome is Outcome.SAME:
                self._same.append((key, device))
                self._came_to.setdefault(rule.key, set()).add(Outcome.SAME)
                continue
            drift = Drift(
                key=key,
                device=device,
                expected=self._shown(key, judgement.expected, expected),
                observed=self._shown(key, judgement.observed, observed),
                kind=Kind.CHANGED if judgement.outcome is Outcome.DIFFERENT else Kind.UNANSWERED,
                because=judgement.because,
            )
            if drift.kind is Kind.CHANGED:
                found = restoring(key, locked, seen, self._registry)
                drift = dataclasses.replace(
                    drift, because=drift.because or found.because, reset=found.reset, command=found.command
                )
            self.keep(drift)

    def not_judged(self, keys: Iterable[str]) -> None:
        """Keep that there is a GPU whose facts `keys` nobody could judge: whether a waiver is needed is open then."""
        for key in keys:
            self._came_to.setdefault(self._rule(key)[0].key, set()).add(Outcome.UNKNOWN)

    def _told_by_mode(self, key: str, locked: Mapping[str, Observed], seen: Mapping[str, Observed]) -> bool:
        """Return whether `key` is a mode after a reset that differs just as the mode itself does.

        ECC off, now and after a reset, is one difference, and one waiver excuses it.
        """
        mode = key.removesuffix(PENDING)
        if mode == key or mode not in locked or mode not in seen:
            return False
        same_story = locked[mode] == locked[key] and seen[mode] == seen.get(key)
        as_grave = self._rule(mode)[0].severity == "error" or self._rule(key)[0].severity == "warning"
        return same_story and as_grave and self.judged(mode, locked[mode], seen[mode]).outcome is Outcome.DIFFERENT

    def _shown(self, key: str, text: str, held: Observed | None) -> str:
        """Return `text` with the fact's unit behind it, where it is the bare value."""
        if held is None or not held.has_value or text != held.text():
            return text
        if held.value in ((), ""):
            return NO_ITEM
        entry = self._registry.get(key)
        return f"{text} {entry.unit}" if entry and entry.unit else text

    def keep(self, drift: Drift) -> bool:
        """Keep one drift under the rule of its key; return whether it counts (an ignored one does not)."""
        rule, judge = self._rule(drift.key)
        if isinstance(judge, Ignore):
            return False
        unknown = drift.kind is Kind.UNANSWERED
        self._came_to.setdefault(rule.key, set()).add(Outcome.UNKNOWN if unknown else Outcome.DIFFERENT)
        entry = self._registry.get(drift.key)
        why, fix = (entry.why, entry.remedy) if entry else ("", "")
        # The remedy of the registry is for a value that differs: nobody is to flash a firmware that nobody read.
        drift = dataclasses.replace(drift, severity=rule.severity, why=why, fix="" if unknown else fix)
        if unknown and rule.unknown == "allow":
            self._allowed.append(dataclasses.replace(drift, because=rule.reason or drift.because))
        elif not unknown and waivers.holds(rule, self._today):
            # Only what is known to differ is excused: nobody waived that it cannot be told.
            waived = dataclasses.replace(drift, because=rule.reason, until=rule.until, command="", reset=False)
            self._waived.append(waived)
        else:
            self._drifts.append(drift)
        return True

    def _expired(self) -> Iterable[Drift]:
        """Yield one error for each waiver whose last day has passed, needed or not.

        A waiver by pattern stands in the lockfile once for each fact: with the same day, reason
        and need they are one.
        """
        alike: dict[Drift, list[str]] = {}
        for rule in self._policy.rules:
            if waivers.expired(rule, self._today) and rule.key not in self._elsewhere:
                came_to = self._came_to.get(rule.key, set())
                if fits(rule.key, CUDA_RUNTIME):
                    came_to = came_to | {Outcome.UNKNOWN}  # no fact of a host: it is not judged here
                ended = ended_waiver(rule, came_to)
                alike.setdefault(dataclasses.replace(ended, key=""), []).append(rule.key)
        for ended, keys in alike.items():
            also = f" (the same of {listed(keys[1:])})" if keys[1:] else ""
            yield dataclasses.replace(ended, key=keys[0], because=ended.because + also)


def _with_commands(drifts: list[Drift]) -> list[Drift]:
    """Return `drifts` with each command naming all devices on which the same thing is wrong."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for drift in drifts:
        alike.setdefault(_place(drift), []).append(drift.device)
    return [
        dataclasses.replace(drift, command=for_devices(drift.command, alike[_place(drift)])) if drift.command else drift
        for drift in drifts
    ]


def _place(drift: Drift) -> tuple[str, ...]:
    return (drift.key, drift.expected, drift.observed, drift.because, drift.command)


def _weight(drift: Drift) -> tuple[bool, bool, bool, str, str]:
    # Commands are run in the order of the report: what is set while persistence is off falls back at once.
    later = not (drift.key == PERSISTENCE and drift.command)
    return (drift.severity != "error", drift.kind is Kind.UNANSWERED, later, drift.key, drift.device)
