"""One view of a result in the middle: what is said, never how.

`check`, `diff` and every error become a `View`; each format (`envlock.report.formats`)
renders one. A result may hold what a stranger wrote: every text in a view is one line
of printable letters, so a format only escapes its own syntax. The text and JSON forms
are made from the comparison itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from envlock.drift import Comparison, Drift, Kind, Verdict
from envlock.errors import EXIT_INTEGRITY, EXIT_USAGE, EnvlockError
from envlock.report.text import check_counts, check_headline
from envlock.report.words import change, folded, listed, on_devices, shown

FAILURE = "envlock"
"""The key of the item that says why a command failed."""


class Level(StrEnum):
    """How much one item weighs; `NOTE` decides nothing: it is allowed, or waived."""

    ERROR = "error"
    UNKNOWN = "unknown"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One thing that is not simply the same.

    `kind` is the word for what happened (`changed`, `unknown`, `reset` to the default, `expired`,
    `allowed`, `waived`, or the name of an error), `said` what it was and is, in one line; `because` the reason of an
    absence, an allowance or a waiver. `line` is the place in the view's file, from 1.
    """

    level: Level
    kind: str
    key: str
    device: str = ""
    said: str
    expected: str = ""
    observed: str = ""
    because: str = ""
    why: str = ""
    fix: str = ""
    command: str = ""
    line: int = 1

    @property
    def message(self) -> str:
        """The item in one line; an unknown says that it is one. A failure has no fact to name."""
        if self.key == FAILURE:
            return f"could not tell: {self.said}"
        place = f" on {self.device}" if self.device else ""
        unsure = "could not tell: " if self.level is Level.UNKNOWN and self.said != self.because else ""
        because = f" ({self.because})" if self.because and self.because != self.said else ""
        return f"{unsure}{self.key}{place}: {self.said}{because}"


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A result, ready to render.

    `path` is the file that the items point into, as a reader of a repository names it;
    empty where there is none. `excused` holds what is allowed or waived, `same` the key
    and device of each fact that was judged the same, `counts` pairs of a word and a
    number, `notes` remarks that judge nothing. `failed`: nothing could be told, and the only item says why.
    """

    command: str
    verdict: str
    exit_code: int
    headline: str
    summary: str
    path: str
    environment: str = ""
    items: tuple[Item, ...] = ()
    excused: tuple[Item, ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    failed: bool = False

    def count(self, level: Level) -> int:
        return sum(1 for item in self.items if item.level is level)


def of_check(
    comparison: Comparison, subject: str, environment: str, path: str, lines: Mapping[str, tuple[tuple[int, str], ...]]
) -> View:
    """Return the view of what `check` found; `lines` says where the lockfile holds which key."""
    verdict = comparison.verdict
    drifts = comparison.drifts
    differ = sum(1 for drift in drifts if drift.severity == "error" and drift.kind is not Kind.UNANSWERED)
    return View(
        command="check",
        verdict=verdict.value,
        exit_code=verdict.exit_code,
        headline=check_headline(comparison, subject, environment),
        summary=check_counts(comparison),
        path=shown(path),
        environment=shown(environment),
        items=tuple(_of_drift(drift, _level(drift), _kind(drift), lines) for drift in drifts),
        excused=(
            *(_of_drift(drift, Level.NOTE, "allowed", lines) for drift in comparison.allowed),
            *(_of_drift(drift, Level.NOTE, "waived", lines) for drift in comparison.waived),
        ),
        same=tuple((shown(key), shown(device)) for key, device in comparison.same),
        counts=(
            ("checked", comparison.checked),
            ("drift", differ),
            ("unknown", sum(1 for drift in drifts if drift.severity == "error") - differ),
            ("warning", sum(1 for drift in drifts if drift.severity != "error")),
            ("allowed", len(comparison.allowed)),
            ("waived", len(comparison.waived)),
            ("ignored", comparison.ignored),
        ),
        notes=tuple(_line(note) for note in comparison.notes),
    )


def of_error(error: EnvlockError, command: str, path: str) -> View:
    """Return the view of a command that failed: no verdict but `unknown`, whatever the exit code."""
    known = error.exit_code in (EXIT_USAGE, EXIT_INTEGRITY)
    item = Item(
        level=Level.ERROR if known else Level.UNKNOWN,
        kind=shown(type(error).__name__),
        key=FAILURE,
        said=_line(str(error)),
        because="" if known else _line(str(error)),
        fix=_line(error.hint or ""),
    )
    return View(
        command=shown(command),
        verdict=Verdict.UNKNOWN.value,
        exit_code=error.exit_code,
        headline=f"could not tell: {item.said}",
        summary="nothing was compared",
        path=shown(path),
        items=(item,),
        failed=True,
    )


def alike(items: Iterable[Item]) -> list[list[Item]]:
    """Return the items in groups that are one but for the device: eight GPUs are told once."""
    return folded(items, lambda item: (item.level, item.kind, item.key, item.said, item.because))


def devices(group: list[Item]) -> str:
    """Return ` on DEVICE` or ` on N devices (…)` for a group of `alike`; empty for the host itself."""
    return on_devices([item.device for item in group if item.device])


def _level(drift: Drift) -> Level:
    if drift.severity != "error":
        return Level.WARNING
    return Level.UNKNOWN if drift.kind is Kind.UNANSWERED else Level.ERROR


def _kind(drift: Drift) -> str:
    if drift.kind is Kind.UNANSWERED:
        return "unknown"
    return "reset" if drift.reset and drift.kind is Kind.CHANGED else drift.kind.value


def _of_drift(drift: Drift, level: Level, kind: str, lines: Mapping[str, tuple[tuple[int, str], ...]]) -> Item:
    said = "; ".join(change(drift.expected, drift.observed))
    until = f"until {shown(drift.until)}" if drift.until and level is Level.NOTE else ""
    return Item(
        level=level,
        kind=kind,
        key=shown(drift.key),
        device=shown(drift.device),
        said=said,
        expected=shown(drift.expected),
        observed=shown(drift.observed),
        because=listed((until, _line(drift.because))),
        why=_line(drift.why),
        fix=_line(drift.fix),
        command=shown(drift.command),
        line=line_of(lines, drift.key, drift.expected),
    )


def line_of(lines: Mapping[str, tuple[tuple[int, str], ...]], key: str, value: str) -> int:
    """Return the line that holds `key`: of several the one with `value`; its table's, or 1."""
    found = lines.get(key) or lines.get(f"[{key.split('.')[0]}]") or ((1, ""),)
    wanted = value.split(" ")[0]
    return next((line for line, text in found if wanted and wanted in text), found[0][0])


def lines_of(text: str) -> dict[str, tuple[tuple[int, str], ...]]:
    """Return on which lines of a lockfile each key of the host stands, and `[TABLE]` for each table.

    Lines are what an editor counts; a text that is no lockfile gives nothing.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    host = False
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("["):
            name = line.strip("[] \r")
            host = name.split(".")[0] == "host"
            found.setdefault(f"[{name}]", []).append((number, line))
        elif host:
            key, equals, rest = line.partition(" = ")
            if equals:
                found.setdefault(key.strip('"'), []).append((number, rest))
    return {key: tuple(places) for key, places in found.items()}


def _line(text: str) -> str:
    return shown(" ".join(text.split()))
