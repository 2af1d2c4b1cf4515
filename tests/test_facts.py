"""Facts, outcomes, and the document that carries them."""

from typing import Any

import pytest

from envlock.errors import UsageError
from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, OUTCOMES, VALUE, Device, Facts, Observed, absent, value


def document() -> dict[str, Any]:
    gpu = Device("gpu", "0000:01:00.0", {"gpu.name": value("H100", "NVML")})
    return Facts({"cpu.threads": value(2), "cpu.microcode": absent(HIDDEN, "f", "a guest")}, [gpu]).to_document()


def test_absence_equals_no_value_and_no_other_absence() -> None:
    """An absence is equal to the same outcome alone."""
    assert absent(FAILED) != value("failed")
    assert absent(FAILED) != absent(NOT_SUPPORTED)
    assert absent(FAILED, "a", "x") == absent(FAILED, "b", "y")


def test_type_is_part_of_a_value() -> None:
    """True is not 1, and a text is not a number."""
    assert value(True) != value(1)
    assert value("1") != value(1)
    assert len({value(True), value(1), value("1")}) == 3


def test_source_is_not_part_of_a_value() -> None:
    """Where a value was read is not what it is."""
    assert value("a", "x") == value("a", "y")
    assert hash(value("a", "x")) == hash(value("a", "y"))


def test_observed_never_changes() -> None:
    """An observation cannot be altered."""
    with pytest.raises(AttributeError):
        value("a").value = "b"


@pytest.mark.parametrize(("outcome", "found"), [(VALUE, None), (FAILED, "x"), ("unknown", None)])
def test_value_and_outcome_belong_together(outcome: str, found: str | None) -> None:
    """A value without its outcome, an absence with a value, an unknown outcome: none can be made."""
    with pytest.raises(ValueError, match="outcome"):
        Observed(outcome, found)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (value("a"), "a"),
        (value(True), "yes"),
        (value(False), "no"),
        (value(["a", "b"]), "a b"),
        (absent(NOT_SUPPORTED), "(not supported)"),
    ],
)
def test_text_of_an_observation(seen: Observed, text: str) -> None:
    """Lists are joined, switches are words, absences stand in brackets."""
    assert seen.text() == text


def test_document_is_read_back() -> None:
    """What was written is what is read, devices and details included."""
    again = Facts.from_document(document(), "f")

    assert again.to_document() == document()


def test_devices_are_ordered_by_place() -> None:
    """Devices are listed by their place on the node, whatever order they were found in."""
    facts = Facts({}, [Device("gpu", "02", {}), Device("gpu", "01", {})])

    assert [gpu.ident for gpu in facts.gpus()] == ["01", "02"]


def test_digest_is_over_what_was_observed() -> None:
    """Sources and details do not change the digest; a value, an outcome or a type does."""
    base = Facts({"a": value(1, "x")}).digest()

    assert Facts({"a": value(1, "y")}).digest() == base
    assert len({base, Facts({"a": value(2)}).digest(), Facts({"a": value(True)}).digest(),
                Facts({"a": absent(FAILED)}).digest(), Facts({"a": absent(HIDDEN)}).digest()}) == 5  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"schema": "envlock.facts/9"},
            "f: unexpected schema 'envlock.facts/9' (expected 'envlock.facts/1'), at `schema`",
        ),
        ({"host": []}, "f: unexpected type (expected object), at `host`"),
        ({"host": {"a": 1}}, "f: unexpected type (expected object), at `host.a`"),
        ({"host": {"a": {"outcome": "fine"}}}, None),
        ({"host": {"a": {"outcome": "value"}}}, "f: outcome 'value' with value None, at `host.a`"),
        ({"host": {"a": {"outcome": "failed", "value": 1}}}, "f: outcome 'failed' with value 1, at `host.a`"),
        ({"host": {"a": {"outcome": "value", "value": 1.5}}}, "f: not a fact value: 1.5, at `host.a`"),
        ({"host": {"a": {"outcome": "value", "value": [True]}}}, "f: not a fact value: [True], at `host.a`"),
        ({"devices": {}}, "f: unexpected type (expected array), at `devices`"),
        ({"devices": [{"id": "x"}]}, "f: not a device, at `devices[0]`"),
        (
            {"devices": [{"kind": "npu", "id": "0", "facts": {}}]},
            "f: unknown kind of device 'npu' (expected 'gpu'), at `devices[0]`",
        ),
        (
            {"devices": [{"kind": "gpu", "id": "0000:01:00.0", "facts": {}}] * 2},
            "f: two devices with the id '0000:01:00.0', at `devices[1].id`",
        ),
        ({"devices": [{"kind": "gpu"}]}, "f: a device needs an `id`, at `devices[0]`"),
        (
            {"devices": [{"kind": "gpu", "id": "x", "facts": {"a": None}}]},
            "f: unexpected type (expected object), at `devices[0].facts.a`",
        ),
    ],
)
def test_wrong_document_is_refused_with_its_key(change: dict[str, Any], message: str | None) -> None:
    """Each fault of a document names the file, the key and what was expected."""
    with pytest.raises(UsageError) as caught:
        Facts.from_document({**document(), **change}, "f")

    expected = message or f"f: unknown outcome 'fine' (expected one of {', '.join(OUTCOMES)}), at `host.a`"
    assert str(caught.value) == expected


@pytest.mark.parametrize("text", [None, [], "x", 3])
def test_document_that_is_no_object_is_refused(text: object) -> None:
    """Anything but an object is no facts document."""
    with pytest.raises(UsageError, match="not a facts document"):
        Facts.from_document(text, "f")
