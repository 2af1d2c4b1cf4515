"""The output of a container, taken in as it comes, in bounded memory.

A canary answers with one frame (`envlock.canary.frame`) among whatever libraries print.
Only frames and the last of the noise are kept: a container that prints without end
costs time up to its deadline, never memory.
"""

import re
import struct
from collections.abc import Callable

from envlock.canary.frame import MAX_PAYLOAD

_MARK = b"\nenvlock-frame 1 "
_HEADER = re.compile(rb"\nenvlock-frame 1 ([0-9a-f]{16,64}) ([0-9]{1,10}) [0-9a-f]{64}\n")
_LONGEST_HEADER = 17 + 64 + 1 + 10 + 1 + 64 + 1
_TAIL = 64 << 10
_MAX_FRAMES = 2  # a second one is already a forgery: no need to keep a third


class Tail:
    """The end of a stream of bytes, and how long all of it was."""

    def __init__(self) -> None:
        self.length = 0
        self._kept = bytearray()

    def feed(self, data: bytes) -> None:
        self.length += len(data)
        self._kept += data[-_TAIL:]
        if len(self._kept) > 2 * _TAIL:
            del self._kept[:-_TAIL]

    def lines(self, count: int) -> list[str]:
        """Return the last `count` lines that say something, each cut at 200 characters."""
        text = bytes(self._kept[-_TAIL:]).decode("utf-8", "replace")
        said = [line.strip() for line in text.splitlines() if line.strip()]
        return ["".join(c if c.isprintable() else "?" for c in line[:200]) for line in said[-count:]]


class Output:
    """Standard output reduced to its frames: `frames` is what `frame.decode` is given."""

    def __init__(self) -> None:
        self.noise = Tail()
        self.frames = bytearray()
        self.count = 0
        self.length = 0
        self._held = b"\n"  # the start of the stream is the start of a line
        self._wanted = 0

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        self.length += len(data)
        while data:
            if self._wanted:
                part, data = data[: self._wanted], data[self._wanted :]
                self._wanted -= len(part)
                if self.count <= _MAX_FRAMES:
                    self.frames += part
                continue
            data = self._look(self._held + data)

    def finish(self) -> None:
        """Say that the stream has ended: what was held back belongs to it."""
        at = self._held.find(_MARK)
        if at >= 0 and self.count < _MAX_FRAMES:
            self.count += 1
            self.frames += self._held[at + 1 :]  # a header that was cut off: `decode` says so
        else:
            self.noise.feed(self._held)
        self._held = b""

    def _look(self, data: bytes) -> bytes:
        """Look for the header of a frame in `data`; return what comes after it, or hold it all back."""
        at = data.find(_MARK)
        if at < 0:
            keep = len(_MARK) - 1
            self.noise.feed(data[:-keep])
            self._held = data[-keep:]
            return b""
        header = _HEADER.match(data, at)
        if header is None and len(data) - at < _LONGEST_HEADER and b"\n" not in data[at + 1 :]:
            self.noise.feed(data[:at])
            self._held = data[at:]
            return b""
        self.noise.feed(data[:at])
        self._held = b"\n"
        self.count += 1
        end = header.end() if header is not None else at + len(_MARK)
        if self.count <= _MAX_FRAMES:
            self.frames += data[at + 1 : end]
        if header is None:
            # No header of ours: kept alone, so that `decode` refuses it.
            self.frames += b"\n" if self.count <= _MAX_FRAMES else b""
            return data[end:]
        length = int(header.group(2))
        if length <= MAX_PAYLOAD:
            self._wanted = length + len(b"\nenvlock-end \n") + len(header.group(1))
        return data[end:]


class Demultiplexer:
    """The engine's attach stream, taken apart: each piece goes to `stdout` or `stderr` at once.

    Format (Docker Engine API, "Attach to a container"): a byte for the stream, three
    zero bytes, a big-endian 32-bit length, that many bytes.
    """

    def __init__(self, stdout: Callable[[bytes], None], stderr: Callable[[bytes], None]) -> None:
        self._sinks = {1: stdout, 2: stderr}
        self._header = b""
        self._sink: Callable[[bytes], None] | None = None
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Take in the next bytes; `ValueError` when they are no such stream."""
        while data:
            if not self._left:
                need = 8 - len(self._header)
                self._header, data = self._header + data[:need], data[need:]
                if len(self._header) < 8:
                    return
                stream, self._left = struct.unpack(">BxxxL", self._header)
                self._header = b""
                self._sink = self._sinks.get(stream)
                if self._sink is None:
                    raise ValueError(f"unknown stream {stream}")
                continue
            part, data = data[: self._left], data[self._left :]
            self._left -= len(part)
            if self._sink is not None:
                self._sink(part)
