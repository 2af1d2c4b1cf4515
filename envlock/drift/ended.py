"""Waivers that have ended: an error each, that says whether the difference is still there.

Pure.
"""

from collections.abc import Collection, Sequence

from envlock.drift.values import Drift, Kind
from envlock.lockfile import Rule
from envlock.rules import Outcome

_RENEW = "put the difference right, or give the waiver in the spec a later day, then run `envlock lock`"
_REMOVE = "remove `waived-until` from the rule in the spec, then run `envlock lock`"
_MOST = 6


def ended_waiver(rule: Rule, came_to: Collection[Outcome]) -> Drift:
    """Return the drift of a waiver that has ended; `came_to` is what its rule said, of everything it judged."""
    state, fix = "whether it is still needed could not be told", _RENEW
    if Outcome.DIFFERENT in came_to:
        state = "the difference is still there"
    elif Outcome.UNKNOWN not in came_to:
        state, fix = "no longer needed, remove it", _REMOVE
    return Drift(
        key=rule.key,
        expected=f"waived until {rule.until}",
        observed="expired",
        kind=Kind.EXPIRED,
        because=f"{rule.reason}: {state}",
        why="a waiver that nobody renews was meant to end",
        fix=fix,
        until=rule.until,
    )


def listed(keys: Sequence[str]) -> str:
    """Return some of `keys`, and how many more there are."""
    if len(keys) <= _MOST:
        return ", ".join(keys)
    return f"{', '.join(keys[: _MOST - 1])} and {len(keys) - _MOST + 1} others"
