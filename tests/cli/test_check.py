"""`envlock check`, through the real program."""

import dataclasses
import hashlib
import json
import os
import secrets
from pathlib import Path

import jsonschema
import pytest
from engine_fixtures import archive_of, tar_of
from fakes.saved_engine import saved_engine
from program import Ended, envlock
from samples import facts, gpu_facts, host, lock, sha

from envlock import lockfile
from envlock.digest import Digest, sha256
from envlock.facts import Facts, absent, value
from envlock.image.engine import Engine
from envlock.lockfile import Image, Layer, Lockfile, Rule

SCHEMAS = Path(__file__).resolve().parents[2] / "docs/schema"


def write_lock(folder: Path, held: Lockfile | None = None) -> Path:
    """Write a lockfile and return its path."""
    path = folder / "sample.lock.toml"
    path.write_text(lockfile.render(held or lock(host([gpu_facts()]))))
    return path


def write_facts(folder: Path, observed: Facts | None = None) -> Path:
    """Write a facts file and return its path."""
    path = folder / "facts.json"
    path.write_text(json.dumps((observed or facts([gpu_facts()])).to_document()))
    return path


def check(folder: Path, observed: Facts, *arguments: str, held: Lockfile | None = None) -> Ended:
    """Check `observed` against `held`."""
    return envlock("check", "-l", write_lock(folder, held), "--facts", write_facts(folder, observed), *arguments)


def test_facts_as_locked_match(tmp_path: Path) -> None:
    """Exit 0, the verdict first, the counts, and what is allowed by name."""
    ended = check(tmp_path, facts([gpu_facts()]))

    assert ended.code == 0
    assert ended.err == ""
    assert ended.out.startswith(f"match: {tmp_path}/facts.json is as `sample` was locked")
    assert "\n12 checked, no difference, 1 unknown and allowed by name" in ended.out
    assert "cpu.microcode: hidden when it was locked" in ended.out


def test_nobody_is_told_to_put_right_what_nobody_could_read(tmp_path: Path) -> None:
    """A GPU that gives no answer has a reason, and no advice to flash its firmware or to set a mode."""
    lost = absent("failed", detail="GPU is lost")
    ended = check(tmp_path, facts([gpu_facts(vbios=lost, ecc=lost)]), "--format", "json")
    assert ended.code == 3
    for drift in ended.document["drifts"]:
        assert (drift["kind"], drift["because"]) == ("unanswered", "GPU is lost")
        assert (drift["fix"], drift["command"]) == (None, None)


def test_a_changed_fact_is_drift_and_says_what_to_do(tmp_path: Path) -> None:
    """Exit 1; both values, the place, why it matters and how to put it right."""
    ended = check(tmp_path, facts([gpu_facts(vbios=value("96.00.A5.00.01"))]))

    assert ended.code == 1
    assert ended.out.splitlines()[0].startswith("drift: ")
    assert "changed    gpu.vbios on 0000:00:00.0: 96.00.5E.00.01 → 96.00.A5.00.01" in ended.out
    assert "why: firmware of the board" in ended.out
    assert "fix: flash the vendor's VBIOS of the locked version" in ended.out


def test_an_unanswered_fact_is_unknown(tmp_path: Path) -> None:
    """Exit 3: neither a match nor a difference."""
    ended = check(tmp_path, facts([gpu_facts(vbios=absent("failed", detail="GPU is lost"))]))

    assert ended.code == 3
    assert ended.out.startswith("unknown: could not tell whether")
    assert "unknown    gpu.vbios on 0000:00:00.0: 96.00.5E.00.01 → (failed)" in ended.out
    assert "because: GPU is lost" in ended.out


def test_the_same_drift_on_eight_gpus_is_one_line(tmp_path: Path) -> None:
    """Eight equal differences are told once, with the devices."""
    eight = [gpu_facts(ecc=value(False)) for _ in range(8)]
    ended = check(tmp_path, facts(eight), held=lock(host([gpu_facts()] * 8)))

    assert ended.out.count("gpu.ecc") == 1
    assert "gpu.ecc on 8 devices (0000:00:00.0, 0000:01:00.0" in ended.out
    assert "8 differences" in ended.out


def test_a_long_list_shows_only_what_differs(tmp_path: Path) -> None:
    """Of two long lists of CPU flags, the words that only one side has."""
    flags = tuple(f"flag{number:02}" for number in range(30))
    locked, seen = {"cpu.flags": value(flags)}, {"cpu.flags": value((*flags[1:], "other"))}
    ended = check(tmp_path, facts(host=seen), held=lock(host(changed=locked)))
    assert "only expected: flag00\n" in ended.out
    assert "only observed: other\n" in ended.out
    assert "flag15" not in ended.out


def test_a_value_cannot_send_control_characters_to_a_terminal(tmp_path: Path) -> None:
    """Facts may come from a stranger: escapes are shown as text."""
    ended = check(tmp_path, facts([gpu_facts()], host={"nvidia.driver": value("\x1b[2J\r\nmatch")}))
    assert "\x1b" not in ended.out
    assert "\\x1b[2J\\r\\nmatch" in ended.out


@pytest.mark.parametrize(
    "observed",
    [
        facts([gpu_facts()]),
        facts([gpu_facts(ecc=value(False))]),
        facts([gpu_facts(ecc=absent("failed"))]),
        facts([]),
        facts([gpu_facts(), gpu_facts()], host={"system.kernel": value("6.2")}),
    ],
)
def test_both_formats_tell_the_same_verdict(tmp_path: Path, observed: Facts) -> None:
    """JSON is valid under its schema, and its verdict and code are those of the text."""
    as_text = check(tmp_path, observed)
    as_json = check(tmp_path, observed, "--format", "json")

    jsonschema.validate(as_json.document, json.loads((SCHEMAS / "check-result.schema.json").read_text()))
    assert as_text.code == as_json.code == as_json.document["exit-code"]
    assert as_text.out.split(":")[0] == as_json.document["verdict"]
    total = sum(as_json.document["counts"][kind] for kind in ("changed", "missing", "extra", "unanswered", "warnings"))
    assert total == len(as_json.document["drifts"])


def test_facts_come_from_standard_input_too(tmp_path: Path) -> None:
    """`--facts -` reads the document that a probe sends through a pipe."""
    document = json.dumps(facts([gpu_facts()]).to_document()).encode()
    ended = envlock("check", "-l", write_lock(tmp_path), "--facts", "-", stdin=document)
    assert (ended.code, ended.out.split(" is as")[0]) == (0, "match: standard input")


def test_this_host_is_probed_when_nothing_else_is_named(tmp_path: Path) -> None:
    """A host locked from its own facts matches itself, and another architecture drifts."""
    probed = envlock("probe", "--format", "json").document
    seen = Facts.from_document(probed, "probe")
    held = lock(lockfile.host_of({"cpu.architecture": seen.host["cpu.architecture"]}, []))
    assert envlock("check", "-l", write_lock(tmp_path, held)).code == 0

    other = lock(lockfile.host_of({"cpu.architecture": value("riscv64")}, []))
    ended = envlock("check", "-l", write_lock(tmp_path, other))
    assert ended.code == 1
    assert "drift: this host is not as `sample` was locked" in ended.out


def test_a_lockfile_without_a_host_is_unknown_with_what_to_do(tmp_path: Path) -> None:
    """Exit 3, never a match with nothing."""
    held = dataclasses.replace(lock(), host=None, policy=())
    ended = check(tmp_path, facts(), held=held)
    assert ended.code == 3
    assert "fix: run `envlock lock --update-host` on the golden host to record it" in ended.out


def test_a_severity_of_warning_is_shown_and_exits_with_0(tmp_path: Path) -> None:
    """The kernel's rule is a warning: seen, and no drift."""
    ended = check(tmp_path, facts([gpu_facts()], host={"system.kernel": value("6.2.0")}))
    assert ended.code == 0
    assert "warning    system.kernel: 6.1.0-18-amd64 → 6.2.0" in ended.out


def test_the_result_goes_to_a_file_when_one_is_named(tmp_path: Path) -> None:
    """`-o FILE` leaves standard output empty and keeps the exit code."""
    ended = check(tmp_path, facts([]), "--format", "json", "-o", str(tmp_path / "out.json"))
    assert (ended.code, ended.out) == (1, "")
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "drift"


def test_the_lockfile_is_found_when_it_is_the_only_one(tmp_path: Path) -> None:
    """Without `-l` and without a spec: the one under `lockfiles/`; of two, a list."""
    (tmp_path / "lockfiles").mkdir()
    (tmp_path / "lockfiles/one.lock.toml").write_text(lockfile.render(lock(host([gpu_facts()]))))
    source = write_facts(tmp_path)
    assert envlock("check", "--facts", source, cwd=tmp_path).code == 0

    (tmp_path / "lockfiles/two.lock.toml").write_text(lockfile.render(lock()))
    ended = envlock("check", "--facts", source, cwd=tmp_path)
    assert ended.code == 2
    assert "lockfiles/one.lock.toml\n  lockfiles/two.lock.toml" in ended.err
    assert "hint: name one with `-l`" in ended.err


def test_an_option_comes_from_the_environment(tmp_path: Path) -> None:
    """ENVLOCK_LOCK, ENVLOCK_FORMAT and ENVLOCK_CHECK_FACTS stand for the options."""
    named = {
        "ENVLOCK_LOCK": str(write_lock(tmp_path)),
        "ENVLOCK_FORMAT": "json",
        "ENVLOCK_CHECK_FACTS": str(write_facts(tmp_path)),
    }
    assert envlock("check", cwd=tmp_path, env=named).document["verdict"] == "match"


def test_a_rule_that_cannot_be_used_names_its_key(tmp_path: Path) -> None:
    """Exit 2, the file, the key and the nearest word."""
    held = lock(host(), rules=(Rule(key="system.kernel", rule="exakt"),))
    ended = check(tmp_path, facts(), held=held)
    assert ended.code == 2
    assert f"error: {tmp_path}/sample.lock.toml: unknown rule 'exakt', at `policy.rules.\"system.kernel\"`" in ended.err
    assert "hint: did you mean `exact`?" in ended.err


# ---- images ------------------------------------------------------------------------------------

LAYERS = [tar_of({"etc/one": b"1"}), tar_of({"opt/two": b"2"})]


def config_of(archive: bytes) -> Digest:
    """Return the digest of the config in an image archive made by `archive_of`."""
    start = archive.index(b'{"architecture"')
    return Digest.from_hex(hashlib.sha256(archive[start : archive.index(b"\0", start)]).hexdigest())


def locked_image(folder: Path, name: str = "a:b") -> Path:
    """Write a lockfile whose image is `archive_of(LAYERS, name)`."""
    layers = tuple(
        Layer(owner=owner, diff_id=sha256(layer), size=len(layer))
        for owner, layer in zip(("system", "python"), LAYERS, strict=True)
    )
    image = Image(config=config_of(archive_of(LAYERS, name)), manifest=sha("manifest"), layers=layers)
    return write_lock(folder, lock().with_image(image))


def check_image(folder: Path, archive: bytes, *arguments: str, cut: int = 0) -> Ended:
    path = locked_image(folder)
    with saved_engine(folder, {"a:b": archive}, cut) as engine:
        return envlock("check", "-l", path, "--image", "a:b", *arguments, env={"DOCKER_HOST": engine})


def test_an_image_with_the_locked_bytes_matches(tmp_path: Path) -> None:
    """The bytes that the engine saves are hashed and are the locked ones; the host is not asked."""
    ended = check_image(tmp_path, archive_of(LAYERS, "a:b"))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("match: image `a:b` is as `sample` was locked")
    assert "cpu." not in ended.out


def test_an_image_with_another_layer_is_drift(tmp_path: Path) -> None:
    """The layer that differs is named with its owner."""
    ended = check_image(tmp_path, archive_of([LAYERS[0], tar_of({"opt/two": b"3"})], "a:b"), "--format", "json")
    assert ended.code == 1
    assert [drift["key"] for drift in ended.document["drifts"]] == ["image.config", "image.layer 2 (python)"]


def test_an_image_with_a_layer_less_or_more_is_drift(tmp_path: Path) -> None:
    """The number of layers is part of the identity."""
    for layers, kind in ((LAYERS[:1], "missing"), ([*LAYERS, LAYERS[0]], "extra")):
        ended = check_image(tmp_path, archive_of(layers, "a:b"), "--format", "json")
        assert [drift["kind"] for drift in ended.document["drifts"]] == ["changed", kind]


def test_an_image_whose_layer_was_altered_is_an_integrity_error(tmp_path: Path) -> None:
    """Bytes that are not what the image's own config says are exit 4."""
    altered = archive_of(LAYERS, "a:b")
    place = altered.rindex(b"opt/two") + 512
    altered = altered[:place] + b"X" + altered[place + 1 :]
    ended = check_image(tmp_path, altered, "--format", "json")
    assert ended.code == 4
    assert ended.document["schema"] == "envlock.error/1"
    assert ended.document["error"] == "IntegrityError"


@pytest.mark.parametrize("cut", [1, 2000])
def test_an_engine_that_dies_while_saving_is_no_verdict(tmp_path: Path, cut: int) -> None:
    """Exit 3 or 4, a message in words, and never a match."""
    ended = check_image(tmp_path, archive_of(LAYERS, "a:b"), cut=cut)
    assert ended.code in (3, 4)
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err


def test_an_image_that_the_engine_does_not_hold_is_unknown(tmp_path: Path) -> None:
    """Exit 3: nothing was compared."""
    path = locked_image(tmp_path)
    with saved_engine(tmp_path, {}) as engine:
        ended = envlock("check", "-l", path, "--image", "a:b", env={"DOCKER_HOST": engine})
    assert ended.code == 3
    assert "a:b" in ended.err


def test_a_lockfile_without_an_image_is_unknown_before_any_engine_is_asked(tmp_path: Path) -> None:
    """Exit 3 with a hint, also where no engine is."""
    path = write_lock(tmp_path, lock().with_image(None))
    ended = envlock("check", "-l", path, "--image", "a:b", env={"DOCKER_HOST": "unix:///nowhere.sock"})
    assert ended.code == 3
    assert "fix: run `envlock build` to record it" in ended.out


def test_an_image_and_facts_are_checked_together(tmp_path: Path) -> None:
    """With both, the worse verdict counts and both are named."""
    path = locked_image(tmp_path)
    observed = write_facts(tmp_path, facts(host={"nvidia.driver": value("550.120")}))
    with saved_engine(tmp_path, {"a:b": archive_of(LAYERS, "a:b")}) as engine:
        ended = envlock("check", "-l", path, "--image", "a:b", "--facts", observed, env={"DOCKER_HOST": engine})
    assert ended.code == 1
    assert f"drift: {observed} and image `a:b` is not as" in ended.out


@pytest.mark.engine
def test_an_image_in_a_real_engine_is_proved_from_its_bytes(tmp_path: Path, engine: Engine) -> None:
    """Loaded as locked it matches; another image under the same name is drift; removed it is unknown."""
    name = f"envlock-test-check:{secrets.token_hex(6)}"
    path = locked_image(tmp_path, name)
    try:
        engine.load(iter([archive_of(LAYERS, name)]))
        assert envlock("check", "-l", path, "--image", name, env=dict(os.environ)).code == 0
        engine.load(iter([archive_of([LAYERS[1], LAYERS[0]], name)]))
        ended = envlock("check", "-l", path, "--image", name, "--format", "json", env=dict(os.environ))
        assert ended.code == 1
        assert [drift["kind"] for drift in ended.document["drifts"]] == ["changed"] * 3
    finally:
        engine.remove_image(name)
    assert envlock("check", "-l", path, "--image", name, env=dict(os.environ)).code == 3
