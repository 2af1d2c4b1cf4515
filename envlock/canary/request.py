"""The request: what a run of the canary is asked to do, one JSON object on standard input.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Optional, Tuple

from envlock.canary import frame, switches
from envlock.canary.platform import BACKENDS, CPU
from envlock.errors import UsageError

SCHEMA = "envlock.canary-request/1"
MAX_RUNS = 100000
MAX_PROCESSES = 10000
MAX_THREADS = 4096
DEADLINE = 600

_KEYS = frozenset(
    ("schema", "nonce", "runs", "processes", "threads", "torch", "weight-bit-flip", "backend", "values", "deadline")
)


class Request:
    """A checked request. `threads` is the count that the lockfile holds; `flip` a weight and a bit.

    `deadline` is in seconds and for each process; `values` keeps every element of T3.
    """

    __slots__ = ("backend", "deadline", "flip", "nonce", "processes", "runs", "threads", "torch", "values")

    def __init__(self, document: Dict[str, Any]) -> None:
        self.nonce = frame.check_nonce(document["nonce"])
        self.runs: int = _integer(document, "runs", 1, 1, MAX_RUNS)
        self.processes: int = _integer(document, "processes", 1, 1, MAX_PROCESSES)
        self.threads: int = _integer(document, "threads", None, 1, MAX_THREADS)
        self.deadline: int = _integer(document, "deadline", DEADLINE, 1, 7 * 24 * 3600)
        self.torch: Dict[str, switches.Value] = _switches(document.get("torch", {}))
        self.flip: Optional[Tuple[str, int]] = _flip(document.get("weight-bit-flip"))
        self.backend: str = document.get("backend", CPU)
        self.values: bool = document.get("values", False)
        if self.backend not in BACKENDS:
            raise _wrong("backend", "is {!r} (expected one of {})".format(self.backend, ", ".join(BACKENDS)))
        if not isinstance(self.values, bool):
            raise _wrong("values", "is not a boolean")

    def to_document(self) -> Dict[str, Any]:
        """Return the request as JSON values; `parse` gives it back."""
        return {
            "schema": SCHEMA,
            "nonce": self.nonce,
            "runs": self.runs,
            "processes": self.processes,
            "threads": self.threads,
            "torch": dict(self.torch),
            "weight-bit-flip": None if self.flip is None else {"tensor": self.flip[0], "bit": self.flip[1]},
            "backend": self.backend,
            "values": self.values,
            "deadline": self.deadline,
        }


def parse(data: bytes) -> Request:
    """Return the request in `data`; `UsageError` names what is wrong with it."""
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError("the request is not JSON: {}".format(error)) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError("not a canary request (expected a JSON object with schema {!r})".format(SCHEMA))
    for key in sorted(document):
        if key not in _KEYS:
            raise _wrong(key, "unknown key")
    if "nonce" not in document:
        raise _wrong("nonce", "missing key")
    return Request(document)


def nonce_in(data: bytes) -> Optional[str]:
    """Return the nonce in `data` even when the rest of the request is of no use, else None."""
    try:
        return frame.check_nonce(json.loads(data.decode("utf-8"))["nonce"])
    except (ValueError, KeyError, TypeError, RecursionError, UsageError):
        return None


def _wrong(key: str, what: str) -> UsageError:
    return UsageError(what, where="the request", key=key)


def _integer(document: Dict[str, Any], key: str, default: Optional[int], least: int, most: int) -> int:
    found = document.get(key, default)
    if type(found) is not int or not least <= found <= most:
        raise _wrong(key, "is {!r} (expected an integer from {} to {})".format(found, least, most))
    return found


def _switches(found: Any) -> Dict[str, switches.Value]:
    if not isinstance(found, dict):
        raise _wrong("torch", "is not an object")
    for name in sorted(found):
        switches.check(name, found[name])
    return dict(found)


def _flip(found: Any) -> Optional[Tuple[str, int]]:
    if found is None:
        return None
    if not isinstance(found, dict) or set(found) != {"tensor", "bit"} or not isinstance(found["tensor"], str):
        raise _wrong("weight-bit-flip", "needs `tensor` and `bit`")
    return found["tensor"], _integer(found, "bit", None, 0, 1 << 40)
