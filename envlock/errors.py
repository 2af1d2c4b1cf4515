"""The one exception tree, and the one table of exit codes.

An exception means "could not do the job". A difference that was found is data
(`envlock.drift`), never an exception. Each class carries the exit code of
`docs/exit-codes.md` and may carry a hint: the next thing to do.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Iterable

EXIT_MATCH = 0
EXIT_DRIFT = 1
EXIT_USAGE = 2
EXIT_UNKNOWN = 3
EXIT_INTEGRITY = 4

# Worst first: broken bytes outrank a difference, a difference outranks not knowing.
_RANK = (EXIT_INTEGRITY, EXIT_USAGE, EXIT_DRIFT, EXIT_UNKNOWN, EXIT_MATCH)


def worst_exit_code(codes: Iterable[int]) -> int:
    """Return the worst of `codes` (4, then 2, 1, 3, 0); 3 when there is none.

    No answer at all is "could not tell", never a match.
    """
    found = set(codes)
    for code in _RANK:
        if code in found:
            return code
    return EXIT_UNKNOWN


class EnvlockError(Exception):
    """Something that envlock could not do, said to a person.

    `where` is the file (or command, or host) the message is about, `key` the key
    path inside it, `hint` what to do next. Neither ends with a full stop.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str, where: object = None, key: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = None if where is None else str(where)
        self.key = key
        self.hint = hint

    def __str__(self) -> str:
        text = self.message if self.key is None else "{}, at `{}`".format(self.message, self.key)
        return text if self.where is None else "{}: {}".format(self.where, text)

    def to_document(self) -> dict[str, str | int | None]:
        """Return the error as the JSON document printed in place of a result."""
        return {
            "schema": "envlock.error/1",
            "error": type(self).__name__,
            "message": self.message,
            "where": self.where,
            "key": self.key,
            "hint": self.hint,
            "exit-code": self.exit_code,
        }


class UsageError(EnvlockError):
    """The command line, or a file a person wrote, cannot be used (exit 2)."""


class SpecError(UsageError):
    """The spec (`envlock.toml`) cannot be used (exit 2)."""


class LockfileError(UsageError):
    """A lockfile cannot be used: not readable, wrong types, stale (exit 2)."""


class LockHeldError(UsageError):
    """Another envlock works on the same lockfile (exit 2)."""


class CouldNotTell(EnvlockError):
    """The question could not be answered: engine down, network gone, disk full (exit 3)."""

    exit_code = EXIT_UNKNOWN


class EngineError(CouldNotTell):
    """A container engine is not there, died, or refused (exit 3)."""


class ToolError(CouldNotTell):
    """A program that envlock runs is missing, failed, or passed its deadline (exit 3)."""


class NetworkError(CouldNotTell):
    """Something could not be fetched (exit 3)."""


class StorageError(CouldNotTell):
    """A disk refused: full, read-only, no permission (exit 3)."""


class IntegrityError(EnvlockError):
    """Bytes are not what their hash, signature or format says (exit 4)."""

    exit_code = EXIT_INTEGRITY
