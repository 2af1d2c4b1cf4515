"""Pairing at the least cost (`envlock.pairing`)."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from envlock.pairing import EXACT_LIMIT, pair


@st.composite
def _costs(draw: st.DrawFn) -> list[list[int]]:
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    return draw(st.lists(st.lists(st.integers(0, 9), min_size=columns, max_size=columns), min_size=rows, max_size=rows))


def _least(costs: list[list[int]]) -> int:
    rows, columns = len(costs), len(costs[0])
    if rows > columns:
        return _least([list(column) for column in zip(*costs, strict=True)])
    return min(
        sum(costs[row][column] for row, column in enumerate(chosen))
        for chosen in itertools.permutations(range(columns), rows)
    )


@settings(max_examples=300)
@given(_costs())
def test_no_other_pairing_costs_less(costs: list[list[int]]) -> None:
    """The total cost is the least of all permutations, and nothing is paired twice."""
    pairs = pair(len(costs), len(costs[0]), lambda row, column: costs[row][column])

    assert min(len(costs), len(costs[0])) == len(pairs) == len(dict(pairs)) == len({column for _, column in pairs})
    assert _least(costs) == sum(costs[row][column] for row, column in pairs)


def test_nothing_is_paired_with_nothing() -> None:
    """An empty side gives no pair."""
    assert pair(0, 3, lambda row, column: 0) == ()
    assert pair(3, 0, lambda row, column: 0) == ()


def test_many_are_paired_without_trying_all() -> None:
    """Above the limit equal things still find each other, each once."""
    many = EXACT_LIMIT * 4
    pairs = pair(many, many, lambda row, column: 0 if row == many - 1 - column else 1)
    assert pairs == tuple((row, many - 1 - row) for row in range(many))
