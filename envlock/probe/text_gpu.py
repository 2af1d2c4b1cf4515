"""GPUs as text for people: what equal GPUs share once, then where they differ.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Tuple

from envlock.facts import Device, Observed
from envlock.probe.text_rows import label_of, printable, row, words, wrap
from envlock.registry import GPU, REGISTRY
from envlock.registry.entry import IDENTITY

# What tells one GPU from its neighbour, and nothing about what it is.
_IDENTITY_OF_ONE = frozenset(
    key for key, entry in REGISTRY.items() if entry.scope == GPU and entry.group == IDENTITY and not entry.locked
)
_LISTED = ("gpu.index", "gpu.uuid", "gpu.serial")  # beside each GPU's place, as far as there is room
_LABEL_WIDTH = 36
_MANY = 20  # more absences for one reason than this are "all other facts"


def sections(gpus: Sequence[Device], width: int) -> List[str]:
    """Return one section for each model; GPUs whose model is not known are one of their own."""
    models: Dict[Observed | None, List[Device]] = {}
    for gpu in gpus:
        models.setdefault(gpu.facts.get("gpu.name"), []).append(gpu)
    return ["\n".join(_model(members, width)) for members in models.values()]


def _model(members: Sequence[Device], width: int) -> List[str]:
    if len(members) == 1:
        return [_title(members), *_rows(members[0].facts, width)]
    names = ["place", *(label_of(key) for key in _LISTED if any(_told(gpu, key) for gpu in members))]
    lines = ["{} GPUs ({})".format(len(members), ", ".join(names)), *(_member(gpu, width) for gpu in members)]
    common = {
        key: seen
        for key, seen in members[0].facts.items()
        if key not in _IDENTITY_OF_ONE and all(gpu.facts.get(key) == seen for gpu in members[1:])
    }
    lines += _rows(common, width)
    for group in _equal(members, common):
        own = {key: seen for key, seen in group[0].facts.items() if key not in common and key not in _IDENTITY_OF_ONE}
        if own:
            title = "{}, where {}".format(_title(group), "it differs" if len(group) == 1 else "they differ")
            lines += ["", *wrap(title, width), *_rows(own, width)]
    return lines


def _equal(members: Sequence[Device], common: Mapping[str, Observed]) -> List[List[Device]]:
    """Return the GPUs in groups that differ in nothing but what names the single one."""
    groups: Dict[Tuple[Tuple[str, Observed], ...], List[Device]] = {}
    for gpu in members:
        own = tuple((key, seen) for key, seen in gpu.facts.items() if key not in common and key not in _IDENTITY_OF_ONE)
        groups.setdefault(own, []).append(gpu)
    return list(groups.values())


def _title(members: Sequence[Device]) -> str:
    places = " ".join(printable(member.ident) for member in members)
    return "{} GPU{} at {}".format(len(members), "s" if len(members) > 1 else "", places)


def _member(gpu: Device, width: int) -> str:
    """Return one line that names a GPU: its place, then what else names it."""
    line = "  " + printable(gpu.ident)
    for key in _LISTED:
        text = _told(gpu, key)
        if text and len(line) + 2 + len(text) <= width:
            line += "  " + text
    return line


def _told(gpu: Device, key: str) -> str:
    seen = gpu.facts.get(key)
    return printable(seen.text()) if seen is not None and seen.has_value else ""


def _rows(facts: Mapping[str, Observed], width: int) -> List[str]:
    """Return a row for each value, then one for each reason why values are absent."""
    lines: List[str] = []
    absences: Dict[str, List[str]] = {}
    for key, seen in facts.items():
        if seen.has_value:
            lines += row(label_of(key), words(key, seen), width, _LABEL_WIDTH)
        else:
            absences.setdefault(words(key, seen), []).append(label_of(key))
    for reason, labels in sorted(absences.items(), key=lambda item: len(item[1])):
        names = "all other facts" if len(labels) > _MANY else ", ".join(labels)
        lines += row(names, reason, width, _LABEL_WIDTH)
    return lines
