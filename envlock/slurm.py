"""Draining a node of Slurm, when what was found about it is asked to have that consequence.

Only `scontrol update … state=drain`: a node is never resumed here, and one that is
drained or down already keeps its state and the reason that somebody gave.
"""

import re
import shlex

from envlock import process
from envlock.errors import ToolError, UsageError

DEADLINE = 10
"""Seconds for each `scontrol`; slurmd kills a health check after 60."""

_HINT = "is this a node of a Slurm cluster, with `scontrol` on PATH?"
_AWAY = ("DRAIN", "DOWN", "FAIL")


def command(node: str, reason: str) -> tuple[str, ...]:
    """Return the command that drains `node`; `UsageError` for a name that could mean several nodes."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", node):
        raise UsageError(f"not the name of one node: {node!r}", where="--node")
    return ("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")


def dry(node: str, reason: str) -> str:
    """Return in words what `drain` would do."""
    return f"would run: {shlex.join(command(node, reason))}"


def drain(node: str, reason: str) -> str:
    """Drain `node` unless it is out of service already; return in words what was done.

    Raises `ToolError` when Slurm gives no answer or refuses.
    """
    argv = command(node, reason)
    told = process.check(("scontrol", "show", "node", node, "-o"), DEADLINE, hint=_HINT).decode("utf-8", "replace")
    state = re.search(r"(?:^|\s)State=(\S+)", told)
    if state is None:
        raise ToolError(f"`scontrol` tells no state of node {node}", hint=_HINT)
    if any(word in state[1].upper() for word in _AWAY):
        return f"{node} is {state[1]} already: left as it is"
    process.check(argv, DEADLINE, hint=_HINT)
    return f"drained {node}"
