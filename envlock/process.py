"""The one place that starts other programs: an argument list, a deadline, a clear error.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Mapping, Sequence

from envlock.errors import ToolError


class Finished:
    """What a program left: exit `status`, and its output as bytes."""

    __slots__ = ("status", "stdout", "stderr")

    def __init__(self, status: int, stdout: bytes, stderr: bytes) -> None:
        self.status = status
        self.stdout = stdout
        self.stderr = stderr


class Overdue(ToolError):
    """A program that passed its deadline; `stdout` is what it had printed until then."""

    stdout = b""


class Running:
    """A program that was started: `wait` gives what it left."""

    __slots__ = ("_hint", "_name", "_process")

    def __init__(self, process: subprocess.Popen[bytes], name: str, hint: str | None) -> None:
        self._process = process
        self._name = name
        self._hint = hint

    def wait(self, timeout: float, stdin: bytes = b"") -> Finished:
        """Return `Finished`, whatever the exit status; `Overdue` past `timeout` seconds from now.

        The program's whole process group is then killed.
        """
        process = self._process
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            kill_group(process)
            overdue = Overdue("`{}` gave no answer within {} s".format(self._name, timeout), hint=self._hint)
            overdue.stdout = error.stdout or b""
            raise overdue from None
        except BaseException:
            kill_group(process)
            raise
        return Finished(process.returncode, stdout, stderr)


def start(
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    hint: str | None = None,
    keep: Sequence[int] = (),
) -> Running:
    """Start `argv` in a process group of its own and return at once; `keep` are the descriptors it inherits.

    Raises `ToolError` when the program is missing or may not be run.
    """
    name = argv[0]
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
            pass_fds=keep,
        )
    except FileNotFoundError:
        raise ToolError("`{}` is not installed".format(name), hint=hint) from None
    except OSError as error:
        raise ToolError(
            "`{}` cannot be run: {}".format(name, (error.strerror or str(error)).lower()), hint=hint
        ) from error
    return Running(process, name, hint)


def run(
    argv: Sequence[str],
    timeout: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    cwd: str | os.PathLike[str] | None = None,
    hint: str | None = None,
) -> Finished:
    """Run `argv` and return `Finished`, whatever its exit status.

    `timeout` is in seconds: past it the program's whole process group is killed.
    `env` replaces the environment when given. Raises `ToolError` when the program is
    missing, may not be run, or passed its deadline; `hint` says what to install.
    """
    return start(argv, env, cwd, hint).wait(timeout, stdin)


def check(
    argv: Sequence[str],
    timeout: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    cwd: str | os.PathLike[str] | None = None,
    hint: str | None = None,
) -> bytes:
    """Run `argv` like `run` and return its standard output; `ToolError` on another status than 0.

    The error quotes the last lines that the program wrote on standard error.
    """
    return checked(run(argv, timeout, env=env, stdin=stdin, cwd=cwd, hint=hint), argv[0], hint)


def checked(finished: Finished, name: str, hint: str | None = None) -> bytes:
    """Return the standard output of a program that ended with status 0; `ToolError` otherwise."""
    if finished.status != 0:
        said = finished.stderr.decode("utf-8", "replace").strip().splitlines()[-8:]
        raise ToolError(
            "`{}` failed with status {}{}".format(name, finished.status, "".join("\n  " + line[:300] for line in said)),
            hint=hint,
        )
    return finished.stdout


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill `process` and all that it started; never wait for one that cannot die.

    A program stuck in the driver (state D) outlives SIGKILL: waiting for it without a
    deadline would hang envlock with it.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        pass
