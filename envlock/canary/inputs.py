"""Every input and weight of the suite, declared by name, so that one digest covers them.

A case declares what it needs as `Input` values and asks for them by name. The digest
over all of them needs no framework: it is the same under every Python and torch.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import hashlib
from typing import Iterable, Tuple

from envlock.canary import generator
from envlock.digest import Digest


class Input:
    """One tensor that the generator makes: its name, dtype, shape and range.

    `scale` is how many factors of four a float is smaller than one; `most` the largest
    magnitude of an int8. The name is also the seed.
    """

    __slots__ = ("dtype", "most", "name", "scale", "shape")

    def __init__(
        self, name: str, shape: Tuple[int, ...], dtype: str = generator.FLOAT32, scale: int = 0, most: int = 127
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.scale = scale
        self.most = most

    @property
    def count(self) -> int:
        """The number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def make(self) -> bytearray:
        """Return the elements as little-endian bytes, row by row."""
        if self.dtype == generator.INT8:
            return generator.integers(self.name, self.count, self.most)
        return generator.floats(self.name, self.count, self.scale, self.dtype)

    def header(self) -> bytes:
        """Return what, with the bytes, identifies this input."""
        return "{}|{}|{}\n".format(self.name, self.dtype, ",".join(str(size) for size in self.shape)).encode("ascii")


def digest_of_all(inputs: Iterable[Input]) -> Digest:
    """Return the digest over name, dtype, shape and bytes of `inputs`, in their order."""
    state = hashlib.sha256()
    for item in inputs:
        state.update(item.header())
        state.update(hashlib.sha256(item.make()).digest())
    return Digest.from_hex(state.hexdigest())
