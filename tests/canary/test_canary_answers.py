"""`envlock.canary.answers`: every digest there is what plain Python computes."""

import array
import operator

from envlock.canary import known
from envlock.canary.answers import ANSWERS
from envlock.canary.tensors import hash_bytes

MADE = {item.name: item for item in known.INPUTS}


def integers(name: str) -> list[int]:
    """Return the int8 input called `name` as Python integers."""
    return list(array.array("b", bytes(MADE[name].make())))


def product(kind: str, shape: tuple[int, int, int, int]) -> str:
    """Return the digest of an integer matrix product, by lists and loops."""
    m, k, n, _ = shape
    a, b = (integers(name) for name in known._gemm_names(kind, shape))
    columns = [b[j::n] for j in range(n)]
    cells = [sum(map(operator.mul, a[i * k : (i + 1) * k], column)) for i in range(m) for column in columns]
    return hash_bytes("int64", (m, n), array.array("q", cells).tobytes())


def convolution(shape: tuple[int, int, int, int, int, int]) -> str:
    """Return the digest of an integer convolution, by lists and loops."""
    channels, out, size, kernel, stride, groups = shape
    x, w = (integers(name) for name in known._conv_names(shape))
    side = (size - kernel) // stride + 1
    depth, share = channels // groups, out // groups
    cells = []
    for image in range(2):
        for o in range(out):
            first = (o // share) * depth
            for row in range(side):
                for column in range(side):
                    total = 0
                    for c in range(depth):
                        for i in range(kernel):
                            at = ((image * channels + first + c) * size + row * stride + i) * size + column * stride
                            tap = ((o * depth + c) * kernel + i) * kernel
                            total += sum(map(operator.mul, x[at : at + kernel], w[tap : tap + kernel]))
                    cells.append(total)
    return hash_bytes("int64", (2, out, side, side), array.array("q", cells).tobytes())


def test_every_answer_is_what_plain_python_computes() -> None:
    """The references of T1 need no trust in any library, nor in this processor's floats."""
    computed = {
        f"{kind}.{shape[0]}x{shape[1]}x{shape[2]}": product(kind, shape)
        for kind, shapes in (("wide", known.GEMMS), ("narrow", known.NARROW), ("int8", known.INT8S))
        for shape in shapes
    }
    computed |= {"conv." + "-".join(map(str, shape)): convolution(shape) for shape in known.CONVS}

    assert computed == ANSWERS


def test_partial_sums_stay_exact_in_any_order() -> None:
    """K times the largest product fits the significand of the accumulator that each case claims."""
    assert all(k * most * most <= 2**24 for _, k, _, most in known.GEMMS)
    assert all(k * most * most <= 2**8 for _, k, _, most in known.NARROW)
    assert all(k * most * most < 2**31 for _, k, _, most in known.INT8S)
    assert all(c // g * kernel * kernel * 15 * 15 <= 2**24 for c, _, _, kernel, _, g in known.CONVS)
