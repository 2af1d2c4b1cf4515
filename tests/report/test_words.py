"""How results are put in words (`envlock.report.words`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envlock.report.words import change, counted, listed, paint, shown


@given(st.text())
def test_what_is_shown_is_printable_and_nothing_is_lost(text: str) -> None:
    """Control characters become escapes; text without them stays as it is."""
    seen = shown(text)
    assert seen.isprintable()
    assert (seen == text) is text.isprintable()


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("1", "2", ["1 → 2"]),
        ("", "2", ["(nothing) → 2"]),
        ("a" * 70, "b" * 70, ["expected: " + "a" * 70, "observed: " + "b" * 70]),
        (
            " ".join(f"flag{number}" for number in range(30)),
            " ".join(f"flag{number}" for number in range(1, 31)),
            ["only expected: flag0", "only observed: flag30"],
        ),
        (
            " ".join(f"flag{number}" for number in range(30)),
            " ".join(f"flag{number}" for number in range(29)),
            ["only expected: flag29", "only observed: -"],
        ),
    ],
)
def test_a_change_fits_its_lines(before: str, after: str, lines: list[str]) -> None:
    """Short values stand on one line, long ones on two, long lists show only what differs."""
    assert change(before, after) == lines


def test_long_lists_that_differ_only_in_order_are_shown_whole() -> None:
    """The same words in another order: neither side has a word of its own."""
    words = [f"flag{number}" for number in range(30)]
    before, after = " ".join(words), " ".join(reversed(words))
    assert change(before, after) == [f"expected: {before}", f"observed: {after}"]


def test_small_words() -> None:
    """Counts, lists and colours."""
    assert [counted(number, "fact") for number in (0, 1, 2)] == ["0 facts", "1 fact", "2 facts"]
    assert listed(("a", "", "b")) == "a, b"
    assert paint("x", "red", colored=False) == "x"
    assert paint("x", "red", colored=True) == "\x1b[31mx\x1b[0m"
