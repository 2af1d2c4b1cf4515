"""The driver is asked before the command line is so much as parsed.

`envlock check` waits longest for the driver, which answers in a process of its own: that
one is started first, where the arguments leave no doubt that this host is to be checked.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envlock.probe.host import Host

# The options of `check` that do not change what is checked; any other argument is left to the parser.
_ALIKE = frozenset(("-l", "--lock", "-f", "--spec", "-o", "--output", "--format", "--as", "--node"))
_ALIKE_FLAGS = frozenset(("--drain", "-q", "--quiet", "-v", "--verbose"))
_PREFIX = "ENVLOCK_CHECK_"
_ALIKE_VARIABLES = frozenset((_PREFIX + "AS", _PREFIX + "OUTPUT"))

_begun: "list[Host]" = []


def checks_this_host(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a command line is surely `envlock check` of this host; False when in doubt."""
    if not arguments or arguments[0] != "check":
        return False
    if any(name.startswith(_PREFIX) and name not in _ALIKE_VARIABLES for name in environment):
        return False
    left = list(arguments[:0:-1])
    while left:
        argument = left.pop()
        name, attached, _ = argument.partition("=")
        if argument in _ALIKE_FLAGS or (attached and name.startswith("--") and name in _ALIKE):
            continue
        if argument not in _ALIKE or not left:
            return False
        left.pop()
    return True


def begin(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start asking the driver when `arguments` are surely a check of this host."""
    if checks_this_host(arguments, environment):
        from envlock import probe

        try:
            _begun.append(probe.begin())
        except Exception:
            return  # `host` begins again, where an error is reported


def host() -> "Host":
    """Return this machine as `envlock.probe.begin` gives it: the one of `begin`, once, or a new one."""
    from envlock import probe

    return _begun.pop() if _begun else probe.begin()
