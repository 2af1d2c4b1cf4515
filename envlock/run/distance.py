"""How far two outputs are apart: units in the last place, largest difference, cosine.

Over the elements that both reports hold (64 evenly strided ones unless the run kept all
values), from their raw bits. Floats of one dtype are numbered in their order, so that
neighbours differ by one unit in the last place, through zero as well.
"""

import math
import struct
from dataclasses import dataclass

from envlock.run.reports import Output

_FLOATS = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
_INTEGERS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8}


@dataclass(frozen=True, kw_only=True, slots=True)
class Distance:
    """`elements` compared, `differing` of them; `ulp` the largest distance in units in the last place.

    `ulp` is None for integers, and where one side is NaN; `cosine` is None where a side
    is zero or not finite.
    """

    elements: int
    differing: int
    ulp: int | None
    largest: float
    cosine: float | None


def between(a: Output, b: Output) -> Distance | None:
    """Return how far `a` and `b` are apart; None when they hold no elements that correspond."""
    if a.sample is None or b.sample is None or a.dtype is None:
        return None
    if (a.dtype, a.shape, a.sample.stride) != (b.dtype, b.shape, b.sample.stride):
        return None
    width = _FLOATS.get(a.dtype) or _INTEGERS.get(a.dtype)
    if width is None or not a.sample.data or len(a.sample.data) != len(b.sample.data):
        return None
    left, right = _patterns(a.sample.data, width), _patterns(b.sample.data, width)
    values = [(_value(x, a.dtype, width), _value(y, a.dtype, width)) for x, y in zip(left, right, strict=True)]
    return Distance(
        elements=len(left),
        differing=sum(x != y for x, y in zip(left, right, strict=True)),
        ulp=_ulp(left, right, values, width) if a.dtype in _FLOATS else None,
        largest=max(_apart(x, y) for x, y in values),
        cosine=_cosine(values),
    )


def _patterns(data: bytes, width: int) -> list[int]:
    return [int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]


def _value(bits: int, dtype: str, width: int) -> float:
    if dtype in _INTEGERS:
        return float(bits - (1 << (8 * width)) if bits >> (8 * width - 1) else bits)
    if dtype == "bfloat16":
        bits, width = bits << 16, 4
    code = {2: "<e", 4: "<f", 8: "<d"}[width]
    found: float = struct.unpack(code, bits.to_bytes(width, "little"))[0]
    return found


def _ulp(left: list[int], right: list[int], values: list[tuple[float, float]], width: int) -> int | None:
    if any(math.isnan(x) or math.isnan(y) for x, y in values):
        return None
    return max(abs(_ordered(x, width) - _ordered(y, width)) for x, y in zip(left, right, strict=True))


def _ordered(bits: int, width: int) -> int:
    """Return the place of a float among all floats of its width: -0 and +0 are both 0."""
    sign = 1 << (8 * width - 1)
    return -(bits ^ sign) if bits & sign else bits


def _apart(x: float, y: float) -> float:
    """Return the absolute difference: 0 between two NaNs, infinite between one and a number."""
    if math.isnan(x) or math.isnan(y):
        return 0.0 if math.isnan(x) and math.isnan(y) else math.inf
    return 0.0 if x == y else abs(x - y)


def _cosine(values: list[tuple[float, float]]) -> float | None:
    if not all(math.isfinite(x) and math.isfinite(y) for x, y in values):
        return None
    norms = math.sqrt(math.fsum(x * x for x, _ in values)) * math.sqrt(math.fsum(y * y for _, y in values))
    if not norms or not math.isfinite(norms):
        return None
    return math.fsum(x * y for x, y in values) / norms
