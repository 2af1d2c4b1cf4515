"""The lockfile: what is written is what is read, and every fault is named with its key."""

# ruff: noqa: E501 -- tables of faults read better with one fault a line

import dataclasses
import os
import re
import tomllib

import pytest
import samples
from hypothesis import HealthCheck, given, settings
from made_lockfiles import lockfiles

from envlock import __version__, lockfile
from envlock.errors import LockfileError
from envlock.facts import VALUE, Observed, absent, value
from envlock.lockfile import (
    ImageBase,
    Lockfile,
    Rule,
    host_of,
)

# ---- any lockfile -------------------------------------------------------------------------


@settings(
    max_examples=int(os.environ.get("ENVLOCK_EXAMPLES", "50")), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(lockfiles)
def test_what_is_written_is_what_is_read(lock: Lockfile) -> None:
    """Any lockfile comes back as the same value, and is written again as the same bytes."""
    text = lockfile.render(lock)
    found = lockfile.parse(text.encode(), "x")

    assert lock == found
    assert text == lockfile.render(found)
    assert lock.inputs() == found.inputs()


def test_the_file_is_one_form_whatever_order_things_were_found_in() -> None:
    """Packages, GPUs and goldens in another order are the same file: merges stay readable."""
    lock = samples.lock(samples.host([samples.gpu_facts(), samples.gpu_facts(ecc=value(False))]))
    other = samples.lock(samples.host([samples.gpu_facts(ecc=value(False)), samples.gpu_facts()]))

    assert lockfile.render(lock) == lockfile.render(other)


def test_a_file_whose_blocks_were_moved_is_the_same_lockfile() -> None:
    """A merge tool may leave `[[python]]` blocks in another order; what is locked is the same."""
    lock = samples.lock()
    text = lockfile.render(lock)
    blocks = re.findall(r"\[\[python\]\]\n(?:.+\n)+\n?", text)
    assert len(blocks) == 2
    moved = text.replace(blocks[0], "").replace(blocks[1], blocks[1] + blocks[0])

    assert text != moved
    assert lock == lockfile.parse(moved.encode(), "x")


def test_equal_gpus_are_one_group_with_a_count() -> None:
    """Eight equal GPUs are eight, not one: the count is locked."""
    host = host_of({}, [samples.gpu_facts() for _ in range(8)])

    assert [group.count for group in host.gpus] == [8]


@pytest.mark.parametrize("day", ["2026-12-31", '"2026-12-31"'])
def test_a_waiver_is_read_with_its_day(day: str) -> None:
    """A date by hand and the string that is written are one waiver; it decides nothing about the image."""
    rule = Rule(key="gpu.ecc", rule="exact", reason="board returned", until="2026-12-31")
    lock = dataclasses.replace(samples.lock(), policy=(rule,))
    text = lockfile.render(lock)

    assert 'reason = "board returned", waived-until = "2026-12-31"' in text
    assert lock == lockfile.parse(text.replace('"2026-12-31"', day).encode(), "x")
    assert samples.lock().inputs() == lock.inputs()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('rule = "exact", waived-until = "2026-12-31"', "a waiver needs a reason"),
        ('rule = "exact", reason = " ", waived-until = "2026-12-31"', "a waiver needs a reason"),
        ('rule = "exact", reason = "x", waived-until = "2026-02-30"', "2026-02-30 is not a day of the calendar"),
        ('rule = "ignore", reason = "x", waived-until = "2026-12-31"', "`ignore` judges nothing, so there is nothing to waive"),
    ],
)  # fmt: skip
def test_a_waiver_that_cannot_hold_is_refused(line: str, message: str) -> None:
    """Without a reason, on no day, or of what is never judged: nobody could review it."""
    rule = Rule(key="gpu.ecc", rule="exact", reason="board returned", until="2026-12-31")
    text = lockfile.render(dataclasses.replace(samples.lock(), policy=(rule,)))
    start = text.index('"gpu.ecc" = {', text.index("[policy.rules]"))
    text = text[:start] + f'"gpu.ecc" = {{{line}}}' + text[text.index("\n", start) :]
    with pytest.raises(LockfileError) as caught:
        lockfile.parse(text.encode(), "x")

    assert str(caught.value) == f'x: {message}, at `policy.rules."gpu.ecc".waived-until`'


def test_the_profile_of_an_old_lockfile_is_read_under_its_new_name() -> None:
    """`default` was the only one of format 1, and is called `bits` now."""
    text = lockfile.render(samples.lock()).replace('[policy]\nprofile = "strict"', '[policy]\nprofile = "default"')
    text = text.replace("lock-version = 2", "lock-version = 1")

    assert lockfile.parse(text.encode(), "x").policy_profile == "bits"


def test_true_and_one_are_two_different_gpus() -> None:
    """The type is part of a fact: grouping never takes `true` for `1` nor `"1"`."""
    host = host_of({}, [{"gpu.x": value(True)}, {"gpu.x": value(1)}, {"gpu.x": value("1")}])

    assert [group.count for group in host.gpus] == [1, 1, 1]


def test_two_spellings_of_one_firmware_are_one_group() -> None:
    """The letter case of a VBIOS is the system's, not the board's."""
    host = host_of({}, [samples.gpu_facts(), samples.gpu_facts(vbios=value("96.00.5e.00.01"))])

    assert [group.count for group in host.gpus] == [2]
    assert dict(host.gpus[0].facts)["gpu.vbios"] == value("96.00.5E.00.01")


def test_where_a_fact_was_read_is_not_locked() -> None:
    """The source of a value is told by the probe; it names files of one host."""
    host = host_of({"a": Observed(VALUE, 1, source="/proc/x")}, [{"b": absent("hidden", "/dev/x", "masked")}])

    assert host.facts[0][1].source == ""
    assert (host.gpus[0].facts[0][1].source, host.gpus[0].facts[0][1].detail) == ("", "")


INPUTS = [
    ("platform", lambda lock: dataclasses.replace(lock.environment, platform="linux/arm64"), "environment"),
    ("python", lambda lock: dataclasses.replace(lock.environment, python="3.12"), "environment"),
    ("interpreter", lambda lock: dataclasses.replace(lock.environment, interpreter="/usr/bin/python3"), "environment"),
    ("epoch", lambda lock: dataclasses.replace(lock.environment, epoch=1), "environment"),
    ("base", lambda lock: dataclasses.replace(lock.base, suite="trixie"), "base"),
    ("apt", lambda lock: (), "apt"),
    ("apt hash", lambda lock: (dataclasses.replace(lock.apt[0], sha256=samples.sha("x")),), "apt"),
    ("python packages", lambda lock: lock.python[:1], "python"),
    ("wheel hash", lambda lock: (dataclasses.replace(lock.python[0], sha256=samples.sha("x")), lock.python[1]), "python"),
    ("files", lambda lock: (), "files"),
    ("file path", lambda lock: (dataclasses.replace(lock.files[0], path="/x"),), "files"),
    ("env", lambda lock: dataclasses.replace(lock.determinism, env=()), "determinism"),
    ("torch", lambda lock: dataclasses.replace(lock.determinism, torch=()), "determinism"),
    ("threads", lambda lock: dataclasses.replace(lock.determinism, threads=3), "determinism"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "change", "field"), INPUTS, ids=[case[0] for case in INPUTS])
def test_what_decides_the_image_is_in_the_inputs_digest(what: str, change, field: str) -> None:  # type: ignore[no-untyped-def]
    """Each of these changes the image, so each changes its inputs."""
    lock = samples.lock()

    assert lock.inputs() != dataclasses.replace(lock, **{field: change(lock)}).inputs()


OUTSIDE = [
    ("name", {"environment": dataclasses.replace(samples.lock().environment, name="other")}),
    ("spec", {"environment": dataclasses.replace(samples.lock().environment, spec=samples.sha("other"))}),
    ("merged", {"environment": dataclasses.replace(samples.lock().environment, merged=True)}),
    ("host", {"host": None}),
    ("policy", {"policy": ()}),
    ("image", {"image": None}),
    ("goldens", {"goldens": ()}),
]


@pytest.mark.parametrize(("what", "change"), OUTSIDE, ids=[case[0] for case in OUTSIDE])
def test_what_does_not_decide_the_image_is_not(what: str, change: dict[str, object]) -> None:
    """Another host with the same packages has the same inputs: that is the claim."""
    lock = samples.lock()

    assert lock.inputs() == dataclasses.replace(lock, **change).inputs()  # type: ignore[arg-type]


# ---- broken lockfiles -----------------------------------------------------------------------


def good() -> str:
    return lockfile.render(samples.lock())


def line_of(text: str, start: str) -> str:
    return next(line for line in text.splitlines(keepends=True) if line.startswith(start))


FAULTS = [
    ("lock-version = 2", "lock-version = 3", "format version 3 is newer than this envlock reads (2), at `lock-version`"),
    ("lock-version = 2", "lock-version = 0", "unknown format version 0, at `lock-version`"),
    ("lock-version = 2", 'lock-version = "1"', "unexpected type string (expected integer), at `lock-version`"),
    ("lock-version = 2\n", "", "missing key, at `lock-version`"),
    ('name = "sample"', 'name = "Sample"', "unexpected value 'Sample' (expected lower-case letters, digits, `.`, `_`, `-`), at `environment.name`"),
    ('platform = "linux/amd64"', 'platform = "windows"', "unknown value 'windows', at `environment.platform`"),
    ("epoch = 1700000000", "epoch = 1.5", "unexpected type float (expected integer), at `environment.epoch`"),
    ('kind = "debian"', 'kind = "ubuntu"', "unknown value 'ubuntu', at `base.kind`"),
    ('components = ["main"]', 'components = ["main; id"]', "unexpected value 'main; id' (expected a component such as `main`), at `base.index[0].components[0]`"),
    ("threads = 2", "threads = 0", "0 is less than 1, at `determinism.threads`"),
    ('OMP_NUM_THREADS = "2"', 'OMP_NUM_THREADS = "2\\nRUN id"', "holds a control character, at `determinism.env.OMP_NUM_THREADS`"),
    ('OMP_NUM_THREADS = "2"', '"OMP NUM" = "2"', 'not the name of an environment variable, at `determinism.env."OMP NUM"`'),
    ("deterministic = true", "deterministic = 1.5", "expected a string, an integer or a boolean, at `determinism.torch.deterministic`"),
    ('name = "libc6"', 'name = "libc6;id"', "unexpected value 'libc6;id' (expected a package name), at `apt[0].name`"),
    ('architecture = "amd64"', 'architecture = "i386"', "unknown value 'i386', at `apt[0].architecture`"),
    ('file = "pool/main/g', 'file = "../pool/main/g', "unexpected value '../pool/main/g/glibc/libc6_2.36-9_amd64.deb' (expected a path in the archive's pool), at `apt[0].file`"),
    ("size = 2700000", "size = 0", "0 is less than 1, at `apt[0].size`"),
    ("-linux_x86_64.whl", "-linux_x86_64.tar.gz", "unexpected value 'numpy-2.4.6-cp311-cp311-linux_x86_64.tar.gz' (expected the file name of a wheel), at `python[0].file`"),
    ('file = "numpy', 'file = "../numpy', "unexpected value '../numpy-2.4.6-cp311-cp311-linux_x86_64.whl' (expected the file name of a wheel), at `python[0].file`"),
    ('path = "/opt/model.bin"', 'path = "/opt/../x"', "unexpected value '/opt/../x' (expected an absolute path in the image), at `file[0].path`"),
    ('source = "model.bin"', 'source = "/etc/shadow"', "unexpected value '/etc/shadow' (expected a path beside the spec), at `file[0].source`"),
    ('name = "torch"', 'name = "numpy"', "two entries for 'numpy', at `python[1]`"),
    ('"cpu.uniform" = true', '"cpu.uniform" = 1.5', 'not a fact value (string, integer, boolean, array, or an outcome), at `host.facts."cpu.uniform"`'),
    ('outcome = "hidden"', 'outcome = "hiden"', 'unknown value \'hiden\', at `host.facts."cpu.microcode".outcome`'),
    ('owner = "system"', "owner = 1", "unexpected type integer (expected string), at `image.layer[0].owner`"),
    ("[determinism.env]", "[determinism.envs]", "unknown key, at `determinism.envs`"),
    ("[host.facts]", "[hosts.facts]", "unknown key, at `hosts`"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), FAULTS)
def test_each_fault_is_named_with_its_key(old: str, new: str, message: str) -> None:
    """The whole sentence is fixed: file, what is wrong, what was expected, and the key path."""
    text = good()
    assert old in text

    with pytest.raises(LockfileError) as caught:
        lockfile.parse(text.replace(old, new, 1).encode(), "a.lock.toml")

    assert f"a.lock.toml: {message}" == str(caught.value)
    assert caught.value.exit_code == 2


def test_a_bad_digest_is_named() -> None:
    """A digest is 64 lower-case hex digits; nothing shorter passes for one."""
    text = good()
    broken = text.replace(str(samples.sha("torch")), "sha256:ABC", 1)

    with pytest.raises(LockfileError, match=r"not a digest .*'sha256:ABC', at `python\[1\].sha256`"):
        lockfile.parse(broken.encode(), "x")


@pytest.mark.parametrize("text", ["torch", "numpy", "libc6", "model"])
def test_a_changed_hash_does_not_fit_the_inputs(text: str) -> None:
    """A hand that changes one hash is seen: the file no longer fits its own inputs digest."""
    broken = good().replace(str(samples.sha(text)), str(samples.sha("evil")))

    with pytest.raises(LockfileError, match=r"does not fit the file's content .*, at `environment.inputs`") as caught:
        lockfile.parse(broken.encode(), "x")

    assert caught.value.hint == "the file was edited by hand or merged: run `envlock lock` to write it again"


def test_a_golden_that_lost_a_line_is_refused() -> None:
    """An output that is gone could never differ again; the golden's own digest shows the loss."""
    text = good()
    line = line_of(text, '"t1.k1"')

    with pytest.raises(LockfileError, match=r"does not fit the golden's content .*, at `golden\[0\].digest`"):
        lockfile.parse(text.replace(line, "").encode(), "x")


def test_a_golden_without_outputs_is_refused() -> None:
    """Nothing differs from nothing: such a golden would say the same of every run."""
    lock = samples.lock()
    empty = dataclasses.replace(lock.goldens[0], outputs=())

    with pytest.raises(LockfileError, match=r"holds no output, at `golden\[0\].outputs`"):
        lockfile.render(dataclasses.replace(lock, goldens=(empty,)))


def test_two_goldens_of_one_class_are_refused() -> None:
    """Which of two would be right is not ours to guess."""
    text = good()
    golden = text[text.index("[[golden]]") :]

    with pytest.raises(LockfileError, match=r"two entries for one platform class, at `golden\[1\]`"):
        lockfile.parse((text + "\n" + golden).encode(), "x")


def test_a_file_cut_off_anywhere_is_an_error_or_loses_nothing() -> None:
    """No cut passes for a whole lockfile, but the one before the goldens: then there are none, which is `unknown`."""
    lock = samples.lock()
    text = good()
    whole = (lock, dataclasses.replace(lock, goldens=()))
    for end in range(len(text)):
        try:
            found = lockfile.parse(text[:end].encode(), "x")
        except LockfileError:
            continue
        assert found in whole, end


def test_no_flipped_byte_passes_unseen_in_what_decides_the_image() -> None:
    """Each byte of the packages, flipped, is an error or leaves the value the same."""
    lock = samples.lock()
    data = lockfile.render(lock).encode()
    start, end = data.index(b"[[python]]"), data.index(b"[[golden]]")
    inputs = lock.inputs()
    for position in range(start, end):
        broken = bytearray(data)
        broken[position] ^= 1
        try:
            found = lockfile.parse(bytes(broken), "x")
        except LockfileError:
            continue
        assert inputs == found.inputs(), position


def test_writing_refuses_what_would_be_read_as_something_else() -> None:
    """A value that its text form cannot hold is never written: the old file stays."""
    lock = samples.lock()
    unsorted = dataclasses.replace(lock, policy=lock.policy[::-1])

    with pytest.raises(LockfileError, match="would be read back as something else; nothing was changed"):
        lockfile.render(unsorted)


def test_the_text_names_no_place_to_fetch_from() -> None:
    """A lockfile holds files by hash; an address in it would tie it to one site."""
    assert "://" not in good()


def test_a_newer_envlock_is_asked_for_when_the_format_is_newer() -> None:
    """A format of the future is not guessed at, whatever else the file holds."""
    with pytest.raises(LockfileError) as caught:
        lockfile.parse(b"lock-version = 99\nanything = true\n", "x")

    assert (
        caught.value.hint == f"use a newer envlock than this one ({__version__}), such as the one that wrote the file"
    )


def test_the_schema_fits_what_is_written() -> None:
    """`docs/schema/lockfile.schema.json` describes the file as parsed TOML."""
    import json
    from pathlib import Path

    import jsonschema

    schema = json.loads((Path(__file__).parent.parent / "docs/schema/lockfile.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    image = dataclasses.replace(
        samples.lock(samples.host([samples.gpu_facts()])),
        base=ImageBase(
            repository="library/python", tag="3.11", digest=samples.sha("d"), config=samples.sha("c"), diff_ids=(samples.sha("l"),)
        ),
    )  # fmt: skip
    waived = dataclasses.replace(
        samples.lock(), policy=(Rule(key="gpu.ecc", rule="exact", reason="board returned", until="2026-12-31"),)
    )
    for lock in (samples.lock(), image, waived):
        jsonschema.validate(tomllib.loads(lockfile.render(lock)), schema)
    broken = tomllib.loads(good())
    broken["apt"][0]["sha256"] = "md5:00"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)
