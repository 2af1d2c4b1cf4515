"""The options of commands that look at a program instead of the host: `--exec` and `--pid`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from envlock.cli import options
from envlock.errors import EXIT_MATCH, UsageError

if TYPE_CHECKING:
    from envlock.probe.libraries.values import Loaded

F = TypeVar("F", bound=Callable[..., Any])

SETTINGS = {"allow_interspersed_args": False}
"""Settings of such a command: what follows the program's name is the program's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What is to be looked at: a running process, or a command to run; neither is the host."""

    pid: int | None
    execute: bool
    deadline: float | None
    no_trace: bool
    cmd: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.execute or self.pid is not None


def program_options(function: F) -> F:
    """Give `--pid`, `--exec`, `--deadline`, `--no-trace` and CMD to a command; see `program`."""
    cmd = click.argument("cmd", nargs=-1, type=click.UNPROCESSED, metavar="[CMD...]")
    trace = click.option("--no-trace", is_flag=True, help="With --exec: only look again and again, without ptrace.")
    deadline = click.option(
        "--deadline",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="With --exec: end CMD after that long.",
    )
    execute = click.option("--exec", "execute", is_flag=True, help="Run CMD, and look at what it loads to its end.")
    pid = click.option("--pid", type=click.IntRange(min=1), metavar="PID", help="Look at a running process.")
    return pid(execute(deadline(trace(cmd(function)))))


def program(given: dict[str, Any], command: str) -> Program:
    """Take the options of `program_options` out of `given`; `UsageError` when they contradict each other."""
    asked = Program(**{name: given.pop(name) for name in ("pid", "execute", "deadline", "no_trace", "cmd")})
    if asked.cmd and not asked.execute:
        raise UsageError(
            f"unexpected argument `{asked.cmd[0]}`", where=command, hint=f"run a program with `{command} --exec CMD`"
        )
    if asked.execute and asked.pid is not None:
        raise UsageError("--exec and --pid are two programs", where=command, hint="give one of them")
    if asked.execute and not asked.cmd:
        raise UsageError("--exec needs a program", where=command, hint=f"`{command} --exec python -c 'import torch'`")
    if not asked.execute and (asked.deadline is not None or asked.no_trace):
        raise UsageError("--deadline and --no-trace go with --exec", where=command)
    return asked


def look(asked: Program) -> "Loaded":
    """Return what the program loads."""
    from envlock.probe.libraries.operation import of_command, of_pid

    if asked.pid is not None:
        return of_pid(asked.pid)
    return of_command(asked.cmd, asked.deadline, trace=not asked.no_trace)


def verdict(loaded: "Loaded") -> int:
    """Say what stands beside the result, and return the exit code: 0 only when nothing may have been missed."""
    from envlock.probe.libraries.operation import shortcoming

    error = shortcoming(loaded)
    if error is None:
        return EXIT_MATCH
    options.say_error(str(error), error.hint)
    return error.exit_code
