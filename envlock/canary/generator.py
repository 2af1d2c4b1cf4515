"""Inputs and weights made from integers alone: the same bits under every framework.

The stream is SHAKE-256 (FIPS 202, section 6.2; RFC 8702 names it likewise): an
extendable-output function, so one call gives any number of pseudorandom bytes that
depend on the name alone. `hashlib` has it in every Python since 3.6, at C speed, on
any processor; no floating-point instruction and no framework is involved, unlike
`torch.rand`, whose CUDA stream depends on the number of SMs (pytorch#196613).

Floats are made by their bit patterns, byte plane by byte plane: low mantissa bytes are
taken as they are, so every mantissa bit is rough, and the top byte (sign and the upper
seven exponent bits) goes through a 256-byte table. With IEEE 754 binary32 `seee eeee
emmm mmmm ...`, a top byte 0x3f gives magnitudes in [0.5, 2): the lowest exponent bit
comes from the random second byte. Each step down of the top byte divides by four.

`reference_floats` says the same with plain arithmetic, element by element; a test
holds the two equal. Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import hashlib
import sys

DOMAIN = b"envlock canary 1\x00"
"""First bytes of every seed: another suite's streams share nothing with these."""

FLOAT32 = "float32"
BFLOAT16 = "bfloat16"
FLOAT64 = "float64"
INT8 = "int8"

_SIZES = {FLOAT32: 4, BFLOAT16: 2}


def stream(name: str, length: int) -> bytes:
    """Return `length` pseudorandom bytes that depend on `name` alone."""
    return hashlib.shake_256(DOMAIN + name.encode("utf-8")).digest(length)


def floats(name: str, count: int, scale: int = 0, dtype: str = FLOAT32) -> bytearray:
    """Return `count` little-endian floats of `dtype` with full random mantissas.

    A quarter of them has magnitudes in each of [0.5, 2) / 4**(scale + d) for d = 0 (half
    of all), 1 and 2 (a quarter each), with random sign: sums of them round at nearly
    every step, so a change of order shows. `scale` is how many factors of four smaller.
    """
    size = _SIZES[dtype]
    drawn = stream(name, count * size)
    out = bytearray(drawn)
    out[size - 1 :: size] = drawn[size - 1 :: size].translate(_top_bytes(scale))
    return out


def reference_floats(name: str, count: int, scale: int = 0, dtype: str = FLOAT32) -> list[int]:
    """Return the bit patterns that `floats` gives, by plain arithmetic on each element."""
    size = _SIZES[dtype]
    drawn = stream(name, count * size)
    patterns = []
    for index in range(count):
        word = int.from_bytes(drawn[index * size : (index + 1) * size], "little")
        shift = 8 * (size - 1)
        top = word >> shift
        sign = top & 0x80
        down = (0, 0, 1, 2)[top & 3]
        patterns.append(((sign | (0x3F - scale - down)) << shift) | (word & ((1 << shift) - 1)))
    return patterns


def integers(name: str, count: int, most: int) -> bytearray:
    """Return `count` signed bytes spread over [-most, most], with `most` at most 127."""
    if not 1 <= most <= 127:
        raise ValueError("a signed byte holds at most 127, not {}".format(most))
    table = bytes((value % (2 * most + 1) - most) & 0xFF for value in range(256))
    return bytearray(stream(name, count).translate(table))


def indexes(name: str, count: int, below: int) -> list[int]:
    """Return `count` integers in [0, below), for look-ups."""
    drawn = stream(name, 4 * count)
    return [int.from_bytes(drawn[4 * i : 4 * i + 4], "little") % below for i in range(count)]


def permutation(name: str, count: int) -> list[int]:
    """Return a permutation of 0..count-1 (Fisher and Yates, Knuth's algorithm P)."""
    drawn = stream(name, 8 * count)
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        j = int.from_bytes(drawn[8 * i : 8 * i + 8], "little") % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def require_little_endian() -> None:
    """Raise `RuntimeError` on a big-endian host: the byte planes would be mirrored."""
    if sys.byteorder != "little":
        raise RuntimeError("this processor is big-endian; the canary's inputs are little-endian")


def _top_bytes(scale: int) -> bytes:
    if not 0 <= scale <= 24:
        raise ValueError("scale out of range: {}".format(scale))
    return bytes((value & 0x80) | (0x3F - scale - (0, 0, 1, 2)[value & 3]) for value in range(256))
