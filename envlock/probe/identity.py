"""Facts without what names one machine or part: for a report that leaves the house.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Sequence, Set

from envlock.errors import EnvlockError
from envlock.facts import Device, Facts, Observed
from envlock.registry import REGISTRY

_GONE = "(left out)"
_UUID = re.compile(r"\b(?:(?:GPU|MIG)-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b(?:/\d+/\d+)?")
_SHORTEST = 4  # a shorter name is a number that stands in other words, too
# What may name a part although no fact holds it: a serial number or a device identifier, and
# a line of a list, quoted whole because it was not understood.
_NUMBER = re.compile(r"\b(?:[0-9]{10,}|0[xX][0-9a-fA-F]{16})\b")
_ROW = re.compile(r"`[^`]*, [^`]*`")
# A remark about such a fact, in envlock's words or in those of a tool: `serial number: NVML says ...`.
_LABELS = ("serial", "pdi", *(re.escape(entry.label) for entry in REGISTRY.values() if entry.unique))
_TOLD = re.compile(r"(\b(?:{})\s*:\s*).*".format("|".join(_LABELS)), re.DOTALL | re.IGNORECASE)


def observed_without_identity(read: Callable[[], Facts]) -> Facts:
    """Return what `read` returns `without_identity`; the error that it raises names no part either."""
    try:
        return without_identity(read())
    except EnvlockError as error:
        error.message = _cleaned(error.message, ())
        raise


def without_identity(facts: Facts) -> Facts:
    """Return `facts` without those that name one part, and without their values in what is said beside."""
    names = sorted(_names(facts), key=len, reverse=True)

    def clean(text: str) -> str:
        return _cleaned(text, names)

    def kept(found: Dict[str, Observed]) -> Dict[str, Observed]:
        return {
            key: Observed(seen.outcome, seen.value, seen.source, clean(seen.detail))
            for key, seen in found.items()
            if not (key in REGISTRY and REGISTRY[key].unique)
        }

    return Facts(
        kept(facts.host),
        [Device(item.kind, item.ident, kept(item.facts)) for item in facts.devices],
        [clean(note) for note in facts.notes],
        facts.only,
    )


def _cleaned(text: str, names: Sequence[str]) -> str:
    text = _TOLD.sub(r"\g<1>" + _GONE, text)
    for name in names:
        text = text.replace(name, _GONE)
    for pattern in (_ROW, _UUID, _NUMBER):
        text = pattern.sub(_GONE, text)
    return text


def _names(facts: Facts) -> Set[str]:
    held = [facts.host, *(device.facts for device in facts.devices)]
    return {
        seen.text()
        for found in held
        for key, seen in found.items()
        if key in REGISTRY and REGISTRY[key].unique and seen.has_value and len(seen.text()) >= _SHORTEST
    }
