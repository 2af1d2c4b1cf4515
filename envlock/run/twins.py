"""Two canary reports side by side: what differs, where outputs part, how far apart they are.

Pure. Neither report is the golden: the answer is whether both hosts, images or settings
give the same bits, and if not, which operator and which setting to look at first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envlock.drift import Verdict
from envlock.run import distance, reports
from envlock.run.distance import Distance
from envlock.run.reports import OK, SOLO, Output, Report, operator_of

SCHEMA = "envlock.canary-comparison/1"
MISSING = "(missing)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Parting:
    """One output that differs between A and B, and how far apart it is where that can be told.

    `nan_bits` says that nothing but the bits inside NaNs differs.
    """

    tier: str
    name: str
    operator: str
    a: str
    b: str
    distance: Distance | None = None
    nan_bits: bool = False


Change = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What differs between reports A and B: `platform`, `settings`, `information` as (name, A, B).

    `first` is the first T3 output of each model that differs; `signatures` the T2 outputs
    that differ; `wrong` the T1 outputs that are wrong in both.
    """

    verdict: Verdict
    compared: int
    platform: tuple[Change, ...] = ()
    settings: tuple[Change, ...] = ()
    information: tuple[Change, ...] = ()
    outputs: tuple[Parting, ...] = ()
    first: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    unknowns: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The code of `docs/exit-codes.md`."""
        return self.verdict.exit_code

    def to_document(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        return {
            "schema": SCHEMA,
            "verdict": str(self.verdict),
            "exit-code": self.exit_code,
            "compared": self.compared,
            "platform": _changes(self.platform),
            "settings": _changes(self.settings),
            "information": _changes(self.information),
            "outputs": [_parting_document(parting) for parting in self.outputs],
            "first": list(self.first),
            "signatures": list(self.signatures),
            "wrong": list(self.wrong),
            "unknowns": list(self.unknowns),
        }


def _changes(changes: Sequence[Change]) -> dict[str, dict[str, str]]:
    return {name: {"a": a, "b": b} for name, a, b in changes}


def _parting_document(parting: Parting) -> dict[str, Any]:
    document: dict[str, Any] = {
        "tier": parting.tier,
        "name": parting.name,
        "operator": parting.operator,
        "a": parting.a,
        "b": parting.b,
        "nan-bits-only": parting.nan_bits,
    }
    apart = parting.distance
    if apart is not None:
        document["distance"] = {
            "elements": apart.elements,
            "differing": apart.differing,
            "ulp": apart.ulp,
            # JSON has no infinity and no NaN: text keeps them.
            "largest": repr(apart.largest),
            "cosine": None if apart.cosine is None else repr(apart.cosine),
        }
    return document


def compare(a: Mapping[str, Any], b: Mapping[str, Any], name_a: str = "A", name_b: str = "B") -> Comparison:
    """Return what differs between two report documents; `UsageError` when one is no report."""
    return compare_reports(reports.from_document(a, name_a), reports.from_document(b, name_b), name_a, name_b)


def compare_reports(a: Report, b: Report, name_a: str = "A", name_b: str = "B") -> Comparison:
    """Return what differs between two reports; unknown when one holds nothing to compare."""
    unknowns = [*_unusable(a, name_a), *_unusable(b, name_b)]
    if a.failure or b.failure:
        return Comparison(verdict=Verdict.UNKNOWN, compared=0, unknowns=tuple(unknowns))
    settings = _pairs(a.settings, b.settings)
    platform = _pairs(a.platform, b.platform)
    information = _pairs(a.information, b.information)
    if a.suite_and_inputs != b.suite_and_inputs:
        unknowns.append(f"the reports are of two suites: {a.suite_and_inputs}, {b.suite_and_inputs}")
        return Comparison(
            verdict=Verdict.UNKNOWN,
            compared=0,
            platform=platform,
            settings=settings,
            information=information,
            unknowns=tuple(unknowns),
        )
    unknowns.extend(_unanswered(a, b))
    outputs, compared = _outputs(a, b)
    wrong = tuple(
        left.name
        for left in a.outputs
        if left.tier == "T1" and left.answered and left.value != OK and left.value in _values(b, left.name)
    )
    blind = bool(a.blind or b.blind)
    unstable = bool(a.differences or b.differences)
    different = bool(outputs or wrong or unstable)
    verdict = Verdict.DRIFT if different else Verdict.UNKNOWN if unknowns else Verdict.MATCH
    return Comparison(
        verdict=Verdict.UNKNOWN if blind else verdict,
        compared=compared,
        platform=platform,
        settings=settings,
        information=information,
        outputs=outputs,
        first=_first(outputs),
        signatures=tuple(parting.name for parting in outputs if parting.tier == "T2"),
        wrong=wrong,
        unknowns=tuple(unknowns),
    )


def _unusable(report: Report, name: str) -> list[str]:
    """Return what keeps `report` from being compared as a whole, in words."""
    if report.failure:
        return [f"{name} did not run: {report.failure}"]
    found = [f"{name}: the control {control} must fail and did not" for control in report.blind]
    found.extend(f"{name}: {problem}" for problem in report.problems)
    for output in dict.fromkeys(item.name for item in report.differences):
        found.append(f"{name}: {output} is not repeatable there")
    if report.flip is None:
        found.extend(f"{name}: {weight} in memory is not what the generator made" for weight in report.changed_inputs)
    return found


def _unanswered(a: Report, b: Report) -> list[str]:
    """Return, in words, each output that a report could not give: the lack of an answer equals nothing."""
    right = {output.name: output for output in b.outputs}
    both = [(output, right[output.name]) for output in a.outputs if output.name in right]
    return [
        f"{one.name}: {(other if one.answered else one).value}"
        for one, other in both
        if not (one.answered and other.answered)
    ]


def _values(report: Report, name: str) -> list[str]:
    return [output.value for output in report.outputs if output.name == name]


def _pairs(a: Sequence[tuple[str, str]], b: Sequence[tuple[str, str]]) -> tuple[Change, ...]:
    left, right = dict(a), dict(b)
    return tuple(
        (name, left.get(name, MISSING), right.get(name, MISSING))
        for name in sorted(set(left) | set(right))
        if left.get(name) != right.get(name)
    )


def _outputs(a: Report, b: Report) -> tuple[tuple[Parting, ...], int]:
    """Return the outputs that differ, in order of computation, and how many were compared."""
    left = {output.name: output for output in a.outputs}
    right = {output.name: output for output in b.outputs}
    names = list(left) + [name for name in right if name not in left]
    found = []
    for name in names:
        one, other = left.get(name), right.get(name)
        told = one is None or other is None or (one.answered and other.answered)
        if told and (one.value if one else None) != (other.value if other else None):
            found.append(_parting(name, one, other))
    return tuple(found), len(names)


def _parting(name: str, one: Output | None, other: Output | None) -> Parting:
    present = one or other
    assert present is not None
    return Parting(
        tier=present.tier,
        name=name,
        operator=operator_of(name),
        a=one.value if one else MISSING,
        b=other.value if other else MISSING,
        distance=distance.between(one, other) if one and other else None,
        nan_bits=bool(one and other and one.canonical and one.canonical == other.canonical),
    )


def _first(outputs: Sequence[Parting]) -> tuple[str, ...]:
    """Return the first differing output in the chain of each model."""
    found: dict[str, str] = {}
    for parting in outputs:
        if parting.tier == "T3" and not parting.name.endswith(SOLO):
            found.setdefault(reports.model_of(parting.name), parting.name)
    return tuple(found.values())
