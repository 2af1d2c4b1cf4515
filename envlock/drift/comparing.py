"""From a locked host and observed facts to a comparison."""

import dataclasses
from collections.abc import Mapping
from datetime import date

from envlock.drift.bench import Bench
from envlock.drift.gpus import compare_gpus
from envlock.drift.notes import notes
from envlock.drift.values import NOTHING_TO_JUDGE, RECORD_HOST, Comparison, Drift, Kind, unanswered
from envlock.facts import Device, Facts, Observed
from envlock.lockfile import Host, Rule
from envlock.policy import GPU_COUNT, Policy, locked_keys, policy_of
from envlock.registry import REGISTRY, Entry


def drift_of_facts(
    host: Host, observed: Facts, rules: tuple[Rule, ...], today: date, registry: Mapping[str, Entry] = REGISTRY
) -> tuple[Drift, ...]:
    """Return only the drifts of `compare_facts` under the `rules` of a lockfile."""
    policy = policy_of(rules, "policy", locked_keys(host), registry)
    return compare_facts(host, observed, policy, today, registry).drifts


def compare_facts(
    host: Host | None,
    observed: Facts,
    policy: Policy,
    today: date,
    registry: Mapping[str, Entry] = REGISTRY,
    elsewhere: tuple[str, ...] = (),
) -> Comparison:
    """Return how `observed` stands to the locked `host` under `policy`; waivers hold or not as of `today` (UTC).

    Host facts are compared by key; GPUs as a multiset, paired so that as few facts as
    can be differ. A fact that is not locked is not judged. What the rules of the keys
    `elsewhere` judge is no fact of the host: who judges it judges their waivers.
    `LockfileError` names a rule that cannot be used.
    """
    if host is None:
        return unanswered("host", "(not in the lockfile)", "(not compared)", RECORD_HOST)
    bench = Bench(policy, today, registry, elsewhere)
    counted = compare_gpus(bench, host, observed)
    # A GPU that is named as missing is not told a second time as a count.
    bench.facts(dict(host.facts), observed.host, "", skip=GPU_COUNT if counted else "")
    found = dataclasses.replace(_limited(bench.comparison(), observed), notes=(*observed.notes, *notes(observed)))
    judged = found.checked or found.allowed or found.waived
    if not judged and all(drift.kind is Kind.EXPIRED for drift in found.drifts):
        # No fact locked, or every one ignored: nothing was looked at, so nothing is known to match.
        nothing = unanswered("host", NOTHING_TO_JUDGE, "(not compared)", RECORD_HOST)
        return nothing.and_also(found)
    return found


def _limited(found: Comparison, observed: Facts) -> Comparison:
    """Return `found` with the reason why facts are unknown that `observed` was never meant to hold."""
    if not observed.only:
        return found
    because = "not part of this document, which holds only facts that start with " + " or ".join(observed.only)

    def told(drift: Drift) -> Drift:
        open_ = drift.kind is Kind.UNANSWERED and not drift.because and not observed.covers(drift.key)
        return dataclasses.replace(drift, because=because, fix="") if open_ else drift

    return dataclasses.replace(found, drifts=tuple(map(told, found.drifts)), allowed=tuple(map(told, found.allowed)))


def locked_part(facts: Facts, registry: Mapping[str, Entry]) -> tuple[dict[str, Observed], list[Device]]:
    """Return the facts that a lockfile holds: what the registry says is locked, and what it does not know."""

    def keep(held: Mapping[str, Observed]) -> dict[str, Observed]:
        return {key: seen for key, seen in held.items() if key not in registry or registry[key].locked}

    return keep(facts.host), [Device(gpu.kind, gpu.ident, keep(gpu.facts)) for gpu in facts.gpus()]
