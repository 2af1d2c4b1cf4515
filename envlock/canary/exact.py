"""IEEE 754 arithmetic in integers: what +, -, * and / must give, bit for bit.

Used as the known answer of K7. Python's integers are exact and use no floating-point
unit, so a host with a broken one cannot agree with itself. Round to nearest, ties to
even (IEEE 754-2019, section 4.3.1). Normal operands and results only, which the
generator's ranges guarantee; anything else raises `ValueError`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Callable, Dict, Tuple


class Format:
    """A binary interchange format: `precision` bits of significand, `exponent` bits of exponent."""

    __slots__ = ("exponent", "precision")

    def __init__(self, precision: int, exponent: int) -> None:
        self.precision = precision
        self.exponent = exponent

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1


BINARY32 = Format(24, 8)
BFLOAT16 = Format(8, 8)

Ratio = Tuple[int, int]


def value_of(bits: int, form: Format) -> Ratio:
    """Return the value of the normal number `bits` as an exact fraction (numerator, denominator)."""
    width = form.precision - 1
    exponent = (bits >> width) & ((1 << form.exponent) - 1)
    if not 0 < exponent < (1 << form.exponent) - 1:
        raise ValueError("not a normal number: {:#x}".format(bits))
    significand = (1 << width) | (bits & ((1 << width) - 1))
    if bits >> (width + form.exponent):
        significand = -significand
    power = exponent - form.bias - width
    return (significand << power, 1) if power >= 0 else (significand, 1 << -power)


def nearest(value: Ratio, form: Format) -> int:
    """Return the bits of the number of `form` nearest to `value`, ties to even."""
    numerator, denominator = value
    if numerator == 0:
        return 0
    sign = int(numerator < 0)
    numerator = abs(numerator)
    # Scale so that the quotient has exactly `precision` bits; the first guess may be one off.
    power = numerator.bit_length() - denominator.bit_length() - form.precision
    quotient, rest, scaled = _divide(numerator, denominator, power)
    while quotient >> form.precision:
        power += 1
        quotient, rest, scaled = _divide(numerator, denominator, power)
    if 2 * rest > scaled or (2 * rest == scaled and quotient & 1):
        quotient += 1
        if quotient >> form.precision:
            quotient >>= 1
            power += 1
    exponent = power + form.precision - 1 + form.bias
    if not 0 < exponent < (1 << form.exponent) - 1:
        raise ValueError("the result is not a normal number")
    width = form.precision - 1
    return (sign << (width + form.exponent)) | (exponent << width) | (quotient & ((1 << width) - 1))


def _divide(numerator: int, denominator: int, power: int) -> Tuple[int, int, int]:
    """Return quotient, remainder and divisor of `numerator / (denominator * 2**power)`."""
    if power >= 0:
        scaled = denominator << power
    else:
        numerator <<= -power
        scaled = denominator
    return numerator // scaled, numerator % scaled, scaled


def _add(a: Ratio, b: Ratio) -> Ratio:
    return a[0] * b[1] + b[0] * a[1], a[1] * b[1]


def _subtract(a: Ratio, b: Ratio) -> Ratio:
    return a[0] * b[1] - b[0] * a[1], a[1] * b[1]


def _multiply(a: Ratio, b: Ratio) -> Ratio:
    return a[0] * b[0], a[1] * b[1]


def _quotient(a: Ratio, b: Ratio) -> Ratio:
    sign = -1 if b[0] < 0 else 1
    return sign * a[0] * b[1], a[1] * abs(b[0])


OPERATIONS: Dict[str, Callable[[Ratio, Ratio], Ratio]] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "div": _quotient,
}


def apply(operation: str, a: int, b: int, form: Format) -> int:
    """Return the bits of `a operation b`, correctly rounded to `form`."""
    return nearest(OPERATIONS[operation](value_of(a, form), value_of(b, form)), form)
