"""Rules: how one locked fact is judged against one observed fact.

Pure. A rule is a line of text in `[policy.rules]` of the lockfile; `parse` makes it an
object with `judge`. `docs/policy.md` describes the language. Which rule judges which
fact is not decided here but in `envlock.policy`.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from envlock.errors import LockfileError
from envlock.facts import NOT_SUPPORTED, UNANSWERED, Observed
from envlock.tables import nearest_hint
from envlock.versions import Unordered, same_spelling, satisfies, split_range

NOT_KNOWN_WHEN_LOCKED = "not known when it was locked"
RULE_WORDS = ("exact", "ignore", "within", "one-of")


class Outcome(StrEnum):
    """What one rule says about one pair of facts. `UNKNOWN`: it could not be told."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """An outcome, and both sides in words: `got X, expected Y`."""

    outcome: Outcome
    expected: str
    observed: str
    because: str = ""

    def text(self) -> str:
        """Return the judgement for a person."""
        text = f"got {self.observed}, expected {self.expected}"
        return f"{text} ({self.because})" if self.because else text


class Judge(Protocol):
    """One parsed rule."""

    def judge(self, expected: Observed, observed: Observed) -> Judgement:
        """Return what this rule says about `observed` where `expected` was locked."""
        ...


@dataclass(frozen=True, slots=True)
class Exact:
    """The observed value is the locked one. The letter case of a VBIOS version does not count."""

    def judge(self, expected: Observed, observed: Observed) -> Judgement:
        open_question = _unanswered(expected, observed, expected.text())
        if open_question is not None:
            return open_question
        if _unplaced(expected, observed):
            because = "the same items; one side does not tell their placement"
            return Judgement(
                outcome=Outcome.UNKNOWN, expected=expected.text(), observed=observed.text(), because=because
            )
        return _judged(_same(expected, observed), expected.text(), observed)


@dataclass(frozen=True, slots=True)
class Ignore:
    """Any value, and any absence, will do."""

    def judge(self, expected: Observed, observed: Observed) -> Judgement:
        return Judgement(outcome=Outcome.SAME, expected="anything", observed=observed.text())


@dataclass(frozen=True, slots=True)
class Range:
    """The observed version lies in a range; the locked one does not matter.

    Two hosts that both have no such thing (`not-supported`) agree. A version that has
    no order against a bound (`6.1-rc3` against `6.1`) is unknown, not a guess.
    """

    clauses: tuple[tuple[str, str], ...]

    def judge(self, expected: Observed, observed: Observed) -> Judgement:
        wanted = ", ".join(operator + bound for operator, bound in self.clauses)
        open_question = _unanswered(observed, observed, wanted)
        if open_question is not None:
            return open_question
        if not observed.has_value:
            return _judged(expected.outcome == NOT_SUPPORTED, wanted, observed)
        try:
            inside = all(satisfies(observed.text(), operator, bound) for operator, bound in self.clauses)
        except Unordered as fault:
            return Judgement(outcome=Outcome.UNKNOWN, expected=wanted, observed=observed.text(), because=str(fault))
        return _judged(inside, wanted, observed)


@dataclass(frozen=True, slots=True)
class Within:
    """The observed number is at most `amount` away from the locked one.

    `amount` is written with `_scaled`; in percent of the locked number when `unit` is
    `%`, otherwise in `unit`. `factor` and `fact_factor` are how much the rule's and the
    fact's unit are in their common smallest one.
    """

    amount: int
    unit: str
    factor: int = 1
    fact_factor: int = 1

    def judge(self, expected: Observed, observed: Observed) -> Judgement:
        wanted = f"{expected.text()} within {_decimal(self.amount)} {self.unit}"
        open_question = _unanswered(expected, observed, wanted)
        if open_question is not None:
            return open_question
        locked, found = _number(expected), _number(observed)
        if locked is None or found is None:
            # Without two numbers the tolerance excuses nothing.
            return _judged(_same(expected, observed), wanted, observed)
        away = abs(locked - found)
        if self.unit == "%":
            return _judged(away * 100 * _SCALE <= abs(locked) * self.amount, wanted, observed)
        return _judged(away * self.fact_factor <= self.amount * self.factor, wanted, observed)


@dataclass(frozen=True, slots=True)
class OneOf:
    """The observed value, as text, is one of a list; the locked one does not matter."""

    values: tuple[str, ...]

    def judge(self, expected: Observed, observed: Observed) -> Judgement:
        wanted = "one of " + ", ".join(self.values)
        open_question = _unanswered(observed, observed, wanted)
        if open_question is not None:
            return open_question
        if not observed.has_value:
            return _judged(expected.outcome == NOT_SUPPORTED, wanted, observed)
        found = {observed.text()}
        if isinstance(observed.value, bool):
            found.add(str(observed.value).lower())
        inside = any(same_spelling(value, text) for value in self.values for text in found)
        return _judged(inside, wanted, observed)


def _unplaced(expected: Observed, observed: Observed) -> bool:
    """Return whether two lists differ only in that one says where its items lie (`3g.40gb@0`, MIG) and one does not."""
    first, second = (
        [str(item) for item in seen.value] if isinstance(seen.value, tuple) else [] for seen in (expected, observed)
    )
    if any("@" in item for item in first) == any("@" in item for item in second):
        return False
    return sorted(item.partition("@")[0] for item in first) == sorted(item.partition("@")[0] for item in second)


def _same(one: Observed, other: Observed) -> bool:
    return one == other or (
        isinstance(one.value, str) and isinstance(other.value, str) and same_spelling(one.value, other.value)
    )


def _judged(same: bool, wanted: str, observed: Observed) -> Judgement:
    return Judgement(outcome=Outcome.SAME if same else Outcome.DIFFERENT, expected=wanted, observed=observed.text())


def _unanswered(expected: Observed, observed: Observed, wanted: str) -> Judgement | None:
    """Return "unknown" when either side was not answered: an absence of knowledge equals nothing."""
    if observed.outcome in UNANSWERED:
        because = observed.detail
    elif expected.outcome in UNANSWERED:
        because = NOT_KNOWN_WHEN_LOCKED
    else:
        return None
    return Judgement(outcome=Outcome.UNKNOWN, expected=wanted, observed=observed.text(), because=because)


# ---- the language ----------------------------------------------------------------------

_WITHIN = re.compile(r"within\s+(\d+(?:\.\d+)?)\s*(%|[A-Za-z]+)")
_ITEM = re.compile(r'\s*(?:"([^"]*)"|([^",]+?))\s*(?:,|$)')
_NUMBER = re.compile(r"(-?)(\d{1,30})(?:\.(\d{1,9}))?")

_SCALE = 10**9
"""Numbers are counted in billionths, so that decimals are exact integers (`fractions` costs 5 ms to import)."""

_UNITS: Mapping[str, tuple[str, int]] = {
    "mW": ("power", 1),
    "W": ("power", 1000),
    "kW": ("power", 10**6),
    "Hz": ("frequency", 1),
    "kHz": ("frequency", 1000),
    "MHz": ("frequency", 10**6),
    "GHz": ("frequency", 10**9),
    "B": ("size", 1),
    "bytes": ("size", 1),
    "kB": ("size", 1000),
    "MB": ("size", 10**6),
    "GB": ("size", 10**9),
    "KiB": ("size", 2**10),
    "MiB": ("size", 2**20),
    "GiB": ("size", 2**30),
    "TiB": ("size", 2**40),
}
"""Units that can stand for one another: what they measure, and how many of the smallest they are."""


@functools.cache
def parse(text: str, unit: str = "") -> Judge:
    """Return the rule that `text` says, for a fact measured in `unit` ("" when it has none).

    Raises `LockfileError` without a file or a key: the caller knows them.
    """
    words = text.strip()
    if words == "exact":
        return Exact()
    if words == "ignore":
        return Ignore()
    if words.startswith("within"):
        return _within(words, unit)
    if words.split(" ")[0] == "one-of":
        return OneOf(_items(words))
    if words[:1] in ("=", "!", "<", ">", "~"):
        return Range(split_range(words))
    raise LockfileError(f"unknown rule {text!r}", hint=_rule_hint(words))


def _rule_hint(words: str) -> str:
    first = re.split(r"[ ,]", words)[0]
    if first[:1].isdigit():
        return f"for a version write `=={first}` or a range such as `>={first}`"
    return nearest_hint(first, (*RULE_WORDS, ">=1.2, <2"), "one of")


def _within(words: str, unit: str) -> Within:
    found = _WITHIN.fullmatch(words)
    if found is None or _NUMBER.fullmatch(found[1]) is None:
        raise LockfileError(
            f"not a tolerance: {words!r}", hint="write `within NUMBER UNIT` or `within NUMBER %`, as in `within 5 W`"
        )
    amount, named = _scaled(found[1]), found[2]
    if named in ("%", unit):
        return Within(amount, named)
    if named in _UNITS and unit in _UNITS and _UNITS[named][0] == _UNITS[unit][0]:
        return Within(amount, named, _UNITS[named][1], _UNITS[unit][1])
    raise LockfileError(
        f"a tolerance in {named!r} does not fit a fact measured in {unit!r}"
        if unit
        else f"a tolerance in {named!r} does not fit a fact without a unit",
        hint=f"write `within {found[1]} {unit or '%'}`",
    )


def _items(words: str) -> tuple[str, ...]:
    rest = words.removeprefix("one-of").strip()
    items = []
    position = 0
    while position < len(rest):
        found = _ITEM.match(rest, position)
        if found is None:
            raise LockfileError(f"not a list: {words!r}", hint='write `one-of a, b`, or `one-of "a, with comma", b`')
        items.append(found[1] if found[1] is not None else found[2])
        position = found.end()
    if not items:
        raise LockfileError("`one-of` lists nothing", hint="write `one-of a, b`")
    return tuple(items)


def _number(seen: Observed) -> int | None:
    """Return the fact's number in billionths; None when it is none."""
    if isinstance(seen.value, bool):
        return None
    if isinstance(seen.value, int):
        return seen.value * _SCALE
    return _scaled(seen.value) if isinstance(seen.value, str) and _NUMBER.fullmatch(seen.value) else None


def _scaled(text: str) -> int:
    """Return a decimal that fits `_NUMBER`, in billionths."""
    found = _NUMBER.fullmatch(text)
    assert found is not None
    number = int(found[2]) * _SCALE + int((found[3] or "").ljust(9, "0"))
    return -number if found[1] else number


def _decimal(amount: int) -> str:
    whole, part = divmod(amount, _SCALE)
    return f"{whole}.{part:09}".rstrip("0").rstrip(".")
