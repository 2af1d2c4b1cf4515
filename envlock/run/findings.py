"""What a judged canary run is: findings, counts per tier, and the verdict they add up to."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from envlock.drift import Verdict

JUDGEMENT_SCHEMA = "envlock.canary-judgement/1"


class Kind(StrEnum):
    """What kind of difference it is: what to do next hangs on it."""

    BROKEN_HARDWARE = "broken-hardware"
    OTHER_MODE = "other-mode"
    OTHER_KERNEL = "other-kernel"
    NOT_REPEATABLE = "not-repeatable"
    SETTING = "setting"
    SUITE_DIFFERS = "suite-differs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One difference. `tier` is `T1`, `T2`, `T3` or `settings`; `name` the output or setting.

    `operator` is the operator where outputs part first; `causes` what differs besides and
    could explain it; `also` further outputs of the same kind.
    """

    tier: str
    name: str
    kind: Kind
    message: str
    operator: str = ""
    expected: str = ""
    found: str = ""
    causes: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "name": self.name,
            "kind": str(self.kind),
            "message": self.message,
            "operator": self.operator,
            "expected": self.expected,
            "found": self.found,
            "causes": list(self.causes),
            "also": list(self.also),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier:
    """How the outputs of one tier stand."""

    name: str
    matched: int = 0
    differing: int = 0
    unknown: int = 0

    @property
    def total(self) -> int:
        """All outputs of the tier, told or not."""
        return self.matched + self.differing + self.unknown

    @property
    def verdict(self) -> Verdict:
        if self.differing:
            return Verdict.DRIFT
        return Verdict.MATCH if self.matched and not self.unknown else Verdict.UNKNOWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The verdict on one report. `unknowns` says, in words, what could not be told and why."""

    verdict: Verdict
    tiers: tuple[Tier, ...]
    findings: tuple[Finding, ...]
    unknowns: tuple[str, ...]
    hints: tuple[str, ...]
    platform: tuple[tuple[str, str], ...]
    golden_known: bool

    @property
    def exit_code(self) -> int:
        """The code of `docs/exit-codes.md`."""
        return self.verdict.exit_code

    def to_document(self) -> dict[str, Any]:
        """Return the judgement as JSON values."""
        return {
            "schema": JUDGEMENT_SCHEMA,
            "verdict": str(self.verdict),
            "exit-code": self.exit_code,
            "golden": "known" if self.golden_known else "missing",
            "platform": dict(self.platform),
            "tiers": {
                tier.name: {
                    "verdict": str(tier.verdict),
                    "passed": tier.matched,
                    "total": tier.total,
                    "differing": tier.differing,
                    "unknown": tier.unknown,
                }
                for tier in self.tiers
            },
            "findings": [finding.to_document() for finding in self.findings],
            "unknowns": list(self.unknowns),
            "hints": list(self.hints),
        }


def verdict_of(findings: Iterable[Finding], unknowns: Iterable[str]) -> Verdict:
    """Return `drift` for any definite difference, else `unknown` for anything untold, else `match`."""
    kinds = {finding.kind for finding in findings}
    if kinds - {Kind.SUITE_DIFFERS}:
        return Verdict.DRIFT
    return Verdict.UNKNOWN if kinds or tuple(unknowns) else Verdict.MATCH
