"""What `check` asks: is a host, are given facts, is an image as the lockfile says?

The comparing is `envlock.drift`'s; here the things to compare are fetched. An engine is
asked only for an image, and what it claims about it counts for nothing: the bytes that
it saves are hashed.
"""

import os
from datetime import date
from pathlib import Path

from envlock import cudacompat
from envlock.drift import Comparison, Drift, Kind, compare_facts, unanswered
from envlock.facts import Facts
from envlock.lockfile import Image, Lockfile
from envlock.policy import CUDA_RUNTIME, Policy
from envlock.probe.host import Host
from envlock.probe.libraries.values import Loaded

_WHY = "the image digest is the identity of the environment"
_FIX = "load the image that `envlock build` wrote, or build it again from the lockfile"


def check(
    lock: Lockfile,
    policy: Policy,
    facts: Path | None,
    image: str | None,
    today: date,
    loaded: Loaded | None = None,
    host: Host | None = None,
) -> tuple[Comparison, str]:
    """Return what was found, and what it was that was checked, in words.

    `facts` is a file of facts (`-`: standard input), `image` a reference that an engine
    holds, `loaded` what a program was seen to load; with none, this host is probed, as
    `envlock.probe.begin` gave it in `host`.
    `today` (in UTC) decides which waivers hold. Raises `UsageError` for unusable facts,
    `EngineError` when no engine answers or none has the image, `IntegrityError` when the
    image's bytes are not what its own config says.
    """
    found: list[tuple[Comparison, str]] = []
    if facts is not None:
        from envlock.documents import name, read_facts

        found.append((_compare(lock, read_facts(facts), policy, today), name(facts)))
    elif image is None and loaded is None:
        from envlock.probe import probe

        found.append((_compare(lock, probe(host=host), policy, today), "this host"))
    if image is not None:
        found.append((check_image(lock.image, image), f"image `{image}`"))
    if loaded is not None:
        from envlock import libraries

        found.append((libraries.compare(lock, loaded), f"what `{loaded.subject}` loads"))
    comparison, subject = found[0]
    for other, also in found[1:]:
        comparison, subject = comparison.and_also(other), f"{subject} and {also}"
    return comparison, subject


def _compare(lock: Lockfile, observed: Facts, policy: Policy, today: date) -> Comparison:
    """Return how the facts stand to the locked host, and the driver to the locked CUDA runtime."""
    found = compare_facts(lock.host, observed, policy, today, elsewhere=(CUDA_RUNTIME,))
    return found.and_also(cudacompat.compare(lock, observed, policy, today))


def check_image(locked: Image | None, reference: str) -> Comparison:
    """Return how the image that the engine holds as `reference` stands to the locked one."""
    if locked is None:
        return unanswered("image", "(not in the lockfile)", "(not compared)", "run `envlock build` to record it")
    from envlock.image.engine import connect
    from envlock.image.proof import prove

    proof = prove(connect(os.environ), reference, locked)
    drifts = tuple(_image_drift(found.what, found.locked, found.found) for found in proof.differences)
    return Comparison(drifts=drifts, checked=1 + max(len(locked.layers), len(proof.diff_ids)))


def _image_drift(what: str, locked: str, found: str) -> Drift:
    nothing = "(no such layer)"
    kind = Kind.EXTRA if not locked else Kind.MISSING if not found else Kind.CHANGED
    return Drift(
        key=f"image.{what}", expected=locked or nothing, observed=found or nothing, kind=kind, why=_WHY, fix=_FIX
    )
