"""A Dockerfile read back: what it says, and what is refused."""

import pytest

from envlock.errors import UsageError
from envlock.image.dockerfile import Instruction, parse, quote


def words(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple((item.keyword, *item.arguments) for item in parse(text, "x"))


def test_instructions_are_read_as_a_builder_reads_them() -> None:
    """Comments and empty lines go, continued lines are joined, keywords are upper case."""
    text = (
        "# a comment\n\nfrom scratch\nADD base.tar /\n# between\n"
        'ENV A="x y" \\\n  # inside\n    B=\'$lit\' C=a\\ b\nCOPY ["a b", "/x/"]\nRUN echo hi && exit 1\n'
    )

    assert words(text) == (
        ("FROM", "scratch"), ("ADD", "base.tar", "/"), ("ENV", "A", "x y", "B", "$lit", "C", "a b"),
        ("COPY", "a b", "/x/"), ("RUN", "echo hi && exit 1"),
    )  # fmt: skip


def test_an_array_is_not_its_shell_form() -> None:
    """`CMD ["a b"]` and `CMD a b` run differently."""
    assert parse('CMD ["a"]', "x") != parse("CMD a", "x")
    assert parse('CMD ["a"]', "x") == (Instruction("CMD", ("a",), is_array=True),)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "plain",
        'a "b"',
        "back\\slash",
        "end\\",
        "$HOME ${x}",
        "'",
        "a=b",
        "#",
        " lead",
        "trail ",
        "ünïcode",
        "{{x}}",
    ],
)
def test_a_quoted_value_comes_back_as_it_was(value: str) -> None:
    """Whatever it holds, it is one value of one variable."""
    assert words(f"ENV A={quote(value)} B=1") == (("ENV", "A", value, "B", "1"),)
    assert words(f"LABEL a={quote(value)} \\\n  b=1") == (("LABEL", "a", value, "b", "1"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# syntax=evil/frontend\nFROM scratch", "parser directive"),
        ("#escape=`\nFROM scratch", "parser directive"),
        ("# check = skip=all\nFROM scratch", "parser directive"),
        ("# harmless\n# Syntax=evil\nFROM scratch", "parser directive"),
        ("RUN <<EOF\nid\nEOF", "here-document"),
        ("COPY <<-'EOF' /x", "here-document"),
        ("FROM scratch\nEVIL x", "unknown instruction"),
        ("ENV A=$HOME", "uses a variable"),
        ("COPY $x /", "uses a variable"),
        ('COPY ["$x", "/"]', "has a variable"),
        ('ENV A="open', "not closed"),
        ("ENV A", "not NAME=VALUE"),
        ("ENV A b", "not NAME=VALUE"),
        ('CMD ["a", 1]', "strings alone"),
        ('CMD ["a"', "not JSON"),
        ("ENV A=1 \\", "ends inside"),
        ("ENV A=1 \\\n\nB=2", "empty line inside"),
        ("ENV A=1\rRUN id", "control character"),
        ("ENV A=1\u2028RUN id", "control character"),
        ("ENV A=\x00", "control character"),
    ],
)
def test_what_could_mean_something_else_is_refused(text: str, message: str) -> None:
    """Directives change the language, here-documents and variables the content."""
    with pytest.raises(UsageError, match=message):
        parse(text, "x")
