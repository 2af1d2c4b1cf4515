"""What NVML says, through the module `pynvml` of the distribution nvidia-ml-py.

Answers come as events, one for the driver and some for each GPU, because they are
made in a child process (`envlock.probe.nvml.child`): when a driver hangs or crashes, what
it had answered until then is kept. Every answer keeps one of the outcomes of
`envlock.facts`; nothing NVML can return raises.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Tuple

from envlock.facts import FAILED, Observed, absent, value
from envlock.probe.nvml import layout, library, questions
from envlock.probe.nvml.binding import MISMATCH, NO_LIBRARY, NOT_LOADED, Asker, Binding, Call, code, described, outcome
from envlock.probe.nvml.words import text
from envlock.probe.pci import normal_address

_OPEN = "nvmlDeviceGetHandleByIndex"
# Of the GPU itself; what lies between GPUs is asked when all are open.
_OWN_KEYS = tuple(question.key for question in questions.GPU) + (
    "gpu.index", "gpu.clock_locked", "gpu.mig_layout", "gpu.nvlink",
)  # fmt: skip
_BETWEEN_KEYS = ("gpu.topology", "gpu.p2p")
GPU_KEYS = _OWN_KEYS + _BETWEEN_KEYS
HOST_KEYS = tuple(question.key for question in questions.HOST)
_MOST_GPUS = 1024  # far more than any host has: a larger count is a driver that has broken

Event = Dict[str, Any]
Tell = Callable[[str], None]

__all__ = ["GPU_KEYS", "HOST_KEYS", "MISMATCH", "NOT_LOADED", "NO_LIBRARY", "assembled", "collect", "events"]


def collect(pynvml: Any, gpus: bool = True) -> Dict[str, Any]:
    """Return the document that `assembled` makes of all events."""
    return assembled(events(pynvml, gpus))


def events(pynvml: Any, gpus: bool = True, tell: Tell | None = None) -> Iterator[Event]:
    """Yield what NVML says, in the order in which it is asked.

    `{"error", "code"}` when NVML cannot be used; else `{"host", "count"}`, then for each
    GPU `{"gpu": N, "id", "facts"}` several times, and `{"end": true}`. Facts are in the
    form of `Observed.to_document`. Without `gpus` none is woken, opened or asked. `tell`
    is told what is about to be called.
    """
    try:
        loaded = library.load(pynvml, os.environ)
    except library.Unusable as error:
        yield {"error": str(error), "code": error.number}
        return
    binding = Binding(pynvml, tell)
    try:
        _start(binding, gpus)
    except Exception as error:
        words = described(error) + library.remark(code(error), loaded)
        yield {"error": words, "code": code(error), **loaded}
        return
    driver = Asker(binding, ())
    host = {question.key: driver.observe(question).to_document() for question in questions.HOST}
    try:
        count = int(binding.call("nvmlDeviceGetCount"))
    except Exception as error:
        words = "the driver does not say how many GPUs there are: " + described(error)
        yield {"error": words, "code": code(error), **loaded}
        return
    if count > _MOST_GPUS:
        words = "the driver counts {} GPUs, which is more than any host has".format(count)
        yield {"error": words, "code": -1, **loaded}
        return
    yield {"host": host, "count": count, **loaded}
    if gpus:
        yield from _gpus(binding, count, tell)
    yield {"end": True}


def _start(binding: Binding, gpus: bool) -> None:
    if not gpus:
        try:
            binding.call("nvmlInitWithFlags", library.QUIET)
            return
        except Exception as error:
            # Neither an old binding nor an old driver (before 390) can be told to leave the GPUs alone.
            if code(error) not in (-1, 13):
                raise
    binding.call("nvmlInit")


def _gpus(binding: Binding, count: int, tell: Tell | None) -> Iterator[Event]:
    opened: List[Tuple[Any, str, str]] = []
    for index in range(count):
        if tell is not None:
            tell("GPU {}".format(index))
        try:
            handle = binding.call(_OPEN, index)
        except Exception as error:
            opened.append((None, outcome(error), "the GPU cannot be opened: {}".format(described(error))))
            seen = absent(outcome(error), "NVML " + _OPEN, opened[-1][2])
            yield _event(index, {**dict.fromkeys(_OWN_KEYS, seen), **_known(index)}, "")
            continue
        opened.append((handle, "", ""))
        asker = Asker(binding, (handle,))
        # Its place first: a GPU that does not come back from a question can then be found.
        yield _event(index, _known(index), _address(asker))
        facts = {question.key: asker.observe(question) for question in questions.GPU}
        yield _event(index, {**facts, **layout.own(asker)})
    if tell is not None:
        tell("the paths between GPUs")
    for index, facts in enumerate(layout.between(binding, opened)):
        yield _event(index, facts)


def _known(index: int) -> Dict[str, Observed]:
    """Return what is known of any GPU without asking it."""
    return {"gpu.index": value(index, "NVML " + _OPEN), "gpu.clock_locked": questions.LOCKED_CLOCKS}


def _event(index: int, facts: Mapping[str, Observed], ident: str | None = None) -> Event:
    written = {key: seen.to_document() for key, seen in facts.items()}
    return {"gpu": index, "facts": written, **({} if ident is None else {"id": ident})}


def _address(asker: Asker) -> str:
    """Return a GPU's PCI address; empty when the driver would not say: `gpu.pci_id` says why."""

    try:
        return normal_address(text(asker.ask(Call("nvmlDeviceGetPciInfo")).busId))
    except Exception:
        return ""


def assembled(found: Iterable[Event], unfinished: str = "") -> Dict[str, Any]:
    """Return one document of what `events` yielded.

    `{"error", "code"}`, or `{"host", "count", "gpus": [{"id", "facts"}]}`, both with the
    library. When the events broke off, `unfinished` says why: facts that were not reached
    have failed with it, and the document says so under that key and in `notes`. It is empty
    when not even the driver had answered.
    """
    document: Dict[str, Any] = {}
    gpus: Dict[int, Dict[str, Any]] = {}
    ended = False
    for event in found:
        if "gpu" in event:
            gpu = gpus.setdefault(event["gpu"], {"id": "", "facts": {}})
            gpu["facts"].update(event["facts"])
            gpu["id"] = event.get("id", gpu["id"])
        elif "end" in event:
            ended = True
        else:
            document.update(event)
    if "host" not in document:
        return document
    if not ended:
        document["unfinished"] = unfinished
        document["notes"] = [unfinished]
        missed = absent(FAILED, "NVML", unfinished).to_document()
        for index in range(document["count"]):
            gpu = gpus.setdefault(index, {"id": "", "facts": {}})
            known = {key: seen.to_document() for key, seen in _known(index).items()}
            gpu["facts"] = {**dict.fromkeys(GPU_KEYS, missed), **known, **gpu["facts"]}
    document["gpus"] = [gpus[index] for index in sorted(gpus)]
    return document
