"""The canary's own entry: `run` asks fresh processes, `worker` is one of them.

Both read one JSON request from standard input and write one frame to standard output,
and exit with 0 when the frame was written, whatever it says: a failure is an answer too.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence

import envlock
from envlock import process
from envlock.canary import frame, report, worker
from envlock.canary import request as requests
from envlock.canary.known import first_line
from envlock.canary.request import Request
from envlock.errors import EnvlockError

USAGE = "usage: canary run|worker < REQUEST.json > FRAME"

# Where programs and devices are found; none of these variables of a shell chooses a kernel.
KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV")

# A path on sys.path may be a zip file: one way to start a child from an installation,
# a source tree and the zip application alike.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from envlock.canary.main import main; sys.exit(main(sys.argv[2:]))"
)


def main(argv: Sequence[str]) -> int:
    """Answer the request on standard input; 0 when a frame was written, 2 on wrong use."""
    if list(argv) not in (["run"], ["worker"]):
        sys.stderr.write(USAGE + "\n")
        return 2
    if argv[0] == "worker":
        die_with_parent()
    data = sys.stdin.buffer.read()
    nonce = requests.nonce_in(data)
    if nonce is None:
        sys.stderr.write("error: the request has no nonce: no answer could be told from noise\n")
        return 2
    # Libraries print on standard output: what they print there would stand inside the frame.
    out = os.dup(1)
    os.dup2(2, 1)
    payload = json.dumps(_answer(argv[0], data), sort_keys=True).encode("ascii")
    with os.fdopen(out, "wb") as stream:
        stream.write(b"\n" + frame.encode(nonce, payload))
    return 0


def _answer(word: str, data: bytes) -> Dict[str, Any]:
    asked: Optional[Request] = None
    try:
        asked = requests.parse(data)
        return worker.run(asked) if word == "worker" else in_fresh_processes(asked, command("worker"), os.environ)
    except EnvlockError as error:
        return report.failed(str(error), error.hint, asked)
    except Exception as error:  # the frame must be written: a run that broke is an answer
        return report.failed("{}: {}".format(type(error).__name__, first_line(error)), None, asked)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it dies.

    A worker is in a session of its own: whoever ends the run ends its parent, and would
    leave a hung worker behind. PR_SET_PDEATHSIG is 1 (prctl(2), Linux only).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def command(word: str) -> List[str]:
    """Return the argument list that starts this code in a fresh, isolated interpreter."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(envlock.__file__)))
    return [sys.executable, "-I", "-c", _BOOT, root, word]


def in_fresh_processes(asked: Request, argv: List[str], environment: Mapping[str, str]) -> Dict[str, Any]:
    """Run the worker `argv` as often as was asked for, one after the other, and return the report of all."""
    answers = []
    for _ in range(asked.processes):
        answers.append(ask(argv, asked, environment, asked.deadline))
        if answers[-1].get("outcome") != "ran":
            break
    return report.merge(asked, answers)


def ask(argv: List[str], asked: Request, environment: Mapping[str, str], deadline: float) -> Dict[str, Any]:
    """Run `argv` with the request on its standard input and return the answer in its frame.

    A process that dies, hangs or garbles its frame is an answer with `outcome` `failed`:
    it may be the very fault that the canary is there to find.
    """
    nonce = os.urandom(16).hex()
    sent = json.dumps({**asked.to_document(), "nonce": nonce}).encode("utf-8")
    try:
        finished = process.run(argv, deadline, env=dict(environment), stdin=sent)
    except EnvlockError as error:
        return worker.failed(str(error), error.hint)
    try:
        answer = parse_answer(frame.decode(nonce, finished.stdout).payload)
        if finished.status and answer.get("outcome") == "ran":
            # A process that crashes on its way out may have been sick before.
            answer["problems"] = [*answer.get("problems", ()), "a process ended with status {}".format(finished.status)]
        return answer
    except EnvlockError as error:
        said = finished.stderr.decode("utf-8", "replace").strip().splitlines()
        ended = "ended with status {}: ".format(finished.status) if finished.status else ""
        return worker.failed(ended + str(error), "it said: " + said[-1][:300] if said else error.hint)


def parse_answer(payload: bytes) -> Dict[str, Any]:
    """Return the JSON object in `payload`; `EnvlockError` when it is none."""
    try:
        found = json.loads(payload.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise EnvlockError("the answer is not JSON: {}".format(error)) from None
    if not isinstance(found, dict):
        raise EnvlockError("the answer is not a JSON object")
    return found
