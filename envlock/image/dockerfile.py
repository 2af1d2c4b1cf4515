"""A Dockerfile read back as its list of instructions.

Only what envlock writes is understood, and what could change the meaning of the rest is
refused: parser directives (`# syntax=`, `# escape=`), here-documents, variables other
than the base's. The rules are those of the Dockerfile reference, read by the classic
builder and by BuildKit alike.
"""

import json
import re
from dataclasses import dataclass

from envlock.errors import UsageError

KEYWORDS = frozenset(
    (
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK"),
        *("LABEL", "MAINTAINER", "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    )
)
_PAIRS = ("ENV", "LABEL")
_DIRECTIVE = re.compile(r"#\s*[A-Za-z][A-Za-z0-9]*\s*=")
_CONTINUED = re.compile(r"\\[ \t]*$")
_HEREDOC = re.compile(r"<<-?\s*['\"]?[A-Za-z_]")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its keyword, and its arguments with quotes and escapes resolved.

    `ENV` and `LABEL` give name, value, name, value …; a JSON array gives its items; the
    shell form of `RUN`, `CMD` and `ENTRYPOINT` is one argument, as written.
    """

    keyword: str
    arguments: tuple[str, ...]
    is_array: bool = False


def parse(text: str, where: str) -> tuple[Instruction, ...]:
    """Return the instructions of a Dockerfile; `UsageError` for what is not understood."""
    for character in text:
        if character != "\n" and not character.isprintable():
            raise UsageError(f"holds the control character {character!r}", where=where)
    lines = text.split("\n")
    _refuse_directives(lines, where)
    return tuple(_instruction(line, where) for line in _logical_lines(lines, where))


def _refuse_directives(lines: list[str], where: str) -> None:
    for line in lines:
        if not line.lstrip().startswith("#"):
            return
        if _DIRECTIVE.match(line.lstrip()):
            raise UsageError(f"begins with the parser directive {line!r}", where=where)


def _logical_lines(lines: list[str], where: str) -> list[str]:
    found: list[str] = []
    held: str | None = None
    for line in lines:
        stripped = line.strip(" \t")
        if stripped.startswith("#") or (not stripped and held is None):
            continue
        if not stripped:
            raise UsageError("has an empty line inside an instruction", where=where)
        whole = (held or "") + (line if held is not None else line.lstrip(" \t"))
        if _CONTINUED.search(whole):
            held = _CONTINUED.sub("", whole)
        else:
            found.append(whole.rstrip(" \t"))
            held = None
    if held is not None:
        raise UsageError("ends inside an instruction", where=where)
    return found


def _instruction(line: str, where: str) -> Instruction:
    keyword, _, rest = line.partition(" ")
    keyword = keyword.upper()
    rest = rest.strip()
    if keyword not in KEYWORDS:
        raise UsageError(f"has an unknown instruction {keyword!r}", where=where)
    if keyword in ("RUN", "COPY", "ADD") and _HEREDOC.search(rest):
        raise UsageError(f"has a here-document in {keyword}", where=where)
    if rest.startswith("["):
        return Instruction(keyword, _json_array(rest, keyword, where), is_array=True)
    if keyword in ("RUN", "CMD", "ENTRYPOINT", "SHELL", "HEALTHCHECK", "ONBUILD"):
        return Instruction(keyword, (rest,))
    if keyword == "FROM":
        return Instruction(keyword, tuple(rest.split()))
    words = _words(rest, where)
    if keyword in _PAIRS:
        return Instruction(keyword, tuple(part for word in words for part in _pair(word, keyword, where)))
    return Instruction(keyword, tuple(text for text, _ in words))


def _json_array(rest: str, keyword: str, where: str) -> tuple[str, ...]:
    try:
        found = json.loads(rest)
    except ValueError:
        raise UsageError(f"has an array in {keyword} that is not JSON", where=where) from None
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise UsageError(f"has an array in {keyword} that does not hold strings alone", where=where)
    if keyword in ("COPY", "ADD") and any("$" in item for item in found):
        raise UsageError(f"has a variable in {keyword}", where=where)
    return tuple(found)


def _pair(word: tuple[str, int], keyword: str, where: str) -> tuple[str, str]:
    text, equals = word
    if equals < 1:
        raise UsageError(f"has a word in {keyword} that is not NAME=VALUE: {text!r}", where=where)
    return text[:equals], text[equals + 1 :]


def _words(rest: str, where: str) -> list[tuple[str, int]]:
    """Return each word with quotes resolved, and where its first unquoted `=` is (-1: nowhere)."""
    words: list[tuple[str, int]] = []
    current: list[str] = []
    equals, started, quote = -1, False, ""
    position = 0
    while position < len(rest):
        character = rest[position]
        position += 1
        if character == "\\" and quote != "'":
            following = rest[position : position + 1]
            # Inside double quotes a backslash escapes only these three; elsewhere anything.
            if not quote or following in ('"', "$", "\\"):
                position += 1
                current.append(following)
            else:
                current.append(character)
            started = True
        elif character == "$" and quote != "'":
            raise UsageError("uses a variable", where=where)
        elif character == quote:
            quote = ""
        elif not quote and character in "\"'":
            quote, started = character, True
        elif not quote and character in " \t":
            if started:
                words.append(("".join(current), equals))
            current, equals, started = [], -1, False
        else:
            if character == "=" and not quote and equals < 0:
                equals = len("".join(current))
            current.append(character)
            started = True
    if quote:
        raise UsageError("has a quote that is not closed", where=where)
    if started:
        words.append(("".join(current), equals))
    return words


def quote(text: str) -> str:
    """Return `text` as one double-quoted word: the only way by which a value enters a Dockerfile."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'
