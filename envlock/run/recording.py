"""Recording: which report may become the golden of its platform class, and what it then holds. Pure."""

from collections.abc import Mapping
from typing import Any

from envlock.digest import Digest
from envlock.errors import CouldNotTell
from envlock.lockfile import Golden, Lockfile
from envlock.run import reports
from envlock.run.compare import judge_report
from envlock.run.findings import Kind
from envlock.run.in_force import asked
from envlock.run.reports import OK, UNAVAILABLE, Report


def refusals(report: Mapping[str, Any], lock: Lockfile) -> list[str]:
    """Return why `report` must not become a golden of `lock`; nothing when it may."""
    return refusals_of(reports.from_document(report, "the canary report"), lock)


def refusals_of(report: Report, lock: Lockfile) -> list[str]:
    """Return why `report` must not become a golden of `lock`; nothing when it may."""
    if report.failure:
        return [f"the canary did not run: {report.failure}"]
    judged = judge_report(report, lock)
    reasons = [f"the control {name} must fail and did not" for name in report.blind]
    reasons.extend(report.problems)
    for finding in judged.findings:
        if finding.tier == "T1" and finding.kind is Kind.BROKEN_HARDWARE:
            reasons.append(f"T1 is red: {finding.name} {finding.found}".rstrip())
        elif finding.kind is Kind.NOT_REPEATABLE:
            reasons.append(f"{finding.name} is not repeatable")
    settings = asked(report, lock)
    reasons.extend(f"{item.name} is {item.found}, the lockfile holds {item.expected}" for item in settings)
    for output in report.outputs:
        # Out of memory is a state of this hour; an operator that a build lacks is a fact.
        if output.value.startswith(UNAVAILABLE) and "memory" in output.value.lower():
            reasons.append(f"{output.name} was not computed: {output.value}")
    if report.flip is not None:
        reasons.append("a weight bit was flipped on request")
    return reasons


def golden_from(report: Mapping[str, Any] | Report, image: Digest | None) -> Golden:
    """Return the golden that `report` gives for its platform class, recorded in `image` (None: the host).

    T1 outputs that are `ok` need no golden and are left out; which there were is kept in
    one line, so that a run that leaves one out is seen. Raises `CouldNotTell` when
    the report holds no outputs; whether it may be recorded is `refusals`' work.
    """
    seen = report if isinstance(report, Report) else reports.from_document(report, "the canary report")
    if seen.failure:
        raise CouldNotTell(f"the canary did not run: {seen.failure}", hint=seen.hint)
    return Golden(
        platform=seen.platform,
        suite=seen.suite_and_inputs,
        image=image,
        settings=seen.settings,
        outputs=(
            (reports.KNOWN_ANSWERS, reports.known_answers(seen)),
            *((output.name, output.value) for output in seen.outputs if output.tier != "T1" or output.value != OK),
        ),
    )
