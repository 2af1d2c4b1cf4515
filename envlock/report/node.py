"""A view as the one line that a node's supervisor reads, and the exit code it expects.

Three protocols, each with codes of its own: node-problem-detector's custom plugins
(https://github.com/kubernetes/node-problem-detector/blob/master/docs/custom_plugin_monitor.md),
the plugins of Nagios and its kin, and Slurm, which knows no code but reads a drain reason.
Every line is ASCII and bounded in bytes: it is cut by the reader otherwise.
"""

from envlock.errors import EXIT_DRIFT, EXIT_INTEGRITY, EXIT_MATCH
from envlock.report.view import Item, Level, View, alike, devices

MOST_BYTES = {"slurm": 80, "npd": 80, "nagios": 1000}

_OK, _WARNING, _CRITICAL, _UNKNOWN = 0, 1, 2, 3
_NAGIOS = {_OK: "OK", _WARNING: "WARNING", _CRITICAL: "CRITICAL", _UNKNOWN: "UNKNOWN"}


def line(view: View, protocol: str) -> str:
    """Return the one line of `view` in `protocol`, without its newline."""
    if protocol != "nagios":
        return _cut(f"envlock: {_said(view)}", MOST_BYTES[protocol])
    head = f"ENVLOCK {_NAGIOS[exit_code(view, protocol)]} - "
    numbers = " ".join(f"{word}={number}" for word, number in view.counts)
    tail = f" | {numbers}" if numbers else ""
    # The bar divides the line from its numbers: none may stand before it.
    text = _cut(_said(view).replace("|", "/"), MOST_BYTES["nagios"] - len(head) - len(tail))
    return head + text + tail


def exit_code(view: View, protocol: str) -> int:
    """Return the exit code of `view` in `protocol` (the table in `docs/exit-codes.md`)."""
    if protocol == "slurm":
        return view.exit_code
    wrong = view.exit_code in (EXIT_DRIFT, EXIT_INTEGRITY)
    if protocol == "npd":
        return 1 if wrong else 0 if view.exit_code == EXIT_MATCH else 2
    if view.exit_code == EXIT_MATCH:
        return _WARNING if view.count(Level.WARNING) else _OK
    return _CRITICAL if wrong else _UNKNOWN


def says_of_the_node(view: View) -> bool:
    """Return whether something that decides the verdict was found out about the node itself.

    A lockfile without a host and a waiver that ended say nothing about it, and would be
    found on every node of a cluster in the same minute.
    """
    weighty = (item for item in view.items if item.level in (Level.ERROR, Level.UNKNOWN))
    return not view.failed and any(map(_of_the_node, weighty))


def _of_the_node(item: Item) -> bool:
    return item.kind != "expired" and item.key not in ("host", "image")


def _said(view: View) -> str:
    """Return the verdict and the item that decides it; the number comes before what may be cut off."""
    if view.failed:
        return view.headline.replace("could not tell: ", "unknown: ", 1)
    groups = alike(view.items)
    if not groups:
        return f"{view.verdict}: {view.summary}"
    # A waiver that ended says less about the node than what it covered.
    alike_in_weight = (group for group in groups if group[0].level is groups[0][0].level)
    first = next((group for group in alike_in_weight if _of_the_node(group[0])), groups[0])
    weighty = sum(1 for item in view.items if item.level is first[0].level)
    number = "" if weighty == 1 else f" ({weighty})"
    word = "match, with a warning" if view.verdict == "match" else view.verdict
    # The line is short: of several devices only the number.
    place = devices(first).partition(" (")[0]
    if first[0].level is Level.UNKNOWN and first[0].because:
        # Whoever reads the line wants the reason; on a device it is one for many facts.
        about = place or f": {first[0].key}"
        return f"{word}{number}{about}: {first[0].because}"
    return f"{word}{number}: {first[0].key}{place}: {first[0].said}"


def _cut(text: str, most: int) -> str:
    plain = text.replace("→", "->").encode("ascii", "backslashreplace").decode("ascii")
    return plain if len(plain) <= most else plain[: most - 3] + "..."
