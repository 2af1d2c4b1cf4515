"""Which rule judges which fact, and the rules a new lockfile starts with.

Pure. The language of a rule is `envlock.rules`; what a fact means is the registry's
(`envlock.registry`), whose default rules `default_rules` copies into a new lockfile, so
that the lockfile judges alone.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from envlock.errors import LockfileError
from envlock.facts import UNANSWERED
from envlock.lockfile import Host, Lockfile, Rule
from envlock.registry import REGISTRY, Entry
from envlock.registry.entry import BOOLEAN, INTEGER, STRING, STRINGS
from envlock.rules import Judge, parse
from envlock.tables import nearest_hint

GPU_COUNT = "nvidia.gpu_count"
"""How many GPUs there are; its rule judges missing and extra ones. Never allowed to be unknown by default:
a driver that gave no answer on the golden host would make a dead driver a match on every node."""

_WHAT_IT_IS = frozenset(("gpu.name", "gpu.compute_capability", "gpu.memory"))
"""What any GPU tells that answers at all."""

CUDA_RUNTIME = "cuda.runtime"
"""Whether the driver runs the locked CUDA runtime: judged like a fact, though no host holds it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """The rules of one lockfile, ready to judge. `where` is the file, for messages."""

    rules: tuple[Rule, ...]
    units: tuple[tuple[str, str], ...]
    where: str

    def rule_for(self, key: str) -> Rule:
        """Return the rule for `key`: by its name, else the most specific pattern, else `exact`.

        Specific is what spells out more letters. `LockfileError` when two patterns
        spell out as many: which of them is meant is not ours to guess.
        """
        matching = [rule for rule in self.rules if fits(rule.key, key)]
        if not matching:
            return Rule(key=key, rule="exact")
        best = max(_specific(rule.key) for rule in matching)
        chosen = [rule for rule in matching if _specific(rule.key) == best]
        if len(chosen) > 1:
            names = " and ".join(f"`{rule.key}`" for rule in chosen)
            raise LockfileError(
                f"{names} fit `{key}` equally well",
                where=self.where,
                key="policy.rules",
                hint=f"add a rule for `{key}` itself",
            )
        return chosen[0]

    def judge_for(self, key: str) -> tuple[Rule, Judge]:
        """Return the rule for `key`, and the same parsed; `LockfileError` names an unusable rule."""
        rule = self.rule_for(key)
        return rule, self.parsed(rule, key)

    def parsed(self, rule: Rule, key: str) -> Judge:
        try:
            return parse(rule.rule, dict(self.units).get(key, ""))
        except LockfileError as fault:
            raise LockfileError(
                fault.message, where=self.where, key=f'policy.rules."{rule.key}"', hint=fault.hint
            ) from None


def policy_of(
    rules: tuple[Rule, ...], where: str, locked: tuple[str, ...] = (), registry: Mapping[str, Entry] = REGISTRY
) -> Policy:
    """Return the policy in `rules`, every rule checked, whether a fact asks for it or not.

    A rule that names a fact which is neither in `registry` nor `locked` is a slip of
    the pen that would judge nothing: `LockfileError`, with the nearest name.
    """
    units = tuple((key, entry.unit) for key, entry in registry.items() if entry.unit)
    policy = Policy(rules=rules, units=units, where=where)
    known = tuple(sorted({*registry, *locked, CUDA_RUNTIME}))
    for rule in rules:
        if "*" in rule.key and rule.unknown == "allow":
            raise LockfileError(
                "a pattern cannot allow what is unknown",
                where=where,
                key=f'policy.rules."{rule.key}"',
                hint='name each fact: `"cpu.microcode" = {rule = "exact", unknown = "allow"}`',
            )
        if "*" in rule.key:
            # A pattern may fit nothing on this host; that it fits no fact at all is a slip of the pen.
            fitting = [key for key in known if fits(rule.key, key)]
            if not fitting:
                raise LockfileError(
                    "fits no fact",
                    where=where,
                    key=f'policy.rules."{rule.key}"',
                    hint=nearest_hint(rule.key.replace("*", ""), known, "`envlock probe` lists the facts"),
                )
            for key in [key for key in fitting if policy.rule_for(key) is rule]:
                policy.parsed(rule, key)
        elif rule.key == CUDA_RUNTIME and rule.rule.strip() not in ("exact", "ignore"):
            raise LockfileError(
                f"{rule.rule!r} cannot judge whether the driver runs the locked CUDA runtime",
                where=where,
                key=f'policy.rules."{rule.key}"',
                hint='write `exact` or `ignore`; a range goes with `"nvidia.cuda"` or `"nvidia.driver"`',
            )
        elif rule.key in known:
            policy.parsed(rule, rule.key)
        else:
            raise LockfileError(
                "no such fact",
                where=where,
                key=f'policy.rules."{rule.key}"',
                hint=nearest_hint(rule.key, known, "`envlock probe` lists the facts"),
            )
    return policy


def policy_of_lock(lock: Lockfile, where: str) -> Policy:
    """Return the policy of `lock`, read from the file `where`, every rule checked."""
    return policy_of(lock.policy, where, locked_keys(lock.host))


def locked_keys(host: Host | None) -> tuple[str, ...]:
    """Return the keys of all facts locked in `host`, sorted."""
    if host is None:
        return ()
    return tuple(sorted({key for facts in (host.facts, *(group.facts for group in host.gpus)) for key, _ in facts}))


def fits(pattern: str, key: str) -> bool:
    """Return whether `key` is `pattern`, where each `*` stands for any letters, dots included."""
    first, *others = pattern.split("*")
    if not others:
        return pattern == key
    if not key.startswith(first):
        return False
    position = len(first)
    for part in others[:-1]:
        position = key.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return key.endswith(others[-1]) and len(key) - len(others[-1]) >= position


def _specific(key: str) -> tuple[bool, int]:
    return ("*" not in key, len(key.replace("*", "")))


def default_rules(host: Host, profile: str = "bits", registry: Mapping[str, Entry] = REGISTRY) -> tuple[Rule, ...]:
    """Return one rule by name for each fact locked in `host`, sorted by key.

    Under `bits` rule and severity are the registry's, `exact` and `error` for a fact it
    does not know. `strict` makes every one an error. `identity` judges what says which
    kind of machine it is, and ignores the rest.

    A fact that could not be observed when it was locked gets `unknown = "allow"` with
    the reason: what is never known is then allowed by name, and by name only. What one GPU
    tells and another does not is that GPU's fault, not the platform's: to allow it would
    allow all of them to be dead. So it would where no GPU tells even what it is. Under
    `strict`, and for the number of GPUs under any profile, only a person may say so.
    """
    seen: dict[str, set[str]] = {}
    for facts in (host.facts, *(group.facts for group in host.gpus)):
        for key, observed in facts:
            seen.setdefault(key, set()).add(observed.outcome)
    dead = seen.keys() >= _WHAT_IT_IS and all(seen[key] <= UNANSWERED for key in _WHAT_IT_IS)
    return tuple(
        rule if dead and key.startswith("gpu.") else _allowing(rule, seen[key], profile)
        for key, rule in ((key, _rule_under(profile, key, registry)) for key in sorted(seen))
    )


def _rule_under(profile: str, key: str, registry: Mapping[str, Entry]) -> Rule:
    entry = registry.get(key)
    severity = entry.severity if entry else "error"
    if profile == "identity":
        severity = entry.identity if entry else ""
        if not severity:
            return Rule(key=key, rule="ignore", severity="warning")
    return Rule(key=key, rule=entry.rule if entry else "exact", severity="error" if profile == "strict" else severity)


def _allowing(rule: Rule, outcomes: set[str], profile: str) -> Rule:
    """Return `rule`, allowing by name what could not be observed, where a profile may do so."""
    missing = sorted(outcomes) if outcomes <= UNANSWERED else ()
    if not missing or rule.rule == "ignore" or profile == "strict" or rule.key == GPU_COUNT:
        return rule
    words = " and ".join(outcome.replace("-", " ") for outcome in missing)
    return dataclasses.replace(rule, unknown="allow", reason=f"{words} when it was locked")


def rules_of(
    host: Host,
    wanted: tuple[Rule, ...],
    where: str,
    profile: str = "bits",
    registry: Mapping[str, Entry] = REGISTRY,
) -> tuple[Rule, ...]:
    """Return the rules of a new lockfile: those of the profile, put right by the `wanted` ones of a spec.

    Each locked fact gets one rule by its name, so a pattern of the spec, with its waiver,
    is written out for the facts that it fits (and for `CUDA_RUNTIME`, where it fits that);
    what such a fact may leave unknown stays as it was by default. Raises `LockfileError` for a
    rule that cannot be used; `where` is the spec.
    """
    policy = policy_of(wanted, where, locked_keys(host), registry)
    rules = {rule.key: rule for rule in wanted if "*" not in rule.key}
    for rule in rules.values():
        _refuse_misfit(rule, registry.get(rule.key), where)
    for default in default_rules(host, profile, registry):
        if default.key in rules:
            continue
        rule = default
        if any(fits(asked.key, default.key) for asked in wanted):
            asked = policy.rule_for(default.key)
            reason = "; ".join(filter(None, (asked.reason, default.reason)))
            rule = dataclasses.replace(
                default, rule=asked.rule, severity=asked.severity, until=asked.until, reason=reason
            )
        rules[default.key] = rule
    if CUDA_RUNTIME not in rules and any(fits(asked.key, CUDA_RUNTIME) for asked in wanted):
        asked = policy.rule_for(CUDA_RUNTIME)
        word = "ignore" if asked.rule.strip() == "ignore" else "exact"
        rules[CUDA_RUNTIME] = dataclasses.replace(asked, key=CUDA_RUNTIME, rule=word)
    return tuple(rules[key] for key in sorted(rules))


def _refuse_misfit(rule: Rule, entry: Entry | None, where: str) -> None:
    """Refuse a rule by name that could never judge its fact: a tolerance of a text, a range of a switch or a list."""
    words = rule.rule.strip()
    tolerance, ranged = words.startswith("within"), words[:1] in tuple("=!<>~")
    if entry is None or not ((tolerance and entry.type != INTEGER) or (ranged and entry.type in (BOOLEAN, STRINGS))):
        return
    raise LockfileError(
        f"{rule.rule!r} cannot judge a fact of the type {entry.type}",
        where=where,
        key=f'policy.rules."{rule.key}"',
        hint="write `exact`, `one-of a, b`" + (", or a range" if entry.type == STRING else ""),
    )


def not_told(host: Host, rules: tuple[Rule, ...]) -> tuple[str, ...]:
    """Return the facts of `host` that could not be observed and that none of `rules` allows or ignores."""
    settled = {rule.key for rule in rules if rule.unknown == "allow" or rule.rule == "ignore"}
    return tuple(sorted(unanswered_keys(host) - settled))


def unanswered_keys(host: Host) -> frozenset[str]:
    """Return the facts that `host`, or one of its GPUs, did not tell."""
    facts = (host.facts, *(group.facts for group in host.gpus))
    return frozenset(key for held in facts for key, seen in held if seen.outcome in UNANSWERED)
