"""The values of a lockfile, and what of them decides the image.

Sequences are tuples in one fixed order, so that equal environments are equal values and
equal bytes.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from envlock.digest import Digest, digest_of
from envlock.facts import Observed
from envlock.versions import spelled

LOCK_VERSION = 2
"""The format that is written; older ones are read (`envlock.lockfile.migrating`)."""

RECIPE = 1
"""Raised when the same lockfile would give another image: part of the inputs digest."""

PLATFORMS = ("linux/amd64", "linux/arm64")

POLICY_PROFILES = ("identity", "bits", "strict")

MAX_GPUS = 1024
"""More GPUs than any node has: a greater count is a slip of the pen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """What this lockfile is for. `epoch` is the time, in seconds since 1970, of every file.

    `merged` says that the packages were put together by a merge or by hand, and that
    nobody has resolved them as one set since: whether they fit the spec, and each other,
    is not known.
    """

    name: str
    platform: str
    python: str
    interpreter: str
    epoch: int
    spec: Digest
    merged: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class AptIndex:
    """One archive index that packages were chosen from, fixed by the hash of its InRelease."""

    suite: str
    components: tuple[str, ...]
    sha256: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianBase:
    """A Debian root file system, bootstrapped from the packages in `[[apt]]`."""

    suite: str
    indexes: tuple[AptIndex, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageBase:
    """A base image. `digest` is its manifest for this platform; `config` and `diff_ids` its identity.

    `repository` and `tag` hold no registry: any registry that serves the digest will do.
    """

    repository: str
    tag: str
    digest: Digest
    config: Digest
    diff_ids: tuple[Digest, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DebPackage:
    """One Debian package: `file` is its path in the archive's pool, `size` in bytes."""

    name: str
    version: str
    architecture: str
    file: str
    size: int
    sha256: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonPackage:
    """One wheel. `index` is the spec's name of the index, never an address; `size` in bytes."""

    name: str
    version: str
    index: str
    file: str
    size: int
    sha256: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedFile:
    """A model or data file: `source` beside the spec, `path` in the image, `size` in bytes."""

    path: str
    source: str
    size: int
    sha256: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class Determinism:
    """The switches in force: `env` in the image, `torch` set and asserted by the canary."""

    profile: str
    threads: int
    env: tuple[tuple[str, str], ...]
    torch: tuple[tuple[str, str | int | bool], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuGroup:
    """`count` GPUs with the same locked facts."""

    count: int
    facts: tuple[tuple[str, Observed], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """The golden host: its locked facts, and its GPUs as a multiset."""

    facts: tuple[tuple[str, Observed], ...]
    gpus: tuple[GpuGroup, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """How one fact (or a pattern of facts, with `*`) is judged; see `envlock.policy`.

    `unknown` says what an unanswered fact is: `error` (exit 3) or `allow`, by name.
    `until` is the last day, in UTC and as `2026-12-31`, on which a difference is waived
    for the `reason` given; empty where nothing is waived.
    """

    key: str
    rule: str
    severity: str = "error"
    unknown: str = "error"
    reason: str = ""
    until: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer of the canonical image: who owns its files, and its identity."""

    owner: str
    diff_id: Digest
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """The canonical image: `config` with the ordered layers is the image digest."""

    config: Digest
    manifest: Digest
    layers: tuple[Layer, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Golden:
    """What the canary gave on a reference host of one platform class.

    `platform` decides the class, `settings` were in force, `outputs` maps each output's
    name to its text (a digest or a small value), in the order of computation.
    """

    platform: tuple[tuple[str, str], ...]
    suite: str
    image: Digest | None
    settings: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]

    def digest(self) -> Digest:
        """Return the digest over all of it: a golden that lost a line must not pass for a short one."""
        return digest_of(
            {
                "platform": self.platform,
                "suite": self.suite,
                "image": self.image,
                "settings": self.settings,
                "outputs": self.outputs,
            }
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Lockfile:
    """One environment, fixed. `lock_version` is the format that it was read from, and no part of what it is."""

    environment: Environment
    base: DebianBase | ImageBase
    apt: tuple[DebPackage, ...]
    python: tuple[PythonPackage, ...]
    files: tuple[LockedFile, ...]
    determinism: Determinism
    host: Host | None
    policy_profile: str
    policy: tuple[Rule, ...]
    image: Image | None = None
    goldens: tuple[Golden, ...] = ()
    lock_version: int = field(default=LOCK_VERSION, compare=False)

    def inputs(self) -> Digest:
        """Return the digest over what decides the image, and nothing else."""
        return digest_of(inputs_document(self))

    def with_image(self, image: Image | None) -> "Lockfile":
        return dataclasses.replace(self, image=image)

    def with_golden(self, golden: Golden) -> "Lockfile":
        """Return a copy in which `golden` replaces the one of its platform class."""
        others = [held for held in self.goldens if held.platform != golden.platform]
        return dataclasses.replace(self, goldens=tuple(sorted([*others, golden], key=lambda held: held.platform)))


def inputs_document(lock: Lockfile) -> dict[str, Any]:
    """Return what decides the image: no name, no host facts, no policy, no golden."""
    return {
        "recipe": RECIPE,
        "platform": lock.environment.platform,
        "python": lock.environment.python,
        "interpreter": lock.environment.interpreter,
        "epoch": lock.environment.epoch,
        "base": _base_inputs(lock.base),
        "apt": [[deb.name, deb.version, deb.architecture, deb.sha256] for deb in lock.apt],
        "python-packages": [[wheel.name, wheel.version, wheel.file, wheel.sha256] for wheel in lock.python],
        "files": [[held.path, held.sha256] for held in lock.files],
        "env": [list(pair) for pair in lock.determinism.env],
        "torch": [list(pair) for pair in lock.determinism.torch],
        "threads": lock.determinism.threads,
    }


def _base_inputs(base: DebianBase | ImageBase) -> dict[str, Any]:
    if isinstance(base, DebianBase):
        return {"kind": "debian", "suite": base.suite}
    return {"kind": "image", "config": base.config, "diff-ids": list(base.diff_ids)}


def ordered_groups(groups: tuple[GpuGroup, ...]) -> tuple[GpuGroup, ...]:
    """Return `groups` in the one order of the file: by their facts, whatever order they were found in."""

    def rank(group: GpuGroup) -> list[tuple[str, str, str]]:
        return [(key, type(seen.value).__name__, seen.text()) for key, seen in group.facts]

    return tuple(sorted(groups, key=rank))


def host_of(host_facts: dict[str, Observed], gpus: list[dict[str, Observed]]) -> Host:
    """Return the `[host]` value: facts sorted by key, equal GPUs grouped with their count.

    Two spellings of one value (a VBIOS in either letter case) are equal; the first is kept.
    """
    groups: dict[tuple[tuple[str, Observed], ...], list[tuple[tuple[str, Observed], ...]]] = {}
    for facts in gpus:
        bare = _bare_facts(facts)
        groups.setdefault(tuple((key, _spelled(seen)) for key, seen in bare), []).append(bare)
    return Host(
        facts=_bare_facts(host_facts),
        gpus=ordered_groups(tuple(GpuGroup(count=len(equal), facts=equal[0]) for equal in groups.values())),
    )


def _spelled(seen: Observed) -> Observed:
    return Observed(seen.outcome, spelled(seen.value)) if isinstance(seen.value, str) else seen


def _bare_facts(facts: dict[str, Observed]) -> tuple[tuple[str, Observed], ...]:
    """Return `facts` sorted by key, without where they were read."""
    return tuple((key, Observed(facts[key].outcome, facts[key].value)) for key in sorted(facts))
