"""The values of a comparison: drifts, and what they come to."""

from dataclasses import dataclass
from enum import StrEnum

from envlock.errors import EXIT_DRIFT, EXIT_MATCH, EXIT_UNKNOWN

NOTHING_TO_JUDGE = "(no locked fact that a rule judges)"
RECORD_HOST = "run `envlock lock --update-host` on the golden host to record it"


class Kind(StrEnum):
    """What kind of drift it is."""

    CHANGED = "changed"
    MISSING = "missing"
    EXTRA = "extra"
    UNANSWERED = "unanswered"
    EXPIRED = "expired"  # a waiver whose day has passed


class Verdict(StrEnum):
    """The answer of a comparison; `exit_code` is the one of `docs/exit-codes.md`."""

    MATCH = "match"
    DRIFT = "drift"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        return {"match": EXIT_MATCH, "drift": EXIT_DRIFT, "unknown": EXIT_UNKNOWN}[self.value]


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """One difference. `device` is empty for the host itself, else the device's place (PCI bus id).

    `expected` and `observed` are for people; `because` says why there is no answer, or
    why it is allowed or waived, or what happened to a setting; `why` what the fact decides;
    `fix` how to put it right. `reset`: the observed value is what the hardware falls back
    to. `command` is the one line that puts it right, for all devices with the same drift,
    empty where no single command does. `until` is the last day of a waiver, as `2026-12-31`.
    """

    key: str
    device: str = ""
    expected: str
    observed: str
    kind: Kind
    severity: str = "error"
    because: str = ""
    why: str = ""
    fix: str = ""
    reset: bool = False
    command: str = ""
    until: str = ""

    @property
    def verdict(self) -> Verdict:
        """What this one drift alone would come to, were it an error."""
        return Verdict.UNKNOWN if self.kind is Kind.UNANSWERED else Verdict.DRIFT


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What a comparison found, and how much it looked at.

    `checked` counts pairs of facts that a rule other than `ignore` judged; `allowed`
    holds what could not be told and the policy allows by name, `waived` definite
    differences under a waiver that still holds, `same` the key and device of each fact
    that was judged the same. `notes` are remarks for people, which judge nothing.
    """

    drifts: tuple[Drift, ...] = ()
    allowed: tuple[Drift, ...] = ()
    waived: tuple[Drift, ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    checked: int = 0
    ignored: int = 0
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """`drift` outranks `unknown`. Warnings decide nothing: either answer would pass."""
        kinds = {drift.kind for drift in self.drifts if drift.severity == "error"}
        if kinds - {Kind.UNANSWERED}:
            return Verdict.DRIFT
        return Verdict.UNKNOWN if kinds else Verdict.MATCH

    def count(self, kind: Kind, severity: str = "error") -> int:
        return sum(1 for drift in self.drifts if drift.kind is kind and drift.severity == severity)

    def and_also(self, other: "Comparison") -> "Comparison":
        """Return both comparisons as one."""
        return Comparison(
            drifts=self.drifts + other.drifts,
            allowed=self.allowed + other.allowed,
            waived=self.waived + other.waived,
            same=self.same + other.same,
            checked=self.checked + other.checked,
            ignored=self.ignored + other.ignored,
            notes=self.notes + other.notes,
        )


def unanswered(key: str, expected: str, observed: str, fix: str) -> Comparison:
    """Return the comparison that could not be made at all, and what would make it possible."""
    drift = Drift(key=key, expected=expected, observed=observed, kind=Kind.UNANSWERED, fix=fix)
    return Comparison(drifts=(drift,))
