"""`envlock diff`, through the real program."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from program import Ended, envlock
from samples import facts, gpu_facts, host, lock, sha

from envlock import lockfile
from envlock.facts import Facts, absent, value
from envlock.lockfile import Lockfile

SCHEMA = Path(__file__).resolve().parents[2] / "docs/schema/diff-result.schema.json"

ANSWERED = {"cpu.microcode": value("0x2b000603")}


def write(folder: Path, name: str, held: Lockfile | Facts) -> Path:
    """Write a lockfile or facts and return the path."""
    path = folder / name
    text = lockfile.render(held) if isinstance(held, Lockfile) else json.dumps(held.to_document())
    path.write_text(text)
    return path


def diff(folder: Path, before: Lockfile | Facts, after: Lockfile | Facts, *arguments: str) -> Ended:
    return envlock("diff", write(folder, "a", before), write(folder, "b", after), *arguments)


def package(held: Lockfile, **changed: Any) -> Lockfile:
    """Return `held` with its torch package changed."""
    numpy, torch = held.python
    return dataclasses.replace(held, python=(numpy, dataclasses.replace(torch, **changed)))


def test_a_lockfile_is_the_same_as_itself(tmp_path: Path) -> None:
    """Exit 0; what both allow by name is counted, not hidden."""
    held = lock(host([gpu_facts()]))
    ended = diff(tmp_path, held, held)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"match: {tmp_path}/a and {tmp_path}/b are the same\n")
    assert "1 unknown and allowed by name" in ended.out


def test_another_version_names_both(tmp_path: Path) -> None:
    """Exit 1, under its section, before and after."""
    file = "torch-2.14.1-cp311-cp311-linux_x86_64.whl"
    ended = diff(tmp_path, lock(), package(lock(), version="2.14.1", file=file))
    assert ended.code == 1
    assert "\npython\n  changed    torch: 2.13.0 → 2.14.1\n" in ended.out


def test_the_same_version_with_other_bytes_is_said_to_be_that(tmp_path: Path) -> None:
    """A rebuilt wheel under an old version is the difference most easily missed."""
    ended = diff(tmp_path, lock(), package(lock(), sha256=sha("rebuilt")), "--format", "json")
    (found,) = [item for item in ended.document["differences"] if item["section"] == "python"]
    assert (found["change"], found["because"]) == ("other-file", "both are 2.13.0")
    assert found["before"] != found["after"]


def test_packages_come_and_go(tmp_path: Path) -> None:
    """Added on one side is removed on the other."""
    held = lock()
    fewer = dataclasses.replace(held, python=held.python[:1], apt=())
    there = diff(tmp_path, held, fewer, "--format", "json").document["differences"]
    back = diff(tmp_path, fewer, held, "--format", "json").document["differences"]
    pick = [(item["section"], item["key"], item["change"]) for item in there if item["section"] in ("python", "apt")]
    assert pick == [("python", "torch", "removed"), ("apt", "libc6", "removed")]
    assert [item["change"] for item in back if item["section"] in ("python", "apt")] == ["added", "added"]


def changes() -> dict[str, Lockfile]:
    """Return one changed lockfile for each section and kind of thing in it."""
    held = lock(host([gpu_facts()], ANSWERED))
    assert held.image is not None
    assert held.host is not None
    (golden,) = held.goldens
    replace = dataclasses.replace
    return {
        "environment": replace(held, environment=replace(held.environment, epoch=1)),
        "base": replace(held, base=replace(held.base, suite="trixie")),
        "python": package(held, sha256=sha("other")),
        "apt": replace(held, apt=(replace(held.apt[0], version="2.36-10"),)),
        "file": replace(held, files=(replace(held.files[0], sha256=sha("other")),)),
        "determinism": replace(held, determinism=replace(held.determinism, threads=4)),
        "policy": replace(held, policy=(replace(held.policy[0], severity="warning"), *held.policy[1:])),
        "host": replace(held, host=host([gpu_facts(ecc=value(False))], ANSWERED)),
        "image": replace(held, image=replace(held.image, config=sha("other"))),
        "golden": replace(held, goldens=(replace(golden, outputs=(("t1.k1", "ok"), ("t3.encoder", "other"))),)),
    }


@pytest.mark.parametrize("section", list(changes()))
def test_a_change_in_any_section_is_seen_there(tmp_path: Path, section: str) -> None:
    """Exit 1, and the section is named; JSON is valid under its schema and agrees with the text."""
    held, changed = lock(host([gpu_facts()], ANSWERED)), changes()[section]
    as_json = diff(tmp_path, held, changed, "--format", "json")
    jsonschema.validate(as_json.document, json.loads(SCHEMA.read_text()))
    assert as_json.code == as_json.document["exit-code"] == 1
    assert section in {item["section"] for item in as_json.document["differences"]}
    as_text = diff(tmp_path, held, changed)
    assert as_text.code == 1
    assert f"\n{section}\n" in as_text.out


def test_what_one_side_does_not_record_is_unknown(tmp_path: Path) -> None:
    """An image never built, a golden never run, a host never seen: exit 3 and how to record it."""
    held = lock(host(changed=ANSWERED))
    bare = dataclasses.replace(held, image=None, goldens=(), host=None)
    for before, after in ((held, bare), (bare, held)):
        ended = diff(tmp_path, before, after)
        assert ended.code == 3
        assert ended.out.startswith("unknown: could not tell whether")
        for command in ("`envlock build` records it", "`envlock canary run --record`", "`envlock lock` records them"):
            assert command in ended.out


def test_a_golden_names_its_class_and_output(tmp_path: Path) -> None:
    """The difference is in one output of one class."""
    held, changed = lock(), changes()["golden"]
    document = diff(tmp_path, held, changed, "--format", "json").document
    (found,) = [item for item in document["differences"] if item["section"] == "golden"]
    assert found["key"].startswith("class ")
    assert found["key"].endswith(" outputs.t3.encoder")


def test_the_same_facts_are_the_same(tmp_path: Path) -> None:
    """Two hosts whose facts were all answered; where a value was read from does not count."""
    here, there = facts([gpu_facts()], ANSWERED), facts([gpu_facts()], {"cpu.microcode": value("0x2b000603", "sysfs")})
    assert diff(tmp_path, here, there).code == 0


def test_facts_that_were_not_answered_are_unknown(tmp_path: Path) -> None:
    """Hidden on both hosts is not the same on both hosts."""
    ended = diff(tmp_path, facts(), facts())
    assert ended.code == 3
    assert "unknown    cpu.microcode: (hidden) → (hidden)" in ended.out


def test_a_fact_that_one_document_does_not_hold_is_unknown_from_both_sides(tmp_path: Path) -> None:
    """Not observed is neither the same nor another value."""
    full, short = facts(host=ANSWERED), facts(host=ANSWERED)
    del short.host["nvidia.driver"]
    for before, after in ((full, short), (short, full)):
        ended = diff(tmp_path, before, after, "--format", "json")
        assert ended.code == 3
        assert [(item["key"], item["change"]) for item in ended.document["differences"]] == [
            ("nvidia.driver", "unknown")
        ]


def test_facts_that_differ_in_normal_life_are_left_out(tmp_path: Path) -> None:
    """What the registry does not lock is not compared."""
    here, there = {**ANSWERED, "python.version": value("3.8.1")}, {**ANSWERED, "python.version": value("3.13.0")}
    assert diff(tmp_path, facts(host=here), facts(host=there)).code == 0


def test_gpus_are_compared_as_a_multiset(tmp_path: Path) -> None:
    """One changed fact of one GPU is that fact; a GPU less is a GPU removed, and added from the other side."""
    two = facts([gpu_facts(), gpu_facts()], ANSWERED)
    odd = facts([gpu_facts(), gpu_facts(ecc=value(False))], ANSWERED)
    one = facts([gpu_facts()], ANSWERED)
    found = diff(tmp_path, two, odd, "--format", "json").document["differences"]
    assert [(item["key"], item["device"]) for item in found] == [("gpu.ecc", "0000:01:00.0")]
    assert [item["change"] for item in diff(tmp_path, two, one, "--format", "json").document["differences"]] == [
        "removed"
    ]
    assert [item["change"] for item in diff(tmp_path, one, two, "--format", "json").document["differences"]] == [
        "added"
    ]


def test_a_driver_that_failed_hides_its_gpus_from_both_sides(tmp_path: Path) -> None:
    """No GPU listed because nobody could look: unknown, whichever side it is."""
    failed = facts([], {**ANSWERED, "nvidia.gpu_count": absent("failed", detail="driver not loaded")})
    one = facts([gpu_facts()], ANSWERED)
    assert [diff(tmp_path, *sides).code for sides in ((failed, one), (one, failed))] == [3, 3]


def test_a_lockfile_and_facts_are_compared_by_the_policy_in_either_order(tmp_path: Path) -> None:
    """The host's facts only, under the lockfile's own rules; the sides keep their order."""
    held = lock(host([gpu_facts()]))
    near = facts([gpu_facts(power_limit=value(699500))])
    assert [diff(tmp_path, *sides).code for sides in ((held, near), (near, held))] == [0, 0]

    other = facts([gpu_facts()], {"nvidia.driver": value("550.120")})
    assert "nvidia.driver: 535.161.08 → 550.120" in diff(tmp_path, held, other).out
    turned = diff(tmp_path, other, held)
    assert turned.code == 1
    assert "nvidia.driver: 550.120 → 535.161.08" in turned.out
    assert "compared: the host's facts" in turned.out


def test_one_side_may_come_from_standard_input(tmp_path: Path) -> None:
    """`-` once; twice is a usage error."""
    path = write(tmp_path, "a", facts(host=ANSWERED))
    assert envlock("diff", path, "-", stdin=path.read_bytes()).code == 0
    twice = envlock("diff", "-", "-", stdin=path.read_bytes())
    assert twice.code == 2
    assert "standard input can be read only once" in twice.err


def test_equal_gpus_are_told_once(tmp_path: Path) -> None:
    """As `check` tells them: with how many, and which."""
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    before.write_text(json.dumps(facts([gpu_facts()] * 3).to_document()))
    after.write_text(json.dumps(facts([gpu_facts(vbios=value("96.00.A5.00.01"))] * 3).to_document()))
    ended = envlock("diff", before, after)
    assert ended.code == 1
    said = "gpu.vbios on 3 devices (0000:00:00.0, 0000:01:00.0, 0000:02:00.0): 96.00.5E.00.01 → 96.00.A5.00.01"
    assert ended.out.count("gpu.vbios") == 1
    assert f"  changed    {said}\n" in ended.out
    assert "3 changed" in ended.out


def test_two_documents_without_a_fact_are_unknown_and_no_lockfile_is_blamed(tmp_path: Path) -> None:
    """Exit 3; the advice is about documents of facts."""
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(Facts({}, []).to_document()))
    ended = envlock("diff", path, path)
    assert ended.code == 3
    assert "--update-host" not in ended.out
    assert "`envlock probe --format json`" in ended.out
