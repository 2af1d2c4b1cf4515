"""One fresh process: imports torch, sets the switches, runs the suite, says what it saw.

The answer is a JSON object, framed, on standard output; `outcome` is `ran` or `failed`
with the reason in words. Nothing here decides whether the answer is right: that is
`envlock.run.compare`'s work, with the lockfile in hand.

Travels to nodes: standard library only, Python 3.8 and newer; torch imported when it runs.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List

from envlock.canary import generator, libraries, platform, settings, suite, switches
from envlock.canary.known import first_line
from envlock.canary.request import Request
from envlock.canary.tensors import SAMPLES, Maker, Output
from envlock.errors import EnvlockError

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def run(request: Request) -> Dict[str, Any]:
    """Return what one process saw, whatever happened to it."""
    try:
        return _run(request)
    except EnvlockError as error:
        return failed(str(error), error.hint)
    except Exception as error:  # the frame must be written: a run that broke is an answer
        return failed(described(error))


def described(error: Exception) -> str:
    """Return the kind and the first line of an error that nobody foresaw."""
    return "{}: {}".format(type(error).__name__, first_line(error))


def failed(text: str, hint: Any = None) -> Dict[str, Any]:
    """Return the answer of a process that could not run."""
    return {"outcome": "failed", "failure": text, "hint": hint}


def _run(request: Request) -> Dict[str, Any]:
    generator.require_little_endian()
    # How threads wait for each other decides no bit, but with two of them on a busy core
    # spinning takes twenty times as long. Read by the OpenMP library when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # CUDA counts the fastest GPU first unless told otherwise; drivers and people count by place.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    begin = time.monotonic()
    try:
        import torch
    except ImportError as error:
        return failed("torch cannot be imported: {}".format(first_line(error)), "is it in the environment's packages?")
    spent = {"import": round(1000 * (time.monotonic() - begin))}
    found = platform.read(torch, request.backend)
    try:
        return _computed(torch, request, found, spent)
    except Exception as error:  # another torch than the golden's may lack what the suite needs: say which it is
        hint = error.hint if isinstance(error, EnvlockError) else None
        text = str(error) if isinstance(error, EnvlockError) else described(error)
        return {**failed(text, hint), "torch": str(torch.__version__)}


def _computed(torch: Any, request: Request, found: Dict[str, str], spent: Dict[str, int]) -> Dict[str, Any]:
    begin = time.monotonic()
    switches.apply(torch, request.torch)
    spent["switches"] = round(1000 * (time.monotonic() - begin))
    # What a service would get counts: only where no variable decides is the count set here.
    if not any(name in os.environ for name in _THREAD_VARIABLES):
        torch.set_num_threads(request.threads)
    begin = time.monotonic()
    device = "cuda:0" if request.backend == platform.CUDA else "cpu"
    maker = Maker(torch, device, suite.INPUTS)
    spent["inputs"] = round(1000 * (time.monotonic() - begin))
    if request.flip is not None:
        _flip(maker, request)
    samples = 0 if request.values else SAMPLES
    outputs, problems, tiers = suite.run_once(torch, maker, samples=samples)
    problems.extend(elsewhere(outputs, device))
    spent.update(tiers)
    first = {output.name: output.value for output in outputs}
    differences = _repeat(torch, maker, request.runs, first, problems)
    controls = suite.controls(torch, maker)
    loaded = libraries.read()
    return {
        "outcome": "ran",
        "inputs": str(maker.digest),
        "changed-inputs": maker.changed(),
        "platform": found,
        "settings": settings.deciding(torch, request.torch, loaded, os.environ),
        "information": {
            **settings.informing(torch),
            **platform.described(torch, request.backend),
            **_used(torch, device, outputs),
        },
        "libraries": loaded,
        "controls": controls,
        "problems": problems,
        "not-in-force": switches.not_in_force(torch, request.torch),
        "milliseconds": spent,
        "outputs": [output.to_document() for output in outputs],
        "differences": differences,
    }


def elsewhere(outputs: List[Output], device: str) -> List[str]:
    """Return a sentence for each device but `device` on which outputs were computed: no answer of the one asked."""
    found = sorted({output.device for output in outputs if output.device not in (None, device)}, key=str)
    counts = {name: [output.name for output in outputs if output.device == name] for name in found}
    return [
        "{} was asked for, and {} outputs were computed on {}, first {}".format(device, len(names), name, names[0])
        for name, names in counts.items()
    ]


def _used(torch: Any, device: str, outputs: List[Output]) -> Dict[str, str]:
    """Return which device did the work, and how many outputs were tensors that lay there."""
    found = {
        "device": device,
        "device.outputs": str(sum(1 for output in outputs if output.device == device)),
    }
    if device != platform.CPU:
        found["device.uuid"] = platform.uuid_of(torch.cuda.get_device_properties(torch.cuda.current_device()))
        found["device.memory-peak"] = str(torch.cuda.max_memory_allocated())
    return found


def _flip(maker: Maker, request: Request) -> None:
    assert request.flip is not None
    name, bit = request.flip
    if name not in maker.names():
        weights = ", ".join(sorted(known for known in maker.names() if known.startswith("t3.")))
        raise EnvlockError("no weight is called {!r}".format(name), hint="weights: " + weights)
    maker.flip(name, bit)


def _repeat(torch: Any, maker: Maker, runs: int, first: Dict[str, str], problems: List[str]) -> List[Dict[str, Any]]:
    """Run the suite again and return every output that is not what the first run gave."""
    differences: List[Dict[str, Any]] = []
    for number in range(2, runs + 1):
        outputs, again, _ = suite.run_once(torch, maker, keep=False)
        problems.extend("run {}: {}".format(number, text) for text in again)
        values = {output.name: output.value for output in outputs}
        for name in list(first) + [name for name in values if name not in first]:
            if values.get(name) != first.get(name):
                differences.append({"run": number, "name": name, "value": values.get(name, "(missing)")})
    return differences
