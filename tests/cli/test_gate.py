"""`check` and `diff` as a gate, through the real program: one verdict and one code in every format, also in failure."""

import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from program import ARGV, environment, envlock
from samples import facts, gpu_facts, host, lock

from envlock import lockfile
from envlock.facts import Facts, absent, value
from envlock.lockfile import Rule
from envlock.report import formats

SCHEMA = Path(__file__).resolve().parents[2] / "docs/schema/check-result.schema.json"

OUTCOMES: dict[str, tuple[int, Facts]] = {
    "match": (0, facts([gpu_facts()])),
    "drift": (1, facts([gpu_facts(vbios=value("96.00.A5.00.01"))])),
    "unknown": (3, facts([gpu_facts(vbios=absent("failed", detail="GPU is lost"))])),
}


def sarif_code(text: str) -> int:
    return int(json.loads(text)["runs"][0]["invocations"][0]["exitCode"])


def _code(text: str) -> str:
    found = ElementTree.fromstring(text).find(".//property[@name='exit-code']")
    assert found is not None
    return found.attrib["value"]


READ: dict[str, Callable[[str], int]] = {
    "json": lambda text: int(json.loads(text)["exit-code"]),
    "junit": lambda text: int(_code(text)),
    "sarif": sarif_code,
    "gitlab": lambda text: 1 if json.loads(text) else 0,
    "github": lambda text: 1 if "\n::error " in "\n" + text else 0,
    "markdown": lambda text: 0 if "envlock check: match" in text.splitlines()[0] else 1,
    "prometheus": lambda text: int(text.split("_exit_code{")[1].split("} ")[1].split("\n")[0]),
    "text": lambda text: 0 if text.startswith("match: ") else 1,
}
EXACT = ("json", "junit", "sarif", "prometheus")


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A lockfile of a host with one GPU."""
    path = tmp_path / "sample.lock.toml"
    path.write_text(lockfile.render(lock(host([gpu_facts()]))))
    return path


@pytest.fixture(params=OUTCOMES)
def outcome(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[int, Path]:
    """The exit code that is right, and the facts file that gives it."""
    code, observed = OUTCOMES[request.param]
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(observed.to_document()))
    return code, path


def test_every_format_is_tested() -> None:
    """The tables of this file know each format there is."""
    assert set(READ) == set(formats.NAMES)


def test_the_same_code_in_every_format(locked: Path, outcome: tuple[int, Path]) -> None:
    """What a reader of the document makes of it is what the program ended with."""
    code, path = outcome
    for form in formats.NAMES:
        ended = envlock("check", "-l", locked, "--facts", path, "--format", form)
        assert (ended.code, ended.err) == (code, ""), form
        assert READ[form](ended.out) == (code if form in EXACT else min(code, 1)), form


@pytest.mark.parametrize("form", formats.NAMES)
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--facts", "missing.json"], 2),
        (["--image", "no:such"], 3),
        (["--no-such-option"], 2),
        (["surplus"], 2),
    ],
)
def test_a_failure_replaces_an_older_answer(
    tmp_path: Path, locked: Path, form: str, arguments: list[str], code: int
) -> None:
    """With `-o FILE`, whoever reads only the file finds no older match there, and no empty result."""
    out = tmp_path / "out"
    out.write_text("an old match")
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/nowhere.sock"}
    ended = envlock("check", "-l", locked, *arguments, "--format", form, "-o", out, cwd=tmp_path, env=nowhere)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("error: ")
    assert READ[form](out.read_text()) == (code if form in EXACT else 1)


def test_a_failure_without_a_file_goes_to_standard_output(locked: Path) -> None:
    """Where the result would have gone; the message for people is on standard error as always."""
    ended = envlock("check", "-l", locked, "--facts", "missing.json", "--format", "junit")
    assert junit_failures(ended.out) == ["could not tell: missing.json: no such file"]
    assert ended.err.startswith("error: missing.json: no such file")


def junit_failures(text: str) -> list[str]:
    return [each.attrib["message"] for each in ElementTree.fromstring(text).iter("failure")]


def test_the_environment_and_short_forms_are_understood_too(tmp_path: Path, locked: Path) -> None:
    """A failure finds the place and the format however they were given."""
    out = tmp_path / "out"
    for arguments, steering in (
        (["-o", str(out)], {"ENVLOCK_FORMAT": "gitlab"}),
        ([f"-o{out}", "--format=gitlab"], {}),
        ([f"--output={out}", "--format", "text", "--format", "gitlab"], {}),
        ([], {"ENVLOCK_FORMAT": "gitlab", "ENVLOCK_CHECK_OUTPUT": str(out)}),
    ):
        out.write_text("[]")
        assert envlock("check", "-l", locked, "--facts", "missing.json", *arguments, env=steering).code == 2
        assert json.loads(out.read_text())[0]["severity"] == "blocker", arguments


def test_the_options_of_another_program_are_not_ours(tmp_path: Path) -> None:
    """What follows the program that `--exec` runs says nothing about where a failure goes."""
    theirs = tmp_path / "theirs"
    theirs.write_text("a result of that program")
    for ours in ([], ["--deadline", "5"], ["--no-trace"], ["--deadline=5"]):
        argv = ["check", "-l", "missing", "--exec", *ours, "true", "--format", "json", "-o", str(theirs)]
        ended = envlock(*argv, cwd=tmp_path)
        assert (ended.code, ended.out) == (2, "")
    assert theirs.read_text() == "a result of that program"
    ended = envlock("check", "-l", "missing", "--exec", "--format", "json", "true", "--format", "junit", cwd=tmp_path)
    assert ended.document["exit-code"] == 2


def test_a_place_that_cannot_be_written_is_said_and_the_answer_is_printed(tmp_path: Path, locked: Path) -> None:
    """The document of the failure goes to standard output then; the code is that of not being able to."""
    facts_file = tmp_path / "facts.json"
    facts_file.write_text(json.dumps(facts([gpu_facts()]).to_document()))
    ended = envlock("check", "-l", locked, "--facts", facts_file, "--format", "sarif", "-o", tmp_path / "folder")
    assert ended.code == 0
    (tmp_path / "folder").unlink()
    (tmp_path / "folder").mkdir()
    ended = envlock("check", "-l", locked, "--facts", facts_file, "--format", "sarif", "-o", tmp_path / "folder")
    assert ended.code == 2
    assert sarif_code(ended.out) == 2
    assert ended.err.count("is a folder, expected a file") == 1


def test_a_full_disk_leaves_no_older_answer(tmp_path: Path, locked: Path) -> None:
    """The failure cannot be written to the file: the older match is removed, and the failure printed."""
    facts_file, out = tmp_path / "facts.json", tmp_path / "o.prom"
    facts_file.write_text(json.dumps(OUTCOMES["match"][1].to_document()))
    out.write_text("an older match")
    ended = subprocess.run(
        [*ARGV, "check", "-l", locked, "--facts", facts_file, "--format", "prometheus", "-o", out],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        capture_output=True, text=True, env=environment(PYTHONDONTWRITEBYTECODE="1"), timeout=60, check=False,
    )  # fmt: skip
    assert (ended.returncode, out.exists()) == (3, False)
    assert 'verdict="unknown"} 1' in ended.stdout
    assert ended.stderr.startswith(f"error: {out}: ")
    kept = tmp_path / "link"
    kept.symlink_to(facts_file)
    assert envlock("check", "-l", locked, "--facts", facts_file, "-o", kept).code == 2
    assert kept.is_symlink()


def test_a_check_that_is_ended_leaves_unknown(tmp_path: Path, locked: Path) -> None:
    """A supervisor's deadline: the old file does not stay as if it were the answer."""
    out = tmp_path / "envlock.prom"
    out.write_text("old\n")
    argv = [*ARGV, "check", "-l", str(locked), "--facts", "-", "--format", "prometheus", "-o", str(out)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env=environment(), stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        # More than a pipe holds: this returns only when the program is reading.
        process.stdin.write(b" " * (1 << 20))
        process.stdin.flush()
        time.sleep(0.3)  # and now it waits for more
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    assert 'verdict="unknown"} 1' in out.read_text()


def test_diff_speaks_every_format(tmp_path: Path, locked: Path) -> None:
    """The same for two files: match, drift, and a failure."""
    other = tmp_path / "other.lock.toml"
    other.write_text(locked.read_text().replace('"96.00.5E.00.01"', '"96.00.A5.00.01"'))
    for form in formats.NAMES:
        same, differ = (envlock("diff", locked, path, "--format", form, cwd=tmp_path) for path in (locked, other))
        failed = envlock("diff", locked, "missing", "--format", form, cwd=tmp_path)
        assert (same.code, differ.code, failed.code) == (0, 1, 2), form
        if form not in ("text", "markdown"):
            assert [READ[form](each.out) for each in (same, differ)] == [0, 1], form
            assert READ[form](failed.out) == (2 if form in EXACT else 1), form


def test_an_annotation_of_diff_points_at_the_line(tmp_path: Path, locked: Path) -> None:
    """Into the newer lockfile, as a reader of the repository names it."""
    other = tmp_path / "other.lock.toml"
    other.write_text(locked.read_text().replace('"96.00.5E.00.01"', '"96.00.A5.00.01"'))
    line = 1 + other.read_text().split("\n").index('"gpu.vbios" = "96.00.A5.00.01"')
    ended = envlock("diff", locked, other, "--format", "github", env={"GITHUB_WORKSPACE": str(tmp_path)})
    assert f"::error file=other.lock.toml,line={line},title=envlock diff%3A changed gpu.vbios::" in ended.out


# ---- --as ------------------------------------------------------------------------------------

CODES = {"slurm": (0, 1, 3, 2), "npd": (0, 1, 2, 2), "nagios": (0, 2, 3, 3)}


@pytest.mark.parametrize("protocol", formats.PROTOCOLS)
def test_a_supervisor_gets_one_line_and_its_code(tmp_path: Path, locked: Path, protocol: str) -> None:
    """For match, drift, unknown, and for what cannot even be asked."""
    codes = []
    for name, (_, observed) in OUTCOMES.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(observed.to_document()))
        ended = envlock("check", "-l", locked, "--facts", path, "--as", protocol)
        codes.append(ended.code)
        assert ended.out.count("\n") == 1
        assert name.upper() in ended.out.upper() or protocol == "nagios"
    for arguments in (["-l", "missing.toml"], ["--no-such-option"], ["-l", locked, "--facts", "missing.json"]):
        failed = envlock("check", "--as", protocol, *arguments, env={"ENVLOCK_FORMAT": "json"})
        assert failed.code == CODES[protocol][3]
        assert failed.out.count("\n") == 1
        assert "unknown" in failed.out.lower()
    assert (*codes, CODES[protocol][3]) == CODES[protocol]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--as", "npd", "--format", "json"], "`--as` and `--format` exclude each other"),
        (["--as", "npd", "--drain"], "`--drain` and `--node` go with `--as slurm`"),
        (["--node", "n001"], "`--drain` and `--node` go with `--as slurm`"),
    ],
)
def test_contradictions_are_refused(locked: Path, arguments: list[str], message: str) -> None:
    """What cannot both be meant is a usage error, in the code that was asked for."""
    ended = envlock("check", "-l", locked, *arguments)
    assert ended.code == 2
    assert ended.err.splitlines()[0] == f"error: envlock check: {message}"


def test_what_is_typed_wins_over_what_a_variable_says(tmp_path: Path, locked: Path) -> None:
    """`--format` over ENVLOCK_CHECK_AS, `--as` over ENVLOCK_FORMAT; in failure too."""
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(OUTCOMES["drift"][1].to_document()))
    for lock_file in (locked, Path("missing.lock.toml")):
        argv = ("check", "-l", lock_file, "--facts", path)
        typed = envlock(*argv, "--format", "json", env={"ENVLOCK_CHECK_AS": "nagios"})
        assert typed == envlock(*argv, "--format", "json")
        assert typed.code == typed.document["exit-code"]
        assert envlock(*argv, "--as", "npd", env={"ENVLOCK_FORMAT": "json"}) == envlock(*argv, "--as", "npd")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_probe_that_fails_leaves_no_older_facts(tmp_path: Path, locked: Path, form: str) -> None:
    """Else the next check of that file would say match of a host that nobody could look at."""
    path = tmp_path / "node7.json"
    path.write_text(json.dumps(OUTCOMES["match"][1].to_document()))
    failed = envlock("probe", "--nvidia-smi", "missing.txt", "--format", form, "-o", path)
    assert failed.code == 2
    assert "missing.txt" in path.read_text()
    assert envlock("check", "-l", locked, "--facts", path).code == 2


def test_slurm_is_dry_unless_told_to_drain(tmp_path: Path, locked: Path) -> None:
    """Dry, it says what it would run; with `--drain` it runs that; a match and a failure run nothing."""
    program = tmp_path / "bin/scontrol"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$*" >>"$LOG"\necho "NodeName=$3 State=IDLE Arch=x"\n')
    program.chmod(0o755)
    log = tmp_path / "log"
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "LOG": str(log), "SLURMD_NODENAME": "n017"}
    paths = {}
    for name, (_, observed) in OUTCOMES.items():
        paths[name] = tmp_path / f"{name}.json"
        paths[name].write_text(json.dumps(observed.to_document()))

    reason = "envlock: drift: gpu.vbios on 0000:00:00.0: 96.00.5E.00.01 -> 96.00.A5.00.01"
    dry = envlock("check", "-l", locked, "--as", "slurm", "--facts", paths["drift"], env=env)
    assert (dry.code, dry.out) == (1, f"{reason}\n")
    assert dry.err == f"would run: scontrol update nodename=n017 state=drain 'reason={reason}'\n"
    assert envlock("check", "-l", locked, "--as", "slurm", "--drain", "--facts", paths["match"], env=env).err == ""
    assert envlock("check", "-l", "missing", "--as", "slurm", "--drain", env=env).code == 2
    assert not log.exists()

    wet = envlock("check", "-l", locked, "--as", "slurm", "--drain", "--facts", paths["drift"], env=env)
    assert (wet.code, wet.out, wet.err) == (1, f"{reason}\n", "drained n017\n")
    lost = envlock(
        "check", "-l", locked, "--as", "slurm", "--drain", "--node", "n018", "--facts", paths["unknown"], env=env
    )
    assert (lost.code, lost.err) == (3, "drained n018\n")
    assert log.read_text().splitlines()[0] == "show node n017 -o"
    # Who reads the reason wants to know why, not which fact came first.
    why = "update nodename=n018 state=drain reason=envlock: unknown on 0000:00:00.0: GPU is lost"
    assert log.read_text().splitlines()[-1].startswith(why)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 3, "error: `scontrol` is not installed"),
        (["--node", "n[001-128]"], 2, "error: --node: not the name of one node: 'n[001-128]'"),
    ],
)
def test_a_node_that_cannot_be_drained_is_said(
    tmp_path: Path, locked: Path, arguments: list[str], code: int, message: str
) -> None:
    """The one line stays the reason; that nothing came of it is an error of its own."""
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(OUTCOMES["drift"][1].to_document()))
    env = {"PATH": str(tmp_path)}
    ended = envlock("check", "-l", locked, "--as", "slurm", "--drain", *arguments, "--facts", path, env=env)
    assert (ended.code, ended.out.count("\n"), ended.out[:15]) == (code, 1, "envlock: drift:")
    assert ended.err.splitlines()[0] == message


# ---- what it costs ---------------------------------------------------------------------------


def test_text_loads_no_other_format(tmp_path: Path, locked: Path) -> None:
    """A check in a container's start pays for nothing that it does not print."""
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts([gpu_facts()]).to_document()))
    program = (
        "import sys\nfrom envlock.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('loaded', *sorted(sys.modules))\n"
    )
    argv = [sys.executable, "-c", program, "check", "-l", str(locked), "--facts", str(path)]
    ended = subprocess.run(argv, capture_output=True, text=True, env=environment(), check=True)
    loaded = set(ended.stdout.rpartition("loaded ")[2].split())
    unwanted = {f"envlock.report.{name}" for name in (*formats.MODULES.values(), "view", "node", "document", "diff")}
    assert loaded & (unwanted | {"xml.etree.ElementTree", "envlock.slurm", "envlock.difference", "json.tool"}) == set()
    assert "envlock.report.text" in loaded


# ---- waivers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("until", "code", "kind"), [("2999-12-31", 0, "waived"), ("2020-01-01", 1, "expired")])
def test_a_waiver_is_told_in_every_format(tmp_path: Path, until: str, code: int, kind: str) -> None:
    """While it holds, the difference is excused and shown with its reason; afterwards it is an error everywhere."""
    rule = Rule(key="gpu.vbios", rule="exact", reason="board swapped, ticket 4711", until=until)
    held = lock(host([gpu_facts()]))
    policy = tuple(rule if each.key == rule.key else each for each in held.policy)
    locked = tmp_path / "sample.lock.toml"
    locked.write_text(lockfile.render(dataclasses.replace(held, policy=policy)))
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(OUTCOMES["drift"][1].to_document()))
    for form in formats.NAMES:
        ended = envlock("check", "-l", locked, "--facts", path, "--format", form)
        assert (ended.code, ended.err) == (code, ""), form
        if form not in ("gitlab", "github") or code:
            assert kind in ended.out, form
        if form not in ("gitlab", "github", "prometheus"):
            assert "ticket 4711" in ended.out, form
        if form == "json":
            jsonschema.validate(ended.document, json.loads(SCHEMA.read_text()))
            assert [each["until"] for each in ended.document["waived"]] == ([until] if code == 0 else [])
