"""A comparison as text for a person: the verdict first, then each drift, then the counts."""

import dataclasses
from collections.abc import Iterable, Iterator

from envlock.drift import Comparison, Drift, Kind, Verdict
from envlock.report.words import (
    INDENT,
    LABEL_WIDTH,
    VERDICT_COLORS,
    change,
    counted,
    folded,
    listed,
    on_devices,
    paint,
    shown,
    with_head,
)

MANY = 4
"""So many facts that are unknown for one reason are one entry."""

_CHECKED = {
    Verdict.MATCH: "{subject} is as `{name}` was locked",
    Verdict.DRIFT: "{subject} is not as `{name}` was locked",
    Verdict.UNKNOWN: "could not tell whether {subject} is as `{name}` was locked",
}


def check_text(comparison: Comparison, subject: str, name: str, where: str, colored: bool) -> str:
    """Return what `check` found: `subject` against the environment `name` locked in the file `where`."""
    verdict = comparison.verdict
    said = check_headline(comparison, subject, name)
    lines = [f"{paint(verdict, VERDICT_COLORS[verdict], colored)}: {said} ({shown(where)})"]
    if comparison.drifts:
        lines.append("")
    for groups in _of_one_cause(_alike(comparison.drifts)):
        lines.extend(_mute_lines(groups, colored) if len(groups) > 1 else _drift_lines(groups[0], colored))
    lines += ["", check_counts(comparison)]
    for group in _alike(comparison.allowed):
        drift = group[0]
        because = f": {shown(drift.because)}" if drift.because else ""
        lines.append(f"  not known, allowed by name: {shown(drift.key)}{_places(group)}{because}")
    for group in _alike(comparison.waived):
        lines.extend(_waived_lines(group))
    lines += [f"  note: {shown(note)}" for note in comparison.notes]
    return "\n".join(lines) + "\n"


def check_headline(comparison: Comparison, subject: str, name: str) -> str:
    """Return the verdict in words."""
    return _CHECKED[comparison.verdict].format(subject=shown(subject), name=shown(name))


def _alike(drifts: Iterable[Drift]) -> list[list[Drift]]:
    """Return drifts in groups that are one but for the device: eight GPUs with another driver are one line."""
    return folded(drifts, lambda drift: dataclasses.replace(drift, device="", command=""))


def _of_one_cause(groups: list[list[Drift]]) -> Iterator[list[list[Drift]]]:
    """Yield each group alone; but facts that one GPU, or several, did not tell for one reason together.

    A GPU that is lost is one thing to know, not fifty.
    """

    def cause(group: list[Drift]) -> object:
        drift, places = group[0], tuple(each.device for each in group)
        if drift.kind is not Kind.UNANSWERED or not drift.because or not any(places) or drift.fix or drift.command:
            return drift.key, drift.expected, drift.observed, drift.because, drift.kind, places
        return drift.severity, drift.because, places

    for held in folded(groups, cause):
        if len(held) >= MANY:
            yield held
        else:
            yield from ([group] for group in held)


def _mute_lines(groups: list[list[Drift]], colored: bool) -> Iterator[str]:
    drift = groups[0][0]
    label, color = _label(drift)
    keys = ", ".join(dict.fromkeys(shown(group[0].key) for group in groups))
    told = f"{len(groups)} facts{_places(groups[0])}: {keys}"
    yield f"  {paint(label.ljust(LABEL_WIDTH), color, colored)} {told}"
    yield f"{INDENT}because: {shown(drift.because)}"


def _places(group: list[Drift]) -> str:
    return on_devices([shown(drift.device) for drift in group if drift.device])


def _drift_lines(group: list[Drift], colored: bool) -> Iterator[str]:
    drift = group[0]
    label, color = _label(drift)
    head = f"  {paint(label.ljust(LABEL_WIDTH), color, colored)} {shown(drift.key)}{_places(group)}"
    yield from with_head(head, change(drift.expected, drift.observed))
    for word, text in (("because", drift.because), ("why", drift.why), ("fix", drift.fix)):
        if text:
            yield f"{INDENT}{word}: {shown(text)}"
    for command in dict.fromkeys(each.command for each in group if each.command):
        yield f"{INDENT}run: {paint(shown(command), 'bold', colored)}"


def _waived_lines(group: list[Drift]) -> Iterator[str]:
    drift = group[0]
    until = f" until {shown(drift.until)}" if drift.until else ""
    head = f"  waived{until}: {shown(drift.key)}{_places(group)}"
    yield from with_head(head, change(drift.expected, drift.observed))
    if drift.because:
        yield f"{INDENT}reason: {shown(drift.because)}"


def _label(drift: Drift) -> tuple[str, str]:
    if drift.severity == "warning":
        return "warning", "yellow"
    if drift.kind is Kind.UNANSWERED:
        return "unknown", "yellow"
    return "reset" if drift.reset and drift.kind is Kind.CHANGED else drift.kind.value, "red"


def check_counts(comparison: Comparison) -> str:
    """Return how much was looked at and what it came to, in one line."""
    errors = [drift for drift in comparison.drifts if drift.severity == "error"]
    unknown = sum(1 for drift in errors if drift.kind is Kind.UNANSWERED)
    differ = len(errors) - unknown
    warnings = len(comparison.drifts) - len(errors)
    return listed(
        (
            f"{comparison.checked} checked",
            f"{counted(differ, 'difference')}" if differ else "no difference",
            f"{unknown} unknown" if unknown else "",
            counted(warnings, "warning") if warnings else "",
            f"{len(comparison.allowed)} unknown and allowed by name" if comparison.allowed else "",
            f"{len(comparison.waived)} waived" if comparison.waived else "",
            f"{comparison.ignored} ignored by rule" if comparison.ignored else "",
        )
    )
