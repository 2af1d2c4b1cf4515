"""From the parsed document of an older lockfile to one of today's format, one step for each version.

Pure. A step first holds the document against what its own version did not have: a key
that came later is as unknown there as it was to the envlock that wrote the file. Whatever
else is wrong with a document passes through, for the reader to name.

What decides the image never moves here, so images and goldens stay what they were.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from envlock import __version__
from envlock.errors import LockfileError, UsageError
from envlock.lockfile.values import LOCK_VERSION
from envlock.tables import Table


def migrated(document: Mapping[str, Any], where: str) -> tuple[dict[str, Any], int]:
    """Return `document` in today's format, and the version that it was in.

    The version is looked at before anything else: `LockfileError` for one that is newer
    than `LOCK_VERSION`, or none.
    """
    top = Table(document, where, LockfileError)
    version = top.integer("lock-version")
    if version > LOCK_VERSION:
        raise top.fail(
            f"format version {version} is newer than this envlock reads ({LOCK_VERSION})",
            "lock-version",
            hint=f"use a newer envlock than this one ({__version__}), such as the one that wrote the file",
        )
    if version < 1:
        raise top.fail(f"unknown format version {version}", "lock-version")
    held = dict(document)
    for step in range(version, LOCK_VERSION):
        held = STEPS[step](held, where)
        held["lock-version"] = step + 1
    return held, version


def policy_profile(name: str) -> str:
    """Return the name of a policy profile as it is today: `bits` was called `default` in format 1."""
    return "bits" if name == "default" else name


def _from_1(document: dict[str, Any], where: str) -> dict[str, Any]:
    """Version 2 has waivers, `environment.merged`, and names for what was the one policy, `default`."""
    for path, held in _tables(document, "environment"):
        _refuse(Table(held, where, LockfileError, path), held, "merged")
    for path, held in _tables(document, "policy", "rules", "*"):
        _refuse(Table(held, where, LockfileError, path), held, "waived-until")
    policy = document.get("policy")
    if isinstance(policy, dict) and isinstance(policy.get("profile"), str):
        return {**document, "policy": {**policy, "profile": policy_profile(policy["profile"])}}
    return document


STEPS: Mapping[int, Callable[[dict[str, Any], str], dict[str, Any]]] = {1: _from_1}
"""By the version that a step starts from."""


def _tables(held: Any, *keys: str, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each table at `keys` (`*` is every key) with its key path; what is no table is passed over."""
    if not isinstance(held, dict):
        return
    if not keys:
        yield path, held
        return
    for key in held if keys[0] == "*" else (keys[0],):
        if key in held:
            yield from _tables(held[key], *keys[1:], path=Table(held, "", UsageError, path).path(key))


def _refuse(table: Table, held: Mapping[str, Any], key: str) -> None:
    if key in held:
        hint = "it came with format version 2, and this file says that it is version 1"
        raise table.fail("unknown key", key, hint=hint)
