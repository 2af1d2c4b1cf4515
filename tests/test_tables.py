"""Typed reading of TOML: one wording for each fault, the key path in each."""

import contextlib
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envlock.errors import LockfileError, SpecError, UsageError
from envlock.tables import Table, nearest_hint, parse_toml, safe_path, safe_source


def table(text: str) -> Table:
    return Table(parse_toml(text.encode(), "x.toml", SpecError), "x.toml", SpecError)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x.toml: is empty"),
        (b" \n\t\n", "x.toml: is empty"),
        (b"\xef\xbb\xbfa = 1\n", "x.toml: starts with a byte order mark"),
        (b"\xff\xfea\x00", "x.toml: starts with a byte order mark"),
        (b"a = 1\nb = '\xe9'\n", "x.toml: is not UTF-8 (line 2)"),
        (b"a = 1\r\nb = 2\r\n", "x.toml: has CRLF line ends (line 1)"),
        (b"a = 1\nb = 2\r", "x.toml: has CRLF line ends (line 2)"),
        (b"a = 1\n<<<<<<< HEAD\nb = 1\n", "x.toml: holds a merge conflict (line 2)"),
        (b"a = [\n=======\n]\n", "x.toml: holds a merge conflict (line 2)"),
        (b"b = 1\n>>>>>>> other\n", "x.toml: holds a merge conflict (line 2)"),
        (b"a = " + b"1" * 5000, "x.toml: holds a number that is too long"),
        (b"a = " + b"[" * 20000, "x.toml: is nested too deeply"),
    ],
)
def test_each_broken_file_has_a_message_of_its_own(data: bytes, message: str) -> None:
    """What is wrong with the bytes is said before any TOML is read, with a hint where one helps."""
    with pytest.raises(SpecError) as caught:
        parse_toml(data, "x.toml", SpecError)

    assert message == str(caught.value)
    assert caught.value.exit_code == 2


def test_bad_toml_says_where() -> None:
    """The reader's own words, with line and column, reach the person."""
    with pytest.raises(LockfileError, match=r"^x.toml: is not valid TOML: .*line 2"):
        parse_toml(b"a = 1\nb = = 2\n", "x.toml", LockfileError)


@given(st.binary(max_size=300))
def test_no_bytes_get_past_the_error_tree(data: bytes) -> None:
    """Whatever the bytes, the answer is a table or an error of ours."""
    with contextlib.suppress(UsageError):
        parse_toml(data, "x.toml", SpecError)


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ("b = 1", lambda t: t.string("a"), "x.toml: missing key, at `a`"),
        ("a = 1", lambda t: t.string("a"), "x.toml: unexpected type integer (expected string), at `a`"),
        ("a = true", lambda t: t.integer("a"), "x.toml: unexpected type boolean (expected integer), at `a`"),
        ("a = 1.5", lambda t: t.integer("a"), "x.toml: unexpected type float (expected integer), at `a`"),
        ("a = -1", lambda t: t.integer("a"), "x.toml: -1 is less than 0, at `a`"),
        ("a = 1", lambda t: t.boolean("a"), "x.toml: unexpected type integer (expected boolean), at `a`"),
        ("a = []", lambda t: t.table("a"), "x.toml: unexpected type array (expected table), at `a`"),
        ("a = {}", lambda t: list(t.tables("a")), "x.toml: unexpected type table (expected array), at `a`"),
        ("a = [1]", lambda t: list(t.tables("a")), "x.toml: unexpected type integer (expected table), at `a[0]`"),
        ("a = ['x', 2]", lambda t: t.strings("a"), "x.toml: unexpected type integer (expected string), at `a[1]`"),
        ("a = 'c'", lambda t: t.choice("a", ("b", "d")), "x.toml: unknown value 'c', at `a`"),
        (
            "[b]\na = 1",
            lambda t: t.table("b").string("a"),
            "x.toml: unexpected type integer (expected string), at `b.a`",
        ),
        (
            "[[b]]\n[[b]]\na = 1",
            lambda t: [inner.string("a", "") for inner in t.tables("b")],
            "x.toml: unexpected type integer (expected string), at `b[1].a`",
        ),
        ('"x.y" = 1', lambda t: t.string("x.y"), 'x.toml: unexpected type integer (expected string), at `"x.y"`'),
        (
            "a = 'sha256:00'",
            lambda t: t.digest("a"),
            "x.toml: not a digest (`sha256:` and 64 lower-case hex digits): 'sha256:00', at `a`",
        ),
    ],
)
def test_each_wrong_value_is_named_with_its_key(text: str, read: Any, message: str) -> None:
    """A wrong type or value says what was found, what was expected, and the whole key path."""
    with pytest.raises(SpecError) as caught:
        read(table(text))

    assert message == str(caught.value)


def test_an_unknown_key_is_an_error_with_the_nearest_known_one() -> None:
    """A slip of the pen never passes as an unset option."""
    found = table("requirments = []")
    found.strings("requirements")

    with pytest.raises(SpecError) as caught:
        found.finish()

    assert str(caught.value) == "x.toml: unknown key, at `requirments`"
    assert caught.value.hint == "did you mean `requirements`?"


def test_a_missing_key_names_the_one_that_may_be_meant() -> None:
    """A required key with a slip in it: the slip is named; a key that is another known one is not."""
    slipped = table('other = 1\nnmae = "x"\nnames = 1\n')
    slipped.integer("names")
    with pytest.raises(SpecError, match="missing key, at `name`") as caught:
        slipped.string("name")
    assert caught.value.hint == "is `nmae` meant to be `name`?"
    with pytest.raises(SpecError, match="missing key, at `zzz`") as caught:
        slipped.string("zzz")
    assert caught.value.hint is None


def test_far_from_any_known_key_all_are_listed() -> None:
    """Without a near one the hint lists what there is, sorted."""
    assert nearest_hint("zzz", ("b", "a", "b"), "known here") == "known here: a, b"


def test_asking_for_the_keys_makes_them_known() -> None:
    """Where keys are data, such as environment variables, none is unknown."""
    found = table("A = '1'\nB = '2'")

    assert found.keys() == ("A", "B")
    found.finish()


@pytest.mark.parametrize("text", ["/a", "/opt/models/x-1.bin", "/a.b/c_d+e@f=g"])
def test_plain_absolute_paths_are_safe(text: str) -> None:
    """What a path in an image may be."""
    assert safe_path(text)
    assert safe_source(text[1:])


@pytest.mark.parametrize(
    "text", ["", "/", "a", "/a/", "/a//b", "/../a", "/a/./b", "/a b", "/a\n", "/$(id)", "/a'", "/ü", "/" + "x" * 256]
)
def test_any_other_path_is_not(text: str) -> None:
    """Nothing that a shell, a Dockerfile or a tar reader could take for something else."""
    assert not safe_path(text)


def test_type_names_are_toml_s_own() -> None:
    """A date is no string: TOML's types that have no word here keep Python's."""
    with pytest.raises(SpecError, match=r"unexpected type date \(expected string\)"):
        Table(tomllib.loads("a = 2024-01-01"), "x.toml", SpecError).string("a")
