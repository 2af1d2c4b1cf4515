"""A view as Markdown, for a step summary or a comment: a heading, a table, what to do.

Everything that came from outside stands in code and as character references, which no
reader of Markdown takes for syntax: not a pipe, a backtick, a tag, a mention or a link.
Equal GPUs are one row. Bounded: a summary may hold one mebibyte.
"""

import re

from envlock.report.view import Item, Level, View, alike, devices

MOST_ROWS = 200
MOST_LETTERS = 400
"""Rows of one table, and letters of one cell, that are shown; the JSON form holds all."""

# An underscore inside a word, and a colon that begins no address, are no syntax.
_UNSAFE = re.compile(r"(?<![^\W_])_|_(?![^\W_])|://|www\.|[^\w ,.:;/%=()→…-]")

_MARKS = {Level.ERROR: "❌", Level.UNKNOWN: "❔", Level.WARNING: "⚠️", Level.NOTE: "⏸️"}
_VERDICTS = {"match": "✅", "drift": "❌", "unknown": "❔"}


def render(view: View) -> str:
    """Return the summary; it ends with the counts."""
    lines = [f"### {_VERDICTS[view.verdict]} envlock {_plain(view.command)}: {view.verdict}", "", _prose(view.headline)]
    if view.path:
        lines += ["", f"Lockfile: {_code(view.path)}"]
    if view.failed:
        # The headline says what happened: there is no fact to put into a table.
        lines += ["", *(f"fix: {_prose(item.fix)}" for item in view.items if item.fix)]
    else:
        lines += _table("what differs", alike(view.items))
        lines += _advice(alike(view.items))
    lines += _table("excused by the policy", alike(view.excused))
    lines += ["", _prose(view.summary)]
    lines += ["", *(f"- note: {_prose(note)}" for note in view.notes)] if view.notes else []
    return "\n".join(lines) + "\n"


def _table(title: str, groups: list[list[Item]]) -> list[str]:
    if not groups:
        return []
    lines = ["", f"| | {title} | where | locked → found | because |", "|--|--|--|--|--|"]
    for group in groups[:MOST_ROWS]:
        item = group[0]
        where = devices(group).removeprefix(" on ")
        cells = (
            f"{_MARKS[item.level]} {_plain(item.kind)}",
            _code(item.key),
            _code(where) if where else "",
            _code(item.said),
            _code(item.because) if item.because and item.because != item.said else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    if len(groups) > MOST_ROWS:
        lines += ["", f"and {len(groups) - MOST_ROWS} more: `--format json` holds all"]
    return lines


def _advice(groups: list[list[Item]]) -> list[str]:
    lines: list[str] = []
    for group in groups[:MOST_ROWS]:
        item = group[0]
        commands = dict.fromkeys(each.command for each in group if each.command)
        told = [f"{word}: {_prose(text)}" for word, text in (("why", item.why), ("fix", item.fix)) if text]
        told += [f"run: {_code(command)}" for command in commands]
        if told:
            lines += ["", f"- {_code(item.key)}", *(f"  - {text}" for text in told)]
    return lines


def _plain(text: str) -> str:
    """Return `text` with everything but letters, digits and harmless signs as character references."""
    cut = text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"
    return _UNSAFE.sub(lambda found: "".join(f"&#{ord(letter)};" for letter in found.group()), cut)


def _code(text: str) -> str:
    return f"<code>{_plain(text)}</code>"


def _prose(text: str) -> str:
    """Return words of ours, in which backticks mean code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _plain(text)
    return "".join(_code(part) if index % 2 else _plain(part) for index, part in enumerate(parts))
