"""The time of one check: a machine is rented by the minute, and a command there may be ended at its tenth.

Standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import time
from typing import Callable, Mapping

from envlock.errors import UsageError

SECONDS = 540.0
"""What a check takes at most unless it is told otherwise: it ends by itself before a limit of ten minutes."""

_LEAST = 5.0


class Budget:
    """How much time is left of `seconds`, counted from now."""

    def __init__(self, seconds: float = SECONDS, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._end = now() + seconds

    @property
    def spent(self) -> bool:
        """Whether nothing more is worth beginning."""
        return self.left() < _LEAST

    def left(self) -> float:
        """Return the seconds that are left, none below 0."""
        return max(0.0, self._end - self._now())

    def share(self, most: float, parts: int = 1) -> float:
        """Return the seconds for one of `parts` steps that follow: at most `most`, and never less than one."""
        return max(1.0, min(most, self.left() / parts))


def wanted(environment: Mapping[str, str]) -> float:
    """Return the seconds that `LIMIT` in `environment` gives; `UsageError` when it is no number above 0."""
    said = environment.get("LIMIT") or str(SECONDS)
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(
            "LIMIT is a number of seconds above 0, not {!r}".format(said), hint="`make gpu-check LIMIT=1500`"
        )
    return seconds
