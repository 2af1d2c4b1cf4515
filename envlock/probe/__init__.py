"""Observing a host: every registered fact, each with a value or the reason why not.

`probe` never raises for what a host is or lacks. What a fact means is
`envlock.registry`; whether it is the right one is `envlock.drift`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, Tuple

from envlock.errors import UsageError
from envlock.facts import FAILED, Device, Facts, Observed, absent
from envlock.probe import cpu, engine, frequency, limits, nvidia, python, system, topology
from envlock.probe.host import Host, LiveHost
from envlock.registry import GPU, HOST, REGISTRY, in_scope

_READERS: Tuple[Tuple[str, Tuple[str, ...], Callable[[Host], Dict[str, Observed]]], ...] = (
    ("cpu", ("cpu.",), cpu.read),
    ("topology", ("cpu.",), topology.read),
    ("frequency", ("cpu.",), frequency.read),
    ("limits", ("cpu.", "container."), limits.read),
    ("system", ("system.",), system.read),
    ("engine", ("container.",), engine.read),
    ("python", ("python.",), python.read),
)
_DRIVER_PREFIXES = ("nvidia.", "gpu.")


def probe(root: str | os.PathLike[str] = "/", host: Host | None = None, only: str = "") -> Facts:
    """Return the facts of the host whose file tree is at `root`; `/` is this machine.

    A tree elsewhere is a recorded host: what is not a file was not recorded, and fails.
    `host` replaces both, with its own calls. `only` keeps the facts whose keys start with
    it, and reads nothing else; `UsageError` when no fact does.
    """
    if not any(key.startswith(only) for key in REGISTRY):
        raise UsageError(
            "no fact starts with {!r}".format(only),
            hint="facts start with {}".format(", ".join(sorted({key.partition(".")[0] + "." for key in REGISTRY}))),
        )
    source = host or (LiveHost() if os.fspath(root) == "/" else Host(root))
    found: Dict[str, Observed] = {}
    faults: Dict[str, str] = {}
    devices: Tuple[Device, ...] = ()
    for name, prefixes, read in _READERS:
        if _wanted(prefixes, only):
            try:
                found.update(read(source))
            except Exception as error:  # the last net: a fact that could not be read is a fact
                faults.update(dict.fromkeys(prefixes, "{}: {}: {}".format(name, type(error).__name__, error)))
    if _wanted(_DRIVER_PREFIXES, only):
        try:
            said, devices = nvidia.read(source)
            found.update(said)
        except Exception as error:
            faults.update(dict.fromkeys(_DRIVER_PREFIXES, "{}: {}".format(type(error).__name__, error)))
    return Facts(
        _complete(found, HOST, only, faults),
        [Device(item.kind, item.ident, _complete(item.facts, GPU, only, faults)) for item in devices],
    )


def _wanted(prefixes: Tuple[str, ...], only: str) -> bool:
    return any(prefix.startswith(only) or only.startswith(prefix) for prefix in prefixes)


def _complete(found: Dict[str, Observed], scope: str, only: str, faults: Dict[str, str]) -> Dict[str, Observed]:
    """Return one observation for every registered fact of `scope`, in registry order."""
    complete = {}
    for entry in in_scope(scope):
        if entry.key.startswith(only):
            prefix = entry.key.partition(".")[0] + "."
            why = "the probe did not report it; {}".format(faults.get(prefix, "this is a fault of envlock"))
            complete[entry.key] = found.get(entry.key) or absent(FAILED, "envlock", why)
    return complete
