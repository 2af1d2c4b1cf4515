"""Documents made from the registry: the page of facts, and the JSON Schema of `envlock probe`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Dict, List

from envlock.facts import OUTCOMES, SCHEMA, VALUE, value
from envlock.registry import GPU, GROUPS, HOST, Entry, in_scope

_JSON_TYPES = {"string": "string", "integer": "integer", "boolean": "boolean"}

_HEAD = """\
<!-- Made from envlock/registry by tests/test_registry.py. Do not edit. -->

# Facts

What `envlock probe` observes. Every fact is in every document, with a value or with the
outcome that says why there is none: `not-supported` (there is no such thing here),
`not-in-driver` (the driver is too old to say), `no-permission`, `hidden` (a hypervisor or
container masks it), `failed` (it should have answered and did not). An absence is never
equal to a value.

Groups: {groups}.

"Locked" facts go into a lockfile, with the default rule shown. A fact that is marked
"each" is one value when all CPUs agree, and the list of the distinct values when not.
What a setting "falls back to" is how drift knows that it was reset; a command is printed
for the locked value, never run.
"""

_TITLES = {HOST: "Facts of a host", GPU: "Facts of each GPU"}


def markdown() -> str:
    """Return `docs/facts.md`."""
    parts = [_HEAD.format(groups="; ".join("*{}* {}".format(name, text) for name, text in GROUPS.items()))]
    for scope, title in _TITLES.items():
        parts.append("## {}\n".format(title))
        parts += [_section(entry) for entry in in_scope(scope)]
    return "\n".join(parts)


def _section(entry: Entry) -> str:
    kind = entry.type + (", each" if entry.each else "") + (", in {}".format(entry.unit) if entry.unit else "")
    rule = "`{}`, {}".format(entry.rule, entry.severity) if entry.locked else "no (`{}`)".format(entry.rule)
    lines = [
        "### `{}`".format(entry.key),
        "",
        "{}: {}.".format(entry.label[0].upper() + entry.label[1:], entry.why),
        "",
        "- type: {}; group: {}".format(kind, entry.group),
        "- locked: {}".format(rule),
        "- read from: {}".format(entry.source),
    ]
    lines += _settings(entry)
    if entry.remedy:
        lines.append("- put right: {}".format(entry.remedy))
    return "\n".join([*lines, ""])


def _settings(entry: Entry) -> List[str]:
    """Return what there is to say about a setting: what it falls back to, and the command that sets it."""
    lines = []
    if entry.default:
        lines.append("- falls back to: `{}`".format(entry.default))
    elif entry.default_value is not None:
        lines.append("- falls back to: {}".format(value(entry.default_value).text() or "none"))
    if entry.volatile:
        lines.append("- lost with a reboot or driver update, and with persistence off when the last user leaves")
    if entry.command:
        lines.append("- set by: `{}`".format(entry.command))
    if entry.identity:
        lines.append("- under the profile `identity`: {}".format(entry.identity))
    return lines


def json_schema() -> Dict[str, Any]:
    """Return `docs/schema/facts.schema.json`: the document of `envlock probe --format json`, all facts present."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Facts of one host",
        "type": "object",
        "required": ["schema", "host", "devices"],
        "additionalProperties": False,
        "properties": {
            "schema": {"const": SCHEMA},
            "notes": {"type": "array", "items": {"type": "string"}, "description": "Remarks for people."},
            "only": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Prefixes of the facts that were looked for; without it, all were.",
            },
            "host": _facts(HOST),
            "devices": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["kind", "id", "facts"],
                    "additionalProperties": False,
                    "properties": {"kind": {"const": "gpu"}, "id": {"type": "string"}, "facts": _facts(GPU)},
                },
            },
        },
        "if": {"not": {"required": ["only"]}},
        "then": {
            "properties": {
                "host": {"required": _required(HOST)},
                "devices": {"items": {"properties": {"facts": {"required": _required(GPU)}}}},
            }
        },
        "$defs": {
            "absent": {
                "type": "object",
                "required": ["outcome"],
                "additionalProperties": False,
                "properties": {
                    "outcome": {"enum": [outcome for outcome in OUTCOMES if outcome != VALUE]},
                    "source": {"type": "string"},
                    "detail": {"type": "string"},
                },
            }
        },
    }


def _facts(scope: str) -> Dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {entry.key: _fact(entry) for entry in in_scope(scope)},
    }


def _required(scope: str) -> List[str]:
    return [entry.key for entry in in_scope(scope) if not entry.unique]


def _fact(entry: Entry) -> Dict[str, Any]:
    description = entry.why + (" (unit: {})".format(entry.unit) if entry.unit else "")
    present = {
        "type": "object",
        "required": ["outcome", "value"],
        "additionalProperties": False,
        "properties": {
            "outcome": {"const": VALUE},
            "value": _value(entry),
            "source": {"type": "string"},
            "detail": {"type": "string"},
        },
    }
    return {"description": description, "oneOf": [present, {"$ref": "#/$defs/absent"}]}


def _value(entry: Entry) -> Dict[str, Any]:
    if entry.type == "strings":
        return {"type": "array", "items": {"type": "string"}}
    one: Dict[str, Any] = {"type": _JSON_TYPES[entry.type]}
    if not entry.each:
        return one
    kinds: List[Dict[str, Any]] = [one, {"type": "array", "items": one, "minItems": 2, "uniqueItems": True}]
    return {"oneOf": kinds}
