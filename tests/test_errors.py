"""The exception tree and the table of exit codes."""

import pytest

from envlock import errors
from envlock.errors import EnvlockError, worst_exit_code


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ([], 3),
        ([0], 0),
        ([0, 3], 3),
        ([0, 3, 1], 1),
        ([0, 3, 1, 2], 2),
        ([0, 3, 1, 2, 4], 4),
        ([4, 0], 4),
        ([130], 3),
    ],
)
def test_worst_exit_code_wins(codes: list[int], worst: int) -> None:
    """Integrity outranks usage, usage a difference, a difference not knowing; no answer is never a match."""
    assert worst_exit_code(codes) == worst


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("UsageError", 2),
        ("SpecError", 2),
        ("LockfileError", 2),
        ("LockHeldError", 2),
        ("CouldNotTell", 3),
        ("EngineError", 3),
        ("ToolError", 3),
        ("NetworkError", 3),
        ("StorageError", 3),
        ("IntegrityError", 4),
    ],
)
def test_each_class_carries_its_exit_code(name: str, code: int) -> None:
    """An error is usage, not knowing, or integrity: never a match and never a difference."""
    assert getattr(errors, name)("x").exit_code == code


def test_every_class_is_in_the_table() -> None:
    """No class of the tree is left without a test of its exit code."""
    classes = {item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, EnvlockError)}

    assert {item.exit_code for item in classes} == {2, 3, 4}
    assert len(classes) == 11


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (EnvlockError("is empty"), "is empty"),
        (EnvlockError("is empty", where="f"), "f: is empty"),
        (EnvlockError("unknown key", where="f", key="a.b"), "f: unknown key, at `a.b`"),
        (EnvlockError("unknown key", key="a.b"), "unknown key, at `a.b`"),
    ],
)
def test_message_names_file_and_key(error: EnvlockError, text: str) -> None:
    """The text is FILE: what, at `key`, with what is known of them."""
    assert str(error) == text


def test_document_of_an_error() -> None:
    """The JSON document holds all parts and the exit code."""
    assert EnvlockError("m", where="f", key="k", hint="h").to_document() == {
        "schema": "envlock.error/1",
        "error": "EnvlockError",
        "message": "m",
        "where": "f",
        "key": "k",
        "hint": "h",
        "exit-code": 2,
    }
