"""Starting a program that waits at a gate until its observer is ready.

It gets this process's environment, folder, standard input and process group unchanged;
only its standard output goes to standard error, because standard output is for the one
result document.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn, Sequence

from envlock.errors import ToolError

_NOT_STARTED = 127


class Launched:
    """A program behind its gate: `pid`, and `open` to let it begin."""

    def __init__(self, pid: int, gate: int, failure: int) -> None:
        self.pid = pid
        self._gate = gate
        self._failure = failure

    def open(self) -> int:
        """Let the program begin; return 0, or the error number of why it could not be started."""
        os.write(self._gate, b"g")
        os.close(self._gate)
        said = os.read(self._failure, 16)  # ends when the program begins
        os.close(self._failure)
        return int(said) if said else 0


def launch(command: Sequence[str]) -> Launched:
    """Return `command`, forked and waiting at its gate."""
    gate_in, gate_out = os.pipe()
    failure_in, failure_out = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(gate_out)
        os.close(failure_in)
        _begin(command, gate_in, failure_out)
    os.close(gate_in)
    os.close(failure_out)
    return Launched(pid, gate_out, failure_in)


def _begin(command: Sequence[str], gate: int, failure: int) -> NoReturn:
    """Wait at the gate, then become `command`, with signals as a shell would hand them on."""
    try:
        if os.read(gate, 1):
            os.dup2(2, 1)
            for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them; other programs need not
                signal.signal(getattr(signal, name), signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            os.execvp(command[0], list(command))
    except OSError as error:
        os.write(failure, str(error.errno or 1).encode("ascii"))
    finally:
        os._exit(_NOT_STARTED)


def not_started(command: Sequence[str], number: int) -> ToolError:
    """Return the error for a program that could not be started."""
    return ToolError(
        "`{}` cannot be run: {}".format(command[0], os.strerror(number).lower()),
        hint="give the program and its arguments as you would to a shell, after `--exec --`",
    )
