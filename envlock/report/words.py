"""How results are put in words: colours, values that are safe to show, counts.

What is shown may come from a file that a stranger wrote: nothing of it reaches a
terminal as a control character.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")

LONG = 60
"""A value longer than this many letters is shown on a line of its own."""

LABEL_WIDTH = 10
INDENT = " " * (LABEL_WIDTH + 3)
"""Where a drift's text begins, after its label."""

_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1"}
VERDICT_COLORS = {"match": "green", "drift": "red", "unknown": "yellow"}


def paint(text: str, color: str, colored: bool) -> str:
    """Return `text` in `color` when `colored`."""
    return f"\x1b[{_CODES[color]}m{text}\x1b[0m" if colored else text


def shown(text: str) -> str:
    """Return `text` with every control character written as an escape."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def counted(number: int, one: str, many: str = "") -> str:
    """Return `1 fact`, `2 facts`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(parts: Iterable[str]) -> str:
    """Return the parts that say something, separated by commas."""
    return ", ".join(part for part in parts if part)


def on_devices(names: list[str]) -> str:
    """Return ` on DEVICE` or ` on N devices (…)`; empty for the host itself."""
    if len(names) <= 1:
        return "".join(f" on {name}" for name in names)
    return f" on {len(names)} devices ({', '.join(names)})"


def folded(items: Iterable[T], identity: Callable[[T], Hashable]) -> list[list[T]]:
    """Return the items in groups of equal `identity`, in the order in which each came first."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(identity(item), []).append(item)
    return list(groups.values())


def change(before: str, after: str, names: tuple[str, str] = ("expected", "observed")) -> list[str]:
    """Return `before → after` as one line where it fits, else as two with `names`.

    Long lists, such as CPU flags, show what only one side holds: what they share would
    drown the difference.
    """
    before, after = shown(before) or "(nothing)", shown(after) or "(nothing)"
    if len(before) + len(after) <= LONG * 2:
        return [f"{before} → {after}"]
    old, new = before.split(), after.split()
    if len(old) > 3 and len(new) > 3:
        gone = [word for word in old if word not in set(new)]
        come = [word for word in new if word not in set(old)]
        if gone or come:
            return [f"only {names[0]}: {' '.join(gone) or '-'}", f"only {names[1]}: {' '.join(come) or '-'}"]
    return [f"{names[0]}: {before}", f"{names[1]}: {after}"]


def with_head(head: str, lines: list[str]) -> list[str]:
    """Return a single line behind `head`, several below it."""
    if len(lines) == 1:
        return [f"{head}: {lines[0]}" if lines[0] else head]
    return [head, *(INDENT + line for line in lines)]
