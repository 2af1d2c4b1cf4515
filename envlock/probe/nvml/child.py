"""NVML asked in a child process with a deadline.

A driver that hangs leaves its user in a state that no signal ends; in a process of its
own it can be left behind. The child answers in marked lines, because the library itself
may print to standard output, and says before each call what it is about to ask
(`envlock.nvml_start.Teller`): what a driver answered before it hung or crashed is kept,
and the call it did not come back from is named.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Sequence, Tuple

from envlock.errors import ToolError
from envlock.facts import FAILED
from envlock.nvml_start import ASKING, HOST_ONLY, Teller, make_slate, slate_argument, take_slate, write
from envlock.probe.host import Absent

if TYPE_CHECKING:
    from envlock.process import Running

MARK = "envlock-nvml "
DEADLINE = "ENVLOCK_NVML_DEADLINE"
_PROGRAM = """\
import sys; sys.path.insert(0, sys.argv[1])
import envlock.nvml_start; envlock.nvml_start.main()
import envlock.probe.nvml.child; envlock.probe.nvml.child.main()
"""


def ask(
    module_file: str | None, seconds: float, command: Sequence[str] | None = None, gpus: bool = True
) -> Mapping[str, object]:
    """Return what the function that `begin` returns gives."""
    return begin(module_file, seconds, command, gpus)()


def begin(
    module_file: str | None, seconds: float, command: Sequence[str] | None = None, gpus: bool = True
) -> Callable[[], Mapping[str, object]]:
    """Start a child process that asks NVML; the function returned gives `envlock.probe.nvml.collecting.assembled`.

    `module_file` is where the module `pynvml` lies, None when there is none. Without
    `gpus` no GPU is woken or opened. A child that takes longer than `seconds` is left
    behind. `Absent`, from both, says why there is no answer: no binding, a deadline, a crash.
    """
    from envlock.process import start

    if module_file is None:
        raise Absent(FAILED, "this Python has no NVML binding (the distribution nvidia-ml-py) to ask the driver with")
    if not sys.executable and command is None:
        raise Absent(FAILED, "this Python does not know its own program, so NVML cannot be asked in a child process")
    # Binding and envlock are found by their folders: the site module would only take its time.
    argv = command or (sys.executable, "-I", "-S", "-c", _PROGRAM, package_root(), _folder(module_file))
    slate = make_slate()
    kept = () if slate < 0 else (slate,)
    try:
        running = start((*argv, *(() if gpus else (HOST_ONLY,)), *map(slate_argument, kept)), keep=kept)
    except ToolError as error:
        take_slate(slate)
        raise _unasked(error) from None
    return lambda: _wait(running, seconds, slate)


def _wait(running: Running, seconds: float, slate: int) -> Mapping[str, object]:
    # Read while the child answers, not after it.
    from envlock.probe.nvml import collecting  # noqa: F401
    from envlock.process import Overdue

    output, why = b"", ""
    try:
        finished = running.wait(seconds)
        status = finished.status
        how = "killed by signal {}".format(-status) if status < 0 else "status {}".format(status)
        output, why = finished.stdout, "its process left no answer ({})".format(how)
    except Overdue as error:
        output, why = error.stdout, "it gave no answer within {:g} s".format(seconds)
    except ToolError as error:
        raise _unasked(error) from None
    finally:
        asked = take_slate(slate)
    return parse(asked + _text(output), why)


def _unasked(error: ToolError) -> Absent:
    return Absent(FAILED, "NVML was asked in a child process: {}".format(error.message))


def deadline(chosen: str | None, default: float) -> float:
    """Return the seconds that NVML may take: `chosen`, or the `default`; `Absent` for what is no such number."""
    if not chosen:
        return default
    try:
        seconds = float(chosen)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 86400:
        raise Absent(FAILED, "{}={}: not a number of seconds".format(DEADLINE, chosen))
    return seconds


def parse(text: str, why: str) -> Mapping[str, object]:
    """Return the document in a child's output; `Absent` when not even the driver had answered.

    `why` says how the child ended, for an output that breaks off.
    """
    from envlock.probe.nvml.collecting import assembled

    events, place, call = _read(text)
    asked = " ({}{})".format(call, " of " + place if place else "") if call else ""
    unfinished = "NVML was asked in a child process{}: {}".format(asked, why)
    document = assembled(events, unfinished)
    if "host" not in document and "error" not in document:
        raise Absent(FAILED, unfinished)
    return document


def _read(text: str) -> Tuple[List[Dict[str, Any]], str, str]:
    """Return the events in a child's output, and the GPU and function it asked last."""
    events: List[Dict[str, Any]] = []
    place = call = ""
    for line in text.splitlines():
        if line.startswith(MARK):
            try:
                event = json.loads(line[len(MARK) :])
            except ValueError:
                break  # cut off: nothing comes after it
            if isinstance(event, dict):
                events.append(event)
        elif line.startswith(ASKING):
            asked = line[len(ASKING) :]
            if asked.startswith("nvml"):
                call = asked
            else:
                place, call = asked, ""
    return events, place, call


def package_root() -> str:
    """Return the folder or zip application that this package was imported from."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def _folder(module_file: str) -> str:
    folder, name = os.path.split(os.path.abspath(module_file))
    return os.path.dirname(folder) if name == "__init__.py" else folder


def _text(output: bytes) -> str:
    return output.decode("utf-8", "backslashreplace")


def main() -> None:
    """Ask NVML and print marked lines; what the child process runs once the library is starting."""
    from envlock.probe.nvml.collecting import events

    arguments = sys.argv[1:]
    try:
        pynvml = _binding(arguments[1] if len(arguments) > 1 and os.path.isabs(arguments[1]) else "")
    except Exception as error:
        write(MARK + json.dumps({"error": "pynvml cannot be imported: {}".format(error), "code": -1}))
    else:
        for event in events(pynvml, HOST_ONLY not in arguments, Teller(arguments).tell):
            write(MARK + json.dumps(event))
    # Without nvmlShutdown and without exit handlers: both can hang with the driver.
    os._exit(0)


def _binding(folder: str) -> Any:
    """Return the module `pynvml` that lies in `folder`, and no other of that name; nothing else comes from there."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("pynvml", [folder]) if folder else None
    if spec is None or spec.loader is None:
        import pynvml

        return pynvml
    module = module_from_spec(spec)
    sys.modules["pynvml"] = module
    spec.loader.exec_module(module)
    return module
