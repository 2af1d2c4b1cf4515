"""Drift: what differs between the locked host and an observed one, as data.

Pure. A difference is a `Drift`, never an exception. What could not be told is a drift of
the kind `unanswered`: it is no difference, and it is no match either. How one fact is
judged is `envlock.rules`', which rule judges it `envlock.policy`'s.
"""

from envlock.drift.comparing import compare_facts, drift_of_facts, locked_part
from envlock.drift.ended import ended_waiver
from envlock.drift.notes import slowed_down, waiting_for_reset
from envlock.drift.values import (
    NOTHING_TO_JUDGE,
    RECORD_HOST,
    Comparison,
    Drift,
    Kind,
    Verdict,
    unanswered,
)
from envlock.policy import GPU_COUNT

__all__ = [
    "GPU_COUNT",
    "NOTHING_TO_JUDGE",
    "RECORD_HOST",
    "Comparison",
    "Drift",
    "Kind",
    "Verdict",
    "compare_facts",
    "drift_of_facts",
    "ended_waiver",
    "locked_part",
    "slowed_down",
    "unanswered",
    "waiting_for_reset",
]
