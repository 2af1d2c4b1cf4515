"""From the text of a lockfile to its values; every fault is named with its key."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from envlock.digest import Digest
from envlock.errors import LockfileError
from envlock.facts import OUTCOMES, VALUE, Observed
from envlock.lockfile.migrating import migrated
from envlock.lockfile.values import (
    MAX_GPUS,
    PLATFORMS,
    AptIndex,
    DebianBase,
    DebPackage,
    Determinism,
    Environment,
    Golden,
    GpuGroup,
    Host,
    Image,
    ImageBase,
    Layer,
    LockedFile,
    Lockfile,
    PythonPackage,
    Rule,
    ordered_groups,
)
from envlock.tables import NAME, PYTHON, VARIABLE, Table, matches, parse_toml, safe_path, safe_source

_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._+-]{0,126}[A-Za-z0-9+])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~!_-]{0,127}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~!_%-]{0,254}")
_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~_%/-]{0,510}")
_SUITE = re.compile(r"[a-z0-9][a-z0-9._/-]{0,63}")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def parse(data: bytes, where: str, edited: bool = False) -> Lockfile:
    """Return the lockfile in `data`; `LockfileError` names the key and what is wrong with it.

    A lockfile of an older format version comes in today's form, its own version beside it.
    With `edited`, content that does not fit `environment.inputs` is taken as what a merge
    or a hand left: marked as merged, without the image and the goldens of what it was.
    """
    document, version = migrated(parse_toml(data, where, LockfileError), where)
    top = Table(document, where, LockfileError)
    top.integer("lock-version")
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
        policy=_policy(policy_table),
        image=_image(top.table("image")) if top.has("image") else None,
        goldens=tuple(sorted((_golden(table) for table in top.tables("golden")), key=lambda held: held.platform)),
        lock_version=version,
    )
    top.finish()
    _one_golden_per_class(top, lock.goldens)
    if lock.inputs() != inputs:
        if edited:
            return dataclasses.replace(
                lock, environment=dataclasses.replace(environment, merged=True), image=None, goldens=()
            )
        raise top.table("environment").fail(
            f"does not fit the file's content (expected {lock.inputs()}, found {inputs})",
            "inputs",
            hint="the file was edited by hand or merged: run `envlock lock` to write it again",
        )
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


def _environment(table: Table) -> tuple[Environment, Digest]:
    environment = Environment(
        name=table.matching("name", matches(NAME), "lower-case letters, digits, `.`, `_`, `-`"),
        platform=table.choice("platform", PLATFORMS),
        python=table.matching("python", matches(PYTHON), "a version such as `3.11`"),
        interpreter=table.matching("interpreter", safe_path, "an absolute path in the image"),
        epoch=table.integer("epoch"),
        spec=table.digest("spec"),
        merged=table.boolean("merged", False),
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
                    suite=item.matching("suite", matches(_SUITE), "a suite such as `bookworm`"),
                    components=_components(item),
                    sha256=item.digest("sha256"),
                )
            )
            item.finish()
        base: DebianBase | ImageBase = DebianBase(
            suite=table.matching("suite", matches(_SUITE), "a suite such as `bookworm`"), indexes=tuple(indexes)
        )
    else:
        base = ImageBase(
            repository=table.matching("repository", matches(_REPOSITORY), "a repository such as `library/debian`"),
            tag=table.matching("tag", matches(_TAG), "a tag"),
            digest=table.digest("digest"),
            config=table.digest("config"),
            diff_ids=tuple(_digests(table, "diff-ids")),
        )
    table.finish()
    return base


def _components(table: Table) -> tuple[str, ...]:
    found = table.strings("components")
    for index, text in enumerate(found):
        if not _SUITE.fullmatch(text):
            raise table.fail(f"unexpected value {text!r} (expected a component such as `main`)", f"components[{index}]")
    return found


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
        name=table.matching("name", matches(_PACKAGE), "a package name"),
        version=table.matching("version", matches(_VERSION), "a Debian version"),
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
        name=table.matching("name", matches(_PACKAGE), "a normalised package name"),
        version=table.matching("version", matches(_VERSION), "a version"),
        index=table.matching("index", matches(NAME), "the name of an index"),
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
        path=table.matching("path", safe_path, "an absolute path in the image"),
        source=table.matching("source", safe_source, "a path beside the spec"),
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
        torch=tuple((name, read_switch(torch_table, name)) for name in sorted(torch_table.keys())),
    )
    table.finish()
    return determinism


def _variable(table: Table, name: str) -> str:
    if not VARIABLE.fullmatch(name):
        raise table.fail("not the name of an environment variable", name)
    text = table.string(name)
    if not text.isprintable():
        raise table.fail("holds a control character", name)
    return text


def read_switch(table: Table, name: str) -> str | int | bool:
    """Return the value of one torch switch."""
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
    host = Host(facts=_locked_facts(table.table("facts")), gpus=ordered_groups(tuple(groups)))
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


def _policy(table: Table) -> tuple[Rule, ...]:
    rules = read_rules(table.table("rules", required=False))
    table.finish()
    return rules


def read_rules(table: Table) -> tuple[Rule, ...]:
    """Return the rules in a table of them, by key; a spec writes its own in the same form."""
    rules = []
    for key in sorted(table.keys()):
        item = table.table(key)
        rules.append(
            Rule(
                key=key,
                rule=item.string("rule"),
                severity=item.choice("severity", ("error", "warning"), "error"),
                unknown=item.choice("unknown", ("error", "allow"), "error"),
                reason=item.string("reason", ""),
                until=item.date("waived-until"),
            )
        )
        item.finish()
        _check_waiver(rules[-1], item)
    return tuple(rules)


def _check_waiver(rule: Rule, table: Table) -> None:
    """Refuse a waiver that nobody could judge later: without a reason, or of what is never judged."""
    if rule.until and not rule.reason.strip():
        raise table.fail(
            "a waiver needs a reason", "waived-until", hint='say why: `reason = "board returned, ticket 4711"`'
        )
    if rule.until and rule.rule.strip() == "ignore":
        raise table.fail(
            "`ignore` judges nothing, so there is nothing to waive",
            "waived-until",
            hint="write the rule that holds again after that day, such as `exact`",
        )


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
    digest = table.digest("digest")
    table.finish()
    if not golden.outputs:
        raise table.fail("holds no output", "outputs", hint="`envlock canary run --record` records it anew")
    if golden.digest() != digest:
        raise table.fail(
            f"does not fit the golden's content (expected {golden.digest()}, found {digest})",
            "digest",
            hint="the file was cut off or edited by hand: restore it, or `envlock canary run --record`",
        )
    return golden


def _text_pairs(table: Table, ordered: bool) -> tuple[tuple[str, str], ...]:
    keys = table.keys()
    return tuple((key, table.string(key)) for key in (keys if ordered else sorted(keys)))
