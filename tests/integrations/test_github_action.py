"""The composite action, its steps run as shipped in a made-up runner."""

import json
import re
from pathlib import Path
from typing import Any

import check_jsonschema.cli
import pytest
import yaml
from made_facts import facts_file
from shipped import INTEGRATIONS, ROOT, lock_of_another_host, lock_of_this_host, program, run

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]


class Runner:
    """A runner's folders and files; `act` runs the step `check` with inputs."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.temp = folder / "work space", folder / "temp"
        for place in (self.workspace, self.temp):
            place.mkdir()
        self.settings: dict[str, str] = {}
        self.summary, self.output = folder / "summary.md", folder / "output"
        installed = self.temp / "envlock-venv/bin"
        installed.mkdir(parents=True)
        program(folder).rename(installed / "envlock")

    def act(self, **inputs: str) -> tuple[int, str, dict[str, str]]:
        """Return exit code, standard output and outputs of the step, its summary beside it."""
        self.output.write_text("")
        given = {name: str(about.get("default", "")) for name, about in ACTION["inputs"].items()} | inputs
        step = next(step for step in STEPS if step.get("id") == "check")
        filled = {
            name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: given[found[1]], text)
            for name, text in step["env"].items()
        }
        ended = run(
            f"set -eo pipefail; {step['run']}", self.workspace,
            GITHUB_ACTION_PATH=str(ROOT), GITHUB_WORKSPACE=str(self.workspace), GITHUB_OUTPUT=str(self.output),
            GITHUB_STEP_SUMMARY=str(self.summary), RUNNER_TEMP=str(self.temp), CI="true", **self.settings, **filled,
        )  # fmt: skip
        return ended.returncode, ended.stdout, self.outputs()

    def outputs(self) -> dict[str, str]:
        """Return the outputs as the runner reads them: `NAME=VALUE`, or `NAME<<END` and lines up to END."""
        found: dict[str, str] = {}
        lines = iter(self.output.read_text().split("\n"))
        for line in lines:
            name, heredoc, end = line.partition("<<")
            if heredoc and "=" not in name:
                held = []
                for inner in lines:
                    if inner == end:
                        break
                    held.append(inner)
                found[name] = "\n".join(held)
            elif line:
                found[line.partition("=")[0]] = line.partition("=")[2]
        return found


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_the_action_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """By the schema that editors use for it."""
    with pytest.raises(SystemExit) as ended:
        check_jsonschema.cli.main(["--builtin-schema", "vendor.github-actions", str(ROOT / "action.yml")])
    assert ended.value.code == 0, capsys.readouterr().out


def test_no_input_becomes_text_of_a_script() -> None:
    """Inputs reach a step as variables: an expression inside `run` would be code of whoever writes the value."""
    for step in STEPS:
        assert "${{" not in step["run"]
    assert set(re.findall(r"inputs\.([a-z-]+)", str(STEPS))) == set(ACTION["inputs"])


def test_a_match_is_green(runner: Runner) -> None:
    """The runner itself is observed, annotated, summed up; the verdict is an output."""
    lock_of_this_host(runner.workspace)
    code, out, outputs = runner.act(lock="this.lock.toml")
    assert (code, outputs) == (0, {"verdict": "match", "exit-code": "0", "report": ""})
    assert out.startswith("::notice title=envlock check%3A match::")
    assert runner.summary.read_text().startswith("### ✅ envlock check: match\n")


def test_drift_is_red_and_points_at_the_lockfile(runner: Runner) -> None:
    """The exit code is the check's; the annotation lies in the repository; the report is where it says."""
    lock_of_another_host(runner.workspace)
    facts_file(runner.workspace / "facts.json", vbios="96.00.A5.00.01")
    runner.summary.write_text("what another step wrote\n")
    code, out, outputs = runner.act(lock="other.lock.toml", facts="facts.json", format="sarif")
    assert (code, outputs["verdict"], outputs["exit-code"]) == (1, "drift", "1")
    assert re.match(r"::error file=other\.lock\.toml,line=\d+,title=envlock check%3A changed gpu\.vbios::", out)
    assert json.loads(Path(outputs["report"]).read_text())["runs"][0]["invocations"][0]["exitCode"] == 1
    assert runner.summary.read_text().startswith("what another step wrote\n### ❌ envlock check: drift\n")


def test_what_cannot_be_told_is_red_too(runner: Runner) -> None:
    """A lockfile that is not there: exit 2, the verdict unknown, said in the summary and as an annotation."""
    code, out, outputs = runner.act(lock="missing.lock.toml", facts="facts.json", format="junit", report="a/report.xml")
    assert (code, outputs["verdict"]) == (2, "unknown")
    assert "::error " in out
    assert "no such lockfile" in runner.summary.read_text()
    assert "no such lockfile" in (runner.workspace / outputs["report"]).read_text()


@pytest.mark.parametrize(("format", "report"), [("html", "r.html"), ("json", "/dev/null")])
def test_a_report_that_cannot_be_written_is_red_and_hides_no_verdict(runner: Runner, format: str, report: str) -> None:
    """The step fails, even for a match; later steps still read the verdict, and find no report."""
    lock_of_this_host(runner.workspace)
    code, _, outputs = runner.act(lock="this.lock.toml", format=format, report=report)
    assert (code, outputs) == (3, {"verdict": "match", "exit-code": "0", "report": ""})


def test_a_setting_of_the_workflow_steers_nothing(runner: Runner) -> None:
    """Whatever ENVLOCK_CHECK_… and ENVLOCK_PROBE_… say for other steps."""
    names = ("FORMAT", "CHECK_AS", "CHECK_IMAGE", "CHECK_FACTS", "CHECK_OUTPUT", "PROBE_ONLY", "PROBE_PID")
    runner.settings = {f"ENVLOCK_{name}": "json" for name in names}
    lock_of_this_host(runner.workspace)
    assert runner.act(lock="this.lock.toml")[::2] == (0, {"verdict": "match", "exit-code": "0", "report": ""})


@pytest.mark.parametrize(
    "text", ['"; touch pwned; "', "$(touch pwned)", "`touch pwned`", "a\nverdict=match", "--help", "' pwned"]
)
def test_no_input_is_a_command(runner: Runner, text: str) -> None:
    """A value with a quote, a substitution, a line break or a dash stays a name."""
    lock_of_another_host(runner.workspace)
    facts_file(runner.workspace / "facts.json", vbios="96.00.A5.00.01")
    for inputs in ({"lock": text}, {"lock": "other.lock.toml", "facts": text}):
        code, out, outputs = runner.act(**inputs)
        assert (code in (0, 1), outputs.get("verdict")) == (False, "unknown"), out
    report = runner.act(lock="other.lock.toml", facts="facts.json", format="json", report=f"r/{text}")[2]
    assert (report["verdict"], report["report"]) == ("drift", f"r/{text}")
    assert list(runner.workspace.rglob("*pwned")) == [] or [p.name for p in runner.workspace.rglob("*pwned")] == [text]


@pytest.mark.slow
def test_the_action_installs_itself(tmp_path: Path) -> None:
    """From its own checkout, into a virtual environment of its own."""
    ended = run(STEPS[0]["run"], tmp_path, GITHUB_ACTION_PATH=str(ROOT), RUNNER_TEMP=str(tmp_path))
    if ended.returncode and re.search("No matching distribution|connection", ended.stderr, re.IGNORECASE):
        pytest.skip("no index to install from")
    assert ended.returncode == 0, ended.stderr
    version = run([str(tmp_path / "envlock-venv/bin/envlock"), "--version"], tmp_path)
    assert version.stdout.startswith("envlock ")


def test_an_old_python_is_named(tmp_path: Path) -> None:
    """Exit 2, and an annotation that says what to do."""
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    ended = run(
        ["bash", str(INTEGRATIONS / "github/install.sh")], tmp_path,
        GITHUB_ACTION_PATH=str(ROOT), RUNNER_TEMP=str(tmp_path), ENVLOCK_ACTION_PYTHON=str(old),
    )  # fmt: skip
    assert (ended.returncode, ended.stdout[:22]) == (2, "::error title=envlock:")
