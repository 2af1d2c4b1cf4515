"""Rules and policy (`envlock.rules`, `envlock.policy`)."""

import contextlib
import tomllib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
import samples
from hypothesis import given
from hypothesis import strategies as st
from samples import facts, gpu_facts, host, lock

from envlock.errors import LockfileError
from envlock.facts import OUTCOMES, UNANSWERED, VALUE, Observed, absent, value
from envlock.lockfile import Rule, read_rules
from envlock.policy import default_rules, fits, locked_keys, policy_of, policy_of_lock, rules_of
from envlock.registry import REGISTRY
from envlock.rules import Outcome, parse
from envlock.tables import Table


def judged(rule: str, expected: Observed, observed: Observed, unit: str = "") -> Outcome:
    return parse(rule, unit).judge(expected, observed).outcome


HIDDEN = absent("hidden", detail="the hypervisor shows none")
NONE = absent("not-supported")


@pytest.mark.parametrize(
    ("rule", "expected", "observed", "outcome"),
    [
        ("exact", value("a"), value("a"), "same"),
        ("exact", value("a"), value("b"), "different"),
        ("exact", value(1), value(True), "different"),
        ("exact", value(("a", "b")), value(("a",)), "different"),
        ("exact", value("96.00.5E.00.01"), value("96.00.5e.00.01"), "same"),
        ("exact", NONE, NONE, "same"),
        ("exact", NONE, value("a"), "different"),
        ("exact", value("a"), NONE, "different"),
        ("ignore", value("a"), value("b"), "same"),
        ("ignore", value("a"), HIDDEN, "same"),
        (">=535, <536", value("535.161.08"), value("535.183.01"), "same"),
        (">=535, <536", value("535.161.08"), value("550.120"), "different"),
        (">=535, <536", HIDDEN, value("535.1"), "same"),
        (">=535", value("535.1"), NONE, "different"),
        (">=535", NONE, NONE, "same"),
        (">=6.1", value("6.1"), value("6.1-rc3"), "unknown"),
        ("==96.00.5e.*", value("x"), value("96.00.5E.00.01"), "same"),
        ("within 5", value(1), value(1), "error"),
        ("within 10 W", value(700), value(690), "same"),
        ("within 10 W", value(700), value(689), "different"),
        ("within 0.5 %", value(1000), value(1005), "same"),
        ("within 0.5 %", value(1000), value(1006), "different"),
        ("within 5 %", value(0), value(0), "same"),
        ("within 5 %", value(0), value(1), "different"),
        ("within 5 %", value("100.0"), value("104.9"), "same"),
        ("within 5 %", value("fast"), value("fast"), "same"),
        ("within 5 %", value("fast"), value("slow"), "different"),
        ("within 5 %", value(1), value(True), "different"),
        ("one-of a, b", value("a"), value("b"), "same"),
        ("one-of a, b", value("a"), value("c"), "different"),
        ('one-of "a, b", c', value("a"), value("a, b"), "same"),
        ("one-of true", value(True), value(True), "same"),
        ("one-of yes", value(True), value(False), "different"),
        ("one-of a", NONE, NONE, "same"),
        ("one-of a", value("a"), NONE, "different"),
    ],
)
def test_a_rule_judges_a_pair_of_facts(rule: str, expected: Observed, observed: Observed, outcome: str) -> None:
    """Each rule says same, different or unknown; a text that is no rule is an error."""
    if outcome == "error":
        with pytest.raises(LockfileError):
            parse(rule)
    else:
        assert judged(rule, expected, observed, unit="W" if rule.endswith("W") else "") == outcome


@pytest.mark.parametrize("rule", ["exact", ">=1, <2", "within 5 %", "one-of a, b"])
@pytest.mark.parametrize("outcome", sorted(UNANSWERED))
def test_what_was_not_answered_equals_nothing(rule: str, outcome: str) -> None:
    """An unanswered fact is unknown under every rule, even against the same lack of an answer."""
    for expected in (value("1.5"), absent(outcome), NONE):
        assert judged(rule, expected, absent(outcome)) == Outcome.UNKNOWN


@pytest.mark.parametrize("rule", ["exact", "within 5 %"])
def test_a_fact_unknown_when_locked_is_not_known_to_be_the_same_now(rule: str) -> None:
    """Rules that look at the locked value cannot tell without it."""
    judgement = parse(rule).judge(HIDDEN, value(5))
    assert judgement.outcome == Outcome.UNKNOWN
    assert judgement.because == "not known when it was locked"


def test_a_judgement_says_what_was_got_and_what_was_expected() -> None:
    """The words name both sides, the tolerance, and why there is no answer."""
    within = parse("within 10 W", "W").judge(value(700), value(650))
    assert within.text() == "got 650, expected 700 within 10 W"
    hidden = parse("exact").judge(value("a"), HIDDEN)
    assert hidden.text() == "got (hidden), expected a (the hypervisor shows none)"


def test_a_tolerance_in_another_unit_of_the_same_kind_is_converted() -> None:
    """`within 1 W` on a fact in mW reaches 1000 mW, and not one more."""
    assert judged("within 1 W", value(700000), value(699000), "mW") == Outcome.SAME
    assert judged("within 1 W", value(700000), value(698999), "mW") == Outcome.DIFFERENT
    assert judged("within 1 GiB", value(1024), value(2048), "MiB") == Outcome.SAME
    assert judged("within 0.001 W", value(5), value(6), "mW") == Outcome.SAME
    assert judged("within 0.000999999 W", value(5), value(6), "mW") == Outcome.DIFFERENT


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12), st.decimals(0, 1000, places=3))
def test_a_tolerance_is_exact_arithmetic(locked: int, found: int, amount: Decimal) -> None:
    """Percent and units agree with rational numbers, at the very edge too."""
    tolerance = Fraction(amount)
    percent = judged(f"within {amount} %", value(locked), value(found))
    assert (percent == Outcome.SAME) is (abs(locked - found) <= abs(locked) * tolerance / 100)
    watts = judged(f"within {amount} W", value(locked), value(found), "mW")
    assert (watts == Outcome.SAME) is (abs(locked - found) <= tolerance * 1000)


@pytest.mark.parametrize(
    ("rule", "unit", "message", "hint"),
    [
        ("exakt", "", "unknown rule 'exakt'", "did you mean `exact`?"),
        ("", "", "unknown rule ''", "one of: >=1.2, <2, exact, ignore, one-of, within"),
        ("535.161", "", "unknown rule '535.161'", "for a version write `==535.161` or a range such as `>=535.161`"),
        ("within 5 W", "MHz", "a tolerance in 'W' does not fit a fact measured in 'MHz'", "write `within 5 MHz`"),
        ("within 5 W", "", "a tolerance in 'W' does not fit a fact without a unit", "write `within 5 %`"),
        ("within five W", "W", "not a tolerance: 'within five W'", None),
        ("within -5 %", "", "not a tolerance: 'within -5 %'", None),
        ("one-of", "", "`one-of` lists nothing", "write `one-of a, b`"),
        ("one-of a,,b", "", "not a list: 'one-of a,,b'", None),
        ('one-of "a', "", "not a list: 'one-of \"a'", None),
        (">=1,<", "", "not a version range: '>=1,<'", None),
    ],
)
def test_an_unusable_rule_is_refused_with_a_hint(rule: str, unit: str, message: str, hint: str | None) -> None:
    """The error quotes the rule and says what would do."""
    with pytest.raises(LockfileError) as caught:
        parse(rule, unit)
    assert message == caught.value.message
    assert caught.value.hint
    assert hint in (None, caught.value.hint)


_observed = st.one_of(
    st.builds(value, st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.lists(st.text(max_size=3)))),
    st.sampled_from([absent(outcome) for outcome in OUTCOMES if outcome != VALUE]),
)


@given(_observed, _observed)
def test_exact_is_symmetric_and_only_equal_answers_are_the_same(one: Observed, other: Observed) -> None:
    """Turning the sides round changes nothing; same means equal and answered on both sides."""
    outcome = judged("exact", one, other)
    assert outcome == judged("exact", other, one)
    if outcome == Outcome.SAME:
        assert one == other
        assert not {one.outcome, other.outcome} & UNANSWERED


@given(st.text(max_size=30), st.sampled_from(["", "W", "MHz"]))
def test_any_text_is_a_rule_or_an_error_in_words(text: str, unit: str) -> None:
    """No text makes the parser raise anything but `LockfileError`."""
    with contextlib.suppress(LockfileError):
        parse(text, unit)
        return
    with pytest.raises(LockfileError) as caught:
        parse(text, unit)
    assert caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("gpu.*", "gpu.name", True),
        ("*.name", "gpu.name", True),
        ("*", "gpu.name", True),
        ("gpu.*.max", "gpu.clock.max", True),
        ("gpu.*_max", "gpu.max", False),
        ("a*a", "a", False),
        ("gpu.name", "gpu.name", True),
        ("gpu.n", "gpu.name", False),
        ("*" + "a*" * 40, "a" * 39 + "b", False),
    ],
)
def test_a_star_stands_for_any_letters(pattern: str, key: str, expected: bool) -> None:
    """`*` fits any run of letters, also an empty one, and costs no time however many there are."""
    assert fits(pattern, key) is expected


def test_the_most_specific_rule_judges_a_fact() -> None:
    """A name outranks any pattern, a longer pattern a shorter one; without a rule it is `exact`."""
    rules = (
        Rule(key="*", rule="ignore"),
        Rule(key="gpu.*", rule="one-of a"),
        Rule(key="gpu.clock_*", rule="within 5 %"),
        Rule(key="gpu.vbios", rule="exact"),
    )
    policy = policy_of(rules, "x.lock.toml")
    chosen = {key: policy.rule_for(key).key for key in ("gpu.vbios", "gpu.clock_sm_max", "gpu.name", "cpu.model")}
    assert chosen == {
        "gpu.vbios": "gpu.vbios", "gpu.clock_sm_max": "gpu.clock_*", "gpu.name": "gpu.*", "cpu.model": "*"
    }  # fmt: skip
    assert policy_of((), "x.lock.toml").rule_for("gpu.name").rule == "exact"


def test_two_patterns_that_fit_equally_well_are_an_error() -> None:
    """Which of them is meant is not guessed, and the error says how to decide."""
    with pytest.raises(LockfileError) as caught:
        policy_of((Rule(key="gpu.*ame", rule="exact"), Rule(key="gpu.nam*", rule="ignore")), "x.lock.toml")
    assert str(caught.value) == "x.lock.toml: `gpu.*ame` and `gpu.nam*` fit `gpu.name` equally well, at `policy.rules`"
    assert caught.value.hint == "add a rule for `gpu.name` itself"


def test_a_rule_for_a_fact_that_does_not_exist_is_an_error() -> None:
    """A slip of the pen would judge nothing: the nearest fact is named."""
    with pytest.raises(LockfileError) as caught:
        policy_of((Rule(key="gpu.vbois", rule="exact"),), "x.lock.toml")
    assert str(caught.value) == 'x.lock.toml: no such fact, at `policy.rules."gpu.vbois"`'
    assert caught.value.hint == "did you mean `gpu.vbios`?"


@pytest.mark.parametrize(
    ("key", "text"),
    [("nvidia.driver", "within 10 %"), ("gpu.mig", "within 10 %"), ("gpu.ecc", ">=1"), ("cpu.flags", "!=1")],
)
def test_a_rule_by_name_that_could_never_judge_its_fact_is_refused(key: str, text: str) -> None:
    """It would be another rule in disguise, or unknown for ever."""
    with pytest.raises(LockfileError, match="cannot judge a fact of the type") as caught:
        rules_of(host(), (Rule(key=key, rule=text),), "envlock.toml")
    assert "exact" in (caught.value.hint or "")
    assert rules_of(host(), (Rule(key="gpu.memory", rule="within 10 %"), Rule(key="gpu.cores", rule=">=1")), "x")


def test_a_pattern_that_fits_no_fact_is_an_error() -> None:
    """A waiver or a tolerance that judges nothing would be lost without a word."""
    with pytest.raises(LockfileError, match="fits no fact") as caught:
        policy_of((Rule(key="gpu.power_limits*", rule="exact", reason="r", until="2099-01-01"),), "envlock.toml")
    assert caught.value.hint == "did you mean `gpu.power_limit`?"
    policy_of((Rule(key="gpu.power_*", rule="exact"),), "envlock.toml")


def test_what_is_unknown_is_allowed_by_name_and_never_by_a_pattern() -> None:
    """One careless star would turn a dead driver into a match."""
    with pytest.raises(LockfileError) as caught:
        policy_of((Rule(key="gpu.*", rule="exact", unknown="allow"),), "x.lock.toml")
    assert str(caught.value) == 'x.lock.toml: a pattern cannot allow what is unknown, at `policy.rules."gpu.*"`'
    assert "name each fact" in (caught.value.hint or "")


def test_a_rule_may_name_a_locked_fact_that_this_envlock_does_not_know() -> None:
    """A lockfile from a newer envlock is judged by its own rules."""
    policy = policy_of((Rule(key="gpu.new", rule="ignore"),), "x.lock.toml", locked=("gpu.new",))
    assert policy.rule_for("gpu.new").rule == "ignore"


@pytest.mark.parametrize("key", ["gpu.power_limit", "gpu.power_*", "nothing.like.*"])
def test_an_unusable_rule_is_found_even_when_no_fact_asks_for_it(key: str) -> None:
    """Rules are checked when the lockfile is read, patterns too, and the key is named."""
    with pytest.raises(LockfileError) as caught:
        policy_of((Rule(key=key, rule="within 5 MHz"),), "x.lock.toml")
    assert caught.value.key == f'policy.rules."{key}"'


def test_every_locked_fact_gets_one_default_rule_by_name() -> None:
    """Rule and severity are the registry's; facts of several GPU groups get one rule each."""
    locked = host([gpu_facts(), gpu_facts(vbios=value("96.00.A5.00.01"))])
    rules = {rule.key: rule for rule in default_rules(locked)}
    assert tuple(rules) == locked_keys(locked)
    assert rules["gpu.power_limit"].rule == REGISTRY["gpu.power_limit"].rule == "within 1000 mW"
    assert rules["nvidia.driver"].severity == REGISTRY["nvidia.driver"].severity == "error"
    assert rules["gpu.name"].severity == "warning"


def test_a_fact_unknown_to_the_registry_is_exact() -> None:
    """What nobody described is judged by the strictest rule."""
    (rule,) = [rule for rule in default_rules(host(changed={"new.fact": value(1)})) if rule.key == "new.fact"]
    assert rule == Rule(key="new.fact", rule="exact", severity="error")


def test_a_fact_that_was_not_answered_when_locked_is_allowed_by_name() -> None:
    """Only that fact gets `unknown = "allow"`, and the reason is written beside it."""
    allowed = [
        rule for rule in default_rules(host([gpu_facts(ecc=absent("no-permission"))])) if rule.unknown == "allow"
    ]
    assert [(rule.key, rule.reason) for rule in allowed] == [
        ("cpu.microcode", "hidden when it was locked"),
        ("gpu.ecc", "no permission when it was locked"),
    ]


def allowed_of_gpus(gpus: list[dict[str, Observed]]) -> set[str]:
    return {rule.key for rule in default_rules(host(gpus)) if rule.unknown == "allow" and rule.key.startswith("gpu.")}


def test_what_one_gpu_told_and_another_did_not_is_allowed_for_none() -> None:
    """A GPU that was lost when the node was locked must not allow the other seven to be dead."""
    lost = {key: absent("failed") for key in gpu_facts()}
    assert allowed_of_gpus([gpu_facts(ecc=absent("failed")), lost]) == {"gpu.ecc"}


def test_gpu_that_told_nothing_at_all_when_locked_allows_nothing() -> None:
    """Of a node whose only GPU was lost nothing is known, and nothing may be a match."""
    what = dict.fromkeys(("gpu.name", "gpu.compute_capability", "gpu.memory"), absent("failed"))
    lost = {**{key: absent("failed") for key in gpu_facts()}, **what}
    assert allowed_of_gpus([lost]) == set()


def test_every_default_rule_of_the_registry_is_a_rule_of_this_language() -> None:
    """The registry's rule fits the registry's unit, for each fact."""
    for key, entry in REGISTRY.items():
        assert parse(entry.rule, entry.unit), key
        assert entry.severity in ("error", "warning"), key


def test_the_default_policy_of_a_lockfile_is_usable() -> None:
    """What `default_rules` gives passes the check that every lockfile's rules pass."""
    held = lock(host([gpu_facts()]))
    assert policy_of_lock(held, "x.lock.toml").rule_for("gpu.vbios").rule == "exact"
    assert facts([gpu_facts()]).gpus()


def test_a_pattern_of_the_spec_is_written_out_for_each_fact_that_it_fits() -> None:
    """By-name default rules would outrank it, and it would do nothing."""
    wanted = (
        Rule(key="gpu.*", rule="ignore", severity="warning", reason="not ours"),
        Rule(key="gpu.ecc", rule="exact"),
    )
    rules = {rule.key: rule for rule in rules_of(host([gpu_facts()]), wanted, "envlock.toml")}
    assert tuple(rules) == locked_keys(host([gpu_facts()]))
    assert rules["gpu.vbios"] == Rule(key="gpu.vbios", rule="ignore", severity="warning", reason="not ours")
    assert rules["gpu.ecc"] == Rule(key="gpu.ecc", rule="exact")
    assert rules["nvidia.driver"] in default_rules(host([gpu_facts()]))


def test_a_pattern_that_fits_the_cuda_runtime_is_written_out_for_it_too() -> None:
    """No host holds it as a fact, and the lockfile judges alone: what the spec ignores or waives stays so."""
    ignored = {rule.key: rule for rule in rules_of(samples.host(), (Rule(key="*", rule="ignore"),), "x")}
    assert ignored["cuda.runtime"].rule == "ignore"
    waived = rules_of(samples.host(), (Rule(key="cuda.*", rule=">=1", reason="r", until="2099-01-01"),), "x")
    assert [(rule.key, rule.rule, rule.until) for rule in waived if rule.until] == [
        ("cuda.runtime", "exact", "2099-01-01")
    ]
    assert "cuda.runtime" not in {
        rule.key for rule in rules_of(samples.host(), (Rule(key="gpu.*", rule="ignore"),), "x")
    }


@pytest.mark.parametrize("text", [">=12.4", "within 5 %", "one-of 12, 13"])
def test_a_rule_of_the_cuda_runtime_that_could_judge_nothing_is_refused(text: str) -> None:
    """Its verdict is yes or no; the range belongs to the fact that holds the level."""
    with pytest.raises(LockfileError, match="cannot judge") as caught:
        policy_of((Rule(key="cuda.runtime", rule=text),), "x")
    assert "nvidia.cuda" in (caught.value.hint or "")


def test_a_pattern_leaves_what_may_be_unknown_as_it_was() -> None:
    """A fact that was hidden when locked stays allowed by name, with both reasons."""
    wanted = (Rule(key="cpu.*", rule="exact", severity="warning", reason="a farm of virtual machines"),)
    (rule,) = [rule for rule in rules_of(host(), wanted, "envlock.toml") if rule.key == "cpu.microcode"]
    assert (rule.severity, rule.unknown) == ("warning", "allow")
    assert rule.reason == "a farm of virtual machines; hidden when it was locked"


def test_a_rule_of_the_spec_for_a_fact_that_does_not_exist_is_an_error() -> None:
    """Named in the spec, with the nearest fact."""
    with pytest.raises(LockfileError) as caught:
        rules_of(host(), (Rule(key="gpu.eec", rule="ignore"),), "envlock.toml")
    assert (caught.value.where, caught.value.hint) == ("envlock.toml", "did you mean `gpu.ecc`?")


def test_the_rules_in_the_documentation_are_usable() -> None:
    """The example of `docs/policy.md` is a policy that a spec may hold."""
    text = (Path(__file__).resolve().parents[1] / "docs/policy.md").read_text()
    held = tomllib.loads(text.split("```toml\n", 1)[1].split("```", 1)[0])["policy"]["rules"]
    wanted = read_rules(Table(held, "docs/policy.md", LockfileError))
    assert len(wanted) == 6
    rules = {rule.key: rule.rule for rule in rules_of(host([gpu_facts()]), wanted, "envlock.toml")}
    assert rules["gpu.power_limit"] == "within 10 W"
