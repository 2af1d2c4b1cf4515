"""The shape of the house: who may import whom, what travels, and what a module may not be.

Read from the syntax trees of the code, so that a breach is found before it runs.
"""

import ast
import configparser
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "envlock"

# A module imports only from rows above its own. Inside a row only one and the same
# package may import itself. First match by the longest name.
ROWS: tuple[tuple[str, ...], ...] = (
    ("envlock",),
    ("envlock.errors",),
    ("envlock.digest",),
    ("envlock.facts",),
    ("envlock.registry", "envlock.process", "envlock.nvml_start"),
    ("envlock.probe",),
    ("envlock.canary",),
    ("envlock.gpucheck",),
    ("envlock.agent_main",),
    ("envlock.agent", "envlock.files", "envlock.tables", "envlock.versions", "envlock.pairing"),
    ("envlock.documents", "envlock.lockfile"),
    ("envlock.spec",),
    ("envlock.rules", "envlock.lockstore", "envlock.waivers"),
    ("envlock.policy",),
    ("envlock.drift",),
    ("envlock.difference", "envlock.store", "envlock.cudacompat"),
    ("envlock.lockdiff", "envlock.libraries"),
    ("envlock.lock",),
    ("envlock.image",),
    ("envlock.run",),
    ("envlock.checks", "envlock.slurm"),
    ("envlock.report",),
    ("envlock.cli",),
    ("envlock.__main__",),
)

# What runs on a bare node, under its own Python.
TRAVELS = (
    "envlock", "envlock.errors", "envlock.digest", "envlock.facts", "envlock.registry", "envlock.process",
    "envlock.nvml_start", "envlock.probe", "envlock.canary", "envlock.gpucheck", "envlock.agent_main",
)  # fmt: skip
OLDEST_PYTHON = (3, 8)

# Whoever starts a program does it through `envlock.process`; these say why they do not.
STARTS = {
    "envlock.process": "the one runner",
    "envlock.probe.libraries.launching": "the program is followed from its first instruction, so it is forked here",
    "envlock.probe.libraries.asking_child": "each library is loaded in a fork of its own: a crash costs one answer",
    "envlock.image.render": "a template runs in a forked child with a limit on memory and time",
}
# Whoever has something to say returns it to the command line; these are programs of their own.
PRINTS = {
    "envlock.__main__": "the program",
    "envlock.agent_main": "the program of the zip application",
    "envlock.canary.__main__": "the program that runs inside the container",
    "envlock.canary.main": "the program that runs inside the container",
    "envlock.gpucheck.load": "the child that loads a GPU; it answers on its standard output",
    "envlock.nvml_start": "the child that may hang in the driver; it answers on its standard output",
}
HEAVY = {
    "docker", "jinja2", "numpy", "onnxruntime", "openvino", "packaging", "pynvml", "requests", "rich",
    "tomlkit", "torch", "urllib3", "uv",
}  # fmt: skip

MAX_MODULE = 400
MAX_FUNCTION = 60

# Specifications and documentation that code and docs may point to. No index, registry or
# mirror is among them: which one serves a file is the host's configuration.
SITES = (
    "json-schema.org", "no-color.org", "peps.python.org", "docs.python.org", "packaging.python.org",
    "reproducible-builds.org", "github.com", "keepachangelog.com", "semver.org", "www.apache.org", "apache.org",
    "wiki.debian.org", "manpages.debian.org", "www.debian.org", "opencontainers.org", "specs.opencontainers.org",
    "docs.docker.com", "docs.podman.io", "docs.nvidia.com", "pytorch.org", "docs.pytorch.org", "slsa.dev",
    "in-toto.io", "www.rfc-editor.org", "datatracker.ietf.org", "toml.io", "adr.github.io", "www.kernel.org",
    "docs.kernel.org", "man7.org", "docs.oasis-open.org", "docs.gitlab.com", "docs.github.com", "prometheus.io",
    "example.org", "example.com", "example.invalid",
)  # fmt: skip
LOCAL = re.compile(r"[a-z0-9-]+|127\.0\.0\.1|\[::1\]|[a-z0-9.-]+\.(invalid|test|example)|\{.*|\$.*|%.*")


@cache
def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def row_of(name: str) -> tuple[int, str]:
    """Return the row of a module, and the entry of it that the module belongs to."""
    candidate = name
    while candidate:
        for number, row in enumerate(ROWS):
            if candidate in row and (candidate != "envlock" or name == "envlock"):
                return number, candidate
        candidate = candidate.rpartition(".")[0]
    raise AssertionError(f"{name} is in no row: give it one in {Path(__file__).name}")


def imports(name: str) -> Iterator[tuple[str, int]]:
    """Yield each module that `name` imports anywhere, with the line; `from a import b` is `a.b` where that is one."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "." * node.level + (node.module or ""), node.lineno
                continue
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner if inner in modules() else str(node.module)), node.lineno


def imported_at_start(name: str) -> Iterator[tuple[str, int]]:
    """Yield the top-level name of each module that importing `name` imports, type checking apart."""
    pending: list[ast.AST] = list(tree(name).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).split(".")[0], node.lineno
        pending.extend(ast.iter_child_nodes(node))


def wrong_rows(name: str) -> Iterator[str]:
    row, place = row_of(name)
    for imported, line in imports(name):
        if imported.startswith("."):
            yield f"{name}:{line} imports relatively: {imported}"
        elif imported.split(".")[0] == "envlock":
            other_row, other_place = row_of(imported)
            if other_row >= row and other_place != place:
                yield f"{name}:{line} imports {imported}, which is not above it"


def programs_started(name: str) -> Iterator[str]:
    if name in STARTS:
        return
    for imported, line in imports(name):
        if imported.split(".")[0] in ("subprocess", "pty", "multiprocessing"):
            yield f"{name}:{line} imports {imported}; use envlock.process"
    for node in ast.walk(tree(name)):
        text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if re.fullmatch(r"os\.(system|popen|exec.*|spawn.*|posix_spawnp?|fork|forkpty)", text):
            yield f"{name}:{getattr(node, 'lineno', 0)} calls {text}; use envlock.process"


def things_printed(name: str) -> Iterator[str]:
    if row_of(name)[1] == "envlock.cli" or name in PRINTS:
        return
    for imported, line in imports(name):
        if imported.split(".")[0] == "click":
            yield f"{name}:{line} imports click"
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call) and re.fullmatch(
            r"print|(sys\.)?exit|quit|sys\.std(out|err)(\.buffer)?\.write", ast.unparse(node.func)
        ):
            yield f"{name}:{node.lineno} calls {ast.unparse(node.func)}"


def heavy_at_start(name: str) -> Iterator[str]:
    for imported, line in imported_at_start(name):
        if imported in HEAVY:
            yield f"{name}:{line} imports {imported} at its start"


def too_new_to_travel(name: str) -> Iterator[str]:
    if row_of(name)[1] not in TRAVELS:
        return
    try:
        ast.parse(modules()[name].read_text(encoding="utf-8"), feature_version=OLDEST_PYTHON)
    except SyntaxError as fault:
        yield f"{name}:{fault.lineno} is newer than Python 3.8: {fault.msg}"
    for imported, line in imported_at_start(name):
        if imported not in sys.stdlib_module_names - {"tomllib"} and imported != "envlock":
            yield f"{name}:{line} imports {imported}"


def too_large_or_silent(name: str) -> Iterator[str]:
    text = modules()[name].read_text(encoding="utf-8")
    if text.strip() and not ast.get_docstring(tree(name)):
        yield f"{name} has no docstring"
    if len(text.splitlines()) > MAX_MODULE:
        yield f"{name} has {len(text.splitlines())} lines"
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION:
                yield f"{name}:{node.lineno} {node.name} has {lines} lines"


def everywhere(rule: Callable[[str], Iterator[str]]) -> list[str]:
    """Return every breach of `rule` in the package."""
    return [breach for name in sorted(modules()) for breach in rule(name)]


def test_a_module_imports_only_from_rows_above_its_own() -> None:
    """Data goes one way through the house; imports are absolute; each module has a row."""
    assert everywhere(wrong_rows) == []


def test_only_one_module_starts_programs() -> None:
    """A program is started with a deadline and a clear error, or not at all."""
    assert everywhere(programs_started) == []


def test_only_the_command_line_prints_and_exits() -> None:
    """Everything else returns values or raises."""
    assert everywhere(things_printed) == []


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    """Importing any module of ours loads no engine client, no template engine, no framework."""
    assert everywhere(heavy_at_start) == []


def test_what_travels_needs_nothing_but_an_old_python() -> None:
    """Its syntax is Python 3.8's, and importing it needs the standard library alone."""
    assert everywhere(too_new_to_travel) == []


def test_a_module_says_what_it_is_and_stays_small() -> None:
    """A docstring; at most 400 lines, and 60 in one function."""
    assert everywhere(too_large_or_silent) == []


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (wrong_rows, "from envlock.cli import options"),
        (wrong_rows, "from envlock import checks"),
        (wrong_rows, "from . import files"),
        (programs_started, "import subprocess"),
        (programs_started, "def f(): os.system('true')"),
        (things_printed, "print(1)"),
        (things_printed, "import click"),
        (heavy_at_start, "import torch"),
        (heavy_at_start, "try:\n    from docker import errors\nexcept ImportError:\n    pass"),
        (too_large_or_silent, "def long():\n" + "    x = 1\n" * 60),
    ],
)
def test_these_tests_see_a_planted_breach(
    rule: Callable[[str], Iterator[str]], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rule turns red on a module that breaks it, and only then."""
    assert list(rule("envlock.drift")) == []
    planted = ast.parse(f'"""Planted."""\nimport os\n{line}\n')
    monkeypatch.setattr(sys.modules[__name__], "tree", lambda asked: planted)
    assert len(list(rule("envlock.drift"))) == 1


# ---- committed text --------------------------------------------------------------------------


@cache
def committed() -> tuple[Path, ...]:
    """Return every text file that is, or is about to be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a Git working tree")
    paths = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    return tuple(path for path in paths if path.is_file() and not path.is_symlink() and path.stat().st_size < 4 << 20)


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def test_only_documentation_and_specifications_are_pointed_to() -> None:
    """No index, registry or mirror is named anywhere: every address is one of a short list of sites."""
    strange = []
    for path in committed():
        for host in re.findall(r"https?://(?:[^\s/@\"'`<>)]*@)?([^\s/:\"'`<>)\\,;]+)", text_of(path)):
            if host.lower().rstrip(".") not in SITES and not LOCAL.fullmatch(host.lower()):
                strange.append(f"{path.relative_to(ROOT)}: {host}")
    assert strange == []


def configured_hosts() -> set[str]:
    """Return the hosts that this machine's own configuration takes packages from."""
    texts = [
        text for name, text in os.environ.items() if re.match(r"(PIP|UV)_.*(URL|LINKS|INDEX)|.*_PROXY|.*_proxy", name)
    ]
    for place in ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf", "~/.config/uv/uv.toml"):
        path = Path(place).expanduser()
        if path.is_file():
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
    for folder in ("/etc/apt", "/etc/apt/sources.list.d"):
        for path in Path(folder).glob("*sources*"):
            if path.is_file():
                texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return {host for text in texts for host in re.findall(r"https?://(?:[^\s/@]*@)?([^\s/:]+)", text)}


def naming(needles: set[str]) -> list[str]:
    """Return where a committed file holds one of `needles`."""
    return [
        f"{path.relative_to(ROOT)}: {needle}" for path in committed() for needle in needles if needle in text_of(path)
    ]


def test_no_mirror_of_this_machine_is_named() -> None:
    """Where this machine takes packages from is nobody's business but its own."""
    assert naming({host for host in configured_hosts() if "." in host and not LOCAL.fullmatch(host)} - set(SITES)) == []


COMMON_PLACES = ("/var/tmp", "/var/lib", "/usr/src", "/usr/local", "/usr/local/src")


def test_no_path_of_this_machine_is_named() -> None:
    """Code and documents work wherever they lie."""
    places = {ROOT, Path(os.path.realpath(ROOT)), *ROOT.parents}
    # A clone in /src or below /var/tmp says nothing about a machine: such names stand in every other program too.
    telling = {place for place in places if len(place.parts) > 2 and str(place) not in COMMON_PLACES}
    assert naming({f"{place}/" for place in telling}) == []


def test_the_pip_configuration_is_really_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would see a host from the environment."""
    parser = configparser.ConfigParser()
    parser.read_string("[global]\nindex-url = https://mirror.invalid/simple\n")
    monkeypatch.setenv("PIP_INDEX_URL", parser["global"]["index-url"])
    assert "mirror.invalid" in configured_hosts()
