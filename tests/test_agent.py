"""The zip application: what it holds, that it is reproducible, and that it runs on bare interpreters."""

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from envlock import agent, agent_main
from envlock.cli.main import cli
from envlock.errors import StorageError

PYTHON_FACTS = ("python.implementation", "python.nvml_binding", "python.version")


def interpreters() -> dict[str, str]:
    """Return a command for each Python that is found on PATH, in pyenv's folder or in ENVLOCK_PYTHONS."""
    folders = [Path(item) for item in os.environ.get("PATH", "").split(os.pathsep) if item]
    folders += sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    folders += [Path(item) for item in os.environ.get("ENVLOCK_PYTHONS", "").split(os.pathsep) if item]
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted(folder.glob("python[23].*")) if folder.is_dir() else ():
            if re.fullmatch(r"python[23]\.\d+", path.name) and path.name not in found:
                ran = subprocess.run([str(path), "-c", "print(1)"], capture_output=True, check=False, timeout=30)
                if ran.returncode == 0:
                    found[path.name] = str(path)
    return found


FOUND = interpreters()
SUPPORTED = [f"python3.{minor}" for minor in range(8, 14)]


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "envlock-agent.pyz"
    path.write_bytes(agent.build())
    return path


def run(program: str, application: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    isolated = [] if program.startswith("python2") or "python2" in program else ["-I"]
    engine = {name: text for name, text in os.environ.items() if name.startswith("DOCKER_")}  # its socket is a fact
    return subprocess.run(
        [program, *isolated, str(application), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"} | engine,
    )


def test_same_sources_give_the_same_bytes() -> None:
    """Building twice gives one digest: sorted entries, fixed times, nothing compressed."""
    data = agent.build()
    entries = zipfile.ZipFile(io.BytesIO(data)).infolist()

    assert data == agent.build()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {(entry.date_time, entry.compress_type, entry.create_system, entry.external_attr) for entry in entries} == {
        ((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED, 3, 0o100644 << 16)
    }


def test_bytes_depend_on_the_sources_alone(tmp_path: Path) -> None:
    """Another folder, other file times and leftovers of Python change nothing."""
    package = tmp_path / "elsewhere"
    for name, data in agent.contents().items():
        if name != "__main__.py":
            path = package / Path(name).relative_to("envlock")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (1, 1))
    (package / "probe" / "__pycache__").mkdir()
    (package / "probe" / "__pycache__" / "cpu.cpython-311.pyc").write_bytes(b"x")

    assert agent.build(package) == agent.build()


def test_only_what_travels_is_inside() -> None:
    """No module of the command line, of engines or of lockfiles is in the application."""
    tops = {name.split("/")[1] for name in agent.contents() if name.startswith("envlock/")}

    modules = {"__init__.py", "agent_main.py", "digest.py", "errors.py", "facts.py", "nvml_start.py", "process.py"}

    assert tops == {*modules, "canary", "probe", "registry"}


def test_broken_installation_is_said(tmp_path: Path) -> None:
    """An installation that lacks a module is an error in words."""
    with pytest.raises(StorageError, match="no such file or directory"):
        agent.build(tmp_path)


@pytest.mark.parametrize("name", SUPPORTED)
def test_bare_interpreter_prints_the_same_document(application: Path, name: str) -> None:
    """`probe` on a bare Python gives the document of `envlock probe`, but for the facts about Python."""
    if name not in FOUND:
        pytest.skip(f"{name} is not on this machine")
    ran = run(FOUND[name], application, "probe", "--format", "json")
    here = CliRunner().invoke(cli, ["probe", "--format", "json"])

    assert (ran.returncode, ran.stderr) == (0, "")
    theirs, ours = json.loads(ran.stdout), json.loads(here.stdout)
    for key in PYTHON_FACTS:
        assert key in theirs["host"]
        del theirs["host"][key], ours["host"][key]
    if ours["devices"] or ours["host"]["nvidia.gpu_count"].get("value") != 0:
        pytest.skip("this host has a GPU, which a Python without a binding asks by other ways")
    assert json.dumps(theirs, indent=2) == json.dumps(ours, indent=2)


def test_facts_about_python_are_those_that_may_differ() -> None:
    """The facts that depend on the interpreter are the `python.` facts, and all of those."""
    from envlock.registry import REGISTRY

    assert tuple(sorted(key for key in REGISTRY if key.startswith("python."))) == PYTHON_FACTS


@pytest.mark.parametrize("name", ["python2.7", "python3.6", "python3.7"])
def test_python_that_is_too_old_is_told_so(application: Path, name: str) -> None:
    """A Python older than 3.8 gets one line and exit code 2, not a syntax error."""
    if name not in FOUND:
        pytest.skip(f"{name} is not on this machine")
    ran = run(FOUND[name], application, "probe")

    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == f"error: envlock's agent needs Python 3.8 or newer, this is {name[6:]}\n"


def test_text_is_the_same_too(application: Path) -> None:
    """The text for people is that of `envlock probe`."""
    ran = run(sys.executable, application, "probe", "--only", "cpu.")

    assert ran.stdout == CliRunner().invoke(cli, ["probe", "--only", "cpu."]).stdout


def test_wrong_option_is_usage(application: Path) -> None:
    """An unknown option is exit code 2, with a hint, and no traceback."""
    ran = run(sys.executable, application, "probe", "--colour")

    assert ran.returncode == 2
    assert ran.stderr.startswith("error: unrecognized arguments: --colour\n\nhint: ")


def test_failure_in_json_is_a_document(application: Path) -> None:
    """A failure where JSON was asked for is a JSON document on standard output, too."""
    ran = run(sys.executable, application, "probe", "--only", "x", "--format", "json")

    assert ran.returncode == 2
    assert json.loads(ran.stdout)["schema"] == "envlock.error/1"
    assert ran.stderr.startswith("error: no fact starts with 'x'\n\nhint: ")


def test_full_disk_is_said(application: Path) -> None:
    """Standard output that cannot be written is exit code 3 in words."""
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [sys.executable, "-I", str(application), "probe", "--only", "cpu."],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )

    assert ran.returncode == 3
    assert "no space left on device" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_reader_that_leaves_is_no_error(application: Path) -> None:
    """A closed pipe ends the agent without a word."""
    ran = subprocess.run(
        ["sh", "-c", f"{sys.executable} -I {application} probe --format json | head -c 10 >/dev/null"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ran.stderr == ""


def test_canary_is_handed_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """`canary` and all that follows goes to the canary, whose exit code counts."""
    import types

    given: list[list[str]] = []
    module = types.ModuleType("envlock.canary.main")

    def main(argv: list[str]) -> int:
        given.append(argv)
        return 3

    module.main = main  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "envlock.canary.main", module)

    assert agent_main.main(["canary", "--runs", "2"]) == 3
    assert given == [["--runs", "2"]]


def test_command_writes_the_application(tmp_path: Path) -> None:
    """`envlock agent -o FILE` writes it and prints its digest."""
    path = tmp_path / "a.pyz"
    result = CliRunner().invoke(cli, ["agent", "-o", str(path)])

    assert result.exit_code == 0
    assert path.read_bytes() == agent.build()
    assert result.stdout.startswith(f"{path}  sha256:")


@pytest.mark.parametrize(
    ("arguments", "parted"),
    [
        (["probe", "--exec", "a", "--only", "b"], (["probe", "--exec"], ["a", "--only", "b"])),
        (["probe", "--exec", "--", "-a"], (["probe", "--exec"], ["-a"])),
        (
            ["probe", "--exec", "--no-trace", "--deadline", "3", "--format=json", "--", "a", "--pid"],
            (["probe", "--exec", "--no-trace", "--deadline", "3", "--format=json"], ["a", "--pid"]),
        ),
        (["probe", "--pid", "3"], (["probe", "--pid", "3"], [])),
    ],
)
def test_options_may_follow_exec_as_in_envlock(arguments: list[str], parted: tuple[list[str], list[str]]) -> None:
    """`--exec --no-trace CMD` is not a program called `--no-trace`."""
    assert agent_main._parted(arguments) == parted
