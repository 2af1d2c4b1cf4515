"""What `check` and `diff` share: their formats, what a failure leaves, and where a file lies in a repository."""

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import click

from envlock.cli import options
from envlock.errors import EnvlockError, UsageError
from envlock.report import formats

if TYPE_CHECKING:
    from envlock.report.view import View

GATES = ("check", "diff")

RESULTS = (*GATES, "probe")
"""Commands whose result is read as an answer later: a failure replaces an older one in its file."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line asks for, as far as a failure must know, even of one that cannot be parsed.

    `output` is that of `RESULTS` alone, `protocol` and `lock` (as it was named) that of `check`.
    """

    command: str = ""
    form: str = "text"
    protocol: str = ""
    output: Path | None = None
    lock: str = ""


def asked(arguments: list[str], environment: Mapping[str, str], commands: tuple[str, ...]) -> Asked:
    """Return what the command line asks for; the last of several wins, as for click."""
    arguments = _own(arguments)
    command = next((argument for argument in arguments if argument in commands), "")
    form = _option(arguments, ("--format",), environment.get("ENVLOCK_FORMAT", ""))
    output = ""
    if command in RESULTS:
        output = _option(arguments, ("--output", "-o"), environment.get(f"ENVLOCK_{command.upper()}_OUTPUT", ""))
    if command not in GATES:
        form = "json" if form == "json" else "text"
        return Asked(command=command, form=form, output=Path(output) if output else None)
    protocol = ""
    if command == "check":
        typed = _option(arguments, ("--format",), "")
        protocol = _option(arguments, ("--as",), "" if typed else environment.get("ENVLOCK_CHECK_AS", ""))
    return Asked(
        command=command,
        form=form if form in formats.NAMES else "text",
        protocol=protocol if protocol in formats.PROTOCOLS else "",
        output=Path(output) if output else None,
        lock=_option(arguments, ("--lock", "-l"), environment.get("ENVLOCK_LOCK", "")) if command == "check" else "",
    )


_FLAGS = ("--exec", "--no-trace", "--drain", "--quiet", "--verbose", "-q", "-v")


def _own(arguments: list[str]) -> list[str]:
    """Return the arguments before the program that `--exec` runs: what follows is for that one.

    Its `-o` must never be written to because envlock failed.
    """
    start = arguments.index("--exec") + 1 if "--exec" in arguments else len(arguments)
    for index in range(start, len(arguments)):
        before = arguments[index - 1]
        attached = "=" in before or (not before.startswith("--") and len(before) > 2)
        is_value = before.startswith("-") and before not in _FLAGS and not attached
        if not arguments[index].startswith("-") and not is_value:
            return arguments[:index]
    return arguments


def _option(arguments: list[str], names: tuple[str, ...], chosen: str) -> str:
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        for name in names:
            if argument == name:
                chosen = arguments[index + 1] if index + 1 < len(arguments) else ""
            elif name.startswith("--") and argument.startswith(f"{name}="):
                chosen = argument.partition("=")[2]
            elif not name.startswith("--") and argument.startswith(name) and not argument.startswith("--"):
                chosen = argument[len(name) :]
    return chosen


def fail(error: EnvlockError, wanted: Asked) -> int:
    """Leave a document that says that `error` kept the answer from being given; return the exit code.

    It goes where the result would have gone, so that whoever reads only that place finds
    no older, better answer. Where that cannot be written, to standard output; an older
    answer is then removed, which a full disk still allows.
    """
    text, code = _document(error, wanted)
    if text:
        try:
            options.emit(text, wanted.output)
        except EnvlockError as fault:
            if wanted.output is None or wanted.output == options.STANDARD:
                raise
            if str(fault) != str(error):
                options.say_error(str(fault), fault.hint)
            _remove(wanted.output)
            options.emit(text, None)
    return code


def _remove(path: Path) -> None:
    # A disk that is read-only refuses this too: nothing more can be done, and the error is said.
    with contextlib.suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            path.unlink()


def _document(error: EnvlockError, wanted: Asked) -> tuple[str, int]:
    if wanted.protocol:
        from envlock.report import node, view

        seen = view.of_error(error, wanted.command, wanted.lock)
        return node.line(seen, wanted.protocol), node.exit_code(seen, wanted.protocol)
    if wanted.form == "json":
        return json.dumps(error.to_document(), indent=2, sort_keys=True), error.exit_code
    if wanted.form in formats.MODULES:
        from envlock.report import view

        seen = view.of_error(error, wanted.command, wanted.lock and in_repository(Path(wanted.lock)))
        return formats.render(seen, wanted.form), error.exit_code
    if wanted.output is not None and wanted.output != options.STANDARD:
        return f"unknown: {error}", error.exit_code
    return "", error.exit_code


# ---- answers ---------------------------------------------------------------------------------


def protocol(context: click.Context) -> str | None:
    """Return the protocol that `check` is to speak; `UsageError` for options that cannot both be meant.

    What is typed wins over what a variable says for a whole job: `--as` over
    ENVLOCK_FORMAT, `--format` over ENVLOCK_CHECK_AS.
    """
    given = {name for name in ("output_format", "protocol", "drain", "node") if _on_command_line(context, name)}
    chosen: str | None = context.params["protocol"]
    if "output_format" in given and "protocol" not in given:
        chosen = None
    hint = f"`{context.command_path} --help` shows how it is used"
    if chosen and "output_format" in given:
        raise UsageError("`--as` and `--format` exclude each other", where=context.command_path, hint=hint)
    if chosen != "slurm" and given & {"drain", "node"}:
        raise UsageError("`--drain` and `--node` go with `--as slurm`", where=context.command_path, hint=hint)
    return chosen


def _on_command_line(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def answer(
    view: "View", protocol: str | None, form: str, output: Path | None, slurm: tuple[bool, str | None] = (False, None)
) -> int:
    """Write `view` in `protocol`, else in `form`; return the exit code.

    `slurm`: whether to drain the node unless it matches, and its name. Without leave to
    drain, what would be run is said on standard error.
    """
    if not protocol:
        options.emit(formats.render(view, form), output)
        return view.exit_code
    from envlock.report import node

    line = node.line(view, protocol)
    options.emit(line, output)
    if protocol == "slurm" and node.says_of_the_node(view):
        from envlock import slurm as cluster

        name = slurm[1] or os.environ.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]
        try:
            options.say(cluster.drain(name, line) if slurm[0] else cluster.dry(name, line))
        except EnvlockError as error:
            # The answer stands on standard output already: one line, and that it had no consequence.
            options.say_error(str(error), error.hint)
            return error.exit_code
    return node.exit_code(view, protocol)


def lines(path: Path) -> dict[str, tuple[tuple[int, str], ...]]:
    """Return on which lines of the lockfile at `path` its keys stand (`envlock.report.view.lines_of`)."""
    from envlock.files import read_bytes
    from envlock.report.view import lines_of

    return lines_of(read_bytes(path).decode("utf-8", "replace"))


def in_repository(path: Path) -> str:
    """Return `path` as a reader of the repository names it: from its root, which a CI system tells, else from here."""
    whole = os.path.abspath(path)
    for root in (os.environ.get("GITHUB_WORKSPACE"), os.environ.get("CI_PROJECT_DIR"), str(Path.cwd())):
        if root and PurePath(whole).is_relative_to(root):
            return PurePath(whole).relative_to(root).as_posix()
    return str(path)
