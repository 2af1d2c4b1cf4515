"""A view as SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html).

One rule for each fact that has something to say, with why it matters and how to put it
right; one result for each item, at the line of the lockfile that holds the fact. What
could not be told has the level `error`: it is no match, and readers hide lesser ones.
What is allowed or waived is a suppressed result with its reason.
"""

import json
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from envlock import __version__
from envlock.report.fingerprints import fingerprints
from envlock.report.view import FAILURE, Item, Level, View

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

SPEC = "envlock.toml"

MOST_LETTERS = 1000
"""Letters of a message or a description, before placeholders are escaped: code scanning takes 1024.

https://docs.github.com/en/code-security/reference/code-scanning/sarif-files/sarif-support
"""

_LEVELS = {Level.ERROR: "error", Level.UNKNOWN: "error", Level.WARNING: "warning", Level.NOTE: "note"}


def render(view: View) -> str:
    """Return the document: one run, its invocation with the exit code, rules and results."""
    items = (*view.items, *view.excused)
    rules = list(dict.fromkeys(item.key for item in items))
    first = {item.key: item for item in reversed(items)}
    marks = fingerprints(view, items)
    invocation: dict[str, Any] = {
        "executionSuccessful": not view.failed,
        "exitCode": view.exit_code,
        "exitCodeDescription": f"{view.verdict}: {view.headline}",
    }
    told = [("note", note) for note in view.notes]
    if view.failed:
        told += [("error", item.message) for item in view.items]
    if told:
        invocation["toolExecutionNotifications"] = [
            {"level": level, "message": {"text": _literal(text)}} for level, text in told
        ]
    run = {
        "tool": {
            "driver": {"name": "envlock", "version": __version__, "rules": [_rule(first[key]) for key in rules]},
        },
        "invocations": [invocation],
        "results": [_result(view, item, rules.index(item.key), mark) for item, mark in zip(items, marks, strict=True)],
        "columnKind": "unicodeCodePoints",
        "properties": {"verdict": view.verdict, "counts": dict(view.counts), "environment": view.environment},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=True)


def _rule(item: Item) -> dict[str, Any]:
    # An error has no entry in the registry; its own words are all there is to say.
    failure = "envlock could not give an answer"
    about = item.why or (failure if item.key == FAILURE else f"`{item.key}` is not as it was locked")
    remedy = item.fix or "see the message of the result"
    return {
        "id": item.key,
        "shortDescription": {"text": _short(f"{item.key}: {about}")},
        "fullDescription": {"text": _short(about)},
        "help": {"text": _literal(remedy), "markdown": _literal(remedy)},
    }


def _result(view: View, item: Item, index: int, mark: str) -> dict[str, Any]:
    fix = f". Run: {item.command}" if item.command else f". Fix: {item.fix}" if item.fix else ""
    # Readers drop a result without a place: where no file was named, the spec stands for it.
    artifact = _artifact(view.path or SPEC)
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": item.line}},
    }
    if item.device:
        location["logicalLocations"] = [{"name": item.device, "kind": "resource"}]
    result: dict[str, Any] = {
        "ruleId": item.key,
        "ruleIndex": index,
        "level": _LEVELS[item.level],
        "kind": "fail",
        "message": {"text": _literal(_cut(item.message, MOST_LETTERS - len(fix)) + fix)},
        "locations": [location],
        "partialFingerprints": {"envlock/v1": mark, "primaryLocationLineHash": f"{mark[:16]}:1"},
        "properties": {"level": item.level.value, "kind": item.kind, "device": item.device},
    }
    if item.level is Level.NOTE:
        result["suppressions"] = [
            {"kind": "external", "status": "accepted", "justification": item.because or item.kind}
        ]
    return result


def _short(text: str) -> str:
    return _literal(_cut(text, MOST_LETTERS))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def _literal(text: str) -> str:
    """Return `text` with nothing that a message takes for a placeholder or a link (sections 3.11.5 and 3.11.6)."""
    text = text.replace("{", "{{").replace("}", "}}")
    return text.replace("[", "\\[").replace("]", "\\]") if "](" in text else text


def _artifact(path: str) -> dict[str, str]:
    if PurePosixPath(path).is_absolute():
        return {"uri": "file://" + quote(path)}
    return {"uri": quote(path), "uriBaseId": "%SRCROOT%"}
