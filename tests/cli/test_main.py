"""The command line itself: help, errors, colours, environment, and what it imports."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from program import ARGV, environment, envlock
from samples import facts, lock

from envlock import __version__, lockfile
from envlock.cli.main import COMMANDS

SCHEMA = Path(__file__).resolve().parents[2] / "docs/schema/error.schema.json"
HEAVY = {"docker", "jinja2", "numpy", "packaging", "pynvml", "requests", "rich", "tomlkit", "torch", "urllib3", "uv"}


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[Path, Path]:
    """A lockfile, and facts that drift from it."""
    lock_path, facts_path = tmp_path / "sample.lock.toml", tmp_path / "facts.json"
    lock_path.write_text(lockfile.render(lock()))
    from envlock.facts import value

    facts_path.write_text(json.dumps(facts(host={"nvidia.driver": value("550.120")}).to_document()))
    return lock_path, facts_path


def test_help_lists_every_command() -> None:
    """Each command has its line, and `-h` is `--help`."""
    ended = envlock("--help")
    assert ended.code == 0
    for name, (_, text) in COMMANDS.items():
        assert f"{name} " in ended.out
        assert text in ended.out
    assert envlock("-h").out == ended.out


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_of_80_columns(name: str) -> None:
    """The width is fixed, whatever the terminal: documentation is compared with it."""
    wide = envlock(name, "--help", env={"COLUMNS": "300"})
    assert wide.code == 0
    assert wide.out.startswith(f"Usage: envlock {name} ")
    assert max(len(line) for line in wide.out.splitlines()) <= 80


def test_the_version_is_one_line() -> None:
    """`envlock -V` and `--version` print name and version."""
    assert envlock("--version").out == envlock("-V").out == f"envlock {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["chek"], "no such command `chek`", "did you mean `check`?"),
        (["check", "--fact", "x"], "envlock check: no such option `--fact`", "did you mean `--facts`?"),
        (["store", "verfy"], "envlock store: no such command `verfy`", "did you mean `verify`?"),
        (["diff", "a"], "envlock diff: missing `B`", "`envlock diff --help` shows how it is used"),
        (
            ["probe", "--format", "yaml"],
            "envlock probe: invalid value for `--format`: `yaml` is not one of `text`, `json`",
            "`envlock probe --help` shows how it is used",
        ),
        (["check", "-l"], "envlock check: option `-l` requires an argument", None),
        (
            ["check", "surplus"],
            "envlock check: unexpected argument `surplus`",
            "run a program with `envlock check --exec CMD`",
        ),
        (
            ["diff", "a", "b", "c d"],
            "envlock diff: unexpected argument `c d`",
            "`envlock diff --help` shows how it is used",
        ),
        (["lock", "x", "y"], "envlock lock: unexpected arguments `x y`", "`envlock lock --help` shows how it is used"),
        (["canary", "rum"], "envlock canary: no such command `rum`", "did you mean `run`?"),
        (
            ["check", "--pid", "all"],
            "envlock check: invalid value for `--pid`: `all` is not a whole number",
            "`envlock check --help` shows how it is used",
        ),
    ],
)
def test_a_usage_error_is_in_our_words(arguments: list[str], message: str, hint: str | None) -> None:
    """Exit 2; one line, lower case, no full stop; a hint with the nearest word."""
    ended = envlock(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[0] == f"error: {message}"
    if hint:
        assert ended.err.splitlines()[1:] == ["", f"hint: {hint}"]


def test_a_value_that_a_variable_gave_names_the_variable() -> None:
    """Nobody looks for a fault of `--format` who has not typed it."""
    ended = envlock("probe", env={"ENVLOCK_FORMAT": "yaml"})
    said = (
        "error: envlock probe: invalid value for `--format`: `yaml` is not one of `text`, `json` (from ENVLOCK_FORMAT)"
    )
    assert (ended.code, ended.err.splitlines()[0]) == (2, said)
    assert "(from ENVLOCK_CHECK_PID)" in envlock("check", env={"ENVLOCK_CHECK_PID": "x"}).err


@pytest.mark.parametrize("arguments", [["probe", "--only", "cpu.cores"], ["store", "verify"]])
def test_a_format_for_a_whole_job_binds_only_commands_that_have_it(arguments: list[str], tmp_path: Path) -> None:
    """ENVLOCK_FORMAT=junit is for `check`: others keep their default; on the command line it is an error."""
    store = {"XDG_CACHE_HOME": str(tmp_path), "ENVLOCK_STORE": str(tmp_path / "store")}
    plain = envlock(*arguments, env=store)
    assert envlock(*arguments, env={**store, "ENVLOCK_FORMAT": "junit"}) == plain
    assert plain.code == 0
    assert envlock(*arguments, "--format", "junit", env=store).code == 2


@pytest.mark.parametrize("group", ["canary", "store"])
def test_the_help_of_a_group_cuts_no_line_short(group: str) -> None:
    """Each command's line is whole."""
    assert "..." not in envlock(group, "--help").out.replace("[ARGS]...", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["chek", "--format", "json"],
        ["check", "--format=json", "--no-such-option"],
        ["check", "--format", "json", "-l", "/nowhere/x.lock.toml"],
        ["diff", "--format", "json", "only-one"],
    ],
)
def test_a_failing_command_prints_one_json_document_when_json_was_asked_for(arguments: list[str]) -> None:
    """Errors of the command line too; the message for people is on standard error all the same."""
    ended = envlock(*arguments)
    jsonschema.validate(ended.document, json.loads(SCHEMA.read_text()))
    assert ended.document["exit-code"] == ended.code == 2
    assert ended.err.startswith("error: ")


def test_the_last_format_counts() -> None:
    """The environment asks for JSON, the command line for text."""
    assert envlock("check", "--bad", env={"ENVLOCK_FORMAT": "json"}).out.startswith("{")
    assert envlock("check", "--bad", "--format", "text", env={"ENVLOCK_FORMAT": "json"}).out == ""
    assert envlock("check", "--bad", "--format", "json", "--format", "text").out == ""
    assert envlock("check", "--bad", "--", "--format", "json").out == ""


@pytest.mark.parametrize(
    ("arguments", "env", "colored"),
    [
        ([], {}, False),
        (["--color", "always"], {}, True),
        (["--color=never"], {"FORCE_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, False),
        ([], {"CLICOLOR_FORCE": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        ([], {"ENVLOCK_COLOR": "always"}, True),
    ],
)
def test_colour_is_as_asked_for(
    inputs: tuple[Path, Path], arguments: list[str], env: dict[str, str], colored: bool
) -> None:
    """`--color`, NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE; none into a pipe by default."""
    lock_path, facts_path = inputs
    command: list[str | Path] = ["check", "-l", lock_path, "--facts", facts_path]
    for order in ([*command, *arguments], [*arguments, *command]):
        ended = envlock(*order, env=env)
        assert ended.code == 1
        assert ("\x1b[" in ended.out) is colored
    assert ("\x1b[" in envlock(*arguments, "chek", env=env).err) is colored


def test_a_result_in_a_file_has_no_colour(inputs: tuple[Path, Path], tmp_path: Path) -> None:
    """Colour that a terminal wants does not go into `-o FILE`."""
    lock_path, facts_path = inputs
    envlock("check", "-l", lock_path, "--facts", facts_path, "-o", tmp_path / "out", env={"FORCE_COLOR": "1"})
    assert "\x1b" not in (tmp_path / "out").read_text()


def test_quiet_and_verbose_go_before_or_after_the_command(inputs: tuple[Path, Path]) -> None:
    """Neither changes the result."""
    lock_path, facts_path = inputs
    command: list[str | Path] = ["check", "-l", lock_path, "--facts", facts_path]
    plain = envlock(*command)
    for order in (["-q", *command], [*command, "-q"], ["-v", *command], [*command, "--verbose"]):
        ended = envlock(*order)
        assert (ended.code, ended.out) == (plain.code, plain.out)


def test_a_terminal_without_our_letters_gets_escapes(inputs: tuple[Path, Path]) -> None:
    """An arrow that the locale does not know is no traceback."""
    lock_path, facts_path = inputs
    ended = envlock("check", "-l", lock_path, "--facts", facts_path, env={"PYTHONIOENCODING": "ascii:strict"})
    assert ended.code == 1
    assert "535.161.08 \\u2192 550.120" in ended.out


def test_a_closed_standard_output_is_an_error_in_words(inputs: tuple[Path, Path]) -> None:
    """`>&-`: the result cannot be given, exit 3."""
    lock_path, facts_path = inputs
    script = '"$@" >&-'
    argv = ["sh", "-c", script, "sh", *ARGV, "check", "-l", str(lock_path), "--facts", str(facts_path)]
    ended = subprocess.run(argv, capture_output=True, env=environment(), timeout=60, check=False)
    assert ended.returncode == 3
    assert ended.stderr.decode().startswith("error: standard output: is closed")


def test_a_fault_of_envlock_is_3_and_says_so(tmp_path: Path) -> None:
    """Python's own exit code for a traceback is 1, and 1 means drift."""
    script = (
        "import sys; from envlock.cli import main, options\n"
        "def broken(*arguments): raise AssertionError('planted')\n"
        "main.cli.invoke = broken\n"
        "main.main(['check', '--format', 'json'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    assert ended.returncode == 3
    assert json.loads(ended.stdout)["message"] == "AssertionError: planted"
    assert "this is a fault of envlock" in ended.stderr


def modules_after(*arguments: str) -> set[str]:
    """Return the top-level names of all modules that a run of envlock loaded."""
    script = (
        "import sys\n"
        "from envlock.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "print('\\nMODULES', *sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    argv = [sys.executable, "-c", script, *arguments]
    ended = subprocess.run(argv, capture_output=True, text=True, env=environment(), timeout=60, check=False)
    return set(ended.stderr.rsplit("\nMODULES ", 1)[1].split())


def test_help_loads_nothing_heavy() -> None:
    """`envlock --help` starts without docker, torch, jinja2, tomlkit and their kin, and without our own commands."""
    loaded = modules_after("--help")
    assert not loaded & HEAVY
    assert not loaded & {"tomllib", "subprocess", "importlib.metadata", "ssl", "http"}


@pytest.mark.parametrize("arguments", [["check", "-l", "LOCK"], ["check", "-l", "LOCK", "--facts", "FACTS"], ["probe"]])
def test_check_and_probe_load_nothing_heavy(inputs: tuple[Path, Path], arguments: list[str]) -> None:
    """A check of a host without a GPU costs little more than Python itself."""
    names = {"LOCK": str(inputs[0]), "FACTS": str(inputs[1])}
    assert not modules_after(*(names.get(argument, argument) for argument in arguments)) & HEAVY


def test_lock_check_loads_nothing_heavy(inputs: tuple[Path, Path]) -> None:
    """Whether a lockfile is fresh is said without a network library or a resolver."""
    folder = inputs[0].parent
    assert envlock("init", cwd=folder).code == 0
    spec = folder / "envlock.toml"
    assert spec.exists()
    assert not modules_after("lock", "--check", "-f", str(spec), "-l", str(inputs[0])) & HEAVY
