"""Asking loaded libraries for their versions, in one child process.

The very file that the process had mapped is loaded, by its absolute path; what it needs
is taken from the other files that the process had mapped. No GPU and no driver is needed.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import envlock
from envlock.errors import ToolError
from envlock.facts import FAILED, NOT_SUPPORTED, Observed, absent, value
from envlock.probe.libraries.asking_child import CANNOT_LOAD, MARK
from envlock.probe.libraries.kinds import READ, Call

DEADLINE = 10.0
"""Seconds for one library: the largest takes under 0.2 s from a warm disk."""

_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from envlock.probe.libraries.asking_child import main; main()"


class Question(NamedTuple):
    """One file to ask; `before` are mapped files that it needs, in the order to load them."""

    path: str
    calls: Tuple[Call, ...]
    before: Tuple[str, ...] = ()


def ask(questions: Sequence[Question], deadline: float = DEADLINE) -> List[Observed]:
    """Return the version that each file tells, in the order of `questions`.

    A file that has no such call is `not-supported`; one that cannot be loaded, crashes or
    passes `deadline` (seconds, each) is `failed`, with the reason.
    """
    found = _asked(questions, deadline, searching=False)
    again = [number for number, seen in enumerate(found) if CANNOT_LOAD in seen.detail]
    # Only then: the folders of an environment may hold another libstdc++ than this Python runs on.
    for number, seen in zip(again, _asked([questions[number] for number in again], deadline, searching=True)):
        found[number] = seen
    return found


def _asked(questions: Sequence[Question], deadline: float, searching: bool) -> List[Observed]:
    """Ask in one child process; `searching`: the loader searches the folders of the files, too."""
    if not questions:
        return []
    lines, why = _run(questions, deadline, searching)
    found: Dict[int, Mapping[str, Any]] = {}
    for line in lines:
        if line.startswith(MARK):
            try:
                answer = json.loads(line[len(MARK) :])
                found[int(answer["number"])] = answer
            except (ValueError, KeyError, TypeError):
                continue
    return [_observed(question, found.get(number), why) for number, question in enumerate(questions)]


def _run(questions: Sequence[Question], deadline: float, searching: bool) -> Tuple[List[str], str]:
    """Return the lines that the child left, and what to say of a question without an answer."""
    from envlock.process import run

    if not sys.executable:
        return [], "this Python does not know its own program, so no library was loaded in a child process"
    request = {
        "deadline": deadline,
        "questions": [
            {
                "path": item.path,
                "before": item.before,
                "calls": [[call.name, call.form, call.parts] for call in item.calls],
            }
            for item in questions
        ],
    }
    argv = (sys.executable, "-I", "-c", _PROGRAM, _package_root())
    try:
        # Each question may take its deadline and one second to end.
        finished = run(
            argv,
            (deadline + 2) * len(questions) + 10,
            env=_environment(questions if searching else ()),
            stdin=json.dumps(request).encode("ascii") + b"\n",
        )
    except ToolError as error:
        return [], "it was asked in a child process: {}".format(error.message)
    how = "killed by signal {}".format(-finished.status) if finished.status < 0 else "status {}".format(finished.status)
    return finished.stdout.decode("utf-8", "replace").splitlines(), "the child process left no answer ({})".format(how)


def _environment(questions: Sequence[Question]) -> Dict[str, str]:
    """Return this environment with the folders of the files to be asked for the loader to search.

    Nothing is preloaded, and no GPU is shown: a version is told without one.
    """
    folders: Dict[str, None] = {}
    for question in questions:
        folders.update(dict.fromkeys(os.path.dirname(path) for path in (question.path, *question.before)))
    kept = {name: text for name, text in os.environ.items() if not name.startswith("LD_")}
    searched = ":".join(folder for folder in folders if ":" not in folder and ";" not in folder)
    return {**kept, **({"LD_LIBRARY_PATH": searched} if searched else {}), "CUDA_VISIBLE_DEVICES": ""}


def _observed(question: Question, answer: Mapping[str, Any] | None, why: str) -> Observed:
    source = " or ".join(call.name for call in question.calls)
    if answer is None:
        return absent(FAILED, source, why)
    if "absent" in answer:
        return absent(NOT_SUPPORTED, source, str(answer["absent"]))
    if "error" in answer:
        return absent(FAILED, source, str(answer["error"]))
    call = question.calls[int(answer["call"])]
    return value(READ[call.read]([int(number) for number in answer["numbers"]]), call.name)


def _package_root() -> str:
    """Return the folder or zip application that this package was imported from."""
    return os.path.dirname(os.path.dirname(os.path.abspath(str(envlock.__file__))))
