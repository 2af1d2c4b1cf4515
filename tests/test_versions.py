"""Versions of any length, decimal or hexadecimal (`envlock.versions`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envlock.errors import LockfileError
from envlock.versions import Unordered, same_spelling, satisfies, spelled, split_range


@pytest.mark.parametrize(
    ("version", "operator", "bound", "expected"),
    [
        ("535.161.08", ">=", "535.161", True),
        ("535.161.08", ">=", "535.161.9", False),
        ("535.161.08", "==", "535.161.8", True),
        ("550.54", "==", "550.54.0", True),
        ("550.120", ">", "550.54.15", True),
        ("550.120", "<", "550.54.15", False),
        ("550.54.15", "==", "550.54.*", True),
        ("550.120", "==", "550.54.*", False),
        ("550.120", "!=", "550.54.*", True),
        ("550.54.15", "~=", "550.54.14", True),
        ("550.54.13", "~=", "550.54.14", False),
        ("550.60.14", "~=", "550.54.14", False),
        ("551.1", "~=", "550.54", False),
        ("6.1.0-18-amd64", ">=", "6.1", True),
        ("6.1.0-18-amd64", "<", "6.1.0-21", True),
        ("6.1.0-18-amd64", "==", "6.1.0-18-AMD64", True),
        ("6.1.0-18-amd64", "==", "6.1.0-18-rt", False),
        ("96.00.5e.00.01", "==", "96.00.5E.00.01", True),
        ("96.00.5E.00.01", "<", "96.00.A5.00.01", True),
        ("96.00.5E.00.01", "<", "96.00.60.00.01", True),
        ("96.00.5E.00.01", ">=", "96.00.5E", True),
        ("0x2b000603", ">=", "0x2b000571", True),
        ("9.8", ">=", "9.10", False),
        ("12.4", ">=", "12.4", True),
        ("12.10", ">", "12.9", True),
        ("13.0", "~=", "12.4", False),
        ("G520.0200.00.05", ">=", "G520.0200.00.03", True),
        ("G520.0200.00.05", "<", "G520.0200.00.10", True),
        ("G520.0200.00.05", "==", "G520.0200.00.05", True),
        ("g520.0200.00.05", "==", "G520.0200.*", True),
        ("G520.0200.00.05", "==", "G525.0200.00.05", False),
        ("G520.0200.00.05", "!=", "G525.0200.*", True),
        ("5.15.0-1053-aws", ">=", "5.15.0-1050", True),
        ("4.18.0-553.el8_10.x86_64", ">", "4.18.0-477", True),
        ("6.10rc1", ">=", "6.5", True),
        ("6.10rc1", "<", "6.11", True),
        ("550.54.15a", ">=", "550.54.10", True),
        ("2.0~rc1", ">", "1.9", True),
        ("6.2-rc1", ">", "6.1.99", True),
        ("6.2-rc1", "==", "6.1.*", False),
        ("692-2G520-0200-000", "==", "692-2G520-0200-000", True),
        ("965-2G520-0200-000", "==", "692-2G520-0200-000", False),
    ],
)
def test_a_version_is_held_against_a_bound_part_by_part(
    version: str, operator: str, bound: str, expected: bool
) -> None:
    """Parts are numbers (hexadecimal in a VBIOS), missing parts are zero, case does not count."""
    assert satisfies(version, operator, bound) is expected


@pytest.mark.parametrize(
    ("version", "operator", "bound"),
    [
        ("G520.0200.00.05", ">=", "G525.0200.00.01"),
        ("G520.0200.00.05", ">=", "1.2"),
        ("6.1-rc3", ">=", "6.1"),
        ("6.1-rc3", "<", "6.1"),
        ("6.1-rc3", "<", "6.1.1"),
        ("6.1-rc3", "==", "6.1.0.*"),
        ("6.10rc1", ">=", "6.10"),
        ("96.00.A5", ">=", "96.00.5E"),  # three parts are no VBIOS: nobody said that they are hexadecimal
        ("5.15.0-aws", "~=", "5.15.0.1.1"),
        ("unknown", ">=", "1"),
        ("", ">=", "1"),
        ("n/a", "==", "1.*"),
    ],
)
def test_what_has_no_order_is_said_and_not_guessed(version: str, operator: str, bound: str) -> None:
    """A release candidate against its release, or words against a number, raise `Unordered`."""
    with pytest.raises(Unordered, match="has no order against"):
        satisfies(version, operator, bound)


def test_a_range_is_split_into_clauses() -> None:
    """Commas separate clauses, spaces do not count."""
    assert split_range(">= 535.161,<550") == ((">=", "535.161"), ("<", "550"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (">=", "not a version range"),
        (">=1,", "not a version range"),
        ("=>1", "not a version range"),
        (">=1.*", "`>=` takes no `.*`"),
        ("~=1", "`~=` needs two parts"),
        (">=latest", "not a version that has an order"),
        (">=6.1-rc3", "not a version that has an order"),
        (">=6.10rc1", "not a version that has an order"),
        ("==6.1-rc3.*", "not a version that has an order"),
        (">=692-2G520-0200-000", "not a version that has an order"),
    ],
)
def test_an_unusable_range_is_refused_with_a_hint(text: str, message: str) -> None:
    """The error says what is wrong and how a range is written."""
    with pytest.raises(LockfileError) as caught:
        split_range(text)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_only_a_vbios_version_is_compared_without_case() -> None:
    """Five pairs of hex digits are one value in either case; any other text is its letters."""
    assert same_spelling("96.00.5e.00.01", "96.00.5E.00.01")
    assert spelled("96.00.5e.00.01") == spelled("96.00.5E.00.01")
    assert spelled("Performance") == "Performance"
    assert not same_spelling("96.00.5e.00", "96.00.5E.00")
    assert not same_spelling("performance", "Performance")


_parts = st.lists(st.integers(0, 999), min_size=1, max_size=6).map(lambda parts: ".".join(map(str, parts)))


@given(_parts, _parts)
def test_of_two_versions_exactly_one_of_less_equal_greater_holds(one: str, other: str) -> None:
    """The order is total over plain versions, and turns round with its sides."""
    holds = [satisfies(one, operator, other) for operator in ("<", "==", ">")]
    assert sum(holds) == 1
    assert [satisfies(other, operator, one) for operator in (">", "==", "<")] == holds
    assert satisfies(one, "<=", other) is (holds[0] or holds[1])
    assert satisfies(one, "!=", other) is not holds[1]


@given(_parts)
def test_a_version_starts_with_itself(version: str) -> None:
    """`==V.*` and `>=V` hold for V."""
    assert satisfies(version, "==", version + ".*")
    assert satisfies(version, ">=", version)
