"""Versions of drivers, firmware and kernels: any number of parts, decimal or hexadecimal.

PEP 440 (https://peps.python.org/pep-0440/#version-specifiers) gives the syntax of
ranges and the meaning of its operators. It does not fit the versions: `535.161.08` has a
leading zero, a VBIOS such as `96.00.5E.00.01` has hexadecimal parts, an InfoROM such as
`G520.0200.00.05` begins with the board it is for, and a kernel such as `6.1.0-18-amd64`
has words. What cannot be ordered raises `Unordered`; it is never guessed.
"""

import re

from envlock.errors import LockfileError

OPERATORS = ("==", "!=", ">=", "<=", "~=", ">", "<")

# NVIDIA's VBIOS versions, from a board's InfoROM: always five pairs of hex digits. Linux
# prints them in upper case and Windows in lower case for the same board.
_VBIOS = re.compile(r"[0-9A-Fa-f]{2}(\.[0-9A-Fa-f]{2}){4}")
_VBIOS_BEGIN = re.compile(r"[0-9A-Fa-f]{2}(\.[0-9A-Fa-f]{2}){0,4}")
_HEX_PAIR = re.compile(r"[0-9A-Fa-f]{1,2}")
_HEX_NUMBER = re.compile(r"0x[0-9A-Fa-f]{1,16}")
_BOARD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,15}")
_DECIMAL = re.compile(r"[0-9]{1,18}")
_DECIMAL_FIRST = re.compile(r"([0-9]{1,18})(?![0-9])(.+)")
_CLAUSE = re.compile(r"(==|!=|>=|<=|~=|>|<)\s*([0-9A-Za-z][0-9A-Za-z._+-]*?)(\.\*)?")


class Unordered(ValueError):
    """Two versions that have no order."""


def same_spelling(one: str, other: str) -> bool:
    """Return whether two texts are one value: equal, or VBIOS versions equal but for case."""
    if one == other:
        return True
    return bool(_VBIOS.fullmatch(one) and _VBIOS.fullmatch(other)) and one.lower() == other.lower()


def spelled(text: str) -> str:
    """Return the one spelling of `text` by which values are grouped: `same_spelling` texts have the same."""
    return text.upper() if _VBIOS.fullmatch(text) else text


def split_range(text: str) -> tuple[tuple[str, str], ...]:
    """Return the clauses of a range such as `>=535.161, <550` as `(operator, bound)` pairs.

    A bound of `==` and `!=` may end in `.*`. Raises `LockfileError` when it is no range.
    """
    clauses = []
    for part in text.split(","):
        found = _CLAUSE.fullmatch(part.strip())
        if found is None:
            raise LockfileError(
                f"not a version range: {text!r}", hint="write it as in `>=535.161, <550`, `==550.*` or `~=550.54`"
            )
        operator, bound, wildcard = found[1], found[2], found[3]
        if wildcard and operator not in ("==", "!="):
            raise LockfileError(f"`{operator}` takes no `.*`: {text!r}", hint=f"write `{operator}{bound}`")
        _, parts, rest = _parts(bound, hexadecimal=_VBIOS_BEGIN.fullmatch(bound) is not None)
        if not parts or (rest and (wildcard or operator not in ("==", "!="))):
            raise LockfileError(f"not a version that has an order: {bound!r}", hint="write numbers separated by dots")
        if operator == "~=" and len(parts) < 2:
            raise LockfileError(f"`~=` needs two parts: {text!r}", hint=f"write `=={bound}.*`")
        clauses.append((operator, bound + (wildcard or "")))
    return tuple(clauses)


def satisfies(version: str, operator: str, bound: str) -> bool:
    """Return whether `version` fulfils one clause; `Unordered` when that cannot be told."""
    prefix = bound.endswith(".*")
    bound = bound.removesuffix(".*")
    hexadecimal = _looks_hexadecimal(version) or _looks_hexadecimal(bound)
    board, found, found_rest = _parts(version, hexadecimal)
    limit_board, limit, limit_rest = _parts(bound, hexadecimal)
    if board != limit_board and operator in ("==", "!="):
        return operator == "!="
    if not found or not limit or board != limit_board:
        raise Unordered(f"{version} has no order against {bound}")
    if operator == "~=":
        return satisfies(version, ">=", bound) and _begins(found, found_rest, limit[:-1], version, bound)
    if prefix:
        return _begins(found, found_rest, limit, version, bound) == (operator == "==")
    width = max(len(found), len(limit))
    left, right = _padded(found, width), _padded(limit, width)
    if operator in ("==", "!="):
        same = left == right and found_rest.lower() == limit_rest.lower()
        return same == (operator == "==")
    # Where the numbers of one side have ended and words follow, no number stands against the other's.
    counted = len(found) if found_rest else width
    if left[:counted] == right[:counted] and (left != right or found_rest != limit_rest):
        raise Unordered(f"{version} has no order against {bound}")
    return {">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right}[operator]


def _begins(found: tuple[int, ...], rest: str, limit: tuple[int, ...], version: str, bound: str) -> bool:
    """Return whether `found` begins with `limit`; a part that is missing is zero, unless words stand in its place."""
    if rest and len(found) < len(limit) and found == limit[: len(found)]:
        raise Unordered(f"{version} has no order against {bound}")
    return _padded(found, len(limit))[: len(limit)] == limit


def _looks_hexadecimal(text: str) -> bool:
    return _VBIOS.fullmatch(text) is not None


def _padded(parts: tuple[int, ...], width: int) -> tuple[int, ...]:
    return parts + (0,) * (width - len(parts))


def _parts(text: str, hexadecimal: bool) -> tuple[str, tuple[int, ...], str]:
    """Return the board that `text` begins with (or ""), its leading numbers, and the words after them.

    Pairs of hex digits order as their decimal reading does, so one hexadecimal side
    makes both hexadecimal without changing any other order.
    """
    numbers: list[int] = []
    tokens = re.split(r"[.\-_+]", text)
    board = ""
    if not hexadecimal and len(tokens) > 1 and _BOARD.fullmatch(tokens[0]) and _DECIMAL.fullmatch(tokens[1]):
        board = tokens.pop(0).lower()
    for index, token in enumerate(tokens):
        if (hexadecimal and _HEX_PAIR.fullmatch(token)) or _HEX_NUMBER.fullmatch(token):
            numbers.append(int(token, 16))
        elif not hexadecimal and _DECIMAL.fullmatch(token):
            numbers.append(int(token))
        else:
            first = None if hexadecimal else _DECIMAL_FIRST.fullmatch(token)
            if first is not None:  # `6.10rc1` has 10 for its second number: without it, it would be 6.0
                return board, (*numbers, int(first[1])), ".".join((first[2], *tokens[index + 1 :]))
            return board, tuple(numbers), ".".join(tokens[index:])
    return board, tuple(numbers), ""
