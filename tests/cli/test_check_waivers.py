"""Waivers and settings that were reset, through the real program."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from program import envlock
from samples import facts, gpu_facts, host, lock
from test_check import write_facts, write_lock

from envlock.facts import Observed, absent, value
from envlock.lockfile import Rule
from envlock.policy import default_rules


def day(offset: int) -> str:
    return str(datetime.now(UTC).date() + timedelta(days=offset))


@pytest.mark.parametrize(
    ("offset", "ecc", "code"),
    [
        (3, value(False), 0),
        (3, value(True), 0),
        (3, absent("failed"), 3),
        (-3, value(False), 1),
        (-3, value(True), 1),
        (-3, absent("failed"), 1),
    ],
)
def test_a_waiver_decides_by_the_day_of_the_clock(tmp_path: Path, offset: int, ecc: Observed, code: int) -> None:
    """Excused until its day has passed, an error from then on; what could not be told is never excused."""
    held = host([gpu_facts()])
    waiver = Rule(key="gpu.ecc", rule="exact", reason="board returned", until=day(offset))
    rules = {**{rule.key: rule for rule in default_rules(held)}, "gpu.ecc": waiver}
    path = write_lock(tmp_path, lock(held, rules=tuple(rules[key] for key in sorted(rules))))
    ended = envlock("check", "-l", path, "--facts", write_facts(tmp_path, facts([gpu_facts(ecc=ecc)])))

    assert ended.code == code
    assert ("waived" in ended.out) is (offset < 0 or ecc == value(False))
    if offset < 0:
        assert f"waived until {day(offset)}" in ended.out


def test_a_waiver_shows_in_a_diff_of_lockfile_and_facts_with_the_same_verdict(tmp_path: Path) -> None:
    """`diff` judges as `check` does: excused today, its own difference when it has ended."""
    held = host([gpu_facts()])
    observed = write_facts(tmp_path, facts([gpu_facts(ecc=value(False))]))
    for offset, code in ((1, 0), (-1, 1)):
        waiver = Rule(key="gpu.ecc", rule="exact", reason="board returned", until=day(offset))
        rules = {**{rule.key: rule for rule in default_rules(held)}, "gpu.ecc": waiver}
        path = write_lock(tmp_path, lock(held, rules=tuple(rules[key] for key in sorted(rules))))
        ended = envlock("diff", path, observed)
        assert ended.code == code
        assert f"waived until {day(offset)}" in ended.out
        assert ("rules.gpu.ecc" in ended.out) is (offset < 0)
