"""What holds of a comparison whatever the hosts: in any order, against itself, from either side."""

from random import Random

from gpu_worlds import TODAY, locked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envlock.difference import diff_facts
from envlock.drift import Comparison, Kind, Verdict, compare_facts
from envlock.facts import OUTCOMES, VALUE, Device, Facts, Observed, absent, value
from envlock.lockfile import Rule
from envlock.policy import GPU_COUNT, locked_keys, policy_of, rules_of

any_hosts = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
profiles = st.sampled_from(["identity", "bits", "strict"])

_absences = st.sampled_from([absent(outcome) for outcome in OUTCOMES if outcome != VALUE])


def _seen(*values: str | int | bool | tuple[str, ...]) -> st.SearchStrategy[Observed]:
    return st.sampled_from([value(held) for held in values]) | _absences


_GPU = st.fixed_dictionaries(
    {},
    optional={
        "gpu.name": _seen("A", "B"),
        "gpu.vbios": _seen("96.00.5E.00.01", "96.00.5e.00.01", "96.00.99.00.01"),
        "gpu.ecc": _seen(True, False),
        "gpu.ecc_pending": _seen(True, False),
        "gpu.power_limit": _seen(700000, 700500, 650000),
        "gpu.mig_layout": _seen((), ("3g.40gb@0",), ("3g.40gb",)),
    },
)
_HOST = st.fixed_dictionaries(
    {}, optional={"nvidia.driver": _seen("535.161.08", "550.54.15"), "system.kernel": _seen("6.1-rc3", "6.1")}
)


@st.composite
def nodes(draw: st.DrawFn) -> Facts:
    """Return up to five GPUs, many alike; counted as they are, as more, not at all, or without an answer."""
    pool = draw(st.lists(_GPU, min_size=1, max_size=3))
    gpus = draw(st.lists(st.sampled_from(pool), max_size=5))
    host = dict(draw(_HOST))
    count = draw(st.sampled_from([value(len(gpus))] * 3 + [value(len(gpus) + 2), absent("failed"), None]))
    if count is not None:
        host[GPU_COUNT] = count
    return placed(host, gpus)


def placed(host: dict[str, Observed], gpus: list[dict[str, Observed]]) -> Facts:
    return Facts(host, [Device("gpu", f"0000:{index:02x}:00.0", held) for index, held in enumerate(gpus)])


def turned(facts: Facts, random: Random) -> Facts:
    """Return the same node with its GPUs in other places."""
    gpus = [gpu.facts for gpu in facts.gpus()]
    random.shuffle(gpus)
    return placed(facts.host, gpus)


def compared(golden: Facts, observed: Facts, profile: str, *wanted: Rule) -> Comparison:
    host = locked(golden)
    rules = rules_of(host, wanted, "envlock.toml", profile)
    return compare_facts(host, observed, policy_of(rules, "x.lock.toml", locked_keys(host)), TODAY)


@any_hosts
@given(nodes(), nodes(), st.randoms(use_true_random=False), profiles)
def test_the_order_of_the_gpus_decides_nothing(golden: Facts, observed: Facts, random: Random, profile: str) -> None:
    """Neither that of the observed ones nor that of the locked ones; as many facts differ."""
    found = compared(golden, observed, profile)
    other = compared(turned(golden, random), turned(observed, random), profile)

    def differ(comparison: Comparison) -> int:
        return sum(1 for drift in comparison.drifts if drift.kind is not Kind.UNANSWERED)

    assert (found.verdict, differ(found)) == (other.verdict, differ(other))


@any_hosts
@given(nodes(), profiles, st.sampled_from(["", "*", "gpu.*"]))
def test_a_host_is_never_drift_against_itself(facts: Facts, profile: str, pattern: str) -> None:
    """A match, or unknown for what gave no answer; two documents of it do not differ either."""
    wanted = (Rule(key=pattern, rule="exact"),) if pattern else ()
    assert compared(facts, facts, profile, *wanted).verdict is not Verdict.DRIFT
    assert diff_facts(facts, facts).verdict is not Verdict.DRIFT


@any_hosts
@given(nodes(), nodes())
def test_a_match_under_strict_means_that_every_locked_answer_was_given_again(golden: Facts, observed: Facts) -> None:
    """As many GPUs, each counted one described, and nothing that was left open on either side."""
    if compared(golden, observed, "strict").verdict is not Verdict.MATCH:
        return
    assert len(golden.gpus()) == len(observed.gpus())
    assert golden.host.get(GPU_COUNT) in (None, value(len(golden.gpus())))
    for key, seen in golden.host.items():
        assert seen.outcome in (VALUE, "not-supported")
        assert observed.host[key] == seen


@any_hosts
@given(nodes(), nodes())
def test_a_difference_from_one_side_is_one_from_the_other(before: Facts, after: Facts) -> None:
    """The same verdict, and as many changed facts."""
    there, back = diff_facts(before, after), diff_facts(after, before)
    assert there.verdict is back.verdict
    assert sorted(item.key for item in there.found if item.change == "changed") == sorted(
        item.key for item in back.found if item.change == "changed"
    )
