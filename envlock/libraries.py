"""Libraries that a program loaded: read back from a document, held against a lockfile, and against each other.

Pure. What is observed and what is wrong in itself is `envlock.probe.libraries`.
"""

import re
from collections.abc import Mapping
from typing import Any

from envlock.difference import Change, Difference, Differences
from envlock.drift import Comparison, Drift, Kind, unanswered
from envlock.errors import UsageError
from envlock.facts import Observed, observed_from
from envlock.lockfile import ImageBase, Lockfile
from envlock.probe.libraries.findings import major_of_wheel
from envlock.probe.libraries.values import (
    DRIVER,
    ERROR,
    INFORMATION,
    MOUNTED_DRIVER,
    PLACES,
    SCHEMA,
    UNKNOWN,
    Finding,
    Library,
    Loaded,
    Package,
)

KEY = "library"
_WHY = "a loaded library decides which kernels run, whatever is installed beside it"
_FIX = "run it in the image that `envlock build` wrote, or look for LD_LIBRARY_PATH and a second installation"


def compare(lock: Lockfile, loaded: Loaded) -> Comparison:
    """Return how the loaded libraries stand to the locked packages, with what is wrong in themselves.

    The driver's own libraries are the host's, and judged as facts. What may have been
    missed is `unanswered`, and so is a program that loaded no CUDA library where the
    lockfile holds some: nothing was looked at then.
    """
    found = _packages(lock, loaded)
    notes = tuple(item.what for item in loaded.findings if item.severity == INFORMATION)
    if loaded.ran is not None and loaded.ran.status is None:
        notes += ("the program was ended at its deadline: what it would load later was not looked at",)
    drifts = [_of_finding(item) for item in loaded.findings if item.severity != INFORMATION]
    drifts += [
        Drift(
            key=KEY, expected="every library that is loaded", observed="(some may have been missed)",
            kind=Kind.UNANSWERED, because=gap, fix="let it be followed: see docs/libraries.md",
        )
        for gap in loaded.gaps
    ]  # fmt: skip
    if loaded.ran is not None and loaded.ran.status not in (0, None):
        drifts.append(
            Drift(
                key=KEY, expected="a program that works", observed=f"status {loaded.ran.status}", kind=Kind.UNANSWERED,
                because="it may load more when it works", fix="its own messages are on standard error",
            )
        )  # fmt: skip
    return found.and_also(Comparison(drifts=tuple(drifts), notes=notes))


def _packages(lock: Lockfile, loaded: Loaded) -> Comparison:
    if not loaded.libraries:
        if any(major_of_wheel(package.name, package.version) for package in lock.python):
            return unanswered(
                KEY, "the locked CUDA libraries", "(none is loaded)",
                "is it the right process, and had it begun? a framework loads them when it is imported",
            )  # fmt: skip
        return Comparison(checked=1, same=((KEY, ""),))
    locked = {package.name: package.version for package in lock.python} | {deb.name: deb.version for deb in lock.apt}
    drifts: dict[Drift, None] = {}
    same: dict[tuple[str, str], None] = {}
    for item in loaded.libraries:
        if item.place in (DRIVER, MOUNTED_DRIVER):
            continue
        drift = _of_library(lock, locked, item)
        if drift is None:
            same[f"{KEY}.{item.name}", ""] = None
        else:
            drifts[drift] = None
    return Comparison(drifts=tuple(drifts), same=tuple(same), checked=len(drifts) + len(same))


def _of_library(lock: Lockfile, locked: Mapping[str, str], item: Library) -> Drift | None:
    owner = item.package
    name = (
        "" if owner is None else re.sub(r"[-_.]+", "-", owner.name).lower() if owner.manager == "wheel" else owner.name
    )
    if owner is not None and owner.manager != "conda" and name in locked:
        if locked[name] == owner.version:
            return None
        return Drift(
            key=f"{KEY}.{name}", expected=locked[name], observed=owner.version, kind=Kind.CHANGED, why=_WHY, fix=_FIX
        )
    if owner is not None and owner.manager == "wheel":
        return Drift(
            key=f"{KEY}.{name}", expected="(not in the lockfile)", observed=owner.version, kind=Kind.EXTRA, why=_WHY,
            fix=_FIX,
        )  # fmt: skip
    seen = f"{item.path} ({item.place}{f', {owner.name} {owner.version}' if owner else ''})"
    # What a base image brings is fixed by its digest, and not listed: it cannot be told from a stray copy.
    from_base = isinstance(lock.base, ImageBase)
    return Drift(
        key=f"{KEY}.{item.name}",
        expected="(from a locked package)",
        observed=seen,
        kind=Kind.UNANSWERED if from_base else Kind.EXTRA,
        severity="warning" if from_base else "error",
        because="it may be the base image's, whose files the lockfile does not list" if from_base else "",
        why=_WHY,
        fix=_FIX,
    )


def _of_finding(item: Finding) -> Drift:
    return Drift(
        key=f"{KEY}.{item.code}",
        expected="(no such finding)",
        observed=item.what,
        kind=Kind.UNANSWERED if item.severity == UNKNOWN else Kind.EXTRA,
        severity="error" if item.severity in (ERROR, UNKNOWN) else "warning",
        because=item.where and f"in {item.where}",
        why=item.why,
        fix=item.fix,
    )


# ---- two documents -----------------------------------------------------------------------------


def diff(before: Loaded, after: Loaded) -> Differences:
    """Return which libraries differ between two observations: by version, package, build id or place.

    Paths and process numbers differ in normal life, and are left out. A build id that one
    side does not know is unknown, where nothing else differs.
    """
    left, right = _by_name(before), _by_name(after)
    found = []
    for name in sorted({*left, *right}):
        one, other = left.get(name, ()), right.get(name, ())
        change = _changed(one, other)
        if change is not None:
            found.append(
                Difference(section="libraries", key=name, change=change, before=_texts(one), after=_texts(other))
            )
    for word, loaded in (("first", before), ("second", after)):
        for gap in loaded.gaps:
            text = "(some libraries may have been missed)"
            sides = {"before": text} if word == "first" else {"after": text}
            found.append(
                Difference(section="libraries", key=f"{word} side", change=Change.UNKNOWN, because=gap, **sides)
            )
    return Differences(found=tuple(found))


def _by_name(loaded: Loaded) -> dict[str, tuple[Library, ...]]:
    names = sorted({item.name for item in loaded.libraries})
    return {name: tuple(item for item in loaded.libraries if item.name == name) for name in names}


def _changed(one: tuple[Library, ...], other: tuple[Library, ...]) -> Change | None:
    if not one or not other:
        return Change.REMOVED if one else Change.ADDED
    if sorted(map(_text, one)) != sorted(map(_text, other)):
        same_version = sorted(map(Library.told_version, one)) == sorted(map(Library.told_version, other))
        return Change.OTHER_FILE if same_version and len(one) == len(other) else Change.CHANGED
    unknown = any(not item.build_id.has_value for item in (*one, *other))
    return Change.UNKNOWN if unknown else None


def _texts(items: tuple[Library, ...]) -> str:
    return "; ".join(sorted(map(_text, items)))


def _text(item: Library) -> str:
    owner = f"{item.package.name} {item.package.version}" if item.package else ""
    version = item.version.text() if item.version.has_value else ""
    build = str(item.build_id.value)[:12] if item.build_id.has_value else "not known"
    parts = (owner or version or "(no version)", item.place, f"build {build}", "deleted" if item.deleted else "")
    return ", ".join(part for part in parts if part)


# ---- reading a document back -----------------------------------------------------------------


def from_document(document: Any, where: str) -> Loaded:
    """Return what `probe --exec` or `--pid` found, for comparing: libraries, findings and gaps.

    Raises `UsageError`, which names the key.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else None
        raise UsageError(f"unexpected schema {found!r} (expected {SCHEMA!r})", where=where, key="schema")
    libraries = tuple(
        _library(item, where, f"libraries[{index}]") for index, item in enumerate(_list(document, "libraries", where))
    )
    gaps = _list(document, "gaps", where)
    if not all(isinstance(gap, str) for gap in gaps):
        raise UsageError("unexpected type (expected array of strings)", where=where, key="gaps")
    gaps = [*gaps, *_ended_badly(document.get("ran"), where)]
    return Loaded(str(document.get("subject", "")), str(document.get("method", "")), libraries, (), gaps=tuple(gaps))


def _ended_badly(ran: Any, where: str) -> list[str]:
    """Return that a program failed, as a gap: what it loads when it works was not seen."""
    if ran is None:
        return []
    status = ran.get("status", "") if isinstance(ran, dict) else ""
    if status is not None and type(status) is not int:
        raise UsageError("unexpected type (expected integer or null)", where=where, key="ran.status")
    if not status:
        return []  # null: it was ended at its deadline, which is what was asked for
    how = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
    return [f"the program {how}: it may load more when it works"]


def _list(document: Mapping[str, Any], key: str, where: str) -> list[Any]:
    held = document.get(key)
    if not isinstance(held, list):
        raise UsageError("unexpected type (expected array)", where=where, key=key)
    return held


def _library(item: Any, where: str, key: str) -> Library:
    if not isinstance(item, dict):
        raise UsageError("unexpected type (expected object)", where=where, key=key)

    def text(name: str) -> str:
        if not isinstance(item.get(name), str):
            raise UsageError("unexpected type (expected string)", where=where, key=f"{key}.{name}")
        return str(item[name])

    def seen(name: str) -> Observed:
        return observed_from(item.get(name), where, f"{key}.{name}")

    owner = item.get("package")
    if owner is not None and not (isinstance(owner, dict) and {"manager", "name", "version"} <= owner.keys()):
        raise UsageError("not a package", where=where, key=f"{key}.package")
    if text("place") not in PLACES:
        raise UsageError(f"unknown place {item['place']!r}", where=where, key=f"{key}.place")
    return Library(
        name=text("name"),
        kind=text("kind"),
        title=text("title"),
        path=text("path"),
        place=text("place"),
        deleted=item.get("deleted") is True,
        version=seen("version"),
        package=None if owner is None else Package(str(owner["manager"]), str(owner["name"]), str(owner["version"])),
        build_id=seen("build-id"),
        size=seen("size"),
    )
