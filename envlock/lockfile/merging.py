"""Two lockfiles that grew out of one, merged entry by entry.

Pure. What only one side changed is taken; what both changed alike is that; what they
changed differently is a conflict, left to a person. Nothing is resolved here: whether
packages of two sides fit together is not known, and the result says so (`merged`).
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from envlock.digest import Digest, digest_of
from envlock.lockfile import telling
from envlock.lockfile.flat import ABSENT, Entries, Key, flat, grain_of, whole
from envlock.lockfile.values import Golden, Image, Lockfile

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
    """One entry that both sides changed, each in its own way; a side that does not have it is empty."""

    entry: str
    base: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        gone = "removed" if self.base else "none"
        return f"{self.entry}: base {self.base or 'none'}, ours {self.ours or gone}, theirs {self.theirs or gone}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    """What a merge gave: `ours` and `theirs` are one lockfile but for the conflicts, settled either way.

    `notes` say in words what a person has to know of the result.
    """

    ours: Lockfile
    theirs: Lockfile
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...]

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of `envlock lock --merge`."""
        return {
            "schema": "envlock.lock-merge/1",
            "verdict": "drift" if self.conflicts else "match",
            "merged": self.ours.environment.merged,
            "conflicts": [dataclasses.asdict(conflict) for conflict in self.conflicts],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sides:
    base: Lockfile | None
    ours: Lockfile
    theirs: Lockfile


def merge(base: Lockfile | None, ours: Lockfile, theirs: Lockfile) -> Merged:
    """Return what `ours` and `theirs` make of `base`; without one, each side added all that it holds."""
    sides = _Sides(base=base, ours=ours, theirs=theirs)
    grain = grain_of(side for side in (base, ours, theirs) if side is not None)
    before, left, right = ({} if side is None else flat(side, grain) for side in (base, ours, theirs))
    picked_left, picked_right, open_keys = _settle_all(before, left, right)
    spec, spec_moved = _spec(sides)
    picked = [whole(entries, spec, grain) for entries in (picked_left, picked_right)]
    conflicts = [_conflict(key, before, left, right) for key in open_keys]
    results, more, dropped = _results(sides, picked[0], picked[1])
    unresolved = any(_unresolved(lock, sides) for lock in picked) or bool({*map(_part, open_keys)} & _RESOLVED_PARTS)
    settled = [
        dataclasses.replace(
            lock,
            environment=dataclasses.replace(lock.environment, merged=unresolved),
            image=image,
            goldens=tuple(sorted(goldens, key=lambda golden: golden.platform)),
        )
        for lock, (image, goldens) in zip(picked, results, strict=True)
    ]
    return Merged(
        ours=settled[0],
        theirs=settled[1],
        conflicts=(*conflicts, *more),
        notes=tuple(_notes(sides, settled[0], spec_moved, dropped)),
    )


# ---- one entry -----------------------------------------------------------------------------


def _same(left: object, right: object) -> bool:
    """Return whether two entries are the same, their types too: `true` is not `1`."""
    return left is right or repr(left) == repr(right)


def _settle(before: T, ours: T, theirs: T) -> tuple[T, T, bool]:
    """Return what a three-way merge of one entry gives, settled as ours and as theirs, and whether they differ."""
    if _same(ours, theirs) or _same(before, theirs):
        return ours, ours, False
    if _same(before, ours):
        return theirs, theirs, False
    return ours, theirs, True


def _settle_all(before: Entries, ours: Entries, theirs: Entries) -> tuple[dict[Key, Any], dict[Key, Any], list[Key]]:
    left: dict[Key, Any] = {}
    right: dict[Key, Any] = {}
    conflicts = []
    for key in dict.fromkeys([*ours, *theirs]):
        picked, other, differ = _settle(before.get(key, ABSENT), ours.get(key, ABSENT), theirs.get(key, ABSENT))
        if picked is not ABSENT:
            left[key] = picked
        if other is not ABSENT:
            right[key] = other
        if differ:
            conflicts.append(key)
    return left, right, conflicts


# ---- what was resolved as one --------------------------------------------------------------

_RESOLVED_PARTS = frozenset({"platform", "python", "interpreter", "base", "apt"})


def _part(key: Key) -> str:
    return key[1] if key[0] == "environment" else key[0]


def _resolved(lock: Lockfile) -> tuple[Any, ...]:
    """Return what one run of `envlock lock` found to fit together, with the spec that it was found for."""
    held = lock.environment
    return (held.spec, held.platform, held.python, held.interpreter, lock.base, lock.apt, lock.python)


def _unresolved(lock: Lockfile, sides: _Sides) -> bool:
    """Return whether neither side is known to have resolved the packages of `lock`, for its spec, as one set."""
    return not any(
        _resolved(lock) == _resolved(side) and not side.environment.merged for side in (sides.ours, sides.theirs)
    )


def _spec(sides: _Sides) -> tuple[Digest, bool]:
    """Return the digest of the merged spec, and whether both sides changed it.

    Then only the spec itself, which Git merges as text, could tell: the digest is one that fits none.
    """
    both = (sides.ours.environment.spec, sides.theirs.environment.spec)
    found, _, differ = _settle(sides.base.environment.spec if sides.base is not None else both[0], *both)
    if not differ and (sides.base is not None or both[0] == both[1]):
        return found, False
    return digest_of({"merged": sorted(both)}), True


# ---- image and goldens ---------------------------------------------------------------------

_Results = tuple[Image | None, tuple[Golden, ...]]


def _results(sides: _Sides, left: Lockfile, right: Lockfile) -> tuple[list[_Results], list[Conflict], list[str]]:
    """Return image and goldens settled as ours and as theirs, their conflicts, and what was dropped, in words.

    They belong to the inputs that they came from: only a side with the merged inputs gives any.
    """
    inputs = left.inputs()
    able = [side for side in (sides.ours, sides.theirs) if side.inputs() == inputs == right.inputs()]
    if not able:
        return [(None, ()), (None, ())], [], _dropped(sides.ours, None) or _dropped(sides.theirs, None)
    if len(able) == 1:
        other = sides.theirs if able[0] is sides.ours else sides.ours
        return [(able[0].image, able[0].goldens)] * 2, [], _dropped(other, able[0])
    base = sides.base if sides.base is not None and sides.base.inputs() == inputs else None
    before, ours, theirs = (_flat_results(side) for side in (base, sides.ours, sides.theirs))
    picked = _settle_all(before, ours, theirs)
    conflicts = [_conflict(key, before, ours, theirs) for key in picked[2]]
    return [_whole_results(picked[0]), _whole_results(picked[1])], conflicts, []


def _flat_results(side: Lockfile | None) -> dict[Key, Any]:
    if side is None:
        return {}
    found: dict[Key, Any] = {("golden", *_class(golden)): golden for golden in side.goldens}
    return found if side.image is None else {("image",): side.image, **found}


def _class(golden: Golden) -> Key:
    return tuple(text for pair in golden.platform for text in pair)


def _whole_results(entries: Mapping[Key, Any]) -> _Results:
    return entries.get(("image",)), tuple(held for key, held in entries.items() if key[0] == "golden")


def _dropped(side: Lockfile, kept: Lockfile | None) -> list[str]:
    """Return in words which results of `side` are gone with its inputs, `kept` being whose results stay."""
    dropped = []
    if side.image is not None and (kept is None or kept.image is None):
        dropped.append("the image digest (`envlock build` makes it anew)")
    classes = {golden.platform for golden in kept.goldens} if kept is not None else set()
    if gone := [golden for golden in side.goldens if golden.platform not in classes]:
        dropped.append(f"{len(gone)} golden outputs (`envlock canary run --record` makes them anew)")
    return dropped


# ---- words ---------------------------------------------------------------------------------


def _notes(sides: _Sides, found: Lockfile, spec_moved: bool, dropped: list[str]) -> list[str]:
    notes = []
    if dropped:
        notes.append(f"the inputs have changed: dropped {' and '.join(dropped)}")
    if spec_moved:
        notes.append("the spec was changed on both sides: the lockfile cannot know what it is now")
    if found.environment.merged:
        notes.append(
            "nobody has resolved these packages as one set: `envlock lock` does;"
            " until then `envlock lock --check` says stale"
        )
    if not any(_same(found.host, side.host) for side in (sides.ours, sides.theirs)):
        notes.append("[host] holds facts of both sides: `envlock lock --update-host` observes one host anew")
    return notes


def _conflict(key: Key, before: Entries, ours: Entries, theirs: Entries) -> Conflict:
    held = [side.get(key, ABSENT) for side in (before, ours, theirs)]
    texts = [telling.shortly(value) for value in held]
    if len(set(texts)) < len({repr(value) for value in held}):
        texts = [telling.exactly(value) for value in held]
    return Conflict(entry=telling.entry(key), base=texts[0], ours=texts[1], theirs=texts[2])
