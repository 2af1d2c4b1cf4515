"""`envlock probe --exec` and `--pid`: the real program, here and as the agent's zip application."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import samples
from program import envlock

from envlock import agent, lockstore

SCHEMA_FOLDER = Path(__file__).parents[2] / "docs/schema"
SCHEMA = json.loads((SCHEMA_FOLDER / "libraries.schema.json").read_text())


@pytest.fixture(scope="module")
def cudart(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a little CUDA runtime."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a library with")
    folder = tmp_path_factory.mktemp("made")
    source, path = folder / "cudart.c", folder / "libcudart.so.12"
    source.write_text("int cudaRuntimeGetVersion(int *v) { *v = 12090; return 0; }")
    subprocess.run([compiler, "-shared", "-o", path, source, "-Wl,-soname,libcudart.so.12"], check=True)
    return str(path)


def loading(path: str, then: str = "") -> tuple[str, ...]:
    return sys.executable, "-c", f"import ctypes, sys; ctypes.CDLL({path!r}); print('said'); {then}"


def test_a_program_is_run_and_its_libraries_are_shown(cudart: str) -> None:
    """One document on standard output, valid by the schema; what the program prints is on standard error."""
    ended = envlock("probe", "--format", "json", "--exec", *loading(cudart))
    jsonschema.validate(ended.document, SCHEMA)

    assert (ended.code, ended.err) == (0, "said\n")
    assert [(item["path"], item["version"]["value"]) for item in ended.document["libraries"]] == [(cudart, "12.9")]
    assert ended.document["ran"]["status"] == 0


def test_what_follows_the_program_is_its_own(cudart: str) -> None:
    """Options after CMD are CMD's, with `--` and without."""
    for dashes in ((), ("--",)):
        ended = envlock("probe", "--exec", *dashes, *loading(cudart, "print(sys.argv)"), "--format", "json")

        assert ended.code == 0
        assert ended.out.startswith(f"{sys.executable} -c")
        assert "['-c', '--format', 'json']" in ended.err


def test_a_failing_program_is_exit_3_with_its_result(cudart: str) -> None:
    """The result is there, and standard error says that the program failed."""
    ended = envlock("probe", "--format", "json", "--exec", *loading(cudart, "sys.exit(7)"))

    assert (ended.code, ended.document["ran"]["status"]) == (3, 7)
    assert "failed with status 7: what it loaded until then" in ended.err


def test_watching_is_exit_3(cudart: str) -> None:
    """A list that may be incomplete is never exit 0."""
    ended = envlock("probe", "--no-trace", "--format", "json", "--exec", *loading(cudart))

    assert (ended.code, ended.document["complete"]) == (3, False)
    assert "libraries may have been missed" in ended.err


def test_a_program_that_is_not_there_is_exit_3() -> None:
    """In JSON it is an error document."""
    ended = envlock("probe", "--format", "json", "--exec", "nosuchprogram")

    assert (ended.code, ended.document["schema"]) == (3, "envlock.error/1")
    assert ended.err.startswith("error: `nosuchprogram` cannot be run: no such file or directory\n\nhint: ")


def test_a_running_process_is_shown() -> None:
    """`--pid` of a process without CUDA libraries: none, and exit 0."""
    ended = envlock("probe", "--format", "json", "--pid", str(os.getpid()))
    jsonschema.validate(ended.document, SCHEMA)

    assert (ended.code, ended.document["ran"], ended.document["subject"]) == (0, None, f"process {os.getpid()}")


def test_no_such_process_is_exit_3() -> None:
    """It could not be told; the hint says where else the process may be."""
    ended = envlock("probe", "--pid", "4194304")

    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("error: there is no process 4194304\n\nhint: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--exec"], "--exec needs a program"),
        (["--pid", "1", "--exec", "true"], "--exec and --pid are two programs"),
        (["--deadline", "3"], "--deadline and --no-trace go with --exec"),
        (["true"], "unexpected argument `true`"),
        (["--only", "cpu.", "--exec", "true"], "--only is about facts of a host"),
    ],
)
def test_options_that_contradict_each_other(arguments: list[str], message: str) -> None:
    """Exit 2, in words, and nothing is run."""
    ended = envlock("probe", *arguments)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: envlock probe: {message}\n")


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "envlock-agent.pyz"
    path.write_bytes(agent.build())
    return path


def pythons() -> list[str]:
    """Return this Python and the oldest and newest supported ones that are found."""
    versions = Path.home() / ".pyenv/versions"
    found = [str(path) for name in ("3.8", "3.13") for path in sorted(versions.glob(f"{name}.*/bin/python{name}"))]
    return [sys.executable, *found]


@pytest.mark.parametrize("python", pythons())
def test_the_agent_does_the_same(python: str, application: Path, cudart: str) -> None:
    """On a bare interpreter, from the zip: the same document."""
    command = [python, "-I", application, "probe", "--format", "json", "--exec", "--", *loading(cudart)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    document = json.loads(ran.stdout)
    jsonschema.validate(document, SCHEMA)

    assert (ran.returncode, ran.stderr) == (0, "said\n")
    seen = {"outcome": "value", "source": "cudaRuntimeGetVersion", "value": "12.9"}
    assert [(item["path"], item["version"]) for item in document["libraries"]] == [(cudart, seen)]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--exec"], 2), (["--exec", "false"], 3), (["--pid", "4194304"], 3), (["--only", "cpu.", "--pid", "1"], 2)],
)
def test_the_agent_fails_in_the_same_way(arguments: list[str], code: int, application: Path) -> None:
    """The exit codes are those of `envlock probe`."""
    ran = subprocess.run(
        [sys.executable, "-I", application, "probe", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ran.returncode == code
    assert ran.stderr.startswith("error: ")


def test_two_observations_are_compared(cudart: str, tmp_path: Path) -> None:
    """`diff` of two documents: the same twice is 0, another library is 1; with a lockfile it is refused."""
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    envlock("probe", "--format", "json", "-o", one, "--exec", *loading(cudart))
    envlock("probe", "--format", "json", "-o", other, "--exec", sys.executable, "-c", "")
    same, differ = envlock("diff", one, one), envlock("diff", one, other, "--format", "json")
    schema = json.loads((SCHEMA_FOLDER / "diff-result.schema.json").read_text())
    jsonschema.validate(differ.document, schema)
    lockstore.write(tmp_path / "a.lock.toml", samples.lock())
    refused = envlock("diff", one, tmp_path / "a.lock.toml")

    assert (same.code, differ.code, refused.code) == (0, 1, 2)
    assert [(item["section"], item["change"]) for item in differ.document["differences"]] == [("libraries", "removed")]
    assert refused.err.startswith("error: envlock diff: libraries and lockfile cannot be compared\n")


def test_a_program_is_held_against_a_lockfile(cudart: str, tmp_path: Path) -> None:
    """`check --exec`: a library that no locked package owns is drift; a program without CUDA is as locked."""
    path = tmp_path / "a.lock.toml"
    lockstore.write(path, samples.lock())
    stray = envlock("check", "-l", path, "--format", "json", "--exec", *loading(cudart))
    plain = envlock("check", "-l", path, "--exec", sys.executable, "-c", "print('said')")
    failed = envlock("check", "-l", path, "--exec", "false")
    gone = envlock("check", "-l", path, "--pid", "4194304")

    assert (stray.code, plain.code, failed.code, gone.code) == (1, 0, 3, 3)
    assert [item["key"] for item in stray.document["drifts"]] == ["library.libcudart.so.12"]
    assert plain.err == "said\n"


def test_a_failure_never_writes_to_a_file_of_the_program(tmp_path: Path) -> None:
    """`-o` after the program is the program's: an error of envlock does not overwrite it."""
    kept = tmp_path / "weights.bin"
    kept.write_text("kept")
    ended = envlock("check", "-l", tmp_path / "none.lock.toml", "--exec", "tool", "-o", kept, "--format", "json")

    assert (ended.code, ended.out, kept.read_text()) == (2, "", "kept")
