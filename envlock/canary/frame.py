"""One framed result on a stream that others may write to as well.

A frame is a line `envlock-frame 1 NONCE LENGTH SHA256HEX`, then LENGTH bytes, then the
line `envlock-end NONCE` after a line feed. The nonce is chosen by the reader for one
run, so a result printed by something else is never taken for the answer.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import hashlib
import re

from envlock.errors import CouldNotTell, IntegrityError, UsageError

MAX_PAYLOAD = 256 << 20
"""The most bytes a frame may announce: a longer length is a fault, not a reservation."""

_WORD = b"envlock-frame 1 "
_NONCE = re.compile(r"[0-9a-f]{16,64}")
_HEADER = re.compile(rb"envlock-frame 1 ([0-9a-f]{16,64}) ([0-9]{1,10}) ([0-9a-f]{64})\n")


class Framed:
    """What `decode` found: the `payload`, and the bytes that others wrote around it."""

    __slots__ = ("noise", "payload")

    def __init__(self, payload: bytes, noise: bytes) -> None:
        self.payload = payload
        self.noise = noise


def check_nonce(nonce: str) -> str:
    """Return `nonce` when it is 16 to 64 lower-case hex digits; `UsageError` otherwise."""
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise UsageError("not a nonce (16 to 64 lower-case hex digits): {!r}".format(nonce))
    return nonce


def encode(nonce: str, payload: bytes) -> bytes:
    """Return `payload` as one frame for the reader that chose `nonce`."""
    check_nonce(nonce)
    header = "envlock-frame 1 {} {} {}\n".format(nonce, len(payload), hashlib.sha256(payload).hexdigest())
    return header.encode("ascii") + payload + "\nenvlock-end {}\n".format(nonce).encode("ascii")


def decode(nonce: str, data: bytes) -> Framed:
    """Return the one frame for `nonce` in `data`, with the noise around it.

    Raises `CouldNotTell` when there is no frame or it is cut off (the writer died), and
    `IntegrityError` when it was tampered with: another nonce, a wrong hash, a broken
    header or end, or a second frame.
    """
    check_nonce(nonce)
    start = _line_start(data, 0)
    if start < 0:
        raise CouldNotTell(
            "no result was returned (no frame in {} bytes of output)".format(len(data)),
            hint=_said(data),
        )
    header = _HEADER.match(data, start)
    if header is None:
        if b"\n" not in data[start:]:
            raise CouldNotTell("the result is cut off inside its header")
        raise IntegrityError("the frame has a header that is not one")
    if header.group(1).decode("ascii") != nonce:
        raise IntegrityError("the frame carries another nonce: it is not the answer to this run")
    length = int(header.group(2))
    if length > MAX_PAYLOAD:
        raise IntegrityError("the frame announces {} bytes (at most {})".format(length, MAX_PAYLOAD))
    payload = data[header.end() : header.end() + length]
    end = "\nenvlock-end {}\n".format(nonce).encode("ascii")
    tail = data[header.end() + length : header.end() + length + len(end)]
    if len(payload) < length or (tail != end and end.startswith(tail)):
        raise CouldNotTell(
            "the result is cut off ({} of {} bytes)".format(len(payload), length), hint=_said(data[:start])
        )
    if hashlib.sha256(payload).hexdigest().encode("ascii") != header.group(3):
        raise IntegrityError("the frame's bytes do not have the hash that it announces")
    if tail != end:
        raise IntegrityError("the frame does not end where it says")
    after = data[header.end() + length + len(end) :]
    if _line_start(after, 0) >= 0:
        raise IntegrityError("more than one frame was returned")
    return Framed(payload, (data[:start] + after).strip())


def _line_start(data: bytes, begin: int) -> int:
    """Return where the first line of `data` that announces a frame begins, or -1."""
    found = data.find(_WORD, begin)
    while found > 0 and data[found - 1 : found] != b"\n":
        found = data.find(_WORD, found + 1)
    return found


def _said(data: bytes) -> str | None:
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return "it said: " + lines[-1][:200] if lines else None
