"""Waivers: a difference that is excused, for a reason and up to and including a last day.

Pure: the day comes in as an argument, in UTC. A waiver is part of a rule (`Rule.until`),
so it is read, written and reviewed with it.
"""

from datetime import date

from envlock.errors import SpecError
from envlock.lockfile import Rule


def holds(rule: Rule, today: date) -> bool:
    """Return whether `rule` waives a difference on the day `today`."""
    return bool(rule.until) and today.isoformat() <= rule.until


def expired(rule: Rule, today: date) -> bool:
    """Return whether `rule` has a waiver whose last day is before `today`."""
    return bool(rule.until) and today.isoformat() > rule.until


def refuse_expired(rules: tuple[Rule, ...], today: date, where: str) -> None:
    """Raise `SpecError` for a waiver in the spec `where` that excuses nothing any more."""
    for rule in rules:
        if expired(rule, today):
            raise SpecError(
                f"the waiver ended on {rule.until}",
                where=where,
                key=f'policy.rules."{rule.key}".waived-until',
                hint="remove it, or give it a later day and a reason that still holds",
            )
