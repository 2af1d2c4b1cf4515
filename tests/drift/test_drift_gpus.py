"""How many GPUs there are, which is which, and what it costs to find out (`envlock.drift.gpus`)."""

import pytest
from gpu_worlds import CPU, DRIVER, H100, PLACES, TODAY, check, errors, hgx, locked, of, without

from envlock.drift import Kind, Verdict, compare_facts
from envlock.drift.bench import Bench
from envlock.facts import Device, Facts, Observed, Value, absent, value
from envlock.lockfile import Rule
from envlock.policy import GPU_COUNT, default_rules, locked_keys, policy_of
from envlock.registry import GPU, in_scope
from envlock.rules import Judgement

IGNORED = Rule(key=GPU_COUNT, rule="ignore")


@pytest.mark.parametrize(
    ("host", "because"),
    [
        ({}, "how many GPUs there are was not observed"),
        ({**DRIVER, GPU_COUNT: value(8)}, "8 are there, 0 answered"),
        ({**DRIVER, GPU_COUNT: absent("failed", detail="driver not loaded")}, "driver not loaded"),
    ],
)
def test_a_document_that_looked_at_no_gpu_is_unknown_and_not_a_node_without(
    host: dict[str, Observed], because: str
) -> None:
    """`probe --only` gives such documents: nobody looked, so no GPU is missing."""
    observed = Facts({**hgx().host, **dict.fromkeys((GPU_COUNT,), value(8)), **host})
    if GPU_COUNT not in host:
        del observed.host[GPU_COUNT]
    found = check(hgx(), observed)

    assert found.verdict is Verdict.UNKNOWN
    assert {(drift.kind, drift.because) for drift in of(found, GPU_COUNT)} == {(Kind.UNANSWERED, because)}


def test_only_facts_of_the_cpu_are_unknown_for_all_the_rest() -> None:
    """What is not in the document equals nothing; what is, is judged."""
    found = check(hgx(), Facts(dict(CPU)))

    assert found.verdict is Verdict.UNKNOWN
    assert {drift.kind for drift in found.drifts} == {Kind.UNANSWERED}
    assert ("cpu.model", "") in found.same


def test_an_ignored_count_does_not_make_a_dead_driver_a_match() -> None:
    """Any number of GPUs will do, but what they are is locked, and nobody could look."""
    dead = Facts({**hgx().host, GPU_COUNT: absent("failed", detail="driver not loaded")})
    found = check(hgx(), dead, IGNORED)

    assert found.verdict is Verdict.UNKNOWN
    assert of(found, "gpu.pci_id")[0].kind is Kind.UNANSWERED
    assert check(hgx(), Facts({**hgx().host, GPU_COUNT: value(0)}), IGNORED).verdict is Verdict.MATCH


def test_gpus_that_never_answered_are_unknown_also_where_they_did_not_when_locked() -> None:
    """Eight are counted and seven tell what they are: the eighth agrees with nothing, on either side."""
    seven = without(hgx(), 5)
    assert seven.host[GPU_COUNT] == value(8)
    for rule in (Rule(key=GPU_COUNT, rule="exact"), Rule(key=GPU_COUNT, rule=">=1")):
        found = check(seven, seven, rule)
        assert found.verdict is Verdict.UNKNOWN
        assert [(drift.key, drift.observed, drift.because) for drift in found.drifts] == [
            (GPU_COUNT, "7 of 8 answered", "8 are there, 7 answered")
        ]
    allowed = Rule(key=GPU_COUNT, rule="exact", unknown="allow", reason="one is kept for a guest")
    assert check(seven, seven, allowed).verdict is Verdict.MATCH


def test_a_lost_gpu_is_missing_and_the_count_is_not_told_twice() -> None:
    """The driver counts seven: one is gone, and the other seven are paired with their kind."""
    found = check(hgx(), without(hgx(), 3, {GPU_COUNT: value(7)}))

    assert errors(found) == {(GPU_COUNT, Kind.MISSING)}
    (drift,) = found.drifts
    assert (drift.expected, drift.observed) == ("8 x NVIDIA H100 80GB HBM3", "7 of them")
    assert "look for a lost GPU" in drift.fix


@pytest.mark.parametrize(("locked_count", "counted", "listed"), [(1, 2, 1), (8, 7, 6), (8, 9, 8), (2, 3, 1), (8, 2, 0)])
def test_another_number_of_gpus_is_drift_though_not_every_one_gave_its_facts(
    locked_count: int, counted: int, listed: int
) -> None:
    """Which are missing or too many cannot be told; that it is not the locked number can."""
    eight = hgx().gpus()
    every = (*eight, Device("gpu", "0000:f0:00.0", eight[0].facts))
    golden = Facts({**hgx().host, GPU_COUNT: value(locked_count)}, every[:locked_count])
    observed = Facts({**hgx().host, GPU_COUNT: value(counted)}, every[:listed])
    found = check(golden, observed)

    assert found.verdict is Verdict.DRIFT
    changed = [drift for drift in of(found, GPU_COUNT) if drift.kind is Kind.CHANGED]
    assert [(drift.expected, drift.observed) for drift in changed] == [(str(locked_count), str(counted))]
    assert {drift.kind for drift in of(found, GPU_COUNT)} == {Kind.CHANGED, Kind.UNANSWERED}


def test_a_gpu_that_was_counted_when_locked_and_gave_no_facts_then_is_not_known_to_be_the_same() -> None:
    """All eight answer now: what the eighth was, nobody knows; seven of eight locked are held against seven."""
    seven = without(hgx(), 5)
    found = check(seven, hgx())

    assert found.verdict is Verdict.UNKNOWN
    (drift,) = found.drifts
    assert (drift.key, drift.kind, drift.because) == (
        GPU_COUNT, Kind.UNANSWERED, "when it was locked: 8 are there, 7 answered"
    )  # fmt: skip
    assert check(seven, hgx(), Rule(key=GPU_COUNT, rule=">=1")).verdict is Verdict.MATCH
    assert check(seven, hgx(gpu_changes={"gpu.ecc": value(False)}), IGNORED).verdict is Verdict.DRIFT


def test_missing_gpus_of_one_name_are_added_up_whatever_else_tells_their_kinds_apart() -> None:
    """Four on each of two NUMA nodes, and one left on each: eight, of which two are left."""
    golden = hgx(gpu_changes={"gpu.numa_node": value("1")}, on=(4, 5, 6, 7))
    two = Facts({**golden.host, GPU_COUNT: value(2)}, [golden.gpus()[1], golden.gpus()[6]])
    found = check(golden, two)

    assert [(drift.kind, drift.expected, drift.observed) for drift in of(found, GPU_COUNT)] == [
        (Kind.MISSING, "8 x NVIDIA H100 80GB HBM3", "2 of them")
    ]


def test_a_lockfile_that_counts_fewer_gpus_than_it_describes_lets_none_go_missing() -> None:
    """A merge can leave such a one: seven are the number, and one of the eight described is gone."""
    host = locked(hgx({GPU_COUNT: value(7)}))
    policy = policy_of(default_rules(host), "x.lock.toml", locked_keys(host))
    found = compare_facts(host, without(hgx(), 0, {GPU_COUNT: value(7)}), policy, TODAY)

    assert [(drift.key, drift.kind) for drift in found.drifts] == [(GPU_COUNT, Kind.MISSING)]


def test_what_was_the_same_is_told_with_its_place() -> None:
    """Every judged pair is in one of the lists, and the count is their sum."""
    found = check(hgx(), hgx(gpu_changes={"gpu.ecc": absent("failed")}, on=(0,)))

    assert ("gpu.ecc", PLACES[1]) in found.same
    assert ("gpu.ecc", PLACES[0]) not in found.same
    assert len(found.same) == len(set(found.same))
    assert found.checked == len(found.same) + len(found.drifts)


def test_facts_that_name_one_part_are_never_compared() -> None:
    """Another UUID in every place is the same node."""
    facts = hgx(gpu_changes={"gpu.uuid": value("GPU-other")})
    found = check(hgx(), facts, profile="strict")
    assert found.verdict is Verdict.MATCH
    assert "gpu.uuid" not in {key for key, _ in found.same}


def _sixteen(distinct: tuple[str, ...]) -> Facts:
    """Return sixteen GPUs with every registered fact, those named `distinct` with a value of each GPU's own."""
    kinds: dict[str, Value] = {
        "string": "1.2.3",
        "integer": 1000,
        "boolean": True,
        "strings": ("7 x node", "8 x system"),
    }
    devices = []
    for index in range(16):
        held = {entry.key: value(kinds[entry.type]) for entry in in_scope(GPU)}
        held.update({key: value(f"{index}") for key in distinct})
        devices.append(Device("gpu", f"0000:{index:02x}:00.0", held))
    return Facts({**hgx().host, GPU_COUNT: value(16)}, devices)


@pytest.mark.parametrize("distinct", [(), ("gpu.vbios", "gpu.board_part", "gpu.name", "gpu.inforom")])
def test_sixteen_gpus_are_paired_by_what_differs_alone(
    distinct: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no two are alike and in another order: not every fact of each is judged against each of the others."""
    golden = _sixteen(distinct)
    host = locked(golden)
    policy = policy_of(default_rules(host), "x.lock.toml", locked_keys(host))
    held = [gpu.facts for gpu in golden.gpus()]
    turned = [Device("gpu", gpu.ident, held[(index * 7 + 3) % 16]) for index, gpu in enumerate(golden.gpus())]
    observed = Facts(golden.host, turned)
    judged: list[str] = []
    judge = Bench.judged

    def counted(bench: Bench, key: str, expected: Observed, seen: Observed | None) -> Judgement:
        judged.append(key)
        return judge(bench, key, expected, seen)

    monkeypatch.setattr(Bench, "judged", counted)
    found = compare_facts(host, observed, policy, TODAY)

    assert (found.verdict, found.drifts) == (Verdict.MATCH, ())
    assert len(host.gpus) == (16 if distinct else 1)
    # Each against each would be 16 times this.
    assert len(judged) < 2 * 16 * len(locked_keys(host))


def test_the_world_is_one_that_a_driver_could_tell() -> None:
    """The facts of the worlds are registered ones, of the registered type."""
    types = {"string": str, "integer": int, "boolean": bool, "strings": tuple}
    entries = {entry.key: entry for entry in in_scope(GPU)}
    for key, seen in H100.items():
        assert not seen.has_value or type(seen.value) is types[entries[key].type], key
