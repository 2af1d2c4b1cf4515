"""Typed reading of parsed TOML tables, with the key path in every error.

Used by the spec and the lockfile: one wording for a missing key, a wrong type, an
unknown key (with the nearest known one) and a value out of its set.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from envlock.digest import Digest
from envlock.errors import UsageError

T = TypeVar("T")

# What spec and lockfile both hold, in one form.
NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
PYTHON = re.compile(r"3\.[0-9]{1,2}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_PATH = re.compile(r"(/[A-Za-z0-9._+@=-]{1,255})+")

_TYPE_NAMES = {str: "string", int: "integer", bool: "boolean", list: "array", dict: "table", float: "float"}
_OF_TIME = {"date": "date", "datetime": "date-time", "time": "time"}
_CONFLICT = ("<<<<<<< ", "=======", ">>>>>>> ")


def matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """Return a check that a whole string fits `pattern`."""
    return lambda text: pattern.fullmatch(text) is not None


def safe_path(text: str) -> bool:
    """Return whether `text` is an absolute path of plain characters without `.` and `..`."""
    return _PATH.fullmatch(text) is not None and not {".", ".."} & set(text.split("/"))


def safe_source(text: str) -> bool:
    """Return whether `text` is a relative path of plain characters without `.` and `..`."""
    return safe_path("/" + text)


def type_name(value: object) -> str:
    """Return TOML's own word for the type of `value`."""
    return _TYPE_NAMES.get(type(value)) or _OF_TIME.get(type(value).__name__, type(value).__name__)


def parse_toml(data: bytes, where: str, error: type[UsageError]) -> dict[str, Any]:
    """Return the TOML document in `data`; raise `error` naming what is wrong and where.

    Refused with a message of its own: an empty file, a byte order mark, bytes that are
    not UTF-8, CRLF line ends (TOML allows them, but the same file would have two forms
    and two hashes), Git's conflict markers.
    """
    if not data.strip():
        raise error("is empty", where=where, hint="restore the file from version control, or remove it to start anew")
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise error(
            "starts with a byte order mark", where=where, hint="save the file as UTF-8 without a byte order mark"
        )
    if b"\r" in data:
        line = data[: data.index(b"\r")].count(b"\n") + 1
        raise error(
            f"has CRLF line ends (line {line})",
            where=where,
            hint="save the file with LF line ends; in Git, `*.toml text eol=lf` in .gitattributes keeps them",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data[: fault.start].count(b"\n") + 1
        raise error(f"is not UTF-8 (line {line})", where=where, hint="save the file as UTF-8") from None
    for number, line_text in enumerate(text.split("\n"), 1):
        if line_text.startswith((_CONFLICT[0], _CONFLICT[2])) or line_text == _CONFLICT[1]:
            raise error(
                f"holds a merge conflict (line {number})",
                where=where,
                hint="resolve the conflict: keep one side of each marked part, then run `envlock lock`",
            )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise error(
            f"is not valid TOML: {fault}", where=where, hint="is the file cut off, or edited by hand?"
        ) from None
    except RecursionError:
        raise error("is nested too deeply", where=where) from None
    except ValueError:
        # tomllib hands an integer to Python, which refuses one of thousands of digits.
        raise error("holds a number that is too long", where=where) from None


class Table:
    """One table of a parsed document, knowing its file and its key path.

    Every getter marks its key as known; `finish` then refuses what nobody asked for.
    """

    def __init__(self, data: Mapping[str, Any], where: str, error: type[UsageError], path: str = "") -> None:
        self._data = data
        self._where = where
        self._error = error
        self._path = path
        self._known: list[str] = []

    def fail(self, message: str, key: str | None = None, hint: str | None = None) -> UsageError:
        """Return the error for `key` of this table (or the table itself); the caller raises it."""
        path = self.path(key) if key is not None else self._path or None
        return self._error(message, where=self._where, key=path, hint=hint)

    def path(self, key: str) -> str:
        """Return the key path of `key`, quoted where TOML would need quotes."""
        name, bracket, index = key.partition("[")  # `packages[3]`: an item of an array
        bare = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
        part = key if bare and (not bracket or index[:-1].isdigit()) else f'"{key}"'
        return f"{self._path}.{part}" if self._path else part

    def has(self, key: str) -> bool:
        self._known.append(key)
        return key in self._data

    def slip(self, *missing: str) -> str | None:
        """Return a hint when a key that nobody has asked for is nearly one of the `missing` ones."""
        others = [key for key in self._data if key not in self._known]
        for key in missing:
            if near := _nearest(key, others):
                return f"is `{near}` meant to be `{key}`?"
        return None

    def keys(self) -> tuple[str, ...]:
        """Return all keys; for tables whose keys are data (environment variables)."""
        self._known.extend(self._data)
        return tuple(self._data)

    def _get(self, key: str, kind: type[T], default: T | None, required: bool) -> T | None:
        self._known.append(key)
        if key not in self._data:
            if required:
                raise self.fail("missing key", key, hint=self.slip(key))
            return default
        found = self._data[key]
        if type(found) is not kind:
            raise self.fail(f"unexpected type {type_name(found)} (expected {_TYPE_NAMES[kind]})", key)
        return found

    def string(self, key: str, default: str | None = None) -> str:
        """Return the string at `key`; without a default the key is required."""
        found = self._get(key, str, default, default is None)
        assert found is not None
        return found

    def optional_string(self, key: str) -> str | None:
        return self._get(key, str, None, False)

    def integer(self, key: str, default: int | None = None, minimum: int = 0) -> int:
        found = self._get(key, int, default, default is None)
        assert found is not None
        if found < minimum:
            raise self.fail(f"{found} is less than {minimum}", key)
        return found

    def boolean(self, key: str, default: bool | None = None) -> bool:
        found = self._get(key, bool, default, default is None)
        assert found is not None
        return found

    def choice(self, key: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        found = self.string(key, default)
        if found not in allowed:
            raise self.fail(f"unknown value {found!r}", key, hint=nearest_hint(found, allowed, "one of"))
        return found

    def digest(self, key: str) -> Digest:
        text = self.string(key)
        try:
            return Digest.parse(text)
        except ValueError as fault:
            raise self.fail(str(fault), key) from None

    def matching(self, key: str, check: Callable[[str], bool], expected: str, default: str | None = None) -> str:
        """Return the string at `key` when `check` accepts it; the error says `expected`."""
        found = self.string(key, default)
        if not check(found):
            raise self.fail(f"unexpected value {found!r} (expected {expected})", key)
        return found

    def date(self, key: str) -> str:
        """Return the day at `key` as `2026-12-31`; empty when it is missing. A TOML date or the same as a string."""
        import datetime  # tomllib has it already

        found = self.raw(key)
        if found is None:
            return ""
        if isinstance(found, datetime.date) and not isinstance(found, datetime.datetime):
            return found.isoformat()
        if not isinstance(found, str) or not _DAY.fullmatch(found):
            shown = repr(found) if isinstance(found, str) else type_name(found)
            raise self.fail(f"unexpected value {shown} (expected a day such as `2026-12-31`)", key)
        try:
            return datetime.date.fromisoformat(found).isoformat()
        except ValueError:
            raise self.fail(f"{found} is not a day of the calendar", key) from None

    def strings(self, key: str) -> tuple[str, ...]:
        found = self._get(key, list, [], False) or []
        for index, item in enumerate(found):
            if type(item) is not str:
                raise self.fail(f"unexpected type {type_name(item)} (expected string)", f"{key}[{index}]")
        return tuple(found)

    def table(self, key: str, required: bool = True) -> "Table":
        """Return the table at `key`; an empty one when it is missing and not required."""
        found = self._get(key, dict, {}, required)
        assert found is not None
        return Table(found, self._where, self._error, self.path(key))

    def tables(self, key: str) -> Iterator["Table"]:
        """Yield each table of the array of tables at `key`; none when it is missing."""
        found = self._get(key, list, [], False) or []
        for index, item in enumerate(found):
            if type(item) is not dict:
                raise self.fail(f"unexpected type {type_name(item)} (expected table)", f"{key}[{index}]")
            yield Table(item, self._where, self._error, f"{self.path(key)}[{index}]")

    def raw(self, key: str) -> Any:
        """Return whatever is at `key` (None when missing); the caller checks it."""
        self._known.append(key)
        return self._data.get(key)

    def finish(self) -> None:
        """Refuse any key that no getter asked for."""
        for key in self._data:
            if key not in self._known:
                raise self.fail("unknown key", key, hint=nearest_hint(key, tuple(self._known), "known here"))


def nearest_hint(found: str, known: tuple[str, ...], label: str) -> str:
    """Return a hint with the nearest of `known`, or all of them when none is near."""
    if near := _nearest(found, known):
        return f"did you mean `{near}`?"
    return f"{label}: {', '.join(sorted(set(known)))}"


def _nearest(found: str, known: Sequence[str]) -> str | None:
    import difflib  # only those who made a slip pay for it

    near = difflib.get_close_matches(found, known, n=1, cutoff=0.6)
    return near[0] if near else None
