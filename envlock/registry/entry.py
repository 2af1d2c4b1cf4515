"""What the registry says about one fact.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from envlock.facts import Value

HOST = "host"
GPU = "gpu"
SCOPES = (HOST, GPU)

STRING = "string"
INTEGER = "integer"
BOOLEAN = "boolean"
STRINGS = "strings"
TYPES = (STRING, INTEGER, BOOLEAN, STRINGS)

BITS = "bits"
SPEED = "speed"
IDENTITY = "identity"
INFORMATION = "information"
GROUPS = {
    BITS: "can change the bits of a result",
    SPEED: "changes how fast, not what",
    IDENTITY: "says which machine or part this is",
    INFORMATION: "helps a person to understand the rest",
}


class Entry(NamedTuple):
    """One fact as the registry knows it.

    `type` is one of `TYPES`. With `each`, the fact is one value when all CPUs agree and
    the sorted tuple of the distinct values when they do not. `unit` is empty for plain
    text and counts. `locked` says whether the fact belongs in a lockfile; `rule` and
    `severity` (`error` or `warning`) are its default policy. `remedy` puts it right.
    `label` is its name for people. `default` is the key of the fact that holds what this
    setting falls back to on a reboot or driver update. `unique` facts name one machine or
    part: they are never compared, and can be left out of a document.

    `default_value` is what a setting falls back to where that is the same everywhere.
    `volatile` settings last as long as the driver holds the GPU: with persistence off,
    until the last user leaves (https://docs.nvidia.com/deploy/driver-persistence/).

    `command` sets the locked value. `{gpu}` stands for the GPU's PCI bus id, `{value}` for
    the locked value, `{other.key}` for that of another fact; `{value:bit}` writes it as 1
    or 0, `{value:W}` mW in watts, `{value:upper}` in capitals with `_` for blanks,
    `{value:profiles}` MIG instances as `PROFILE:START,…`.

    `identity` is the severity under the policy profile `identity`, which ignores what has none.
    """

    key: str
    label: str
    type: str
    why: str
    source: str
    group: str = INFORMATION
    scope: str = HOST
    unit: str = ""
    locked: bool = False
    rule: str = "ignore"
    severity: str = "warning"
    remedy: str = ""
    each: bool = False
    default: str = ""
    unique: bool = False
    default_value: Optional[Value] = None
    volatile: bool = False
    command: str = ""
    identity: str = ""
