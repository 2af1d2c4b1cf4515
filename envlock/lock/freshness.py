"""Whether a lockfile still fits its spec, told without a network and without the store.

Light on purpose: `lock --check` runs before each commit, so nothing is imported here but
what reads the two files.
"""

from dataclasses import dataclass
from pathlib import Path

from envlock.digest import sha256_file
from envlock.lockfile import Lockfile
from envlock.spec import Spec


@dataclass(frozen=True, kw_only=True, slots=True)
class Freshness:
    """Fresh when `stale` is empty; else each entry says in words what no longer fits."""

    stale: tuple[str, ...]

    def to_document(self, lock: Path) -> dict[str, object]:
        return {
            "schema": "envlock.lock-check/1",
            "lockfile": str(lock),
            "verdict": "drift" if self.stale else "match",
            "stale": list(self.stale),
        }


def freshness(spec: Spec, lock: Lockfile, folder: Path) -> Freshness:
    """Return what makes `lock` stale for `spec`; `folder` is where the spec's files lie.

    That the inputs digest fits the lockfile's content was checked when it was read.
    """
    stale = []
    if lock.environment.spec != spec.digest():
        stale.append("the spec has changed since it was locked")
    if lock.environment.merged:
        stale.append("it was merged, and nobody has resolved its packages as one set since")
    for held in lock.files:
        path = folder / held.source
        try:
            found, _ = sha256_file(path)
        except FileNotFoundError:
            stale.append(f"the file {held.source!r} is gone")
            continue
        if found != held.sha256:
            stale.append(f"the file {held.source!r} has changed since it was locked")
    return Freshness(stale=tuple(stale))
