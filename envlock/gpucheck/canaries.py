"""The canary on a bare machine: on the CPU and on every GPU, under the profile `strict`.

There is no lockfile yet, so nothing is compared with a golden. What can be told without
one is told: known answers, repeatability over fresh processes, and whether GPUs of one
class give the same bits.

Standard library only but torch in the children, Python 3.8 and newer.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from envlock import process
from envlock.canary import main, platform, report, strict
from envlock.canary.request import Request
from envlock.errors import EXIT_DRIFT, EXIT_MATCH, EXIT_UNKNOWN, ToolError

DEADLINE = 300  # seconds for one process: the first on a GPU may compile
THREADS = 2

_FIND = "import importlib.util; s = importlib.util.find_spec('torch'); print(s.origin if s else '')"


class Torch(NamedTuple):
    """Where this Python has torch from: `origin` is empty when it has none. `flags` start a child that has it too."""

    origin: str
    flags: Tuple[str, ...]


def find_torch() -> Torch:
    """Return which torch a child of this Python would import, asked in a child."""
    for flags in (("-I",), ()):
        try:
            found = process.check([sys.executable, *flags, "-c", _FIND], 60.0).decode("utf-8", "replace").strip()
        except ToolError:
            continue
        if found:
            return Torch(found, flags)
    return Torch("", ("-I",))


def child(torch: Torch, argv: List[str]) -> List[str]:
    """Return `argv` (an isolated Python, as `canary.main.command` gives it) with the flags that let it see torch."""
    return [argv[0], *torch.flags, *argv[2:]]


def environment(torch: Torch, extra: Mapping[str, str], own: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """Return the environment of a run: the profile's variables over a few of this shell's, then `extra`."""
    names = main.KEPT if "-I" in torch.flags else (*main.KEPT, "PYTHONPATH", "PYTHONUSERBASE")
    kept = {name: own[name] for name in names if name in own}
    return {**kept, **strict.environment(THREADS), **extra}


def run(
    torch: Torch,
    backend: str,
    runs: int,
    processes: int,
    deadline: float = DEADLINE,
    extra: Optional[Mapping[str, str]] = None,
) -> Dict[str, Any]:
    """Run the canary in `processes` fresh processes, each for `deadline` seconds; return its report, whatever came."""
    asked = Request(
        {
            "nonce": os.urandom(16).hex(),
            "runs": runs,
            "processes": processes,
            "threads": THREADS,
            "torch": dict(strict.TORCH),
            "backend": backend,
            "deadline": max(1, int(deadline)),
        }
    )
    if not torch.origin:
        return report.failed(
            "torch is not installed in this Python", "choose another with `make gpu-check PYTHON=…`", asked
        )
    return main.in_fresh_processes(asked, child(torch, main.command("worker")), environment(torch, extra or {}))


class Result(NamedTuple):
    """One report judged without a golden. `label` says where it ran; `code` is of the exit code table."""

    label: str
    report: Mapping[str, Any]
    code: int
    findings: Tuple[str, ...]

    @property
    def uuid(self) -> str:
        """The UUID of the GPU that did the work, empty on the CPU."""
        return str(self.report.get("information", {}).get("device.uuid", ""))


def judged(label: str, document: Mapping[str, Any], backend: str) -> Result:
    """Return `document` with what can be told of it alone: a report that did not run is unknown."""
    if document.get("outcome") != "ran":
        hint = document.get("hint")
        said = "did not run: {}{}".format(document.get("failure"), " ({})".format(hint) if hint else "")
        return Result(label, document, EXIT_UNKNOWN, (said,))
    definite = ["a known answer is wrong: {name} {value}".format(**item) for item in _answers(document, "wrong: ")]
    definite += ["is not repeatable: {}".format(name) for name in _names(document["differences"])]
    definite += ["a weight in memory changed: {}".format(name) for name in document["changed-inputs"]]
    unknown = ["could not be computed: {name} ({value})".format(**item) for item in _answers(document, "unavailable: ")]
    unknown += list(document["problems"]) + list(document["not-in-force"])
    unknown += [
        "the control {} must fail and did not".format(name) for name, seen in document["controls"].items() if not seen
    ]
    if document["platform"].get("backend") != backend:
        unknown.append("it ran on {}, not on {}".format(document["platform"].get("backend"), backend))
    code = EXIT_DRIFT if definite else EXIT_UNKNOWN if unknown else EXIT_MATCH
    return Result(label, document, code, (*definite, *unknown))


def _answers(document: Mapping[str, Any], start: str) -> List[Mapping[str, Any]]:
    return [item for item in document["outputs"] if str(item["value"]).startswith(start) and _told(item, start)]


def _told(item: Mapping[str, Any], start: str) -> bool:
    # On a GPU a convolution of integers may round: there it is a signature, and its text no fault.
    return start != "wrong: " or str(item["name"]).startswith("t1.")


def _names(differences: List[Mapping[str, Any]]) -> List[str]:
    return list(dict.fromkeys(str(item["name"]) for item in differences))


def gpus_in(document: Mapping[str, Any]) -> List[str]:
    """Return the UUIDs of all GPUs that the run could see, in their order."""
    information = document.get("information", {})
    found: List[str] = []
    while "gpu.{}.uuid".format(len(found)) in information:
        found.append(str(information["gpu.{}.uuid".format(len(found))]))
    return found


def on_other_gpu(torch: Torch, first: Result, number: int, deadline: float) -> Result:
    """Run the canary once on GPU `number` of those that `first` saw, and compare it with `first`."""
    shown = {"CUDA_VISIBLE_DEVICES": visible(number, gpus_in(first.report)[number])}
    document = run(torch, platform.CUDA, 1, 1, deadline, shown)
    return beside(judged("GPU {}".format(number), document, platform.CUDA), first)


def visible(number: int, uuid: str, own: Mapping[str, str] = os.environ) -> str:
    """Return what CUDA_VISIBLE_DEVICES must be for GPU `number` alone: its UUID, else its place."""
    if uuid.startswith("GPU-"):
        return uuid
    shown = [name.strip() for name in own.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return shown[number] if number < len(shown) else str(number)


def beside(result: Result, first: Result) -> Result:
    """Return `result` with how its bits stand to those of `first`, where both are of one platform class."""
    if result.report.get("outcome") != "ran" or first.report.get("outcome") != "ran":
        return result
    if result.report["platform"] != first.report["platform"]:
        return result._replace(
            findings=(*result.findings, "another platform class than {}: not compared".format(first.label))
        )
    ours, theirs = ({item["name"]: item["value"] for item in one.report["outputs"]} for one in (result, first))
    parted = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
    if not parted:
        return result
    said = "{} of {} outputs are other bits than on {}, first {}".format(
        len(parted), len(theirs), first.label, parted[0]
    )
    return result._replace(code=EXIT_DRIFT, findings=(*result.findings, said))


def nvidia_libraries(document: Mapping[str, Any]) -> List[Mapping[str, str]]:
    """Return the CUDA libraries that the process had loaded, with build ids, by name."""
    starts = ("libcu", "libnv", "libnccl", "libnvidia")
    return [item for item in document.get("libraries", ()) if str(item["name"]).startswith(starts)]
