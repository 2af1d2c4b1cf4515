"""Labels and texts in two columns: absences in words, long lines wrapped, nothing that drives a terminal.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import List, Mapping, Tuple

from envlock.facts import Observed
from envlock.registry import REGISTRY

LABEL_WIDTH = 25
_INDENT = "  "


def section(title: str, facts: Mapping[str, Observed], width: int) -> str:
    """Return a title and a row for each fact; neighbours that are absent for one reason share a row."""
    lines = wrap(title, width)
    for labels, text in _rows(facts):
        lines += row(labels, text, width)
    return "\n".join(lines)


def _rows(facts: Mapping[str, Observed]) -> List[Tuple[str, str]]:
    """Return label and text of each fact; neighbours that are absent for one reason share a row."""
    rows: List[Tuple[List[str], str, bool]] = []
    for key, seen in facts.items():
        label = label_of(key)
        text = words(key, seen)
        if rows and not seen.has_value and not rows[-1][2] and rows[-1][1] == text:
            rows[-1][0].append(label)
        else:
            rows.append(([label], text, seen.has_value))
    return [(", ".join(labels), text) for labels, text, _ in rows]


def row(labels: str, text: str, width: int, column: int = LABEL_WIDTH) -> List[str]:
    """Return a label and a text beside it, `column` characters apart; below it when the label is longer."""
    column += len(_INDENT)
    body = wrap(text, max(width - column, 20)) or [""]
    if len(_INDENT) + len(labels) < column:
        head = [(_INDENT + labels).ljust(column) + body[0]]
        return head + [" " * column + line for line in body[1:]]
    names = wrap(labels, width - 2 * len(_INDENT))
    indented = [_INDENT + names[0]] + [2 * _INDENT + line for line in names[1:]]
    return indented + [" " * (LABEL_WIDTH + len(_INDENT)) + line for line in wrap(text, width - LABEL_WIDTH - 2)]


def label_of(key: str) -> str:
    """Return the name of a fact for people; a fact that this envlock does not know is its key."""
    return REGISTRY[key].label if key in REGISTRY else key


def words(key: str, seen: Observed) -> str:
    """Return a value with its unit, or an absence with its reason."""
    if not seen.has_value:
        outcome = seen.outcome.replace("-", " ")
        if seen.detail.startswith(outcome):
            return printable(seen.detail)
        return printable("{}: {}".format(outcome, seen.detail) if seen.detail else outcome)
    unit = REGISTRY[key].unit if key in REGISTRY else ""
    text = "none" if seen.value == () else seen.text()
    if isinstance(seen.value, tuple) and any(" " in str(item) for item in seen.value):
        text = ", ".join(str(item) for item in seen.value)
    if unit == "mW" and isinstance(seen.value, int):
        text, unit = "{:g}".format(seen.value / 1000), "W"
    text = "{} {}".format(text, unit) if unit else text
    return printable("{} ({})".format(text, seen.detail) if seen.detail else text)


def wrap(text: str, width: int) -> List[str]:
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
