"""The registry, and the documents made from it.

Write the documents again with `ENVLOCK_RENEW=1 pytest tests/test_registry.py`.
"""

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest

from envlock.probe import probe
from envlock.registry import GPU, GROUPS, HOST, REGISTRY, SCOPES, TYPES, Entry, fact, in_scope
from envlock.registry.documents import json_schema, markdown
from envlock.rules import parse as parse_rule

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("entry", REGISTRY.values(), ids=REGISTRY)
def test_each_entry_is_complete(entry: Entry) -> None:
    """Each fact has a well-formed key, known words, a reason, a source, and a rule that can be parsed."""
    assert re.fullmatch(r"[a-z]+\.[a-z][a-z0-9_]*", entry.key)
    assert entry.type in TYPES
    assert entry.scope in SCOPES
    assert entry.group in GROUPS
    assert entry.severity in ("error", "warning")
    assert entry.label
    assert entry.why
    assert entry.source
    assert not entry.why.endswith(".")
    parse_rule(entry.rule, entry.unit)


@pytest.mark.parametrize("entry", [entry for entry in REGISTRY.values() if entry.locked], ids=lambda entry: entry.key)
def test_each_locked_fact_says_how_to_put_it_right(entry: Entry) -> None:
    """A fact that can be drift has a rule that judges, and a remedy."""
    assert entry.rule != "ignore"
    assert entry.remedy


def test_facts_that_change_bits_are_errors() -> None:
    """What can change the bits of a result is locked, and an error unless it is only pending."""
    soft = {entry.key for entry in REGISTRY.values() if entry.group == "bits" and entry.severity != "error"}

    assert soft == {"gpu.ecc_pending", "gpu.mig_pending"}
    assert all(entry.locked for entry in REGISTRY.values() if entry.group == "bits")


def test_what_a_setting_falls_back_to_is_a_fact_of_its_kind() -> None:
    """A default is another fact of the same type, unit and scope, or one constant of the fact's own type."""
    types = {"boolean": bool, "string": str, "integer": int, "strings": tuple}
    for entry in REGISTRY.values():
        assert not (entry.default and entry.default_value is not None), entry.key
        if entry.default:
            held = REGISTRY[entry.default]
            assert (held.type, held.unit, held.scope, held.each) == (entry.type, entry.unit, entry.scope, entry.each)
        if entry.default_value is not None:
            assert type(entry.default_value) is types[entry.type], entry.key


def test_a_command_names_what_it_sets_and_where() -> None:
    """Every blank of a command can be filled; one that sets a GPU names that GPU alone."""
    for entry in REGISTRY.values():
        blanks = re.findall(r"\{([^}]*)\}", entry.command)
        if not entry.command:
            continue
        assert ("gpu" in blanks) == (entry.scope == GPU), entry.key
        for blank in blanks:
            name, _, form = blank.partition(":")
            assert name in ("gpu", "value") or name in REGISTRY, entry.key
            assert form in ("", "bit", "W", "upper", "profiles"), entry.key
        assert any(blank.startswith("value") or blank == entry.key for blank in blanks), entry.key


def test_scopes_follow_the_key() -> None:
    """Facts of a GPU are those that start with `gpu.`, and no others."""
    assert {entry.key for entry in in_scope(GPU)} == {key for key in REGISTRY if key.startswith("gpu.")}
    assert len(in_scope(HOST)) + len(in_scope(GPU)) == len(REGISTRY)


def test_fact_looks_a_key_up() -> None:
    """`fact` returns the entry of its key and raises `KeyError` for an unknown one."""
    assert fact("cpu.vendor").key == "cpu.vendor"
    with pytest.raises(KeyError):
        fact("cpu.colour")


def test_schema_accepts_this_host() -> None:
    """What the probe prints on this host is valid by the schema."""
    jsonschema.validate(probe().to_document(), json_schema())


@pytest.mark.parametrize(
    "change",
    [
        {"cpu.vendor": None},
        {"cpu.vendor": {"outcome": "value", "value": 3}},
        {"cpu.vendor": {"outcome": "failed", "value": "x"}},
        {"cpu.family": {"outcome": "value", "value": [6]}},
        {"cpu.colour": {"outcome": "failed"}},
    ],
)
def test_schema_refuses_a_wrong_document(change: dict[str, object]) -> None:
    """A missing fact, a wrong type, an absence with a value, a list of one, an unknown fact: none is valid."""
    document = probe().to_document()
    for key, item in change.items():
        if item is None:
            del document["host"][key]
        else:
            document["host"][key] = item

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json_schema())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (DOCS / "facts.md", markdown()),
        (DOCS / "schema" / "facts.schema.json", json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"),
    ],
    ids=["facts.md", "facts.schema.json"],
)
def test_documents_are_current(path: Path, text: str) -> None:
    """The committed documents are what the registry makes now."""
    if os.environ.get("ENVLOCK_RENEW"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    assert path.read_text(encoding="utf-8") == text, "write it again: ENVLOCK_RENEW=1 pytest tests/test_registry.py"
