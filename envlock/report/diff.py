"""What `diff` found, as text for a person, as a JSON document, and as a view for the other formats.

Apart from the reports of a comparison: `check` starts faster without it.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from envlock.difference import Change, Difference, Differences
from envlock.drift import Verdict
from envlock.report.view import Item, Level, View, line_of
from envlock.report.words import (
    INDENT,
    LABEL_WIDTH,
    VERDICT_COLORS,
    change,
    folded,
    listed,
    on_devices,
    paint,
    shown,
    with_head,
)

DIFF_SCHEMA = "envlock.diff-result/1"

_DIFFED = {
    Verdict.MATCH: "{before} and {after} are the same",
    Verdict.DRIFT: "{before} and {after} differ",
    Verdict.UNKNOWN: "could not tell whether {before} and {after} are the same",
}


_CHANGE_COLORS = {Change.ADDED: "green", Change.REMOVED: "red", Change.UNKNOWN: "yellow"}


def diff_text(differences: Differences, before: str, after: str, compared: str, colored: bool) -> str:
    """Return what `diff` found between two files; `compared` says which parts were held side by side."""
    verdict = differences.verdict
    said = _DIFFED[verdict].format(before=shown(before), after=shown(after))
    lines = [f"{paint(verdict, VERDICT_COLORS[verdict], colored)}: {said}"]
    section = ""
    for group in _alike(differences.found):
        if group[0].section != section:
            section = group[0].section
            lines += ["", paint(section, "bold", colored)]
        lines.extend(_difference_lines(group, colored))
    if differences.waived:
        lines += ["", paint("waived", "bold", colored)]
    for group in _alike(differences.waived):
        lines.extend(_difference_lines(group, colored))
    lines += ["", f"compared: {compared}; {_counts(differences)}"]
    return "\n".join(lines) + "\n"


def _counts(differences: Differences) -> str:
    counts = [
        f"{differences.count(change)} {change.value.replace('-', ' ')}"
        for change in Change
        if differences.count(change)
    ]
    allowed = f"{len(differences.allowed)} unknown and allowed by name" if differences.allowed else ""
    waived = f"{len(differences.waived)} waived" if differences.waived else ""
    return listed([*counts, allowed, waived]) or "no difference"


def _alike(found: tuple[Difference, ...]) -> list[list[Difference]]:
    """Return differences in groups that are one but for the device, as `check` tells eight equal GPUs once."""
    return folded(found, lambda each: (dataclasses.replace(each, device=""), bool(each.device)))


def _difference_lines(group: list[Difference], colored: bool) -> Iterator[str]:
    difference = group[0]
    label = difference.change.value.replace("-", " ").ljust(LABEL_WIDTH)
    place = on_devices([shown(each.device) for each in group if each.device])
    if len(group) > 1 and not difference.device:
        place = f", {len(group)} times"
    head = f"  {paint(label, _CHANGE_COLORS.get(difference.change, 'cyan'), colored)} {shown(difference.key)}{place}"
    if difference.change is Change.ADDED:
        values = [shown(difference.after)]
    elif difference.change is Change.REMOVED:
        values = [shown(difference.before)]
    else:
        values = change(difference.before, difference.after, ("A", "B"))
    yield from with_head(head, values)
    if difference.because:
        yield f"{INDENT}because: {shown(difference.because)}"


def diff_document(differences: Differences, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return what `diff` found (`docs/schema/diff-result.schema.json`).

    `before` and `after` name the two sides: `path` and `kind` (`lockfile` or `facts`).
    """
    return {
        "schema": DIFF_SCHEMA,
        "verdict": differences.verdict.value,
        "exit-code": differences.verdict.exit_code,
        "before": before,
        "after": after,
        "counts": {
            **{change.value: differences.count(change) for change in Change},
            "allowed": len(differences.allowed),
            "waived": len(differences.waived),
        },
        "differences": [_difference(item) for item in differences.found],
        "allowed": [_difference(item) for item in differences.allowed],
        "waived": [_difference(item) for item in differences.waived],
    }


def diff_view(
    differences: Differences,
    names: tuple[str, str],
    compared: str,
    path: str,
    lines: Mapping[str, tuple[tuple[int, str], ...]],
) -> View:
    """Return the view of what `diff` found between two files; the items point into the lockfile at `path`."""
    verdict = differences.verdict
    return View(
        command="diff",
        verdict=verdict.value,
        exit_code=verdict.exit_code,
        headline=_DIFFED[verdict].format(before=shown(names[0]), after=shown(names[1])),
        summary=f"compared: {compared}; {_counts(differences)}",
        path=shown(path),
        items=tuple(_item(difference, lines) for difference in differences.found),
        excused=tuple(
            dataclasses.replace(_item(difference, lines), level=Level.NOTE, kind=kind)
            for kind, held in (("allowed", differences.allowed), ("waived", differences.waived))
            for difference in held
        ),
        counts=(
            *((change.value, differences.count(change)) for change in Change),
            ("allowed", len(differences.allowed)),
            ("waived", len(differences.waived)),
        ),
    )


def _item(difference: Difference, lines: Mapping[str, tuple[tuple[int, str], ...]]) -> Item:
    host = difference.section == "host"
    key = difference.key if host else f"{difference.section}.{difference.key}"
    return Item(
        level=Level.UNKNOWN if difference.change is Change.UNKNOWN else Level.ERROR,
        kind=difference.change.value,
        key=shown(key),
        device=shown(difference.device),
        said="; ".join(change(difference.before, difference.after, ("A", "B"))),
        expected=shown(difference.before),
        observed=shown(difference.after),
        because=shown(difference.because),
        line=line_of(lines, key, difference.before),
    )


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "section": difference.section,
        "key": difference.key,
        "device": difference.device or None,
        "change": difference.change.value,
        "before": difference.before or None,
        "after": difference.after or None,
        "because": difference.because or None,
    }
