"""A view as a GitLab Code Quality report (https://docs.gitlab.com/ci/testing/code_quality/).

An array of what is open, empty for a match: what is allowed or waived is not in it. A
drift is critical, what could not be told is major, a warning minor; a failure of the
command itself is a blocker, so that no reader takes it for an empty result.
"""

import json
from typing import Any

from envlock.report.fingerprints import fingerprints
from envlock.report.view import Item, Level, View

_SEVERITIES = {Level.ERROR: "critical", Level.UNKNOWN: "major", Level.WARNING: "minor"}


def render(view: View) -> str:
    """Return the report; GitLab compares the fingerprints of two of them."""
    marks = fingerprints(view, view.items)
    issues = [_issue(view, item, mark) for item, mark in zip(view.items, marks, strict=True)]
    return json.dumps(issues, indent=2, ensure_ascii=True)


def _issue(view: View, item: Item, mark: str) -> dict[str, Any]:
    advice = f". Run: {item.command}" if item.command else f". Fix: {item.fix}" if item.fix else ""
    return {
        "description": item.message + advice,
        "check_name": f"envlock/{item.key}",
        "fingerprint": mark,
        "severity": "blocker" if view.failed else _SEVERITIES[item.level],
        # GitLab leaves out an issue without a path; one that has no file names the command.
        "location": {"path": view.path or f"envlock {view.command}", "lines": {"begin": item.line}},
    }
