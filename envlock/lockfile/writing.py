"""From the values of a lockfile to its one text form."""

import dataclasses
from typing import Any

from envlock.digest import Digest
from envlock.errors import LockfileError
from envlock.facts import VALUE, Observed
from envlock.lockfile.reading import parse
from envlock.lockfile.values import LOCK_VERSION, DebianBase, Golden, ImageBase, Lockfile, Rule


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
            **({"merged": True} if environment.merged else {}),
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
    if rule.until:
        document["waived-until"] = rule.until
    return _inline(document)


def _inline(pairs: dict[str, str]) -> Any:
    import tomlkit

    table = tomlkit.inline_table()
    table.update(pairs)
    return table


def _golden_document(golden: Golden) -> dict[str, Any]:
    document: dict[str, Any] = {"suite": golden.suite, "digest": str(golden.digest())}
    if golden.image is not None:
        document["image"] = str(golden.image)
    document["platform"] = dict(golden.platform)
    document["settings"] = dict(golden.settings)
    document["outputs"] = dict(golden.outputs)
    return document
