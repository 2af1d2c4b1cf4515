"""The lockfile: its values, and their one text form.

Pure: text in, values out, and back. Reading and writing files is `envlock.lockstore`'s
work. The format is described in `docs/lockfile.md`; what goes into the inputs digest is
`inputs_document`. Sequences are tuples in one fixed order, so that equal environments
are equal values and equal bytes.
"""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from envlock.digest import Digest, digest_of
from envlock.errors import LockfileError
from envlock.facts import OUTCOMES, VALUE, Observed
from envlock.tables import Table, parse_toml

LOCK_VERSION = 1

MAX_GPUS = 1024
"""More GPUs than any node has: a greater count is a slip of the pen."""

RECIPE = 1
"""Raised when the same lockfile would give another image: part of the inputs digest."""

PLATFORMS = ("linux/amd64", "linux/arm64")

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._+-]{0,126}[A-Za-z0-9+])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~!_-]{0,127}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~!_%-]{0,254}")
_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~_%/-]{0,510}")
_PATH = re.compile(r"(/[A-Za-z0-9._+@=-]{1,255})+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SUITE = re.compile(r"[a-z0-9][a-z0-9._/-]{0,63}")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_PYTHON = re.compile(r"3\.\d{1,2}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """What this lockfile is for. `epoch` is the time, in seconds since 1970, of every file."""

    name: str
    platform: str
    python: str
    interpreter: str
    epoch: int
    spec: Digest


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
    """

    key: str
    rule: str
    severity: str = "error"
    unknown: str = "error"
    reason: str = ""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Lockfile:
    """One environment, fixed."""

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


# ---- reading -------------------------------------------------------------------------


def parse(data: bytes, where: str) -> Lockfile:
    """Return the lockfile in `data`; `LockfileError` names the key and what is wrong with it."""
    top = Table(parse_toml(data, where, LockfileError), where, LockfileError)
    version = top.integer("lock-version")
    if version > LOCK_VERSION:
        raise top.fail(
            f"format version {version} is newer than this envlock reads ({LOCK_VERSION})",
            "lock-version",
            hint="use a newer envlock",
        )
    if version < 1:
        raise top.fail(f"unknown format version {version}", "lock-version")
    environment, inputs = _environment(top.table("environment"))
    policy_table = top.table("policy")
    lock = Lockfile(
        environment=environment,
        base=_base(top.table("base")),
        apt=_unique(top, "apt", _deb, lambda deb: deb.name),
        python=_unique(top, "python", _wheel, lambda wheel: wheel.name),
        files=_unique(top, "file", _file, lambda held: held.path),
        determinism=_determinism(top.table("determinism")),
        host=_host(top.table("host")) if top.has("host") else None,
        policy_profile=policy_table.string("profile"),
        policy=_rules(policy_table),
        image=_image(top.table("image")) if top.has("image") else None,
        goldens=tuple(_golden(table) for table in top.tables("golden")),
    )
    top.finish()
    if lock.inputs() != inputs:
        raise top.table("environment").fail(
            f"does not fit the file's content (expected {lock.inputs()}, found {inputs})",
            "inputs",
            hint="the file was edited by hand or merged: run `envlock lock` to write it again",
        )
    _one_golden_per_class(top, lock.goldens)
    return lock


def _one_golden_per_class(top: Table, goldens: tuple[Golden, ...]) -> None:
    seen: set[tuple[tuple[str, str], ...]] = set()
    for index, golden in enumerate(goldens):
        if golden.platform in seen:
            raise top.fail("two entries for one platform class", f"golden[{index}]", hint="keep one of the two")
        seen.add(golden.platform)


def _unique(top: Table, key: str, read: Callable[[Table], Any], name: Callable[[Any], str]) -> tuple[Any, ...]:
    found = [read(table) for table in top.tables(key)]
    seen: set[str] = set()
    for index, item in enumerate(found):
        if name(item) in seen:
            raise top.fail(f"two entries for {name(item)!r}", f"{key}[{index}]", hint="keep one of the two")
        seen.add(name(item))
    return tuple(sorted(found, key=name))


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _safe_path(text: str) -> bool:
    return _PATH.fullmatch(text) is not None and not {".", ".."} & set(text.split("/"))


def _environment(table: Table) -> tuple[Environment, Digest]:
    environment = Environment(
        name=table.matching("name", _matches(_NAME), "lower-case letters, digits, `.`, `_`, `-`"),
        platform=table.choice("platform", PLATFORMS),
        python=table.matching("python", _matches(_PYTHON), "a version such as `3.11`"),
        interpreter=table.matching("interpreter", _safe_path, "an absolute path in the image"),
        epoch=table.integer("epoch"),
        spec=table.digest("spec"),
    )
    inputs = table.digest("inputs")
    table.finish()
    return environment, inputs


def _base(table: Table) -> DebianBase | ImageBase:
    kind = table.choice("kind", ("debian", "image"))
    if kind == "debian":
        indexes = []
        for item in table.tables("index"):
            indexes.append(
                AptIndex(
                    suite=item.matching("suite", _matches(_SUITE), "a suite such as `bookworm`"),
                    components=item.strings("components"),
                    sha256=item.digest("sha256"),
                )
            )
            item.finish()
        base: DebianBase | ImageBase = DebianBase(
            suite=table.matching("suite", _matches(_SUITE), "a suite such as `bookworm`"), indexes=tuple(indexes)
        )
    else:
        base = ImageBase(
            repository=table.matching("repository", _matches(_REPOSITORY), "a repository such as `library/debian`"),
            tag=table.matching("tag", _matches(_TAG), "a tag"),
            digest=table.digest("digest"),
            config=table.digest("config"),
            diff_ids=tuple(_digests(table, "diff-ids")),
        )
    table.finish()
    return base


def _digests(table: Table, key: str) -> list[Digest]:
    found = []
    for index, text in enumerate(table.strings(key)):
        try:
            found.append(Digest.parse(text))
        except ValueError as fault:
            raise table.fail(str(fault), f"{key}[{index}]") from None
    return found


def _deb(table: Table) -> DebPackage:
    deb = DebPackage(
        name=table.matching("name", _matches(_PACKAGE), "a package name"),
        version=table.matching("version", _matches(_VERSION), "a Debian version"),
        architecture=table.choice("architecture", ("all", "amd64", "arm64")),
        file=table.matching(
            "file", lambda text: bool(_POOL.fullmatch(text)) and ".." not in text, "a path in the archive's pool"
        ),
        size=table.integer("size", minimum=1),
        sha256=table.digest("sha256"),
    )
    table.finish()
    return deb


def _wheel(table: Table) -> PythonPackage:
    wheel = PythonPackage(
        name=table.matching("name", _matches(_PACKAGE), "a normalised package name"),
        version=table.matching("version", _matches(_VERSION), "a version"),
        index=table.matching("index", _matches(_NAME), "the name of an index"),
        file=table.matching(
            "file", lambda text: bool(_FILE.fullmatch(text)) and text.endswith(".whl"), "the file name of a wheel"
        ),
        size=table.integer("size", minimum=1),
        sha256=table.digest("sha256"),
    )
    table.finish()
    return wheel


def _file(table: Table) -> LockedFile:
    held = LockedFile(
        path=table.matching("path", _safe_path, "an absolute path in the image"),
        source=table.matching("source", lambda text: _safe_path("/" + text), "a path beside the spec"),
        size=table.integer("size"),
        sha256=table.digest("sha256"),
    )
    table.finish()
    return held


def _determinism(table: Table) -> Determinism:
    env_table = table.table("env", required=False)
    torch_table = table.table("torch", required=False)
    determinism = Determinism(
        profile=table.string("profile"),
        threads=table.integer("threads", minimum=1),
        env=tuple((name, _variable(env_table, name)) for name in sorted(env_table.keys())),
        torch=tuple((name, _switch(torch_table, name)) for name in sorted(torch_table.keys())),
    )
    table.finish()
    return determinism


def _variable(table: Table, name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise table.fail("not the name of an environment variable", name)
    text = table.string(name)
    if not text.isprintable():
        raise table.fail("holds a control character", name)
    return text


def _switch(table: Table, name: str) -> str | int | bool:
    found = table.raw(name)
    if not isinstance(found, (str, int, bool)):
        raise table.fail("expected a string, an integer or a boolean", name)
    return found


def _host(table: Table) -> Host:
    groups = []
    for item in table.tables("gpu"):
        count = item.integer("count", minimum=1)
        if count > MAX_GPUS:
            raise item.fail(f"{count} is more than {MAX_GPUS}", "count")
        groups.append(GpuGroup(count=count, facts=_locked_facts(item.table("facts"))))
        item.finish()
    host = Host(facts=_locked_facts(table.table("facts")), gpus=tuple(groups))
    table.finish()
    return host


def _locked_facts(table: Table) -> tuple[tuple[str, Observed], ...]:
    return tuple((key, _locked_fact(table, key)) for key in sorted(table.keys()))


def _locked_fact(table: Table, key: str) -> Observed:
    found = table.raw(key)
    if isinstance(found, dict):
        inner = table.table(key)
        outcome = inner.choice("outcome", tuple(o for o in OUTCOMES if o != VALUE))
        inner.finish()
        return Observed(outcome)
    if isinstance(found, list) and all(type(item) in (str, int) for item in found):
        return Observed(VALUE, tuple(found))
    if type(found) in (str, int, bool):
        return Observed(VALUE, found)
    raise table.fail("not a fact value (string, integer, boolean, array, or an outcome)", key)


def _rules(table: Table) -> tuple[Rule, ...]:
    rules_table = table.table("rules", required=False)
    rules = []
    for key in sorted(rules_table.keys()):
        item = rules_table.table(key)
        rules.append(
            Rule(
                key=key,
                rule=item.string("rule"),
                severity=item.choice("severity", ("error", "warning"), "error"),
                unknown=item.choice("unknown", ("error", "allow"), "error"),
                reason=item.string("reason", ""),
            )
        )
        item.finish()
    table.finish()
    return tuple(rules)


def _image(table: Table) -> Image:
    layers = []
    for item in table.tables("layer"):
        layers.append(
            Layer(owner=item.string("owner"), diff_id=item.digest("diff-id"), size=item.integer("size", minimum=1))
        )
        item.finish()
    image = Image(config=table.digest("config"), manifest=table.digest("manifest"), layers=tuple(layers))
    table.finish()
    return image


def _golden(table: Table) -> Golden:
    image = table.digest("image") if table.has("image") else None
    golden = Golden(
        platform=_text_pairs(table.table("platform"), ordered=False),
        suite=table.string("suite"),
        image=image,
        settings=_text_pairs(table.table("settings"), ordered=False),
        outputs=_text_pairs(table.table("outputs"), ordered=True),
    )
    table.finish()
    return golden


def _text_pairs(table: Table, ordered: bool) -> tuple[tuple[str, str], ...]:
    keys = table.keys()
    return tuple((key, table.string(key)) for key in (keys if ordered else sorted(keys)))


# ---- writing -------------------------------------------------------------------------


def render(lock: Lockfile) -> str:
    """Return the text form of `lock`.

    The text is read back and must give an equal value (else `LockfileError`): what is
    written is what will be read.
    """
    import tomlkit  # 40 ms: only writers pay for it

    document = tomlkit.document()
    document.add(
        tomlkit.comment("Written by envlock. Review it, commit it, do not edit it: `envlock lock` writes it anew.")
    )
    document.add(tomlkit.nl())
    for key, value in to_document(lock).items():
        document.add(key, tomlkit.item(value))
    text = tomlkit.dumps(document)
    if not text.endswith("\n"):
        text += "\n"
    if parse(text.encode("utf-8"), "the lockfile being written") != lock:
        raise LockfileError(
            "what was written would be read back as something else; nothing was changed", where=lock.environment.name
        )
    return text


def to_document(lock: Lockfile) -> dict[str, Any]:
    """Return `lock` as plain tables, in the order of the file."""
    environment = lock.environment
    document: dict[str, Any] = {
        "lock-version": LOCK_VERSION,
        "environment": {
            "name": environment.name,
            "platform": environment.platform,
            "python": environment.python,
            "interpreter": environment.interpreter,
            "epoch": environment.epoch,
            "spec": str(environment.spec),
            "inputs": str(lock.inputs()),
        },
        "base": _base_document(lock.base),
    }
    if lock.image is not None:
        document["image"] = {
            "config": str(lock.image.config),
            "manifest": str(lock.image.manifest),
            "layer": [
                {"owner": layer.owner, "diff-id": str(layer.diff_id), "size": layer.size} for layer in lock.image.layers
            ],
        }
    document["determinism"] = {
        "profile": lock.determinism.profile,
        "threads": lock.determinism.threads,
        "env": dict(lock.determinism.env),
        "torch": dict(lock.determinism.torch),
    }
    if lock.host is not None:
        document["host"] = {"facts": _facts_document(lock.host.facts)}
        if lock.host.gpus:
            document["host"]["gpu"] = [
                {"count": group.count, "facts": _facts_document(group.facts)} for group in lock.host.gpus
            ]
    document["policy"] = {
        "profile": lock.policy_profile,
        "rules": {rule.key: _rule_document(rule) for rule in lock.policy},
    }
    for key, items in (("python", lock.python), ("apt", lock.apt), ("file", lock.files)):
        if items:
            document[key] = [_plain(item) for item in items]
    if lock.goldens:
        document["golden"] = [_golden_document(golden) for golden in lock.goldens]
    return document


def _plain(item: Any) -> dict[str, Any]:
    return {
        field.name: str(value) if isinstance(value := getattr(item, field.name), Digest) else value
        for field in dataclasses.fields(item)
    }


def _base_document(base: DebianBase | ImageBase) -> dict[str, Any]:
    if isinstance(base, DebianBase):
        return {
            "kind": "debian",
            "suite": base.suite,
            "index": [
                {"suite": index.suite, "components": list(index.components), "sha256": str(index.sha256)}
                for index in base.indexes
            ],
        }
    return {
        "kind": "image",
        "repository": base.repository,
        "tag": base.tag,
        "digest": str(base.digest),
        "config": str(base.config),
        "diff-ids": [str(diff_id) for diff_id in base.diff_ids],
    }


def _facts_document(facts: tuple[tuple[str, Observed], ...]) -> dict[str, Any]:
    return {key: _fact_document(seen) for key, seen in facts}


def _fact_document(seen: Observed) -> Any:
    if seen.outcome != VALUE:
        return _inline({"outcome": seen.outcome})
    return list(seen.value) if isinstance(seen.value, tuple) else seen.value


def _rule_document(rule: Rule) -> Any:
    document = {"rule": rule.rule, "severity": rule.severity}
    if rule.unknown != "error":
        document["unknown"] = rule.unknown
    if rule.reason:
        document["reason"] = rule.reason
    return _inline(document)


def _inline(pairs: dict[str, str]) -> Any:
    import tomlkit

    table = tomlkit.inline_table()
    table.update(pairs)
    return table


def _golden_document(golden: Golden) -> dict[str, Any]:
    document: dict[str, Any] = {"suite": golden.suite}
    if golden.image is not None:
        document["image"] = str(golden.image)
    document["platform"] = dict(golden.platform)
    document["settings"] = dict(golden.settings)
    document["outputs"] = dict(golden.outputs)
    return document


def host_of(host_facts: dict[str, Observed], gpus: list[dict[str, Observed]]) -> Host:
    """Return the `[host]` value: facts sorted by key, equal GPUs grouped with their count."""
    groups: dict[tuple[tuple[str, Observed], ...], int] = {}
    for facts in gpus:
        key = tuple(sorted(facts.items(), key=lambda pair: pair[0]))
        groups[key] = groups.get(key, 0) + 1
    ordered = sorted(groups.items(), key=lambda pair: repr([(key, seen.text()) for key, seen in pair[0]]))
    return Host(
        facts=tuple(
            (key, Observed(seen.outcome, seen.value))
            for key, seen in sorted(host_facts.items(), key=lambda pair: pair[0])
        ),
        gpus=tuple(GpuGroup(count=count, facts=facts) for facts, count in ordered),
    )
