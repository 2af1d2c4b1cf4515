"""The child process that loads libraries and asks each for its version.

It reads one JSON line of questions and writes one marked line for each answer. Each
library is loaded in a fork of its own: what a library's start-up code does, down to
taking the process with it, costs that one answer. Two releases side by side never meet.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from typing import Any, Dict, List, Tuple

MARK = "envlock-version "
CANNOT_LOAD = "cannot be loaded: "
_ENOUGH = 1 << 16


def main() -> None:
    """Answer every question on standard input; what the child process runs."""
    request = json.loads(sys.stdin.buffer.readline())
    # Libraries print; what they print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for number, question in enumerate(request["questions"]):
        answer = _in_fork(question, float(request["deadline"]))
        answer["number"] = number
        answers.write(MARK + json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)


def _in_fork(question: Dict[str, Any], deadline: float) -> Dict[str, Any]:
    """Return the answer of a fork, or how it failed to give one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _forked(writing, question)
    os.close(writing)
    data, until = b"", time.monotonic() + deadline
    while len(data) < _ENOUGH:
        left = until - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            os.close(reading)
            return {"error": "gave no answer within {:g} s{}".format(deadline, _ended(child, kill=True))}
        piece = os.read(reading, _ENOUGH)
        if not piece:
            break
        data += piece
    os.close(reading)
    how = _ended(child, kill=False)
    try:
        answer = json.loads(data.decode("utf-8"))
        return answer if isinstance(answer, dict) else {"error": "gave no answer"}
    except ValueError:
        return {"error": "ended the process that loaded it{}".format(how)}


def _ended(child: int, kill: bool) -> str:
    """Return how `child` ended, in words; one that cannot be ended is left behind."""
    if kill:
        os.kill(child, signal.SIGKILL)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            if kill:
                return ""
            if os.WIFSIGNALED(status):
                return " by signal {}".format(os.WTERMSIG(status))
            return " with status {}".format(os.WEXITSTATUS(status))
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return " and could not be ended" if kill else ""


def _forked(writing: int, question: Dict[str, Any]) -> None:
    try:
        answer = _ask(question)
    except BaseException as error:
        answer = {"error": "{}: {}".format(type(error).__name__, error)}
    os.write(writing, json.dumps(answer).encode("utf-8"))
    # Exit handlers of the library may hang, and are nobody's wish.
    os._exit(0)


def _ask(question: Dict[str, Any]) -> Dict[str, Any]:
    """Load the file and return the numbers of the first call that it has."""
    for path in question["before"]:
        # A sibling that the process had mapped too: taken instead of one that the loader would find.
        try:
            ctypes.CDLL(path, mode=os.RTLD_LAZY | os.RTLD_GLOBAL)
        except OSError:
            pass  # the file asked for may do without; if not, its own error says so
    try:
        library = ctypes.CDLL(question["path"], mode=os.RTLD_LAZY | os.RTLD_LOCAL)
    except OSError as error:
        return {"error": "{}{}".format(CANNOT_LOAD, error)}
    for index, (name, form, parts) in enumerate(question["calls"]):
        if hasattr(library, name):
            numbers, failed = _call(library, name, form, parts)
            if failed:
                return {"error": "`{}` failed with code {}".format(name, failed)}
            return {"call": index, "numbers": numbers}
    return {"absent": "it has none of {}".format(", ".join(name for name, _, _ in question["calls"]))}


def _call(library: ctypes.CDLL, name: str, form: str, parts: int) -> Tuple[List[int], int]:
    """Return the numbers that one call gives, and its error code."""
    if form == "constant":
        return [ctypes.c_uint32.in_dll(library, name).value], 0
    call = getattr(library, name)
    if form in ("size", "returned"):
        call.restype = ctypes.c_size_t if form == "size" else ctypes.c_int
        return [int(call())], 0
    numbers = [ctypes.c_int(0) for _ in range(parts)]
    if form == "property":
        codes = [int(call(part, ctypes.byref(number))) for part, number in enumerate(numbers)]
    else:
        codes = [int(call(*[ctypes.byref(number) for number in numbers]))]
    return [number.value for number in numbers], next((code for code in codes if code), 0)
