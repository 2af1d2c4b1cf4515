"""Which files differ between two layers: for the one who reads that a digest is another one."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

from envlock.image import layertar
from envlock.image.layertar import REGULAR, Entry

_WORDS = ("kind", "mode", "uid", "gid", "size", "link", "device", "capability")


def first_differences(locked: Iterable[bytes], found: Iterable[bytes], limit: int) -> tuple[str, ...]:
    """Return up to `limit` lines, `PATH: what`, in the order of the paths.

    Both layers are streamed; kept is one line of facts and one hash per entry.
    """
    one, other = _listed(locked), _listed(found)
    return tuple(islice(_differences(one, other), limit))


def _listed(pieces: Iterable[bytes]) -> dict[bytes, tuple[tuple[object, ...], bytes]]:
    source = layertar.StreamSource(iter(pieces), "a layer")
    held = {}
    for entry in layertar.entries(source, "a layer"):
        state = hashlib.sha256()
        for piece in source.pieces(entry.size) if entry.kind == REGULAR else ():
            state.update(piece)
        held[entry.name] = (_facts(entry), state.digest())
    return held


def _facts(entry: Entry) -> tuple[object, ...]:
    return (entry.kind, oct(entry.mode), entry.uid, entry.gid, entry.size, entry.link, entry.device, entry.capability)


def _differences(
    one: dict[bytes, tuple[tuple[object, ...], bytes]], other: dict[bytes, tuple[tuple[object, ...], bytes]]
) -> Iterator[str]:
    for name in sorted(one.keys() | other.keys()):
        shown = "/" + name.decode("utf-8", "backslashreplace")
        if name not in one or name not in other:
            yield f"{shown}: {'not in the locked image' if name not in one else 'only in the locked image'}"
        elif one[name] != other[name]:
            words = [
                f"{word} {_text(a)} -> {_text(b)}"
                for word, a, b in zip(_WORDS, one[name][0], other[name][0], strict=True)
                if a != b
            ]
            yield f"{shown}: {', '.join(words) or 'content'}"


def _text(value: object) -> str:
    return repr(value.decode("utf-8", "backslashreplace")) if isinstance(value, bytes) else str(value)
