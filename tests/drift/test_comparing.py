"""Drift between a locked host and observed facts (`envlock.drift`)."""

import random
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import GPU_FACTS, HOST_FACTS, facts, gpu_facts, host

from envlock.drift import GPU_COUNT, Comparison, Drift, Kind, Verdict, compare_facts, drift_of_facts
from envlock.facts import UNANSWERED, Device, Facts, Observed, absent, value
from envlock.lockfile import Host, Rule
from envlock.policy import default_rules, locked_keys, policy_of

TODAY = date(2026, 11, 30)


def compare(locked: Host | None, observed: Facts, *rules: Rule) -> Comparison:
    """Compare under `rules`; a fact without one is `exact`."""
    return compare_facts(locked, observed, policy_of(rules, "x.lock.toml", locked_keys(locked)), TODAY)


def compare_default(locked: Host, observed: Facts, *changed: Rule) -> Comparison:
    """Compare under the default policy of `locked`, with some rules changed."""
    rules = {rule.key: rule for rule in (*default_rules(locked), *changed)}
    return compare(locked, observed, *rules.values())


def brief(comparison: Comparison) -> list[tuple[str, str, str]]:
    return [(drift.key, drift.device, drift.kind.value) for drift in comparison.drifts]


def test_a_host_as_it_was_locked_matches() -> None:
    """Nothing differs; what was hidden when locked is allowed by name and stays visible as such."""
    eight = [gpu_facts() for _ in range(8)]
    found = compare_default(host(eight), facts(eight))

    assert found.verdict is Verdict.MATCH
    assert found.drifts == ()
    assert [drift.key for drift in found.allowed] == ["cpu.microcode"]
    assert found.allowed[0].because == "hidden when it was locked"
    assert found.checked == len(HOST_FACTS) + 1 + 8 * len(GPU_FACTS)


def test_what_is_unknown_and_not_allowed_by_name_is_no_match() -> None:
    """Hidden when locked and hidden now agree on nothing."""
    found = compare(host(), facts())

    assert found.verdict is Verdict.UNKNOWN
    assert brief(found) == [("cpu.microcode", "", "unanswered")]
    assert found.drifts[0].because == "the hypervisor shows none"


def test_a_changed_fact_is_drift_with_both_sides_and_what_to_do() -> None:
    """The drift names the key, both values, why it matters and how to put it right."""
    found = compare_default(host(), facts(host={"nvidia.driver": value("550.120")}))

    assert found.verdict is Verdict.DRIFT
    (drift,) = found.drifts
    assert (drift.key, drift.expected, drift.observed) == ("nvidia.driver", "535.161.08", "550.120")
    assert drift.why
    assert "install the locked driver" in drift.fix


@pytest.mark.parametrize("outcome", sorted(UNANSWERED))
def test_a_locked_value_that_is_not_answered_is_unknown_and_not_changed(outcome: str) -> None:
    """The lack of an answer has another verdict than another answer."""
    found = compare_default(host(), facts(host={"nvidia.driver": absent(outcome)}))
    assert found.verdict is Verdict.UNKNOWN
    assert brief(found) == [("nvidia.driver", "", "unanswered")]


def test_a_locked_fact_that_is_not_observed_at_all_is_unknown() -> None:
    """A fact missing from the document is never equal to anything, whatever its rule but `ignore`."""
    observed = facts()
    del observed.host["nvidia.driver"]
    for rule in ("exact", ">=535", "one-of 535.161.08"):
        found = compare_default(host(), observed, Rule(key="nvidia.driver", rule=rule))
        assert found.verdict is Verdict.UNKNOWN
        assert found.drifts[0].observed == "(not observed)"
    ignored = compare_default(host(), observed, Rule(key="nvidia.driver", rule="ignore"))
    assert ignored.verdict is Verdict.MATCH
    assert ignored.ignored == 1


def test_leave_not_to_know_is_no_leave_to_differ() -> None:
    """`unknown = "allow"` covers the lack of an answer, not another answer."""
    locked = host(changed={"cpu.microcode": value("0x1")})
    rule = Rule(key="cpu.microcode", rule="exact", unknown="allow")
    assert compare_default(locked, facts(host={"cpu.microcode": value("0x2")}), rule).verdict is Verdict.DRIFT
    assert compare_default(locked, facts(), rule).verdict is Verdict.MATCH


def test_a_locked_absence_and_a_value_differ() -> None:
    """`not-supported` is an answer: a value in its place is a change, and the other way round."""
    for locked, seen in ((absent("not-supported"), value("1")), (value("1"), absent("not-supported"))):
        found = compare_default(host(changed={"nvidia.driver": locked}), facts(host={"nvidia.driver": seen}))
        assert brief(found) == [("nvidia.driver", "", "changed")]
        assert found.verdict is Verdict.DRIFT


def test_drift_outranks_unknown() -> None:
    """A definite difference decides, whatever else could not be told."""
    found = compare(host(), facts(host={"nvidia.driver": value("550.120")}))
    assert [kind for _, _, kind in brief(found)] == ["changed", "unanswered"]
    assert found.verdict is Verdict.DRIFT


def test_a_warning_is_shown_and_decides_nothing() -> None:
    """Under severity `warning` a change, or no answer, leaves the verdict as it is."""
    rule = Rule(key="system.kernel", rule="exact", severity="warning")
    for seen in (value("6.1.0-21-amd64"), absent("failed")):
        found = compare_default(host(), facts(host={"system.kernel": seen}), rule)
        assert found.verdict is Verdict.MATCH
        assert [drift.severity for drift in found.drifts] == ["warning"]


def test_a_lockfile_without_a_host_is_unknown_and_says_how_to_record_one() -> None:
    """Nothing to compare with is no match."""
    found = compare(None, facts())
    assert found.verdict is Verdict.UNKNOWN
    assert "envlock lock" in found.drifts[0].fix


# ---- GPUs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [(), (Rule(key="*", rule="ignore"),)])
def test_where_no_fact_is_judged_nothing_is_known_to_match(rules: tuple[Rule, ...]) -> None:
    """A lockfile that lost its facts, or ignores all of them, says nothing about any host."""
    locked = Host(facts=(), gpus=()) if not rules else host()
    found = compare(locked, facts(), *rules)

    assert (found.verdict, found.checked) == (Verdict.UNKNOWN, 0)
    assert found.drifts[0].expected == "(no locked fact that a rule judges)"


def test_one_changed_fact_on_one_of_eight_gpus_is_one_drift_on_that_gpu() -> None:
    """The other seven pair up; the eighth is named by its PCI bus id."""
    eight = [gpu_facts() for _ in range(8)]
    changed = [*eight[:3], gpu_facts(vbios=value("96.00.A5.00.01")), *eight[4:]]
    found = compare_default(host(eight), facts(changed))
    assert brief(found) == [("gpu.vbios", "0000:03:00.0", "changed")]


def test_gpus_are_a_multiset_and_have_no_order() -> None:
    """Two kinds of GPU in another order are the same host."""
    gpus = [gpu_facts(), gpu_facts(name=value("NVIDIA L40S")), gpu_facts(), gpu_facts(name=value("NVIDIA L4"))]
    for seed in range(5):
        shuffled = random.Random(seed).sample(gpus, len(gpus))
        assert compare_default(host(gpus), facts(shuffled)).verdict is Verdict.MATCH


def test_the_letter_case_of_a_vbios_is_no_drift() -> None:
    """The same board prints it in either case."""
    found = compare_default(host([gpu_facts()]), facts([gpu_facts(vbios=value("96.00.5e.00.01"))]))
    assert found.drifts == ()


def test_a_power_limit_within_its_tolerance_is_no_drift() -> None:
    """The default rule allows what rounding does, and no more."""
    locked = host([gpu_facts()])
    assert compare_default(locked, facts([gpu_facts(power_limit=value(699500))])).drifts == ()
    found = compare_default(locked, facts([gpu_facts(power_limit=value(650000))]))
    assert found.drifts[0].expected == "700000 within 1000 mW"
    assert found.drifts[0].observed == "650000 mW"


def test_a_missing_gpu_is_drift_and_told_once() -> None:
    """Seven of eight: one drift, which says how many of what were locked."""
    eight = [gpu_facts() for _ in range(8)]
    found = compare_default(host(eight), facts(eight[:7]))
    assert brief(found) == [(GPU_COUNT, "", "missing")]
    assert found.drifts[0].expected == "8 x NVIDIA H100 80GB HBM3"
    assert found.drifts[0].observed == "7 of them"
    assert found.verdict is Verdict.DRIFT


def test_an_extra_gpu_is_drift_on_that_gpu() -> None:
    """The one that fits worst is the extra one."""
    two = [gpu_facts(), gpu_facts()]
    found = compare_default(host(two), facts([gpu_facts(), gpu_facts(name=value("NVIDIA L4")), gpu_facts()]))
    assert brief(found) == [(GPU_COUNT, "0000:01:00.0", "extra")]
    assert found.drifts[0].observed == "NVIDIA L4"


def test_a_gpu_that_does_not_answer_is_rather_paired_than_one_that_differs() -> None:
    """Of a GPU with another value and one with two values missing, the former is the extra one."""
    other = gpu_facts(ecc=value(False))
    mute = gpu_facts(vbios=absent("failed"), power_limit=absent("failed"))
    found = compare_default(host([gpu_facts()]), facts([other, mute]))
    assert (GPU_COUNT, "0000:00:00.0", "extra") in brief(found)


def test_a_gpu_is_not_extra_where_the_lock_does_not_know_how_many_there_were() -> None:
    """A host locked while its driver failed may have had this GPU."""
    locked = host(changed={GPU_COUNT: absent("failed")})
    found = compare(locked, facts([gpu_facts()], host={"cpu.microcode": absent("not-supported")}))
    assert (GPU_COUNT, "0000:00:00.0", "unanswered") in brief(found)
    assert "extra" not in {kind for _, _, kind in brief(found)}


def test_a_gpu_on_a_host_locked_without_any_is_drift() -> None:
    """No GPU is a statement about the host too."""
    found = compare_default(host(), facts([gpu_facts()]))
    assert brief(found) == [(GPU_COUNT, "0000:00:00.0", "extra")]


def test_all_gpus_gone_is_drift_when_the_driver_answered() -> None:
    """A count of zero that was really counted is a difference."""
    found = compare_default(host([gpu_facts()]), facts([]))
    assert brief(found) == [(GPU_COUNT, "", "missing")]
    assert found.verdict is Verdict.DRIFT


@pytest.mark.parametrize("count", [absent("failed", detail="driver not loaded"), absent("no-permission"), None])
def test_no_gpu_because_the_driver_gave_no_answer_is_unknown_and_not_zero(count: Observed | None) -> None:
    """Where the count itself is not known, GPUs are not missing: nobody could look."""
    observed = facts([], host={GPU_COUNT: count or value(0)})
    if count is None:
        del observed.host[GPU_COUNT]
    found = compare_default(host([gpu_facts()]), observed)
    assert brief(found) == [(GPU_COUNT, "", "unanswered")]
    assert found.verdict is Verdict.UNKNOWN
    assert found.drifts[0].because


def test_a_gpu_that_is_counted_and_does_not_answer_is_unknown() -> None:
    """Two are there and one gave its facts: the other is not known to be missing."""
    two = [gpu_facts(), gpu_facts()]
    found = compare_default(host(two), facts(two[:1], host={GPU_COUNT: value(2)}))
    assert brief(found) == [(GPU_COUNT, "", "unanswered")]
    assert found.drifts[0].because == "2 are there, 1 answered"


def test_a_rule_on_the_count_allows_more_gpus_and_still_judges_them() -> None:
    """With `>=1` seven more GPUs are fine, and each is held against the locked kind."""
    rule = Rule(key=GPU_COUNT, rule=">=1")
    seven = [gpu_facts() for _ in range(7)]
    assert compare_default(host([gpu_facts()]), facts(seven), rule).verdict is Verdict.MATCH
    odd = compare_default(host([gpu_facts()]), facts([*seven, gpu_facts(ecc=value(False))]), rule)
    assert brief(odd) == [("gpu.ecc", "0000:07:00.0", "changed")]


def test_an_ignored_count_ignores_missing_and_extra_gpus() -> None:
    """The rule of the count speaks for the GPUs themselves."""
    rule = Rule(key=GPU_COUNT, rule="ignore")
    assert compare_default(host([gpu_facts()]), facts([]), rule).drifts == ()
    assert compare_default(host(), facts([gpu_facts()]), rule).drifts == ()


def test_a_gpu_whose_facts_fail_is_unknown_on_that_gpu() -> None:
    """A lost GPU keeps its place; what it does not say is not a change."""
    lost = {key: absent("failed", detail="GPU is lost") for key in GPU_FACTS}
    found = compare_default(host([gpu_facts(), gpu_facts()]), facts([gpu_facts(), lost]))
    assert {(device, kind) for _, device, kind in brief(found)} == {("0000:01:00.0", "unanswered")}


# ---- properties ------------------------------------------------------------------------------

_answers = st.one_of(
    st.builds(value, st.one_of(st.text(max_size=4), st.integers(0, 9), st.booleans())), st.just(absent("not-supported"))
)
_outcomes = st.sampled_from([absent(outcome) for outcome in sorted(UNANSWERED)])
_host_facts = st.dictionaries(st.sampled_from(sorted(HOST_FACTS)), _answers, min_size=1)
_gpu_lists = st.lists(st.fixed_dictionaries(dict.fromkeys(GPU_FACTS, _answers)), max_size=4)


def _facts(held: dict[str, Observed], gpus: list[dict[str, Observed]]) -> Facts:
    every = {**held, GPU_COUNT: value(len(gpus))}
    return Facts(every, [Device("gpu", f"{index:02x}", dict(seen)) for index, seen in enumerate(gpus)])


def _locked(observed: Facts) -> Host:
    from envlock.lockfile import host_of

    return host_of(observed.host, [gpu.facts for gpu in observed.gpus()])


def _drifts(before: Facts, after: Facts) -> tuple[Drift, ...]:
    locked = _locked(before)
    return drift_of_facts(locked, after, (), TODAY)


@given(_host_facts, _gpu_lists)
def test_facts_that_were_answered_do_not_differ_from_themselves(
    held: dict[str, Observed], gpus: list[dict[str, Observed]]
) -> None:
    """`compare(x, x)` is empty where every fact was answered."""
    observed = _facts(held, gpus)
    assert _drifts(observed, observed) == ()


@given(_host_facts, _gpu_lists, st.data())
def test_any_single_change_is_seen(held: dict[str, Observed], gpus: list[dict[str, Observed]], data: Any) -> None:
    """One fact with another answer, or without one, on the host or on one GPU, gives exactly one drift."""
    place = data.draw(st.integers(-1, len(gpus) - 1))
    target = held if place < 0 else gpus[place]
    key = data.draw(st.sampled_from(sorted(target)))
    seen = data.draw(st.one_of(_answers, _outcomes).filter(lambda found: found != target[key]))
    changed = {**target, key: seen}
    after = _facts(
        changed if place < 0 else held, [changed if index == place else gpu for index, gpu in enumerate(gpus)]
    )
    drifts = _drifts(_facts(held, gpus), after)
    if seen.outcome in UNANSWERED:
        assert [drift.kind for drift in drifts] == [Kind.UNANSWERED]
    elif place < 0 or len(gpus) == 1:
        assert [(drift.key, drift.kind) for drift in drifts] == [(key, Kind.CHANGED)]
    else:
        # With several GPUs another pairing may tell the same change at the same cost.
        assert [drift.kind for drift in drifts] == [Kind.CHANGED]


@given(_host_facts, _gpu_lists, _host_facts, _gpu_lists)
def test_turning_the_sides_round_finds_as_much(
    held: dict[str, Observed],
    gpus: list[dict[str, Observed]],
    other: dict[str, Observed],
    more: list[dict[str, Observed]],
) -> None:
    """Under `exact` the number of changed facts is the same from both sides, missing turns to extra."""
    shared = {key: seen for key, seen in other.items() if key in held}
    before, after = _facts(held, gpus), _facts({**held, **shared}, more)
    there, back = _drifts(before, after), _drifts(after, before)

    def count(drifts: tuple[Drift, ...], kind: Kind) -> int:
        return sum(1 for drift in drifts if drift.kind is kind)

    assert count(there, Kind.CHANGED) == count(back, Kind.CHANGED)
    assert bool(count(there, Kind.MISSING)) == bool(count(back, Kind.EXTRA))
    assert bool(there) == bool(back)
