"""Content digests and the canonical JSON they are taken over.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import os
import re
from typing import IO, Any

from envlock.errors import IntegrityError

_HEX = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20


class Digest(str):
    """A SHA-256 content digest in its text form, `sha256:` and 64 hex digits.

    A `str`, so that it prints, sorts and serialises as itself; made only by `parse`
    and the functions below, so that a value of this type is always well formed.
    The form is the OCI image specification's (descriptor.md, "Digests").
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> Digest:
        """Return `text` as a digest; `ValueError` when it is not one."""
        if not isinstance(text, str) or not text.startswith("sha256:") or not _HEX.fullmatch(text[7:]):
            raise ValueError("not a digest (`sha256:` and 64 lower-case hex digits): {!r}".format(text))
        return cls(text)

    @classmethod
    def from_hex(cls, text: str) -> Digest:
        """Return the digest whose 64 hex digits are `text`; `ValueError` otherwise."""
        return cls.parse("sha256:" + text)

    @property
    def hex(self) -> str:
        """The 64 hex digits alone, as used in file names."""
        return self[7:]

    @property
    def short(self) -> str:
        """The first 12 hex digits, for people; never for comparing."""
        return self[7:19]


def sha256(data: bytes | bytearray | memoryview) -> Digest:
    """Return the digest of `data`, one bytes-like object."""
    import hashlib  # loads OpenSSL, which most commands never need

    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def sha256_stream(stream: IO[bytes], size: int | None = None) -> tuple[Digest, int]:
    """Return `(digest, length)` of what `stream.read` still gives, up to `size` bytes."""
    import hashlib

    state = hashlib.sha256()
    length = 0
    while size is None or length < size:
        chunk = stream.read(_CHUNK if size is None else min(_CHUNK, size - length))
        if not chunk:
            break
        state.update(chunk)
        length += len(chunk)
    return Digest("sha256:" + state.hexdigest()), length


def sha256_file(path: str | os.PathLike[str]) -> tuple[Digest, int]:
    """Return `(digest, length)` of the file at `path`; raises `OSError`."""
    with open(path, "rb") as stream:
        return sha256_stream(stream)


def canonical_json(value: Any) -> bytes:
    """Return `value` as canonical JSON bytes: sorted keys, no spaces, UTF-8.

    A subset of RFC 8785: only null, booleans, integers, strings, lists and objects
    with string keys. Floats are refused (`TypeError`): two languages print them
    differently, so a digest over them would not travel.
    """
    _refuse_floats(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def _refuse_floats(value: Any) -> None:
    if isinstance(value, float):
        raise TypeError("a float has no canonical form: {!r}".format(value))
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError("an object key must be a string: {!r}".format(key))
            _refuse_floats(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _refuse_floats(item)


def digest_of(value: Any) -> Digest:
    """Return the digest of `value`'s canonical JSON."""
    return sha256(canonical_json(value))


def verify(data: bytes, expected: Digest, what: object) -> bytes:
    """Return `data` when its digest is `expected`; raise `IntegrityError` otherwise."""
    found = sha256(data)
    if found != expected:
        raise IntegrityError("has digest {}, expected {}".format(found, expected), where=what)
    return data
