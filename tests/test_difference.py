"""Two lockfiles or two hosts side by side (`envlock.difference`, `envlock.lockdiff`)."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import GPU_FACTS, HOST_FACTS, facts, gpu_facts, host, lock, sha

from envlock.difference import Change, Differences, diff_facts, reverse
from envlock.digest import Digest
from envlock.drift import Verdict
from envlock.facts import UNANSWERED, Device, Facts, Observed, absent, value
from envlock.lockdiff import diff_lockfiles
from envlock.lockfile import DebianBase, Golden, ImageBase, Lockfile, Rule

_answers = st.one_of(st.builds(value, st.text(max_size=4)), st.just(absent("not-supported")))
_anything = st.one_of(_answers, st.sampled_from([absent(outcome) for outcome in sorted(UNANSWERED)]))


@st.composite
def _hosts(draw: st.DrawFn, answers: st.SearchStrategy[Observed] = _anything) -> Facts:
    held = draw(st.dictionaries(st.sampled_from(sorted(HOST_FACTS)), answers))
    gpus = draw(st.lists(st.dictionaries(st.sampled_from(sorted(GPU_FACTS)), answers), max_size=3))
    held["nvidia.gpu_count"] = value(len(gpus))
    return Facts(held, [Device("gpu", f"{index:02x}", seen) for index, seen in enumerate(gpus)])


def _changes(differences: Differences) -> dict[Change, int]:
    return {change: differences.count(change) for change in Change if differences.count(change)}


def test_two_sides_without_any_fact_say_nothing() -> None:
    """Where nothing was observed on either side, nothing was compared."""
    assert diff_facts(Facts({}), Facts({})).verdict is Verdict.UNKNOWN


@given(_hosts(_answers))
def test_a_host_that_answered_does_not_differ_from_itself(observed: Facts) -> None:
    """Also where its GPUs do not hold the same facts: paired with themselves nothing differs but what they lack."""
    found = diff_facts(observed, observed)
    whole = len({frozenset(gpu.facts) for gpu in observed.gpus()}) <= 1
    assert found.verdict is (Verdict.MATCH if whole else Verdict.UNKNOWN)


@given(_hosts(), _hosts())
def test_the_verdict_is_the_same_from_both_sides(before: Facts, after: Facts) -> None:
    """Added turns to removed; nothing else depends on which side is named first."""
    there, back = diff_facts(before, after), diff_facts(after, before)
    assert there.verdict is back.verdict
    assert there.count(Change.CHANGED) == back.count(Change.CHANGED)
    assert bool(there.count(Change.ADDED)) == bool(back.count(Change.REMOVED))


@given(_hosts(), _hosts())
def test_reversing_twice_changes_nothing(before: Facts, after: Facts) -> None:
    """`reverse` is its own inverse, and keeps the verdict."""
    found = diff_facts(before, after)
    assert reverse(reverse(found)) == found
    assert reverse(found).verdict is found.verdict


def test_facts_of_another_kind_of_gpu_are_changed_and_not_added() -> None:
    """Two nodes with one GPU each differ in its facts."""
    found = diff_facts(facts([gpu_facts()]), facts([gpu_facts(name=value("NVIDIA L4"))]))
    assert [(item.key, item.change) for item in found.found] == [
        ("gpu.name", Change.CHANGED),
        ("cpu.microcode", Change.UNKNOWN),
    ]


def test_two_documents_of_one_node_are_compared_place_by_place() -> None:
    """Of eight equal GPUs the one that changed is named by its own bus id, not by another's."""
    before = [gpu_facts() for _ in range(8)]
    before[3], before[6] = gpu_facts(ecc=value(False)), gpu_facts(vbios=value("96.00.A5.00.01"))
    found = diff_facts(facts(before), facts([gpu_facts() for _ in range(8)]))
    assert [(item.key, item.device) for item in found.found if item.device] == [
        ("gpu.ecc", "0000:03:00.0"),
        ("gpu.vbios", "0000:06:00.0"),
    ]


@pytest.mark.parametrize(("one", "other"), [(0, 7), (7, 0), (2, 6), (6, 2)])
def test_two_changes_on_two_gpus_of_one_node_stay_on_those_two(one: int, other: int) -> None:
    """Pairing the two odd ones with each other would differ in as much, and tell another story."""
    before, after = [gpu_facts() for _ in range(8)], [gpu_facts() for _ in range(8)]
    before[one], after[other] = gpu_facts(ecc=value(False)), gpu_facts(vbios=value("96.00.A5.00.01"))
    found = diff_facts(facts(before), facts(after))
    assert {(item.key, item.device) for item in found.found if item.device} == {
        ("gpu.ecc", f"0000:{one:02x}:00.0"),
        ("gpu.vbios", f"0000:{other:02x}:00.0"),
    }


def test_gpus_that_are_listed_are_counted_where_nobody_recorded_a_count() -> None:
    """Two lockfiles from before the count was a fact: a GPU more is a GPU more, from both sides."""

    def bare(number: int) -> Lockfile:
        held = lock(host([gpu_facts() for _ in range(number)]))
        assert held.host is not None
        kept = tuple(pair for pair in held.host.facts if pair[0] != "nvidia.gpu_count")
        rules = tuple(rule for rule in held.policy if rule.key != "nvidia.gpu_count")
        return dataclasses.replace(held, host=dataclasses.replace(held.host, facts=kept), policy=rules)

    assert _changes(diff_lockfiles(bare(1), bare(2))) == {Change.ADDED: 1}
    assert _changes(diff_lockfiles(bare(2), bare(1))) == {Change.REMOVED: 1}


def test_unknown_is_allowed_only_where_both_lockfiles_allow_it_by_name() -> None:
    """One lockfile's leave is not the other's; a pattern is no name."""
    held = lock()
    strict = dataclasses.replace(held, policy=tuple(rule for rule in held.policy if rule.unknown != "allow"))
    pattern = dataclasses.replace(held, policy=(*strict.policy, Rule(key="cpu.m*", rule="exact", unknown="allow")))
    assert diff_lockfiles(held, held).verdict is Verdict.MATCH
    for before, after in ((held, strict), (held, pattern), (pattern, pattern)):
        hosts = [item for item in diff_lockfiles(before, after).found if item.section == "host"]
        assert [(item.key, item.change) for item in hosts] == [("cpu.microcode", Change.UNKNOWN)]


def every_change(held: Any) -> Iterator[tuple[str, Any]]:
    """Yield copies of a value that differ in one leaf each, with the leaf's path."""
    if dataclasses.is_dataclass(held) and not isinstance(held, type):
        for field in dataclasses.fields(held):
            if not field.compare:
                continue  # says where the value came from, and is no part of it
            for path, changed in every_change(getattr(held, field.name)):
                yield f".{field.name}{path}", dataclasses.replace(held, **{field.name: changed})
    elif isinstance(held, tuple):
        for index, item in enumerate(held):
            for path, changed in every_change(item):
                yield f"[{index}]{path}", (*held[:index], changed, *held[index + 1 :])
        is_pair = len(held) == 2 and type(held[0]) is str
        if held and not is_pair:
            yield "[-]", held[:-1]
    elif isinstance(held, Digest):
        yield "", sha(held)
    elif isinstance(held, bool):
        yield "", not held
    elif isinstance(held, int):
        yield "", held + 1
    elif isinstance(held, str):
        yield "", held + "x"
    elif isinstance(held, Observed):
        yield "", value("changed")


BASES = (
    lock().base,
    ImageBase(
        repository="library/debian",
        tag="12",
        digest=sha("index"),
        config=sha("base"),
        diff_ids=(sha("one"), sha("two")),
    ),
)


@pytest.mark.parametrize("base", BASES)
def test_no_change_of_any_value_in_a_lockfile_goes_unseen(base: DebianBase | ImageBase) -> None:
    """Whatever leaf of the lockfile differs, the two are not the same: no field is left out."""
    held = dataclasses.replace(lock(host([gpu_facts()], {"cpu.microcode": value("0x1")})), base=base)
    unseen = [path for path, changed in every_change(held) if diff_lockfiles(held, changed).verdict is Verdict.MATCH]
    assert unseen == []


def test_outputs_in_another_order_are_a_difference() -> None:
    """Their order is the order of computation."""
    held = lock()
    (golden,) = held.goldens
    turned = dataclasses.replace(held, goldens=(dataclasses.replace(golden, outputs=golden.outputs[::-1]),))
    (found,) = diff_lockfiles(held, turned).found
    assert found.key.endswith("order of outputs")


def test_a_golden_of_another_class_is_unknown_and_says_how_to_record_it() -> None:
    """No golden to hold it against."""
    held = lock()
    extra = Golden(platform=(("arch", "aarch64"),), suite="standard/1", image=None, settings=(), outputs=(("a", "b"),))
    (found,) = diff_lockfiles(held, held.with_golden(extra)).found
    assert (found.section, found.change, found.after) == ("golden", Change.UNKNOWN, "1 outputs")


def test_a_gpu_more_in_a_lockfile_is_added() -> None:
    """Groups with counts are compared as GPUs."""
    one, two = lock(host([gpu_facts()])), lock(host([gpu_facts(), gpu_facts()]))
    assert _changes(diff_lockfiles(one, two)) == {Change.ADDED: 1}
    assert _changes(diff_lockfiles(two, one)) == {Change.REMOVED: 1}
