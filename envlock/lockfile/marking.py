"""A merge that a person has to finish, as text: conflict markers around the entries in question, and no others.

Pure. The two texts are one lockfile settled either way, so they differ where the
conflicts are. Whole `[[…]]` blocks are kept whole: half of one package's block with half
of another's is no package.
"""

import difflib
import re
from collections.abc import Iterator

from envlock.lockfile.merging import Merged
from envlock.lockfile.writing import render

OURS, BETWEEN, THEIRS = "<<<<<<< ours", "=======", ">>>>>>> theirs"
"""Seven characters each: what Git writes, and what every reader of a lockfile refuses."""

_INPUTS = re.compile(r'^inputs = "[^"]*"$', re.MULTILINE)


def text_of(merged: Merged) -> str:
    """Return the text of a merge: the lockfile, or with its conflicts marked.

    With conflicts `inputs` is that of our side; whatever a person takes, `envlock lock` counts it anew.
    """
    ours = render(merged.ours)
    if not merged.conflicts:
        return ours
    return marked(ours, _INPUTS.sub(f'inputs = "{merged.ours.inputs()}"', render(merged.theirs), count=1))


def marked(ours: str, theirs: str) -> str:
    """Return one text of two, with conflict markers around what differs."""
    left, right = list(_units(ours)), list(_units(theirs))
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, _told_apart(left), _told_apart(right), autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            lines += left[a:b]
        else:
            lines += [OURS, *left[a:b], BETWEEN, *right[c:d], THEIRS]
    return "\n".join(lines) + "\n"


def _told_apart(units: list[str]) -> list[str]:
    """Return `units` with each blank line told apart by the entry that follows it.

    Thousands of blank lines that all equal each other would each be held against all others.
    """
    following = [*units[1:], ""]
    return [unit or "\n" + "\n".join(after.split("\n", 2)[:2]) for unit, after in zip(units, following, strict=True)]


def _units(text: str) -> Iterator[str]:
    """Yield the lines of `text`, but each `[[block]]` with the tables inside it in one piece."""
    block: list[str] = []
    name = ""
    for line in text.removesuffix("\n").split("\n"):
        header = re.match(r"\[+([^\]\s]*)", line)
        if block and header is not None and (line.startswith("[[") or not line.startswith(f"[{name}.")):
            yield from _closed(block)
            block = []
        if header is not None and line.startswith("[["):
            name = header[1]
            block = [line]
        elif block:
            block.append(line)
        else:
            yield line
    yield from _closed(block)


def _closed(block: list[str]) -> Iterator[str]:
    """Yield a block without the blank lines at its end, then those: the last block of the file has none."""
    end = len(block)
    while end and not block[end - 1]:
        end -= 1
    if end:
        yield "\n".join(block[:end])
    yield from block[end:]
