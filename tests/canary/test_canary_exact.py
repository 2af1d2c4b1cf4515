"""`envlock.canary.exact`: integer arithmetic that rounds like IEEE 754 says."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envlock.canary import exact

NORMAL = st.floats(min_value=2.0**-20, max_value=2.0**20, width=32).flatmap(
    lambda value: st.sampled_from([value, -value])
)


def bits(value: float) -> int:
    """Return binary32's bits of `value`."""
    return int.from_bytes(struct.pack("<f", value), "little")


@given(NORMAL, NORMAL)
def test_products_and_quotients_agree_with_binary64_rounded_once_more(a: float, b: float) -> None:
    """For these, binary64 then binary32 is known to round like binary32 at once (Figueroa 1995)."""
    assert bits(a * b) == exact.apply("mul", bits(a), bits(b), exact.BINARY32)
    assert bits(a / b) == exact.apply("div", bits(a), bits(b), exact.BINARY32)


@given(NORMAL, NORMAL)
def test_sums_agree_with_binary64_rounded_once_more(a: float, b: float) -> None:
    """Sums and differences of normal numbers whose result is zero or normal."""
    assert bits(a + b) == exact.apply("add", bits(a), bits(b), exact.BINARY32)
    assert bits(a - b) == exact.apply("sub", bits(a), bits(b), exact.BINARY32)


def test_a_tie_goes_to_the_even_neighbour() -> None:
    """Half a unit in the last place rounds down onto even, up from odd."""
    one, odd, half = bits(1.0), bits(1.0 + 2.0**-23), bits(2.0**-24)

    assert one == exact.apply("add", one, half, exact.BINARY32)
    assert bits(1.0 + 2.0**-22) == exact.apply("add", odd, half, exact.BINARY32)


def test_rounding_up_may_reach_the_next_power_of_two() -> None:
    """A carry out of the significand moves the exponent."""
    assert bits(2.0) == exact.nearest((2**25 - 1, 2**24), exact.BINARY32)


@pytest.mark.parametrize("pattern", [0x00000001, 0x7F800000, 0x7FC00000])
def test_subnormals_infinities_and_nans_are_not_operands(pattern: int) -> None:
    """The generator makes none of them; a golden answer must not guess."""
    with pytest.raises(ValueError, match="not a normal number"):
        exact.value_of(pattern, exact.BINARY32)


def test_a_result_out_of_range_is_refused() -> None:
    """An overflow is no known answer."""
    with pytest.raises(ValueError, match="not a normal number"):
        exact.apply("mul", bits(2.0**100), bits(2.0**100), exact.BINARY32)
