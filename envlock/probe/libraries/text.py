"""Loaded libraries as text for people: what is wrong first, then each process with its files, by folder.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from envlock.probe.libraries.values import ERROR, WARNING, Finding, Library, Loaded, Process
from envlock.probe.text_rows import printable

_LABEL = 13
_BUILD_ID = 12  # letters of a build id that people compare
_COLUMNS = (22, 9, 29)


def render(loaded: Loaded) -> str:
    """Return the text: a line that sums up, findings, then files; absences in words."""
    lines = [_summary(loaded), "  " + printable(loaded.method)]
    lines += ["  may be incomplete: " + printable(gap) for gap in loaded.gaps]
    for finding in loaded.findings:
        lines += ["", *_finding(finding)]
    for held, processes in _alike(loaded):
        lines += ["", *_heading(processes)]
        lines += _folders([loaded.libraries[index] for index in held])
    if loaded.installed:
        lines += ["", "on disk or said by the image, and not necessarily loaded:"]
        lines += ["  {}: {}".format(printable(what), printable(version)) for what, version in loaded.installed]
    return "\n".join(lines) + "\n"


def _summary(loaded: Loaded) -> str:
    number = len(loaded.libraries)
    said = "{} CUDA librar{}".format(number or "no", "ies" if number > 1 else "y")
    if loaded.ran is not None:
        ended = "at its deadline" if loaded.ran.status is None else "with status {}".format(loaded.ran.status)
        users, ran = len({item.pid for item in loaded.processes}), loaded.ran.processes
        among = "{} of {}".format(users, ran) if users and ran > 1 else str(ran)
        said += " in {} process{}, ended {}".format(among, "" if ran == 1 else "es", ended)
    counts: Dict[str, int] = {}
    for finding in loaded.findings:
        counts[finding.severity] = counts.get(finding.severity, 0) + 1
    found = ", ".join(
        "{} {}{}".format(count, severity, "s" if count > 1 and severity in (ERROR, WARNING) else "")
        for severity, count in counts.items()
    )
    return "{}: {}; {}".format(printable(loaded.subject), said, "found: " + found if found else "no finding")


def _finding(finding: Finding) -> List[str]:
    indent = " " * (_LABEL + 2)
    lines = ["  {}{}".format(finding.severity.ljust(_LABEL), printable(finding.what))]
    for word, text in (("where", finding.where), ("why", finding.why), ("fix", finding.fix)):
        if text:
            lines.append("{}{}: {}".format(indent, word, printable(text)))
    return lines


def _alike(loaded: Loaded) -> List[Tuple[Tuple[int, ...], List[Process]]]:
    """Return processes with the same files together: eight workers are shown once."""
    groups: Dict[Tuple[int, ...], List[Process]] = {}
    for process in loaded.processes:
        groups.setdefault(process.libraries, []).append(process)
    return list(groups.items())


def _heading(processes: List[Process]) -> List[str]:
    programs = list(dict.fromkeys(process.program for process in processes))
    numbers = " ".join(str(process.pid) for process in processes)
    return ["process{} {}".format("es" if len(processes) > 1 else "", numbers)] + [
        "  $ " + printable(program) for program in programs
    ]


def _folders(libraries: List[Library]) -> List[str]:
    by_folder: Dict[Tuple[str, str], List[Library]] = {}
    for item in libraries:
        by_folder.setdefault((item.place, item.path.rpartition("/")[0]), []).append(item)
    lines = []
    for (place, folder), items in by_folder.items():
        lines.append("  {}  {}".format(place, printable(folder)))
        lines += [_row(item) for item in items]
    return lines


def _row(item: Library) -> str:
    owner = "{} {}".format(item.package.name, item.package.version) if item.package else "(no package says it is its)"
    build = str(item.build_id.value)[:_BUILD_ID] if item.build_id.has_value else "({})".format(item.build_id.detail)
    version = item.version.text() if item.version.has_value else "-"
    cells = (printable(item.name), printable(version), printable(owner))
    row = "    " + " ".join(cell.ljust(width) for cell, width in zip(cells, _COLUMNS)) + " " + printable(build)
    if item.deleted:
        row += "  deleted"
    if not item.version.has_value and item.version.outcome != "not-supported":
        row += "\n      version: {}".format(printable(item.version.detail))
    return row
