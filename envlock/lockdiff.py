"""Two lockfiles side by side, section by section.

Pure. Every value of a lockfile is compared; what one of the two does not record (an
image never built, a golden never run) is unknown, not a difference.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from envlock.difference import NOT_RECORDED, Change, Difference, Differences, diff_hosts
from envlock.digest import digest_of
from envlock.lockfile import DebianBase, Golden, Image, Lockfile, Rule


def diff_lockfiles(before: Lockfile, after: Lockfile) -> Differences:
    """Return what differs between two lockfiles, in the order of the file's sections."""
    found = [
        *_pairs("environment", _environment(before), _environment(after)),
        *_pairs("base", _base(before), _base(after)),
        *_packages("python", before.python, after.python),
        *_packages("apt", before.apt, after.apt),
        *_pairs("file", _files(before), _files(after)),
        *_pairs("determinism", _determinism(before), _determinism(after)),
        *_pairs("policy", _policy(before), _policy(after)),
    ]
    hosts = diff_hosts(before, after)
    found += [*hosts.found, *_images(before, after), *_goldens(before.goldens, after.goldens)]
    return Differences(found=tuple(found), allowed=hosts.allowed)


def _pairs(section: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[Difference]:
    """Yield what differs between two tables of text, in the order of the first, then the second."""
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) == after.get(key):
            continue
        change = Change.ADDED if key not in before else Change.REMOVED if key not in after else Change.CHANGED
        yield Difference(section=section, key=key, change=change, before=before.get(key, ""), after=after.get(key, ""))


def _environment(lock: Lockfile) -> dict[str, str]:
    environment = lock.environment
    return {
        "name": environment.name,
        "platform": environment.platform,
        "python": environment.python,
        "interpreter": environment.interpreter,
        "epoch": str(environment.epoch),
        "spec": environment.spec,
        "inputs": lock.inputs(),
        **({"merged": "yes"} if environment.merged else {}),
    }


def _base(lock: Lockfile) -> dict[str, str]:
    base = lock.base
    if isinstance(base, DebianBase):
        indexes = {f"index.{index.suite}": f"{index.sha256} ({' '.join(index.components)})" for index in base.indexes}
        return {"kind": "debian", "suite": base.suite, **indexes}
    layers = {f"diff-ids[{index}]": str(diff_id) for index, diff_id in enumerate(base.diff_ids)}
    return {
        "kind": "image",
        "repository": base.repository,
        "tag": base.tag,
        "digest": base.digest,
        "config": base.config,
        **layers,
    }


def _files(lock: Lockfile) -> dict[str, str]:
    return {held.path: f"{held.sha256} ({held.source}, {held.size} bytes)" for held in lock.files}


def _packages(section: str, before: tuple[Any, ...], after: tuple[Any, ...]) -> Iterable[Difference]:
    """Yield packages that came, went, changed version, or kept it with another file."""
    old = {package.name: package for package in before}
    new = {package.name: package for package in after}
    for name in sorted({*old, *new}):
        left, right = old.get(name), new.get(name)
        if left == right:
            continue
        if left is None or right is None:
            change = Change.ADDED if left is None else Change.REMOVED
            yield Difference(
                section=section, key=name, change=change,
                before=left.version if left else "", after=right.version if right else "",
            )  # fmt: skip
        elif left.version != right.version:
            yield Difference(section=section, key=name, change=Change.CHANGED, before=left.version, after=right.version)
        else:
            yield Difference(
                section=section, key=name, change=Change.OTHER_FILE, before=_file_of(left, right),
                after=_file_of(right, left),
                because=f"both are {left.version}",
            )  # fmt: skip


def _file_of(package: Any, other: Any) -> str:
    if package.sha256 != other.sha256 and package.file == other.file:
        return str(package.sha256)
    return " ".join(
        str(getattr(package, field.name)) for field in fields(package) if field.name not in ("name", "version")
    )


def _determinism(lock: Lockfile) -> dict[str, str]:
    held = lock.determinism
    return {
        "profile": held.profile,
        "threads": str(held.threads),
        **{f"env.{name}": text for name, text in held.env},
        **{f"torch.{name}": json.dumps(switch) for name, switch in held.torch},
    }


def _policy(lock: Lockfile) -> dict[str, str]:
    return {"profile": lock.policy_profile, **{f"rules.{rule.key}": _rule(rule) for rule in lock.policy}}


def _rule(rule: Rule) -> str:
    waived = f", waived until {rule.until}" if rule.until else ""
    text = f"{rule.rule} ({rule.severity}, unknown: {rule.unknown}{waived})"
    return f"{text}: {rule.reason}" if rule.reason else text


def _images(before: Lockfile, after: Lockfile) -> Iterable[Difference]:
    if before.image is None or after.image is None:
        if before.image is not after.image:
            yield Difference(
                section="image", key="config", change=Change.UNKNOWN,
                before=before.image.config if before.image else NOT_RECORDED,
                after=after.image.config if after.image else NOT_RECORDED,
                because="`envlock build` records it",
            )  # fmt: skip
        return
    yield from _pairs("image", _image(before.image), _image(after.image))


def _image(image: Image) -> dict[str, str]:
    layers = {
        f"layer[{index}] {layer.owner}": f"{layer.diff_id} ({layer.size} bytes)"
        for index, layer in enumerate(image.layers)
    }
    return {"config": image.config, "manifest": image.manifest, **layers}


def _goldens(before: tuple[Golden, ...], after: tuple[Golden, ...]) -> Iterable[Difference]:
    old = {golden.platform: golden for golden in before}
    new = {golden.platform: golden for golden in after}
    for platform in sorted({*old, *new}):
        name = f"class {digest_of([list(pair) for pair in platform]).short}"
        left, right = old.get(platform), new.get(platform)
        if left is None or right is None:
            yield Difference(
                section="golden", key=name, change=Change.UNKNOWN,
                before=_outputs_text(left), after=_outputs_text(right),
                because="`envlock canary run --record` on a host of this class records it",
            )  # fmt: skip
        elif left != right:
            yield from _one_golden(name, left, right)


def _one_golden(name: str, before: Golden, after: Golden) -> Iterable[Difference]:
    heads = [
        {
            "suite": golden.suite,
            "image": str(golden.image or NOT_RECORDED),
            **{f"settings.{key}": text for key, text in golden.settings},
            **{f"outputs.{key}": text for key, text in golden.outputs},
        }
        for golden in (before, after)
    ]
    for difference in _pairs("golden", *heads):
        yield Difference(
            section="golden", key=f"{name} {difference.key}", change=difference.change,
            before=difference.before, after=difference.after,
        )  # fmt: skip
    if dict(before.outputs) == dict(after.outputs) and before.outputs != after.outputs:
        yield Difference(section="golden", key=f"{name} order of outputs", change=Change.CHANGED)


def _outputs_text(golden: Golden | None) -> str:
    return f"{len(golden.outputs)} outputs" if golden else NOT_RECORDED
