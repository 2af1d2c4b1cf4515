"""`envlock.canary.main`: an answer in a frame, whatever happens to the process that gives it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import interpreters
import jsonschema
import pytest

from envlock.canary import frame, main, request, suite
from envlock.canary.report import merge
from envlock.canary.worker import run as run_worker

SCHEMA = Path(__file__).parents[2] / "docs/schema/canary-report.schema.json"

NONCE = "00112233445566778899aabbccddeeff"
DOCUMENT: dict[str, Any] = {
    "schema": request.SCHEMA,
    "nonce": NONCE,
    "runs": 1,
    "processes": 1,
    "threads": 1,
    "torch": {},
}
ASKED = request.Request(DOCUMENT)


def answer(document: dict[str, Any], interpreter: str = sys.executable) -> dict[str, Any]:
    """Return the report of a fresh `canary run` of `document` under `interpreter`."""
    command = [interpreter, *main.command("run")[1:]]
    done = subprocess.run(command, input=json.dumps(document).encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return main.parse_answer(frame.decode(NONCE, done.stdout).payload)


@pytest.mark.parametrize("version", interpreters.VERSIONS)
def test_without_torch_the_frame_says_so(version: str) -> None:
    """A bare interpreter of any version answers too: `failed`, with the reason and a hint."""
    path = interpreters.found().get(version)
    if path is None:
        pytest.skip(f"there is no Python {version} on this machine")
    if subprocess.run([path, "-I", "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        pytest.skip(f"the Python {version} of this machine has torch")
    report = answer(DOCUMENT, path)

    assert (report["outcome"], report["hint"]) == ("failed", "is it in the environment's packages?")
    assert report["failure"] == "process 1 of 1: torch cannot be imported: No module named 'torch'"


@pytest.mark.parametrize(
    ("changed", "failure"),
    [({"runs": 0}, "the request: is 0 (expected"), ({"torch": {"nope": True}}, "unknown torch switch 'nope'")],
)
def test_a_request_of_no_use_is_answered_in_a_frame(changed: dict[str, Any], failure: str) -> None:
    """The sender gets words, not a process that vanished."""
    report = answer({**DOCUMENT, **changed})

    assert report["outcome"] == "failed"
    assert report["failure"].startswith(failure)


@pytest.mark.parametrize("sent", [b"", b"{}", b'{"nonce": "x"}'])
def test_without_a_nonce_nothing_is_written(sent: bytes) -> None:
    """No answer could be told from noise: exit 2 and a line on standard error."""
    done = subprocess.run(main.command("run"), input=sent, capture_output=True, check=False)

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"the request has no nonce" in done.stderr


def test_another_word_is_wrong_use() -> None:
    """Only `run` and `worker` are known."""
    done = subprocess.run(main.command("walk"), input=b"", capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (2, f"{main.USAGE}\n".encode())


def asked(program: str, deadline: float = 20) -> dict[str, Any]:
    """Return the answer of a child that runs `program` in place of the worker."""
    return main.ask([sys.executable, "-I", "-c", program], ASKED, {}, deadline)


def test_a_process_that_dies_says_how_and_what_it_said_last() -> None:
    """A crash inside a library (an illegal instruction, say) is an answer: it may be the fault looked for."""
    found = asked("import os, sys; print('bad kernel', file=sys.stderr, flush=True); os.kill(os.getpid(), 4)")

    assert found["outcome"] == "failed"
    assert found["failure"].startswith("ended with status -4: no result was returned")
    assert found["hint"] == "it said: bad kernel"


def test_a_process_that_hangs_is_ended_at_its_deadline() -> None:
    """A run never waits longer than it was told to."""
    found = asked("import time; time.sleep(60)", deadline=0.5)

    assert "gave no answer within 0.5 s" in found["failure"]


def test_a_frame_from_somebody_else_is_no_answer() -> None:
    """A child must use the nonce that it was sent."""
    forged = frame.encode(NONCE, b'{"outcome": "ran"}')
    found = asked(f"import sys; sys.stdout.buffer.write({forged!r})")

    assert (found["outcome"], "another nonce" in found["failure"]) == ("failed", True)


FRAMED = (
    "import os, sys, json, hashlib; nonce = json.load(sys.stdin)['nonce']; data = {!r}; "
    "head = 'envlock-frame 1 %s %d %s\\n' % (nonce, len(data), hashlib.sha256(data).hexdigest()); "
    "sys.stdout.buffer.write(head.encode() + data + ('\\nenvlock-end %s\\n' % nonce).encode()); sys.stdout.flush(); "
)


def test_a_process_that_crashes_after_its_answer_has_a_problem() -> None:
    """The answer stands, and what happened after it is told: the run is unknown."""
    found = asked(FRAMED.format(b'{"outcome": "ran", "problems": []}') + "os.abort()")

    assert (found["outcome"], found["problems"]) == ("ran", ["a process ended with status -6"])


@pytest.mark.parametrize("payload", [b"[1]", b"\xff", b"{"])
def test_a_framed_answer_that_is_no_object_is_no_answer(payload: bytes) -> None:
    """The frame proves who wrote it, not that it makes sense."""
    found = asked(FRAMED.format(payload))

    assert (found["outcome"], "the answer is not" in found["failure"]) == ("failed", True)


PARENT = """
import subprocess, sys
child = "import sys, time; sys.path.insert(0, sys.argv[1]); from envlock.canary.main import die_with_parent; "
child += "die_with_parent(); print('ready', flush=True); time.sleep(60)"
argv = [sys.executable, "-I", "-c", child, sys.argv[1]]
held = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
held.stdout.readline()
print(held.pid, flush=True)
held.wait()
"""


def test_a_worker_dies_with_the_process_that_started_it() -> None:
    """A run that is ended from outside leaves no hung worker behind."""
    root = main.command("worker")[-2]
    parent = subprocess.Popen([sys.executable, "-I", "-c", PARENT, root], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    ended = time.monotonic() + 10
    while time.monotonic() < ended and _runs(child):
        time.sleep(0.05)

    assert not _runs(child)


def _runs(pid: int) -> bool:
    """Return whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def worker(**changed: Any) -> dict[str, Any]:
    """Return what one process saw, in small."""
    document: dict[str, Any] = {
        "outcome": "ran", "inputs": "sha256:1", "platform": {"backend": "cpu"}, "settings": {"threads": "1"},
        "information": {}, "libraries": [], "controls": {"weight-bit": True}, "problems": [], "not-in-force": [],
        "changed-inputs": [], "milliseconds": {}, "differences": [],
        "outputs": [{"name": "t1.k1.mm", "value": "ok"}, {"name": "t2.s7.math.exp", "value": "a"}],
    }  # fmt: skip
    return {**document, **changed}


def test_processes_that_agree_have_no_differences() -> None:
    """The report of two equal processes is that of one."""
    assert merge(ASKED, [worker(), worker()])["differences"] == []


def test_a_process_that_gives_other_bits_is_named() -> None:
    """The first run of each fresh process counts: one that differs is in the report."""
    other = worker(outputs=[{"name": "t1.k1.mm", "value": "ok"}, {"name": "t2.s7.math.exp", "value": "b"}])

    assert merge(ASKED, [worker(), other])["differences"] == [
        {"process": 2, "run": 1, "name": "t2.s7.math.exp", "value": "b"}
    ]


def test_settings_that_move_between_processes_are_named() -> None:
    """Two processes under other settings are not two runs of one thing."""
    found = merge(ASKED, [worker(), worker(settings={"threads": "2"})])["differences"]

    assert found == [{"process": 2, "run": 1, "name": "settings threads", "value": "2"}]


def test_one_blind_process_makes_the_run_blind() -> None:
    """A control must fail in each process."""
    merged = merge(ASKED, [worker(), worker(controls={"weight-bit": False})])

    assert merged["controls"] == {"weight-bit": False}


def test_one_failed_process_fails_the_run() -> None:
    """The runs that went well do not hide the one that did not."""
    merged = merge(ASKED, [worker(), {"outcome": "failed", "failure": "died", "hint": None}])

    assert (merged["outcome"], merged["failure"]) == ("failed", "process 2 of 1: died")


@pytest.mark.torch
def test_a_suite_that_this_torch_cannot_run_says_which_torch_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older torch lacks operators: its version is in the report of the run that failed."""
    import torch

    def lacking(*_: Any, **__: Any) -> None:
        raise AttributeError("module 'torch' has no attribute '_int_mm'")

    monkeypatch.setattr(suite, "run_once", lacking)
    merged = merge(ASKED, [run_worker(ASKED)])

    assert merged["failure"] == "process 1 of 1: AttributeError: module 'torch' has no attribute '_int_mm'"
    assert merged["torch"] == torch.__version__
    jsonschema.validate(merged, json.loads(SCHEMA.read_text(encoding="utf-8")))


@pytest.mark.torch
def test_cuda_that_is_not_there_is_never_run_on_the_cpu() -> None:
    """Asked for a GPU that torch does not see, the canary fails in words."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")

    assert "CUDA was asked for" in answer({**DOCUMENT, "backend": "cuda"})["failure"]
