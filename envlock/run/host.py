"""The canary on this host, without a container: a fresh interpreter and a small environment.

What the lockfile holds is put in force, and nothing else of this shell that could decide
bits: a variable that was set here for something else must not be taken for the lock's.
"""

import os
from collections.abc import Mapping
from typing import Any

from envlock.canary import main, report
from envlock.canary import request as requests
from envlock.lockfile import Lockfile


def environment(lock: Lockfile, extra: Mapping[str, str], own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of the run: the lockfile's variables over a few of this host's, then `extra`."""
    kept = {name: own[name] for name in main.KEPT if name in own}
    return {**kept, **dict(lock.determinism.env), **extra}


def run_canary(lock: Lockfile, request: Mapping[str, Any], extra: Mapping[str, str], deadline: float) -> dict[str, Any]:
    """Run the canary on this host under the lockfile's environment and return its report.

    `request` is the canary request; `deadline` is in seconds. A run that failed is a
    report with that outcome. Raises `UsageError` for a request that cannot be used.
    """
    asked = requests.Request({**request, "nonce": os.urandom(16).hex()})
    answer = main.ask(main.command("run"), asked, environment(lock, extra), deadline)
    if answer.get("schema") != report.SCHEMA:
        return report.failed(str(answer.get("failure")), answer.get("hint"), asked)
    return answer
