"""A canary report judged against a lockfile. Pure: values in, a judgement out.

T1 is judged with no golden. T2 and T3 are compared with the golden of the report's
platform class; without one they are unknown, never a match. What the lockfile asked for
(variables, threads, switches) must be what was in force. A report whose controls did not
fail has seen nothing: all of it is unknown.

Two reports are compared by `compare`, from `envlock.run.twins`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from envlock.drift import Verdict
from envlock.lockfile import Golden, Lockfile
from envlock.run import reports
from envlock.run.findings import Finding, Judgement, Kind, Tier, verdict_of
from envlock.run.in_force import asked, setting, setting_differences
from envlock.run.operators import first_partings
from envlock.run.reports import OK, Report, operator_of
from envlock.run.twins import compare

__all__ = ["compare", "judge", "judge_report"]

_RECORD = "record one with `envlock canary run --record` on the reference host of this class"
# S5 to S9 tell one kernel from another, and so does a convolution of integers (K5) on a GPU,
# where Winograd's transforms may round; S1 to S4 tell one arithmetic from another.
_KERNEL_SIGNATURES = ("t2.k5.", "t2.s5.", "t2.s7.", "t2.s8.", "t2.s9.")


def judge(report: Mapping[str, Any], lock: Lockfile) -> Judgement:
    """Return the judgement on `report`, the canary's JSON document, under `lock`.

    Raises `UsageError` when the document is no canary report.
    """
    return judge_report(reports.from_document(report, "the canary report"), lock)


def judge_report(report: Report, lock: Lockfile) -> Judgement:
    """Return the judgement on `report` under `lock`."""
    if report.failure:
        hints = (report.hint,) if report.hint else ()
        tiers = tuple(Tier(name=name) for name in ("T1", "T2", "T3"))
        findings = _another_torch(report, lock.goldens)
        unknowns = (f"the canary did not run: {report.failure}",)
        return Judgement(
            verdict=verdict_of(findings, unknowns),
            tiers=tiers,
            findings=findings,
            unknowns=unknowns,
            hints=hints,
            platform=(),
            golden_known=False,
        )
    return _Judge(report, lock).judgement()


def _another_torch(report: Report, goldens: Sequence[Golden]) -> tuple[Finding, ...]:
    """Return the finding that a run failed under another torch than every golden's: that much is definite."""
    held = sorted({version for golden in goldens if (version := dict(golden.settings).get("torch.version"))})
    found = dict(report.settings).get("torch.version")
    if not held or found is None or found in held:
        return ()
    return (setting("torch.version", " or ".join(held), found, "is not what it was for the golden"),)


class _Judge:
    """The steps of one judgement; each adds findings, unknowns and hints."""

    def __init__(self, report: Report, lock: Lockfile) -> None:
        self.report = report
        self.golden = next((held for held in lock.goldens if held.platform == report.platform), None)
        self.lock = lock
        self.findings: list[Finding] = []
        self.unknowns: list[str] = list(report.problems)
        self.hints: list[str] = []
        self.settings = asked(report, lock)
        if report.flip is not None:
            self.settings.append(setting("weight-bit-flip", "none", report.flip, "was flipped on request"))
        comparable = self.golden is not None and self.golden.suite == report.suite_and_inputs
        self.expected = dict(self.golden.outputs) if self.golden is not None and comparable else {}

    def judgement(self) -> Judgement:
        self._golden()
        causes = tuple(f"{finding.name}: {finding.expected} → {finding.found}" for finding in self.settings)
        if self.report.flip is None:
            causes += tuple(f"{name} in memory is not what the generator made" for name in self.report.changed_inputs)
        t1 = self._known_answers(causes)
        t2 = self._signatures(causes)
        t3 = self._models(causes)
        self.unknowns.extend(f"{tier.name}: nothing was computed" for tier in (t1, t2, t3) if not tier.total)
        self._repeatable()
        self._memory()
        self.findings.extend(self.settings)
        verdict = verdict_of(self.findings, self.unknowns)
        if self.report.blind:
            verdict = Verdict.UNKNOWN
            named = ", ".join(self.report.blind)
            self.unknowns.insert(0, f"the canary could not see: the control {named} must fail and did not")
        return Judgement(
            verdict=verdict,
            tiers=(t1, t2, t3),
            findings=tuple(self.findings),
            unknowns=tuple(self.unknowns),
            hints=tuple(dict.fromkeys(self.hints)),
            platform=self.report.platform,
            golden_known=bool(self.expected),
        )

    def _golden(self) -> None:
        """Say when there is no golden to compare with, and which settings differ from it when there is."""
        if self.golden is None:
            self.unknowns.append("no golden for this platform class: only T1 is judged")
            self.hints.extend([*_nearest(self.report, self.lock.goldens), _RECORD])
            return
        if not self.expected:
            self.findings.append(
                Finding(
                    tier="settings",
                    name="suite",
                    kind=Kind.SUITE_DIFFERS,
                    message="the golden was recorded with another suite: only T1 is judged",
                    expected=self.golden.suite,
                    found=self.report.suite_and_inputs,
                )
            )
            self.hints.append("record the golden again: `envlock canary run --record`")
            return
        if self.golden.image != self.report.image:
            places = [
                f"in image {place}" if place else "on the host" for place in (self.golden.image, self.report.image)
            ]
            self.hints.append(f"the golden was recorded {places[0]}, this ran {places[1]}")
        known = {finding.name for finding in self.settings}
        for name, expected, found in setting_differences(self.golden.settings, self.report.settings):
            if name not in known:
                self.settings.append(setting(name, expected, found, "is not what it was for the golden"))

    def _known_answers(self, causes: tuple[str, ...]) -> Tier:
        matched = unknown = differing = 0
        if self.expected and self.expected.get(reports.KNOWN_ANSWERS, "") != reports.known_answers(self.report):
            self.unknowns.append(f"T1 is not whole: {reports.known_answers(self.report)}, the golden run had others")
        for output in self.report.outputs:
            if output.tier != "T1":
                continue
            if output.value == OK or self.expected.get(output.name) == output.value:
                matched += 1
            elif not output.answered:
                unknown += 1
                self.unknowns.append(f"{output.name}: {output.value}")
            else:
                differing += 1
                self.findings.append(
                    Finding(
                        tier="T1",
                        name=output.name,
                        kind=Kind.BROKEN_HARDWARE,
                        operator=operator_of(output.name),
                        message="a known answer is wrong: broken hardware or library, or a setting that breaks it",
                        expected=OK,
                        found=output.value,
                        causes=causes,
                    )
                )
        return Tier(name="T1", matched=matched, differing=differing, unknown=unknown)

    def _signatures(self, causes: tuple[str, ...]) -> Tier:
        found = [output for output in self.report.outputs if output.tier == "T2"]
        tier, differing = self._counted("T2", found)
        details = {output.name: output.detail for output in found}
        for name, value in differing:
            kernel = name.startswith(_KERNEL_SIGNATURES)
            self.findings.append(
                Finding(
                    tier="T2",
                    name=name,
                    kind=Kind.OTHER_KERNEL if kernel else Kind.OTHER_MODE,
                    operator=operator_of(name),
                    message="another kernel ran" if kernel else "another arithmetic ran",
                    expected=self.expected.get(name, "(missing)"),
                    found=f"{value} ({details[name]})" if details.get(name) else value,
                    causes=causes,
                )
            )
        return tier

    def _models(self, causes: tuple[str, ...]) -> Tier:
        found = [output for output in self.report.outputs if output.tier == "T3"]
        tier, differing = self._counted("T3", found)
        moved = tuple(finding.name for finding in self.findings if finding.tier == "T2")
        if moved:
            shown = ", ".join(moved[:6]) + (f" and {len(moved) - 6} more" if len(moved) > 6 else "")
            causes = (*causes, f"mode signatures that moved: {shown}")
        if differing and not causes:
            causes = ("no setting in the golden differs: another library, firmware or processor, or a faulty one",)
        canonical = {output.name: output.canonical for output in found if output.canonical}
        self.findings.extend(first_partings(differing, self.expected, canonical, causes))
        return tier

    def _counted(self, tier: str, found: Sequence[reports.Output]) -> tuple[Tier, list[tuple[str, str]]]:
        """Return how outputs of `tier` stand, and name and value of each that differs, in order."""
        if not self.expected:
            return Tier(name=tier, unknown=len(found)), []
        named = {output.name for output in found}
        missing = [name for name in self.expected if name[:2].upper() == tier and name not in named]
        self.unknowns.extend(f"{name} was not computed" for name in missing)
        other = [output for output in found if self.expected.get(output.name) != output.value]
        raised = [output for output in other if not output.answered]
        self.unknowns.extend(f"{output.name}: {output.value}" for output in raised)
        differing = [(output.name, output.value) for output in other if output not in raised]
        counts = Tier(name=tier, matched=len(found) - len(differing), differing=len(differing), unknown=len(missing))
        return counts, differing

    def _repeatable(self) -> None:
        """One finding for each output that was not the same in every run and process."""
        names = dict.fromkeys(item.name for item in self.report.differences)
        for name in names:
            seen = [item for item in self.report.differences if item.name == name]
            first = seen[0]
            self.findings.append(
                Finding(
                    tier=name[:2].upper() if name[:3] in ("t1.", "t2.", "t3.") else "settings",
                    name=name,
                    kind=Kind.NOT_REPEATABLE,
                    operator=operator_of(name),
                    message=f"is not repeatable on this host: another value in {len(seen)} of the runs, "
                    f"first in process {first.process}, run {first.run}",
                    found=first.value,
                )
            )

    def _memory(self) -> None:
        if self.report.flip is not None:
            return
        for name in self.report.changed_inputs:
            self.findings.append(
                Finding(
                    tier="T1",
                    name=name,
                    kind=Kind.BROKEN_HARDWARE,
                    message="a weight in memory is not what the generator made",
                )
            )


def _nearest(report: Report, goldens: Sequence[Golden]) -> list[str]:
    """Return in words how this class differs from the golden class that shares most with it."""
    if not goldens:
        return []
    differing = min((setting_differences(golden.platform, report.platform) for golden in goldens), key=len)
    parts = [f"{name} is `{found}`, `{expected}` in the golden" for name, expected, found in differing]
    return [f"the nearest class in the lockfile differs: {'; '.join(parts)}"]
