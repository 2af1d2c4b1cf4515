"""Facts as text for people: grouped, aligned, absences in words, 80 columns.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Tuple

from envlock.facts import Device, Facts, Observed
from envlock.registry import REGISTRY

_TITLES = {
    "cpu": "CPU",
    "system": "System",
    "container": "Containers",
    "python": "Python (that ran this probe)",
    "nvidia": "NVIDIA",
    "gpu": "GPU",
}
_LABEL_WIDTH = 25
_IDENTITY_OF_ONE = ("gpu.uuid",)


def render(facts: Facts, width: int = 80) -> str:
    """Return the facts as text: one line that sums up, then one section for each kind of fact."""
    sections: List[str] = []
    summary = _summary(facts)
    if summary:
        sections.append("\n".join(_wrap(summary, width)))
    by_kind: Dict[str, Dict[str, Observed]] = {}
    for key, seen in facts.host.items():
        by_kind.setdefault(key.partition(".")[0], {})[key] = seen
    for kind, found in by_kind.items():
        sections.append(_section(_TITLES.get(kind, kind), found, width))
    sections += [_section(title, shared, width) for title, shared in _groups(facts.gpus())]
    return "\n\n".join(sections) + "\n"


def _summary(facts: Facts) -> str:
    parts = []
    for key in ("cpu.model_name", "cpu.isa_level", "cpu.threads", "system.distribution", "nvidia.gpu_count"):
        seen = facts.host.get(key)
        if seen is None:
            continue
        if key == "nvidia.gpu_count":
            parts.append(_gpu_words(facts, seen))
        elif seen.has_value:
            version = facts.host.get("system.distribution_version")
            text = printable(seen.text())
            if key == "cpu.threads":
                text += " threads"
            elif key == "system.distribution" and version is not None and version.has_value:
                text += " " + printable(version.text())
            parts.append(text)
    return ", ".join(parts)


def _gpu_words(facts: Facts, count: Observed) -> str:
    if not count.has_value:
        return "NVIDIA GPUs: could not tell"
    if count.value == 0:
        return "no NVIDIA GPU"
    names: Dict[str, int] = {}
    for gpu in facts.gpus():
        name = printable(gpu.facts["gpu.name"].text()) if "gpu.name" in gpu.facts else "GPU"
        names[name] = names.get(name, 0) + 1
    return " + ".join("{} x {}".format(number, name) for name, number in names.items())


def _groups(gpus: Tuple[Device, ...]) -> List[Tuple[str, Mapping[str, Observed]]]:
    """Return GPUs that differ in nothing but what names the single one under one title."""
    groups: Dict[Tuple[Tuple[str, Observed], ...], List[Device]] = {}
    for gpu in gpus:
        key = tuple((name, seen) for name, seen in gpu.facts.items() if name not in _IDENTITY_OF_ONE)
        groups.setdefault(key, []).append(gpu)
    found: List[Tuple[str, Mapping[str, Observed]]] = []
    for members in groups.values():
        facts = dict(members[0].facts)
        if len(members) > 1:
            for name in _IDENTITY_OF_ONE:
                facts.pop(name, None)
        places = " ".join(printable(member.ident) for member in members)
        found.append(("{} GPU{} at {}".format(len(members), "s" if len(members) > 1 else "", places), facts))
    return found


def _section(title: str, facts: Mapping[str, Observed], width: int) -> str:
    lines = _wrap(title, width)
    for labels, text in _rows(facts):
        lines += _row(labels, text, width)
    return "\n".join(lines)


def _rows(facts: Mapping[str, Observed]) -> List[Tuple[str, str]]:
    """Return label and text of each fact; neighbours that are absent for one reason share a row."""
    rows: List[Tuple[List[str], str, bool]] = []
    for key, seen in facts.items():
        label = REGISTRY[key].label if key in REGISTRY else key
        text = _words(key, seen)
        if rows and not seen.has_value and not rows[-1][2] and rows[-1][1] == text:
            rows[-1][0].append(label)
        else:
            rows.append(([label], text, seen.has_value))
    return [(", ".join(labels), text) for labels, text, _ in rows]


def _row(labels: str, text: str, width: int) -> List[str]:
    indent = "  "
    column = len(indent) + _LABEL_WIDTH
    body = _wrap(text, max(width - column, 20)) or [""]
    if len(labels) < _LABEL_WIDTH:
        head = [indent + labels.ljust(_LABEL_WIDTH) + body[0]]
        return head + [" " * column + line for line in body[1:]]
    names = _wrap(labels, width - len(indent) - 2)
    return [indent + names[0]] + [indent + "  " + line for line in names[1:]] + [" " * column + line for line in body]


def _words(key: str, seen: Observed) -> str:
    if not seen.has_value:
        outcome = seen.outcome.replace("-", " ")
        return printable("{}: {}".format(outcome, seen.detail) if seen.detail else outcome)
    unit = REGISTRY[key].unit if key in REGISTRY else ""
    text = "none" if seen.value == () else seen.text()
    if unit == "mW" and isinstance(seen.value, int):
        text, unit = "{:g}".format(seen.value / 1000), "W"
    text = "{} {}".format(text, unit) if unit else text
    return printable("{} ({})".format(text, seen.detail) if seen.detail else text)


def _wrap(text: str, width: int) -> List[str]:
    """Return `text` in lines of at most `width`, broken at blanks; a longer word stays whole.

    The module `textwrap` does more, and takes longer to import than the probe to read a host.
    """
    lines: List[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def printable(text: str) -> str:
    """Return `text` with control characters escaped: what a host says must not drive a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
