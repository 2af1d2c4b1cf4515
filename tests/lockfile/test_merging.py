"""Two lockfiles that grew out of one: merged entry by entry, with every conflict named."""

import dataclasses
import os
import re
import time
from typing import Any

import pytest
import samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_lockfiles import lockfiles

from envlock import lockfile
from envlock.errors import LockfileError
from envlock.facts import Observed, absent, value
from envlock.lockfile import DebianBase, Lockfile, PythonPackage, Rule
from envlock.lockfile.marking import marked, text_of
from envlock.lockfile.merging import Merged, merge

EXAMPLES = int(os.environ.get("ENVLOCK_EXAMPLES", "60"))
any_three = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

FIELDS = ("base", "apt", "python", "files", "determinism", "host", "policy_profile", "policy", "image", "goldens")


@st.composite
def relatives(draw: st.DrawFn, count: int = 3) -> list[Lockfile]:
    """Return lockfiles that share much: each section of each is one of two, or some entries of both."""
    pool = draw(st.lists(lockfiles, min_size=2, max_size=2))
    pool = [dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, merged=False)) for lock in pool]
    found = []
    for _ in range(count):
        chosen: dict[str, Any] = {}
        for field in FIELDS:
            first, second = (getattr(lock, field) for lock in pool)
            take = draw(st.integers(0, 3))
            if take == 3 and field in ("apt", "python", "files", "policy", "goldens"):
                key = {"files": "path", "policy": "key", "goldens": "platform"}.get(field, "name")
                both = {getattr(item, key): item for item in (*first, *second)}
                chosen[field] = tuple(both[name] for name in sorted(both))
            else:
                chosen[field] = second if take == 1 else first
        environment = pool[draw(st.integers(0, 1))].environment
        found.append(Lockfile(environment=environment, **chosen))
    return found


def taken(text: str, side: str) -> str:
    """Return a marked text with every conflict settled as `ours` or `theirs`, as a person would."""
    keep = r"\1" if side == "ours" else r"\2"
    return re.sub(r"(?ms)^<<<<<<< ours\n(.*?)^=======\n(.*?)^>>>>>>> theirs\n", keep, text)


# ---- what holds for any three --------------------------------------------------------------


@any_three
@given(relatives(2))
def test_what_only_one_side_changed_is_taken(two: list[Lockfile]) -> None:
    """merge(b, b, a) and merge(b, a, b) are a: to the byte, image and goldens too."""
    base, changed = two
    for merged in (merge(base, base, changed), merge(base, changed, base)):
        assert merged.conflicts == ()
        assert merged.ours == merged.theirs == changed
        assert text_of(merged) == lockfile.render(changed)


@any_three
@given(relatives(2), st.booleans())
def test_what_both_changed_alike_is_that(two: list[Lockfile], with_base: bool) -> None:
    """merge(b, a, a) is a, whatever b was, and without a b."""
    base, changed = two
    merged = merge(base if with_base else None, changed, changed)

    assert (merged.conflicts, merged.notes) == ((), ())
    assert merged.ours == merged.theirs == changed


@any_three
@given(relatives(), st.booleans())
def test_which_side_is_ours_decides_nothing(three: list[Lockfile], with_base: bool) -> None:
    """Turned around, the result is the same, and so are the conflicts with their sides exchanged."""
    base, left, right = three
    one = merge(base if with_base else None, left, right)
    other = merge(base if with_base else None, right, left)

    assert (one.ours, one.theirs) == (other.theirs, other.ours)
    assert {(c.entry, c.base, c.ours, c.theirs) for c in one.conflicts} == {
        (c.entry, c.base, c.theirs, c.ours) for c in other.conflicts
    }


@any_three
@given(relatives(), st.booleans())
def test_the_result_reads_and_so_does_a_conflict_that_is_settled(three: list[Lockfile], with_base: bool) -> None:
    """Clean: the text is the lockfile. Not: it is refused until settled, and `lock` then reads either side's choice."""
    base, left, right = three
    merged = merge(base if with_base else None, left, right)
    text = text_of(merged)
    if not merged.conflicts:
        assert lockfile.parse(text.encode(), "x") == merged.ours
        return
    with pytest.raises(LockfileError, match="holds a merge conflict"):
        lockfile.parse(text.encode(), "x")
    assert taken(text, "ours") == lockfile.render(merged.ours)
    for side, wanted in (("ours", merged.ours), ("theirs", merged.theirs)):
        found = lockfile.parse(taken(text, side).encode(), "x", edited=True)
        assert (found.inputs(), found.host, found.policy) == (wanted.inputs(), wanted.host, wanted.policy)


@any_three
@given(relatives(), st.booleans())
def test_no_package_is_invented_or_lost(three: list[Lockfile], with_base: bool) -> None:
    """Each package of the result is one of a side's; one that both hold unchanged is in it."""
    base, left, right = three
    merged = merge(base if with_base else None, left, right)
    for lock in (merged.ours, merged.theirs):
        assert set(lock.python) <= {*left.python, *right.python}
        assert set(left.python) & set(right.python) <= set(lock.python)


# ---- single cases ----------------------------------------------------------------------------


def lock_with(**versions: str | None) -> Lockfile:
    """Return the sample lockfile with these versions of Python packages; None leaves one out."""
    lock = samples.lock()
    held = {wheel.name: wheel for wheel in lock.python}
    for name, version in versions.items():
        if version is None:
            held.pop(name)
        else:
            held[name] = PythonPackage(
                name=name, version=version, index="default", file=f"{name}-{version}-py3-none-any.whl", size=10,
                sha256=samples.sha(f"{name}{version}"),
            )  # fmt: skip
    return dataclasses.replace(lock, python=tuple(held[name] for name in sorted(held)))


def said(merged: Merged) -> list[str]:
    return [str(conflict) for conflict in merged.conflicts]


def test_two_versions_of_one_package_are_a_conflict() -> None:
    """All three are named; the rest is merged."""
    merged = merge(
        lock_with(torch="2.12.0"), lock_with(torch="2.13.0", sympy="1.14"), lock_with(torch="2.14.1", rich="14")
    )

    assert said(merged) == ["python torch: base 2.12.0, ours 2.13.0, theirs 2.14.1"]
    assert [wheel.name for wheel in merged.ours.python] == ["numpy", "rich", "sympy", "torch"]
    assert {wheel.name: wheel.version for wheel in merged.theirs.python}["torch"] == "2.14.1"


def test_only_the_entries_in_conflict_are_marked() -> None:
    """A person edits one block, whole; what follows from it is counted anew by `envlock lock`."""
    text = text_of(merge(lock_with(torch="2.12.0"), lock_with(torch="2.13.0"), lock_with(torch="2.14.1", rich="14")))
    marked = text[text.index("<<<<<<< ours") :]

    assert text.count("<<<<<<< ours") == 1
    assert marked.startswith('<<<<<<< ours\n[[python]]\nname = "torch"\nversion = "2.13.0"\n')
    assert '=======\n[[python]]\nname = "torch"\nversion = "2.14.1"\n' in marked
    assert 'name = "rich"' in text[: text.index("<<<<<<< ours")]
    assert "\nmerged = true\n" in text


def test_hundreds_of_conflicts_are_marked_in_seconds() -> None:
    """Each by itself, in a lockfile of thousands of entries."""

    def of(every: int, version: str) -> str:
        blocks = [
            f'[[python]]\nname = "p{number}"\nversion = "{version if number % every == 0 else 1}"\n'
            for number in range(1500)
        ]
        return "\n".join(blocks)

    start = time.process_time()
    text = marked(of(3, "2"), of(3, "3"))
    assert time.process_time() - start < 5
    assert text.count("<<<<<<< ours") == 500
    assert taken(text, "ours") == of(3, "2")
    assert taken(text, "theirs") == of(3, "3")


def test_a_conflict_about_the_last_block_marks_no_other() -> None:
    """One side dropped its only golden, the other recorded it anew: what stands before it is not in question."""
    lock = samples.lock()
    changed = dataclasses.replace(lock.goldens[0], outputs=(("t1.k1", "no"),))
    text = text_of(merge(lock, dataclasses.replace(lock, goldens=()), dataclasses.replace(lock, goldens=(changed,))))
    marked = text[text.index("<<<<<<< ours") :]

    assert marked.strip("\n").endswith(">>>>>>> theirs")
    assert marked.split("=======\n")[0].strip("\n") == "<<<<<<< ours"
    assert "[[file]]" not in marked


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "words"),
    [
        ({"torch": "1"}, {"torch": None}, {"torch": "2"}, "python torch: base 1, ours removed, theirs 2"),
        ({"torch": "1"}, {"torch": "2"}, {"torch": None}, "python torch: base 1, ours 2, theirs removed"),
        ({}, {"rich": "1"}, {"rich": "2"}, "python rich: base none, ours 1, theirs 2"),
    ],
    ids=["removed and changed", "changed and removed", "added twice"],
)
def test_removed_and_changed_or_added_twice_is_a_conflict(base: Any, ours: Any, theirs: Any, words: str) -> None:
    """Neither is a change that the other side would agree to."""
    assert said(merge(lock_with(**base), lock_with(**ours), lock_with(**theirs))) == [words]


def test_the_same_version_with_another_file_is_a_conflict_that_shows_the_files() -> None:
    """A rebuilt wheel is another wheel: equal versions are not shown as if nothing differed."""
    base = lock_with(torch="1")
    sides = [
        dataclasses.replace(
            base, python=tuple(dataclasses.replace(wheel, sha256=samples.sha(name)) for wheel in base.python)
        )
        for name in ("a", "b")
    ]
    conflict = next(held for held in merge(base, *sides).conflicts if held.entry == "python torch")

    assert conflict.ours == f"1 (torch-1-py3-none-any.whl, {samples.sha('a').short})"
    assert conflict.theirs == f"1 (torch-1-py3-none-any.whl, {samples.sha('b').short})"


def test_packages_of_both_sides_are_marked_as_not_resolved() -> None:
    """Each side's set fits together; whether theirs and ours do is not known, and unknown is no match."""
    merged = merge(lock_with(), lock_with(torch="2.14.1"), lock_with(rich="14"))

    assert merged.conflicts == ()
    assert merged.ours.environment.merged
    assert any("nobody has resolved these packages as one set" in note for note in merged.notes)


def test_packages_of_one_side_are_not() -> None:
    """A fact from here and a package from there: the packages are those that one side resolved."""
    changed = samples.lock(samples.host(changed={"system.kernel": value("6.1.0-19-amd64")}))
    merged = merge(lock_with(), changed, lock_with(torch="2.14.1"))

    assert not merged.ours.environment.merged
    assert merged.ours.host == changed.host


def test_the_mark_of_an_earlier_merge_stays_until_it_is_resolved() -> None:
    """Merging a merge with what it came from settles nothing."""
    mixed = merge(lock_with(), lock_with(torch="2.14.1"), lock_with(rich="14")).ours
    again = merge(lock_with(), mixed, lock_with())
    resolved = dataclasses.replace(mixed, environment=dataclasses.replace(mixed.environment, merged=False))

    assert again.ours == mixed
    assert not merge(lock_with(), mixed, resolved).ours.environment.merged


def test_a_spec_that_one_side_changed_is_that_one_with_its_packages() -> None:
    """The digest goes where the packages went; with other packages nobody has resolved it."""
    base = lock_with()
    wanted = dataclasses.replace(base.environment, spec=samples.sha("new spec"))
    theirs = dataclasses.replace(lock_with(rich="14"), environment=wanted)

    alone = merge(base, base, theirs).ours.environment
    mixed = merge(base, lock_with(torch="2.14.1"), theirs).ours.environment

    assert (alone.spec, alone.merged) == (samples.sha("new spec"), False)
    assert (mixed.spec, mixed.merged) == (samples.sha("new spec"), True)


def test_a_spec_that_both_changed_fits_no_lockfile() -> None:
    """Git merges the spec as text; what it says then, only `envlock lock` can tell."""
    base = lock_with()
    sides = [
        dataclasses.replace(base, environment=dataclasses.replace(base.environment, spec=samples.sha(name)))
        for name in ("a", "b")
    ]
    merged = merge(base, *sides)

    assert merged.conflicts == ()
    assert merged.ours.environment.spec not in {lock.environment.spec for lock in (base, *sides)}
    assert merged.ours.environment.merged
    assert merged.notes[0] == "the spec was changed on both sides: the lockfile cannot know what it is now"


# ---- image and goldens -----------------------------------------------------------------------


def test_image_and_goldens_stay_with_their_inputs() -> None:
    """Facts from one side, a golden from the other: the inputs are the same, so both are kept."""
    base = dataclasses.replace(samples.lock(), goldens=())
    ours = dataclasses.replace(base, host=samples.host(changed={"system.kernel": value("6.2")}))
    merged = merge(base, ours, samples.lock())

    assert (merged.ours.image, merged.ours.goldens) == (samples.lock().image, samples.lock().goldens)
    assert merged.notes == ()


def test_image_and_goldens_of_other_inputs_are_dropped_and_said_so() -> None:
    """What was built of neither set proves nothing of both."""
    merged = merge(lock_with(), lock_with(torch="2.14.1"), lock_with(rich="14"))

    assert (merged.ours.image, merged.ours.goldens) == (None, ())
    assert merged.notes[0] == (
        "the inputs have changed: dropped the image digest (`envlock build` makes it anew)"
        " and 1 golden outputs (`envlock canary run --record` makes them anew)"
    )


def test_a_golden_that_the_other_side_s_inputs_have_overtaken_is_told() -> None:
    """We recorded one, they changed a package: it does not vanish without a word."""
    base = dataclasses.replace(samples.lock(), goldens=())
    theirs = dataclasses.replace(lock_with(torch="2.14.1"), image=None, goldens=())
    merged = merge(base, samples.lock(), theirs)

    assert merged.ours == theirs
    assert "1 golden outputs" in merged.notes[0]


def test_goldens_of_two_classes_are_both_kept_and_of_one_class_conflict() -> None:
    """Two people record on two hosts; on two hosts of one class only one can be right."""
    lock = samples.lock()
    base = dataclasses.replace(lock, goldens=())
    golden = lock.goldens[0]
    other = dataclasses.replace(golden, platform=(("arch", "x86_64"), ("isa", "avx2")))
    changed = dataclasses.replace(golden, outputs=(("t1.k1", "no"),))

    both = merge(base, base.with_golden(golden), base.with_golden(other))
    twice = merge(base, base.with_golden(golden), base.with_golden(changed))

    assert len(both.ours.goldens) == 2
    assert both.conflicts == ()
    assert [conflict.entry.split()[0] for conflict in twice.conflicts] == ["golden"]
    text = text_of(twice)
    assert lockfile.parse(taken(text, "theirs").encode(), "x").goldens == (changed,)


# ---- facts, rules, switches, base --------------------------------------------------------------


def test_facts_and_rules_are_merged_each_by_its_key() -> None:
    """One side moved to another kernel, the other to another driver; a rule each."""

    def with_rule(lock: Lockfile, key: str, text: str) -> Lockfile:
        rules = {**{rule.key: rule for rule in lock.policy}, key: Rule(key=key, rule=text)}
        return dataclasses.replace(lock, policy=tuple(rules[name] for name in sorted(rules)))

    ours = with_rule(samples.lock(samples.host(changed={"system.kernel": value("6.2")})), "system.kernel", ">=6.2")
    theirs = with_rule(samples.lock(samples.host(changed={"nvidia.driver": value("550.1")})), "nvidia.driver", ">=550")
    merged = merge(samples.lock(), ours, theirs)

    assert merged.conflicts == ()
    assert merged.ours.host is not None
    facts = dict(merged.ours.host.facts)
    assert (facts["system.kernel"].value, facts["nvidia.driver"].value) == ("6.2", "550.1")
    assert {rule.key: rule.rule for rule in merged.ours.policy if rule.rule.startswith(">")} == {
        "system.kernel": ">=6.2",
        "nvidia.driver": ">=550",
    }
    assert merged.notes == ("[host] holds facts of both sides: `envlock lock --update-host` observes one host anew",)


def test_a_fact_that_both_changed_is_a_conflict_absences_too() -> None:
    """Hidden here and a value there: an absence is not nothing."""
    ours = samples.lock(samples.host(changed={"system.kernel": absent("hidden")}))
    theirs = samples.lock(samples.host(changed={"system.kernel": value("6.2")}))

    assert "fact system.kernel: base 6.1.0-18-amd64, ours (hidden), theirs 6.2" in said(
        merge(samples.lock(), ours, theirs)
    )


def gpus(*facts: dict[str, Observed]) -> Lockfile:
    return samples.lock(samples.host(list(facts)))


def test_the_facts_of_a_gpu_are_merged_each_by_its_key() -> None:
    """A new VBIOS here, another power limit there, on GPUs of one name."""
    merged = merge(
        gpus(samples.gpu_facts()),
        gpus(samples.gpu_facts(vbios=value("96.00.5F.00.01"))),
        gpus(samples.gpu_facts(power_limit=value(650000))),
    )

    assert merged.ours.host is not None
    facts = dict(merged.ours.host.gpus[0].facts)
    assert (facts["gpu.vbios"].value, facts["gpu.power_limit"].value) == ("96.00.5F.00.01", 650000)


def test_a_gpu_fact_that_both_changed_names_the_gpu() -> None:
    """The model is in the sentence."""
    merged = merge(*(gpus(samples.gpu_facts(vbios=value(text))) for text in ("1.0", "1.1", "1.2")))

    assert "gpu NVIDIA H100 80GB HBM3 fact gpu.vbios: base 1.0, ours 1.1, theirs 1.2" in said(merged)


def test_gpus_that_share_a_name_are_one_entry() -> None:
    """Which of two equal names is which cannot be told: taken whole, or a conflict."""
    base = gpus(samples.gpu_facts(), samples.gpu_facts(ecc=value(False)))
    ours = gpus(samples.gpu_facts(vbios=value("1.1")), samples.gpu_facts(ecc=value(False)))
    theirs = gpus(samples.gpu_facts(), samples.gpu_facts(ecc=value(False), vbios=value("1.2")))

    assert merge(base, ours, base).ours.host == ours.host
    assert any(text.startswith("gpu: base ") for text in said(merge(base, ours, theirs)))


def test_true_here_and_one_there_are_two_changes() -> None:
    """The type is part of a value."""
    base = samples.lock()
    sides = [
        dataclasses.replace(base, determinism=dataclasses.replace(base.determinism, torch=(("deterministic", held),)))
        for held in (False, 0)
    ]

    assert said(merge(base, *sides)) == ["torch switch deterministic: base true, ours false, theirs 0"]


def test_variables_and_switches_are_merged_each_by_its_name() -> None:
    """Threads moved here, a switch was added there."""
    base = samples.lock()
    ours = dataclasses.replace(
        base, determinism=dataclasses.replace(base.determinism, threads=4, env=(("OMP_NUM_THREADS", "4"),))
    )
    theirs = dataclasses.replace(
        base, determinism=dataclasses.replace(base.determinism, torch=(("deterministic", True), ("x", 1)))
    )
    found = merge(base, ours, theirs).ours.determinism

    assert (found.threads, found.env, found.torch) == (
        4,
        (("OMP_NUM_THREADS", "4"),),
        (("deterministic", True), ("x", 1)),
    )


def test_a_base_that_both_changed_is_a_conflict() -> None:
    """The suite, and the index that packages were resolved against."""
    base = samples.lock()
    assert isinstance(base.base, DebianBase)
    index = base.base.indexes[0]
    moved = [
        dataclasses.replace(
            base, base=DebianBase(suite=suite, indexes=(dataclasses.replace(index, sha256=samples.sha(suite)),))
        )
        for suite in ("trixie", "sid")
    ]  # fmt: skip

    assert said(merge(base, *moved)) == [
        "base suite: base bookworm, ours trixie, theirs sid",
        f"base index bookworm: base {samples.sha('InRelease').short}, ours {samples.sha('trixie').short}, "
        f"theirs {samples.sha('sid').short}",
    ]
