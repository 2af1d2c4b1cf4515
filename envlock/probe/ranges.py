"""Lists of CPUs as the kernel writes them: `0-3,8`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Iterable


def parse(text: str) -> tuple[int, ...]:
    """Return the numbers in a list such as `0-3,8`; `ValueError` when it is not one."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        if not part:
            continue
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def text(numbers: Iterable[int]) -> str:
    """Return the shortest list that names `numbers`."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    start = 0
    for index, number in enumerate(ordered):
        if index + 1 < len(ordered) and ordered[index + 1] == number + 1:
            continue
        first = ordered[start]
        parts.append(str(first) if first == number else "{}-{}".format(first, number))
        start = index + 1
    return ",".join(parts)
