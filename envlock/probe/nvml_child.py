"""NVML asked in a child process with a deadline.

A driver that hangs leaves its user in a state that no signal ends; in a process of its
own it can be left behind. The answer is one marked line, because the library itself may
print to standard output.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Mapping, Sequence

from envlock.errors import ToolError
from envlock.facts import FAILED
from envlock.probe.host import Absent

MARK = "envlock-nvml "
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from envlock.probe.nvml_child import main; main()"


def ask(module_file: str | None, deadline: float, command: Sequence[str] | None = None) -> Mapping[str, object]:
    """Return the document of `envlock.probe.nvml.collect`, made in a child process.

    `module_file` is where the module `pynvml` lies, None when there is none. `Absent`
    says why there is no answer: no binding, a deadline passed, a child that crashed.
    """
    from envlock.process import run

    if module_file is None:
        raise Absent(FAILED, "this Python has no NVML binding (the distribution nvidia-ml-py) to ask the driver with")
    if not sys.executable and command is None:
        raise Absent(FAILED, "this Python does not know its own program, so NVML cannot be asked in a child process")
    argv = command or (sys.executable, "-I", "-c", _PROGRAM, package_root(), _folder(module_file))
    try:
        finished = run(argv, deadline)
    except ToolError as error:
        raise Absent(FAILED, "NVML was asked in a child process: {}".format(error.message)) from None
    return parse(finished.stdout.decode("utf-8", "backslashreplace"), finished.status)


def parse(text: str, status: int) -> Mapping[str, object]:
    """Return the document in a child's output; `Absent` when it left none."""
    for line in reversed(text.splitlines()):
        if line.startswith(MARK):
            try:
                document = json.loads(line[len(MARK) :])
            except ValueError:
                break
            if isinstance(document, dict):
                return document
    how = "killed by signal {}".format(-status) if status < 0 else "status {}".format(status)
    raise Absent(FAILED, "the child process that asked NVML left no answer ({})".format(how))


def package_root() -> str:
    """Return the folder or zip application that this package was imported from."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _folder(module_file: str) -> str:
    folder, name = os.path.split(module_file)
    return os.path.dirname(folder) if name == "__init__.py" else folder


def main() -> None:
    """Ask NVML and print the marked line; what the child process runs."""
    from envlock.probe.nvml import collect

    if len(sys.argv) > 2:
        # Last, so that it brings the module and shadows nothing of this Python's own.
        sys.path.append(sys.argv[2])
    try:
        import pynvml
    except Exception as error:
        document: dict[str, object] = {"error": "pynvml cannot be imported: {}".format(error), "code": -1}
    else:
        document = collect(pynvml)
    sys.stdout.write("\n" + MARK + json.dumps(document) + "\n")
    sys.stdout.flush()
    # Without nvmlShutdown and without exit handlers: both can hang with the driver.
    os._exit(0)
