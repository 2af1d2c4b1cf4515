"""Waivers: what one excuses, for how long, and what becomes of it afterwards."""

import dataclasses
from datetime import date, timedelta

import pytest
from gpu_worlds import PLACES, check, hgx, locked, of, without
from hypothesis import given
from hypothesis import strategies as st

from envlock import waivers
from envlock.drift import Comparison, Kind, Verdict, compare_facts
from envlock.errors import SpecError
from envlock.facts import Facts, Observed, absent, value
from envlock.lockfile import Host, Rule
from envlock.policy import GPU_COUNT, locked_keys, policy_of, rules_of

LAST = date(2026, 11, 30)
ECC = Rule(key="gpu.ecc", rule="exact", reason="board returned, ticket 4711", until=str(LAST))
OFF = hgx(gpu_changes={"gpu.ecc": value(False), "gpu.ecc_pending": value(False)}, on=(5,))


def on(day: date, rule: Rule = ECC, observed: Facts = OFF) -> Comparison:
    return check(hgx(), observed, rule, today=day)


def test_a_waived_difference_is_shown_and_decides_nothing() -> None:
    """It is kept with its reason and last day, apart from the drifts; the verdict is a match."""
    found = on(LAST)

    assert found.verdict is Verdict.MATCH
    assert "gpu.ecc" not in {drift.key for drift in found.drifts}
    (waived,) = found.waived
    assert (waived.key, waived.device, waived.kind) == ("gpu.ecc", PLACES[5], Kind.CHANGED)
    assert (waived.expected, waived.observed) == ("yes", "no")
    assert (waived.because, waived.until) == ("board returned, ticket 4711", "2026-11-30")
    assert (waived.command, waived.reset) == ("", False)  # nobody is asked to put it right yet


def test_a_waiver_holds_up_to_and_including_its_day() -> None:
    """The day before, the day itself, and not the day after."""
    verdicts = [on(LAST + timedelta(days=days)).verdict for days in (-365, -1, 0, 1, 365)]
    assert verdicts == [Verdict.MATCH] * 3 + [Verdict.DRIFT] * 2


def test_a_waiver_that_has_ended_excuses_nothing_and_is_an_error_itself() -> None:
    """The difference is a drift again, and the waiver stands beside it."""
    found = on(LAST + timedelta(days=1))

    assert found.waived == ()
    assert [(drift.key, drift.device, drift.kind, drift.severity) for drift in found.drifts[:2]] == [
        ("gpu.ecc", "", Kind.EXPIRED, "error"),
        ("gpu.ecc", PLACES[5], Kind.CHANGED, "error"),
    ]
    expired = found.drifts[0]
    assert (expired.expected, expired.observed) == ("waived until 2026-11-30", "expired")
    assert (expired.until, expired.because) == (
        "2026-11-30", "board returned, ticket 4711: the difference is still there"
    )  # fmt: skip
    assert "a later day" in expired.fix


def test_a_waiver_that_has_ended_is_an_error_also_when_the_fact_matches_again() -> None:
    """It says that it is no longer needed, and how to remove it."""
    found = on(LAST + timedelta(days=1), observed=hgx())

    assert found.verdict is Verdict.DRIFT
    (drift,) = found.drifts
    assert drift.because == "board returned, ticket 4711: no longer needed, remove it"
    assert drift.fix == "remove `waived-until` from the rule in the spec, then run `envlock lock`"
    assert len([same for same in found.same if same[0] == "gpu.ecc"]) == 8


def test_a_waiver_that_has_ended_is_an_error_whatever_the_severity_of_its_rule() -> None:
    """A warning that was waived still has a waiver that somebody must look at."""
    rule = Rule(key="gpu.vbios", rule="exact", severity="warning", reason="flash pending", until="2026-01-01")
    found = on(LAST, rule, hgx())
    assert [(drift.kind, drift.severity) for drift in found.drifts] == [(Kind.EXPIRED, "error")]


def test_a_waiver_never_excuses_what_could_not_be_told() -> None:
    """Somebody knew the difference; nobody waived a driver that does not answer."""
    for day, state in ((LAST, ""), (LAST + timedelta(days=1), "whether it is still needed could not be told")):
        found = on(day, observed=hgx(gpu_changes={"gpu.ecc": absent("failed", detail="GPU is lost")}, on=(5,)))
        assert [(drift.kind, drift.device) for drift in of(found, "gpu.ecc") if drift.kind is not Kind.EXPIRED] == [
            (Kind.UNANSWERED, PLACES[5])
        ]
        assert found.waived == ()
        assert found.verdict is (Verdict.DRIFT if state else Verdict.UNKNOWN)
        assert [drift.because for drift in found.drifts if drift.kind is Kind.EXPIRED] == (
            [f"board returned, ticket 4711: {state}"] if state else []
        )


def test_a_missing_gpu_can_be_waived_by_the_rule_of_the_count() -> None:
    """Seven of eight while a board is away, and the other facts are judged as ever."""
    rule = Rule(key=GPU_COUNT, rule="exact", reason="one board is at the vendor's", until=str(LAST))
    seven = without(hgx(), 2, {GPU_COUNT: value(7), "nvidia.pci_count": value(8)})
    found = check(hgx(), seven, rule, today=LAST)

    assert (found.verdict, found.drifts) == (Verdict.MATCH, ())
    assert [(drift.key, drift.kind) for drift in found.waived] == [(GPU_COUNT, Kind.MISSING)]
    assert check(hgx(), seven, rule, today=LAST + timedelta(days=1)).verdict is Verdict.DRIFT


def test_everything_waived_is_something_judged() -> None:
    """A comparison whose only difference is excused is a match, not one that looked at nothing."""
    found = on(LAST)
    assert found.checked == len(found.same) + len(found.waived) + len(found.drifts)


def test_a_missing_gpu_that_is_waived_is_something_judged_too() -> None:
    """All facts ignored but the count, and the count excused: looked at, and a match."""
    host = locked(hgx())
    rules = (
        Rule(key="*", rule="ignore"),
        Rule(key=GPU_COUNT, rule="exact", reason="one board is at the vendor's", until=str(LAST)),
    )
    found = compare_facts(
        host, without(hgx(), 2, {GPU_COUNT: value(7)}), policy_of(rules, "x", locked_keys(host)), LAST
    )
    assert (found.verdict, found.drifts, len(found.waived)) == (Verdict.MATCH, (), 1)


@pytest.mark.parametrize(
    "observed",
    [
        without(hgx(), 5, {GPU_COUNT: value(7)}),
        without(hgx(), 5),
        Facts({**hgx().host, GPU_COUNT: value(0)}),
        Facts({**hgx().host, GPU_COUNT: absent("failed")}),
    ],
)
@pytest.mark.parametrize("count", ["exact", "ignore"])
def test_an_ended_waiver_is_not_called_needless_where_a_gpu_was_not_looked_at(observed: Facts, count: str) -> None:
    """The board that is away may be the one that was waived."""
    rules = (ECC, Rule(key=GPU_COUNT, rule=count))
    found = check(hgx(), observed, *rules, today=LAST + timedelta(days=1))
    (expired,) = [drift for drift in found.drifts if drift.kind is Kind.EXPIRED]
    assert expired.because == "board returned, ticket 4711: whether it is still needed could not be told"


def test_an_ended_waiver_of_a_mode_after_a_reset_is_needed_where_the_mode_itself_tells_the_difference() -> None:
    """ECC is off, now and after a reset, and told once: the waiver of the latter is not without need."""
    rule = Rule(key="gpu.ecc_pending", rule="exact", severity="warning", reason="r", until="2026-01-01")
    (expired,) = [drift for drift in on(LAST, rule).drifts if drift.kind is Kind.EXPIRED]
    assert expired.because == "r: the difference is still there"


def test_an_ended_waiver_of_a_fact_that_is_not_locked_is_an_error_and_no_judgement() -> None:
    """It is told, and so is that nothing was looked at."""
    rule = Rule(key="gpu.ecc", rule="exact", reason="x", until="2026-01-01")
    found = compare_facts(Host(facts=(), gpus=()), hgx(), policy_of((rule,), "x"), LAST)
    assert {(drift.key, drift.kind) for drift in found.drifts if not drift.device} == {("gpu.ecc", Kind.EXPIRED)}
    alone = compare_facts(Host(facts=(), gpus=()), Facts({GPU_COUNT: value(0)}), policy_of((rule,), "x"), LAST)
    assert [(drift.key, drift.kind) for drift in alone.drifts] == [
        ("host", Kind.UNANSWERED),
        ("gpu.ecc", Kind.EXPIRED),
    ]
    assert alone.drifts[1].because == "x: no longer needed, remove it"


def test_a_hand_written_waiver_of_a_pattern_ends_as_one_error() -> None:
    """A lockfile that names no fact by itself: one line for the pattern, needed or not by what it fits."""
    host = locked(hgx())
    rule = Rule(key="gpu.ec*", rule="exact", reason="x", until="2026-01-01")
    found = compare_facts(host, OFF, policy_of((rule,), "x.lock.toml", locked_keys(host)), LAST)

    (expired,) = [drift for drift in found.drifts if drift.kind is Kind.EXPIRED]
    assert (expired.key, expired.because) == ("gpu.ec*", "x: the difference is still there")


def test_a_waiver_by_pattern_is_written_out_for_the_facts_that_it_fits() -> None:
    """Each fact gets its own, with the reason; the others none."""
    wanted = (
        Rule(key="gpu.clock_*", rule="exact", severity="warning", reason="clocks under test", until="2027-01-31"),
    )
    rules = rules_of(locked(hgx()), wanted, "envlock.toml")
    held = {rule.key: rule for rule in rules if rule.until}

    assert sorted(held) == ["gpu.clock_graphics_application", "gpu.clock_memory_application"]
    assert {(rule.until, rule.reason) for rule in held.values()} == {("2027-01-31", "clocks under test")}


def test_a_waiver_by_pattern_that_has_ended_is_one_error() -> None:
    """Once for those whose difference is still there, once for those that need it no more; all are named."""
    wanted = (Rule(key="gpu.power_limit*", rule="exact", severity="warning", reason="limits", until="2026-01-01"),)
    golden = hgx(gpu_changes={"gpu.power_limit_max": value(700000), "gpu.power_limit_min": value(200000)})
    observed = hgx(gpu_changes={"gpu.power_limit_max": value(600000), "gpu.power_limit_min": value(100000)})
    host = locked(golden)
    rules = rules_of(host, wanted, "envlock.toml")
    found = compare_facts(host, observed, policy_of(rules, "x.lock.toml", locked_keys(host)), LAST)

    assert [(drift.key, drift.because) for drift in found.drifts if drift.kind is Kind.EXPIRED] == [
        ("gpu.power_limit", "limits: no longer needed, remove it (the same of gpu.power_limit_default)"),
        ("gpu.power_limit_max", "limits: the difference is still there (the same of gpu.power_limit_min)"),
    ]


def test_of_many_facts_of_an_ended_waiver_some_are_named() -> None:
    """And how many more there are."""
    wanted = (Rule(key="gpu.*", rule="exact", reason="x", until="2026-01-01"),)
    host = locked(hgx())
    policy = policy_of(rules_of(host, wanted, "envlock.toml"), "x.lock.toml", locked_keys(host))
    (expired,) = compare_facts(host, hgx(), policy, LAST).drifts

    assert expired.because.startswith("x: no longer needed, remove it (the same of gpu.board_part, gpu.brand, ")
    assert expired.because.endswith(" and 21 others)")


def test_two_waivers_with_different_days_or_reasons_are_two_errors() -> None:
    """Somebody wrote both, and somebody has to look at both."""
    rules = [
        Rule(key=key, rule="exact", reason=reason, until=until)
        for key, reason, until in (
            ("gpu.ecc", "a", "2026-01-01"), ("gpu.vbios", "a", "2026-01-02"), ("gpu.fabric", "b", "2026-01-01"),
        )
    ]  # fmt: skip
    found = check(hgx(), hgx(), *rules, today=LAST)
    assert [drift.key for drift in found.drifts] == ["gpu.ecc", "gpu.fabric", "gpu.vbios"]


def test_a_waiver_of_the_cuda_runtime_is_open_where_the_runtime_is_not_judged() -> None:
    """A lockfile and facts alone say nothing of the driver's runtime."""
    rule = Rule(key="cuda.runtime", rule="exact", reason="r", until="2026-01-01")
    (expired,) = check(hgx(), hgx(), rule, today=LAST).drifts
    assert expired.because == "r: whether it is still needed could not be told"


def test_a_waiver_in_the_spec_that_has_ended_is_refused_with_its_key() -> None:
    """Writing it would write an error; up to its last day it is taken."""
    waivers.refuse_expired((ECC,), LAST, "envlock.toml")
    with pytest.raises(SpecError) as caught:
        waivers.refuse_expired((ECC,), LAST + timedelta(days=1), "envlock.toml")
    assert str(caught.value) == (
        'envlock.toml: the waiver ended on 2026-11-30, at `policy.rules."gpu.ecc".waived-until`'
    )


@given(st.dates(min_value=date(1000, 1, 1)), st.dates(min_value=date(1000, 1, 1)))
def test_on_every_day_a_waiver_holds_or_has_ended_and_never_both(last: date, today: date) -> None:
    """Days are compared as days; a rule without a waiver is neither."""
    rule = dataclasses.replace(ECC, until=str(last))
    assert waivers.holds(rule, today) is (today <= last)
    assert waivers.expired(rule, today) is (today > last)
    plain = dataclasses.replace(ECC, until="")
    assert not waivers.holds(plain, today)
    assert not waivers.expired(plain, today)


_seen = st.sampled_from([value(True), value(False), absent("failed"), absent("not-supported")])


@given(st.lists(_seen, min_size=8, max_size=8), st.integers(-3, 3))
def test_a_waiver_turns_no_unknown_into_a_match_and_hides_no_difference(seen: list[Observed], days: int) -> None:
    """Whatever eight GPUs say: each is the same, waived, a drift or unknown, and only a holding waiver excuses."""
    facts = hgx()
    for gpu, ecc in zip(facts.gpus(), seen, strict=True):
        gpu.facts["gpu.ecc"] = ecc
    found = on(LAST + timedelta(days=days), observed=facts)
    told = [drift for drift in (*found.drifts, *found.waived) if drift.key == "gpu.ecc" and drift.device]
    same = [place for key, place in found.same if key == "gpu.ecc"]

    assert sorted([*same, *(drift.device for drift in told)]) == sorted(PLACES)
    assert bool(found.waived) <= (days <= 0)
    unknown = any(ecc.outcome == "failed" for ecc in seen)
    differs = any(ecc in (value(False), absent("not-supported")) for ecc in seen)
    if days > 0 or (differs and days > 0):
        assert found.verdict is Verdict.DRIFT
    else:
        assert found.verdict is (Verdict.UNKNOWN if unknown else Verdict.MATCH)
