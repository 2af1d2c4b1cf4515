"""GitLab, Slurm, node-problem-detector, systemd and Nagios: each file as shipped, run as its reader runs it."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import check_jsonschema.cli
import junitparser
import pytest
import yaml
from fakes.nvml import world
from made_facts import facts_file
from shipped import INTEGRATIONS, NODE_LOCK, here, lock_of_another_host, lock_of_this_host, program, run

GITLAB = INTEGRATIONS / "gitlab/envlock.gitlab-ci.yml"
SLURM = INTEGRATIONS / "slurm/envlock-health-check.sh"
NPD: dict[str, Any] = json.loads((INTEGRATIONS / "node-problem-detector/envlock-monitor.json").read_text())


# ---- scripts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("script", sorted(INTEGRATIONS.glob("*/*.sh")), ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(script: Path) -> None:
    """About no shipped script."""
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if checker is None:
        pytest.skip("shellcheck is not installed")
    ended = subprocess.run([checker, script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert script.stat().st_mode & 0o111 == 0o111


# ---- gitlab ----------------------------------------------------------------------------------


def test_the_gitlab_job_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """By GitLab's own schema."""
    with pytest.raises(SystemExit) as ended:
        check_jsonschema.cli.main(["--builtin-schema", "vendor.gitlab-ci", str(GITLAB)])
    assert ended.value.code == 0, capsys.readouterr().out


@pytest.mark.parametrize(("lock_for", "code"), [(lock_of_this_host, 0), (lock_of_another_host, 1)])
def test_the_gitlab_job_leaves_its_reports(tmp_path: Path, lock_for: Any, code: int) -> None:
    """Its script, line by line: both reports are there, and the last line decides."""
    job = yaml.safe_load(GITLAB.read_text())["envlock-check"]
    locked = lock_for(tmp_path)
    binaries = program(tmp_path).parent
    script = "set -eo pipefail\n" + "\n".join(job["script"])
    ended = run(
        script, tmp_path, PATH=f"{binaries}:/usr/bin:/bin", ENVLOCK_LOCK=str(locked), CI_PROJECT_DIR=str(tmp_path)
    )
    assert ended.returncode in ((0,) if code == 0 else (1, 3)), ended.stderr
    reports = job["artifacts"]["reports"]
    issues = json.loads((tmp_path / reports["codequality"]).read_text())
    serious = [issue for issue in issues if issue["severity"] != "minor"]
    assert bool(serious) == (code != 0)
    assert {issue["location"]["path"] for issue in issues} <= {locked.name}
    read = junitparser.JUnitXml.fromfile(str(tmp_path / reports["junit"]))
    assert bool(read.failures + read.errors) == (code != 0)
    assert job["artifacts"]["when"] == "always"


# ---- slurm -----------------------------------------------------------------------------------


def slurm(folder: Path, locked: Path, **changed: str) -> "subprocess.CompletedProcess[str]":
    """Run the health check as slurmd does, with a `scontrol` that writes down how it was called."""
    scontrol = folder / "slurm/scontrol"
    scontrol.parent.mkdir(exist_ok=True)
    scontrol.write_text(f'#!/bin/sh\necho "$*" >>"{folder}/scontrol.log"\necho "NodeName=$3 State=IDLE A=1"\n')
    scontrol.chmod(0o755)
    settings = {
        "PATH": f"{scontrol.parent}:/usr/bin:/bin", "ENVLOCK": str(program(folder)), "ENVLOCK_LOCK": str(locked),
        "ENVLOCK_SETTINGS": str(folder / "none"), "SLURMD_NODENAME": "n017",
    }  # fmt: skip
    return run([str(SLURM)], folder, **(settings | changed))


def test_the_health_check_is_dry(tmp_path: Path) -> None:
    """It says what it would run, runs nothing, and ends with 0."""
    ended = slurm(tmp_path, lock_of_another_host(tmp_path))
    assert (ended.returncode, ended.stdout) == (0, "")
    assert re.match(r"envlock: (drift|unknown)( \(\d+\))?: ", ended.stderr)
    assert "would run: scontrol update nodename=n017 state=drain 'reason=envlock: " in ended.stderr
    assert not (tmp_path / "scontrol.log").exists()


def test_the_health_check_drains_when_told(tmp_path: Path) -> None:
    """And only a node that is not as locked; never for a lockfile that is not there."""
    asked = {"ENVLOCK_DRAIN": "1"}
    assert slurm(tmp_path, lock_of_this_host(tmp_path), **asked).stderr == ""
    assert "no such lockfile" in slurm(tmp_path, tmp_path / "missing", **asked).stderr
    assert not (tmp_path / "scontrol.log").exists()
    ended = slurm(tmp_path, lock_of_another_host(tmp_path), **asked)
    assert ended.returncode == 0
    assert ended.stderr.endswith("drained n017\n")
    assert [line.split(" ")[0] for line in (tmp_path / "scontrol.log").read_text().splitlines()] == ["show", "update"]


def test_the_health_check_tells_a_program_that_cannot_run_from_one_that_hangs(tmp_path: Path) -> None:
    """Not installed, not permitted, a limit that is no number: the words are not those of a deadline."""
    for changed in ({"ENVLOCK": str(tmp_path / "none")}, {"ENVLOCK": str(tmp_path)}, {"ENVLOCK_TIMEOUT": "soon"}):
        ended = slurm(tmp_path, tmp_path / "any", **changed)
        assert ended.returncode == 0
        assert re.search(r"envlock: unknown: \S+ cannot be run \(status 12[567]\)\n$", ended.stderr), ended.stderr


def test_the_health_check_ends_before_slurmd_kills_it(tmp_path: Path) -> None:
    """A check that hangs, even one that takes no signal, is given up, said, and drains nothing."""
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\ntrap '' TERM\nsleep 30 & wait; wait; sleep 30\n")
    hangs.chmod(0o755)
    ended = slurm(tmp_path, tmp_path / "any", ENVLOCK=str(hangs), ENVLOCK_TIMEOUT="1", ENVLOCK_DRAIN="1")
    assert (ended.returncode, (tmp_path / "scontrol.log").exists()) == (0, False)
    assert "envlock: unknown: no answer within 1 s" in ended.stderr
    limit, grace = (
        re.search(r"ENVLOCK_TIMEOUT:-(\d+)", SLURM.read_text()),
        re.search(r"timeout -k (\d+)", SLURM.read_text()),
    )
    assert limit is not None
    assert grace is not None
    assert int(limit[1]) + int(grace[1]) < 60


def test_the_health_check_drains_a_node_whose_driver_hangs(tmp_path: Path) -> None:
    """The driver is given up before the check is: half of what its limit leaves, as nvidia-smi may take as long."""
    asked = {"ENVLOCK_DRAIN": "1", "ENVLOCK_TIMEOUT": "30", **world("hang-at-start")}
    ended = slurm(tmp_path, lock_of_another_host(tmp_path), **asked)
    assert "no answer within" not in ended.stderr
    assert ended.stderr.endswith("drained n017\n")


def test_each_supervisor_waits_for_a_driver_that_hangs() -> None:
    """The driver's time, nvidia-smi's and 6 s for all else are within the limit of whoever waits."""
    service = unit("envlock-check.service")["Service"]
    nagios = (INTEGRATIONS / "nagios/envlock.cfg").read_text()
    (rule,) = NPD["rules"]
    waits = {
        int(service["TimeoutStartSec"]): service["Environment"],
        seconds(rule["timeout"]): rule["args"][0],
        int(re.findall(r"-t (\d+)", nagios)[0]): re.findall(r"ENVLOCK_NVML_DEADLINE=\d+", nagios)[0],
    }
    for limit, setting in waits.items():
        name, driver = setting.split("=")
        assert name == "ENVLOCK_NVML_DEADLINE"
        assert 2 * int(driver) + 6 <= limit


# ---- node-problem-detector -------------------------------------------------------------------


@pytest.mark.parametrize(("lock_for", "codes"), [(lock_of_this_host, (0,)), (lock_of_another_host, (1, 2))])
def test_node_problem_detector_gets_its_line(tmp_path: Path, lock_for: Any, codes: tuple[int, ...]) -> None:
    """The rule as configured: its code, and a message that is not cut off."""
    (rule,) = NPD["rules"]
    text = here(shlex.join([rule["path"], *rule["args"]]), program(tmp_path), lock_for(tmp_path))
    ended = run(text, tmp_path)
    assert ended.returncode in codes
    message = ended.stdout.strip()
    assert 0 < len(message.encode()) <= NPD["pluginConfig"]["max_output_length"] == 80


def test_the_monitor_is_consistent() -> None:
    """A permanent rule has its condition; a rule's time limit is the tighter one."""
    (rule,) = NPD["rules"]
    assert NPD["plugin"] == "custom"
    assert [condition["type"] for condition in NPD["conditions"]] == [rule["condition"]]
    assert (
        seconds(rule["timeout"])
        < seconds(NPD["pluginConfig"]["timeout"])
        < seconds(NPD["pluginConfig"]["invoke_interval"])
    )


def seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


# ---- systemd ---------------------------------------------------------------------------------


def unit(name: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((INTEGRATIONS / "systemd" / name).read_text())
    return parser


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """systemd's own check, with the program where this test has it."""
    for name in ("envlock-check.service", "envlock-check.timer"):
        text = (INTEGRATIONS / "systemd" / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/local/bin/envlock", str(program(tmp_path))))
    units = sorted(map(str, tmp_path.glob("envlock-check.*")))
    ended = run(["systemd-analyze", "verify", "--man=no", *units], tmp_path)
    assert "envlock" not in ended.stderr, ended.stderr
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(("lock_for", "codes"), [(lock_of_this_host, (0,)), (lock_of_another_host, (1, 3))])
def test_the_service_writes_the_metrics(tmp_path: Path, lock_for: Any, codes: tuple[int, ...]) -> None:
    """Its command: the file is there whatever the verdict, readable for the collector, and nothing beside it."""
    service = unit("envlock-check.service")["Service"]
    metrics = tmp_path / "textfile"
    command = here(service["ExecStart"], program(tmp_path), lock_for(tmp_path))
    folder = service["ReadWritePaths"]
    assert f"--output {folder}/envlock.prom" in command
    ended = run(command.replace(folder, str(metrics)), tmp_path)
    assert ended.returncode in codes
    assert [path.name for path in metrics.iterdir()] == ["envlock.prom"]
    assert (metrics / "envlock.prom").stat().st_mode & 0o444 == 0o444
    assert f'verdict="match"}} {int(codes == (0,))}\n' in (metrics / "envlock.prom").read_text()


def test_the_service_can_still_see_a_gpu() -> None:
    """What hides devices, or allows only some (ProtectClock= does that too), would make every GPU gone."""
    service = unit("envlock-check.service")["Service"]
    assert {"PrivateDevices", "ProtectClock", "DeviceAllow", "DevicePolicy", "RootDirectory"} & set(service) == set()


# ---- nagios ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lock_for", "word"), [(lock_of_this_host, "OK|WARNING"), (lock_of_another_host, "CRITICAL|UNKNOWN")]
)
def test_nagios_gets_its_word(tmp_path: Path, lock_for: Any, word: str) -> None:
    """The command as defined, and the same one for NRPE."""
    text = (INTEGRATIONS / "nagios/envlock.cfg").read_text()
    command, other = re.findall(rf"/usr/bin/env .*{re.escape(NODE_LOCK)}", text)
    assert command == other
    ended = run(here(command, program(tmp_path), lock_for(tmp_path)), tmp_path)
    assert re.fullmatch(rf"ENVLOCK ({word}) - [^|]+ \| checked=\d+ .*\n", ended.stdout)
    code = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}[ended.stdout.split(" ")[1]]
    assert ended.returncode == code


def test_a_facts_file_can_be_checked_in_each_way(tmp_path: Path) -> None:
    """A node without envlock: its facts, checked elsewhere."""
    path = facts_file(tmp_path / "facts.json")
    ended = run(
        [
            str(program(tmp_path)),
            "check",
            "-l",
            str(lock_of_another_host(tmp_path)),
            "--facts",
            str(path),
            "--as",
            "npd",
        ],
        tmp_path,
    )
    assert (ended.returncode, ended.stdout[:15]) == (0, "envlock: match:")
