"""JSON documents that come from outside: facts, canary reports.

Read strictly and in bounds: one wording for an empty file, a byte order mark, a cut-off
document, a key that stands there twice, a number that is none.
"""

import json
import sys
from pathlib import Path
from typing import Any

from envlock import files
from envlock.errors import UsageError
from envlock.facts import Facts

STANDARD_INPUT = Path("-")

_MAX_DIGITS = 30


def read(path: Path) -> bytes:
    """Return the bytes of the file at `path`, or of standard input for `-`; at most `files.MAX_TEXT`.

    Raises `UsageError` for what is no file or too large, `StorageError` when the disk refuses.
    """
    if path != STANDARD_INPUT:
        return files.read_bytes(path)
    if sys.stdin is None:
        raise UsageError("is closed", where="standard input")
    try:
        data = sys.stdin.buffer.read(files.MAX_TEXT + 1)
    except OSError as error:
        raise files.storage_error(error, "standard input") from error
    if len(data) > files.MAX_TEXT:
        raise UsageError(f"larger than {files.MAX_TEXT} bytes", where="standard input")
    return data


def name(path: Path) -> str:
    """Return what messages call the document at `path`."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def read_facts(path: Path) -> Facts:
    """Return the facts in the file at `path` (`-`: standard input)."""
    return parse_facts(read(path), name(path))


def parse_facts(data: bytes, where: str) -> Facts:
    """Return the facts in `data`; `UsageError` names the key and what is wrong with it."""
    return Facts.from_document(parse(data, where), where)


def parse(data: bytes, where: str) -> Any:
    """Return the JSON document in `data`; `UsageError` says what is wrong with it, and where."""
    if not data.strip():
        raise UsageError("is empty", where=where, hint="did the program that should have written it fail?")
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise UsageError(
            "starts with a byte order mark", where=where, hint="save it as UTF-8 without a byte order mark"
        )
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_refuse,
            parse_int=_integer,
        )
    except UnicodeDecodeError as fault:
        line = data[: fault.start].count(b"\n") + 1
        raise UsageError(f"is not UTF-8 (line {line})", where=where) from None
    except json.JSONDecodeError as fault:
        text = f"is not valid JSON: {fault.msg[:1].lower()}{fault.msg[1:]} (line {fault.lineno}, column {fault.colno})"
        raise UsageError(text, where=where, hint="is the file cut off, or edited by hand?") from None
    except ValueError as fault:
        raise UsageError(str(fault), where=where) from None
    except RecursionError:
        raise UsageError("is nested too deeply", where=where) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"two entries for {key!r} in one object")
            seen.add(key)
    return found


def _refuse(text: str) -> Any:
    # Two programs print one float in two ways; nothing envlock writes holds any.
    raise ValueError(f"holds a number that is no integer: {text[:_MAX_DIGITS]}")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"holds a number of {len(text)} digits")
    return int(text)
