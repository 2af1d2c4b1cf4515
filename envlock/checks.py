"""What `check` asks: is a host, are given facts, is an image as the lockfile says?

The comparing is `envlock.drift`'s; here the things to compare are fetched. An engine is
asked only for an image, and what it claims about it counts for nothing: the bytes that
it saves are hashed.
"""

import contextlib
import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from envlock.drift import Comparison, Drift, Kind, compare_facts, unanswered
from envlock.lockfile import Image, Lockfile
from envlock.policy import Policy

if TYPE_CHECKING:
    from envlock.image.saved import SavedImage

_WHY = "the image digest is the identity of the environment"
_FIX = "load the image that `envlock build` wrote, or build it again from the lockfile"


def check(lock: Lockfile, policy: Policy, facts: Path | None, image: str | None) -> tuple[Comparison, str]:
    """Return what was found, and what it was that was checked, in words.

    `facts` is a file of facts (`-`: standard input), `image` a reference that an engine
    holds; with neither, this host is probed. Raises `UsageError` for unusable facts,
    `EngineError` when no engine answers or none has the image, `IntegrityError` when
    the image's bytes are not what its own config says.
    """
    found: list[tuple[Comparison, str]] = []
    if facts is not None:
        from envlock.documents import name, read_facts

        found.append((compare_facts(lock.host, read_facts(facts), policy), name(facts)))
    elif image is None:
        from envlock.probe import probe

        found.append((compare_facts(lock.host, probe(), policy), "this host"))
    if image is not None:
        found.append((check_image(lock.image, image), f"image `{image}`"))
    comparison, subject = found[0]
    for other, also in found[1:]:
        comparison, subject = comparison.and_also(other), f"{subject} and {also}"
    return comparison, subject


def check_image(locked: Image | None, reference: str) -> Comparison:
    """Return how the image that the engine holds as `reference` stands to the locked one."""
    if locked is None:
        return unanswered("image", "(not in the lockfile)", "(not compared)", "run `envlock build` to record it")
    from envlock.image.engine import connect
    from envlock.image.saved import read_saved

    with contextlib.closing(connect(os.environ).save(reference)) as chunks:
        return compare_image(locked, read_saved(chunks, reference))


def compare_image(locked: Image, held: "SavedImage") -> Comparison:
    """Return how an image's hashed bytes stand to the locked image: its config, and each layer in order."""
    drifts = tuple(_image_drifts(locked, held))
    return Comparison(drifts=drifts, checked=1 + max(len(locked.layers), len(held.diff_ids)))


def _image_drifts(locked: Image, held: "SavedImage") -> Iterator[Drift]:
    if locked.config != held.config:
        yield _image_drift("image.config", locked.config, held.config, Kind.CHANGED)
    for index, (layer, diff_id) in enumerate(zip_longest(locked.layers, held.diff_ids)):
        key = f"image.layer[{index}]"
        if layer is None:
            yield _image_drift(key, "(no such layer)", diff_id, Kind.EXTRA)
        elif diff_id is None:
            yield _image_drift(key, f"{layer.diff_id} ({layer.owner})", "(no such layer)", Kind.MISSING)
        elif layer.diff_id != diff_id:
            yield _image_drift(key, f"{layer.diff_id} ({layer.owner})", diff_id, Kind.CHANGED)


def _image_drift(key: str, expected: str, observed: str, kind: Kind) -> Drift:
    return Drift(key=key, expected=expected, observed=observed, kind=kind, why=_WHY, fix=_FIX)
