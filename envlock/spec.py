"""The spec, `envlock.toml`: what a person wants, as frozen values.

Pure but for `read`. What the values are resolved to is `envlock.lock`'s work. The format
is described in `docs/spec.md`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from envlock import files
from envlock.digest import Digest, digest_of
from envlock.errors import SpecError
from envlock.lockfile import POLICY_PROFILES, Rule, policy_profile, read_rules, read_switch
from envlock.tables import NAME, PYTHON, VARIABLE, Table, matches, parse_toml, safe_path, safe_source

DEFAULT_EPOCH = 1704067200
"""The time of every file in the image unless the spec says otherwise: 2024-01-01T00:00:00Z.

A constant, never a clock: two people who lock the same spec must get the same image.
"""

PLATFORMS = ("linux/amd64", "linux/arm64")
DETERMINISM_PROFILES = ("strict", "portable", "relaxed")
TORCH_BACKEND = re.compile(r"cpu|cu[0-9]{2,3}|rocm[0-9]+(\.[0-9]+){0,2}|xpu")

_SUITE = re.compile(r"[a-z][a-z0-9.-]{0,62}")
_COMPONENT = re.compile(r"[a-z][a-z0-9/-]{0,62}")
_DEBIAN_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,126}")
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::[0-9]{1,5})?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?")
_NAMED_PYTHON = re.compile(r"/python(3\.[0-9]+)$")
_CREDENTIALS = re.compile(r"://[^/\s@]*@")

# A locked image must not change what the loader or the GPU runtime does behind its back
# (CVE-2025-23266 came in through ENV), nor carry a secret into its history.
_REFUSED_VARIABLE = re.compile(r"LD_.*|NVIDIA_(?!TF32_OVERRIDE$).*")
_SECRET_VARIABLE = re.compile(
    r"(?:.*_)?(?:TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_KEY|PRIVATE_KEY)", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianBase:
    """Bootstrap a Debian suite; its `-updates` and `-security` suites are taken too."""

    suite: str
    components: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageBase:
    """Start from an image; `reference` is `[REGISTRY/]NAME:TAG` as an engine takes it."""

    reference: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Python:
    """What Python is wanted: `requirements` are PEP 508 strings, sorted."""

    version: str
    interpreter: str
    requirements: tuple[str, ...]
    torch_backend: str | None
    exclude_newer: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A model or data file: `source` beside the spec, `path` in the image."""

    source: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Determinism:
    """A profile and what is changed in it; an `env` value of None leaves the variable out."""

    profile: str
    threads: int
    env: tuple[tuple[str, str | None], ...]
    torch: tuple[tuple[str, str | int | bool], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """One environment, as wanted."""

    name: str
    platform: str
    epoch: int
    base: DebianBase | ImageBase
    apt: tuple[str, ...]
    python: Python
    files: tuple[File, ...]
    determinism: Determinism
    policy_profile: str
    policy: tuple[Rule, ...]

    def digest(self) -> Digest:
        """Return the digest of what is wanted: comments, order and line ends do not count."""
        return digest_of(_document(self))


def _document(spec: Spec) -> dict[str, object]:
    base = spec.base
    wanted = spec.python
    return {
        "name": spec.name,
        "platform": spec.platform,
        "epoch": spec.epoch,
        "base": {"image": base.reference}
        if isinstance(base, ImageBase)
        else {"debian": base.suite, "components": base.components},
        "apt": spec.apt,
        "python": {
            "version": wanted.version,
            "interpreter": wanted.interpreter,
            "requirements": wanted.requirements,
            "torch-backend": wanted.torch_backend,
            "exclude-newer": wanted.exclude_newer,
        },
        "files": [[file.source, file.path] for file in spec.files],
        "determinism": {
            "profile": spec.determinism.profile,
            "threads": spec.determinism.threads,
            "env": spec.determinism.env,
            "torch": spec.determinism.torch,
        },
        # What a spec of format 1 could say keeps its digest: its lockfile stays fresh.
        "policy": ["default" if spec.policy_profile == "bits" else spec.policy_profile]
        + [
            [rule.key, rule.rule, rule.severity, rule.unknown, rule.reason, *([rule.until] if rule.until else [])]
            for rule in spec.policy
        ],
    }


def read(path: Path) -> Spec:
    """Return the spec at `path`; `SpecError` names the file, the key and what is wrong."""
    if not path.exists():
        raise SpecError("no such spec", where=path, hint="`envlock init` writes one to start from")
    return parse(files.read_bytes(path), str(path))


def parse(data: bytes, where: str) -> Spec:
    """Return the spec in `data`; `SpecError` names the key and what is wrong with it."""
    top = Table(parse_toml(data, where, SpecError), where, SpecError)
    environment = top.table("environment")
    name = environment.matching("name", matches(NAME), "lower-case letters, digits, `.`, `_`, `-`")
    platform = environment.choice("platform", PLATFORMS, "linux/amd64")
    epoch = environment.integer("epoch", DEFAULT_EPOCH)
    environment.finish()
    base = _base(top.table("base"))
    apt_table = top.table("apt", required=False)
    apt = _sorted_unique(apt_table, "packages", _DEBIAN_PACKAGE, "the name of a Debian package")
    apt_table.finish()
    policy = top.table("policy", required=False)
    spec = Spec(
        name=name,
        platform=platform,
        epoch=epoch,
        base=base,
        apt=apt,
        python=_python(top.table("python"), base),
        files=_files(top),
        determinism=_determinism(top.table("determinism", required=False)),
        policy_profile=policy_profile(policy.choice("profile", (*POLICY_PROFILES, "default"), "bits")),
        policy=read_rules(policy.table("rules", required=False)),
    )
    policy.finish()
    top.finish()
    return spec


def _sorted_unique(table: Table, key: str, pattern: re.Pattern[str], expected: str) -> tuple[str, ...]:
    found = table.strings(key)
    for index, item in enumerate(found):
        if not pattern.fullmatch(item):
            raise table.fail(f"unexpected value {item!r} (expected {expected})", f"{key}[{index}]")
        if item in found[:index]:
            raise table.fail(f"{item!r} is listed twice", f"{key}[{index}]")
    return tuple(sorted(found))


def _base(table: Table) -> DebianBase | ImageBase:
    if table.has("debian") == table.has("image"):
        hint = table.slip("debian", "image") or 'for example `debian = "bookworm"`'
        raise table.fail("needs either `debian` or `image`", hint=hint)
    base: DebianBase | ImageBase
    if table.has("debian"):
        suite = table.matching("debian", matches(_SUITE), "a suite such as `bookworm`")
        components = _sorted_unique(table, "components", _COMPONENT, "a component such as `main`")
        base = DebianBase(suite=suite, components=components or ("main",))
    else:
        base = ImageBase(
            reference=table.matching("image", matches(_IMAGE), "an image such as `python:3.11-slim`, with its tag")
        )
    table.finish()
    return base


def _python(table: Table, base: DebianBase | ImageBase) -> Python:
    version = table.matching("version", matches(PYTHON), "a version such as `3.11`")
    if not table.has("interpreter") and isinstance(base, ImageBase):
        raise table.fail(
            "missing key", "interpreter", hint="where the image has its Python, such as `/usr/local/bin/python3`"
        )
    requirements = table.strings("requirements")
    for index, text in enumerate(requirements):
        if not text.strip() or not text.isprintable():
            raise table.fail(f"unexpected value {text!r} (expected a PEP 508 requirement)", f"requirements[{index}]")
        if _CREDENTIALS.search(text):
            raise table.fail("holds credentials", f"requirements[{index}]", hint="configure them in pip or uv")
    python = Python(
        version=version,
        interpreter=table.matching(
            "interpreter", safe_path, "an absolute path in the image", f"/usr/bin/python{version}"
        ),
        requirements=tuple(sorted({text.strip() for text in requirements})),
        torch_backend=_optional(table, "torch-backend", TORCH_BACKEND, "`cpu`, `cu126`, `rocm6.4` or the like"),
        exclude_newer=_optional(table, "exclude-newer", _DATE, "a date such as `2026-01-31`"),
    )
    table.finish()
    named = _NAMED_PYTHON.search(python.interpreter)
    if named and named[1] != version:
        # Wheels for one version in the image of another would be locked, built, and never found.
        raise table.fail(
            f"{python.interpreter!r} is no Python {version}",
            "interpreter",
            hint=f"set `version` to {named[1]!r}, or name another interpreter",
        )
    return python


def _optional(table: Table, key: str, pattern: re.Pattern[str], expected: str) -> str | None:
    return table.matching(key, matches(pattern), expected) if table.has(key) else None


def _files(top: Table) -> tuple[File, ...]:
    found: list[File] = []
    for table in top.tables("file"):
        source = table.matching("source", safe_source, "a path beside the spec, without `..`")
        path = table.matching("path", safe_path, "an absolute path in the image, without `..`")
        if any(path == other.path for other in found):
            raise table.fail(f"two files for {path!r}", "path")
        table.finish()
        found.append(File(source=source, path=path))
    return tuple(sorted(found, key=lambda file: file.path))


def _determinism(table: Table) -> Determinism:
    env_table = table.table("env", required=False)
    torch_table = table.table("torch", required=False)
    determinism = Determinism(
        profile=table.choice("profile", DETERMINISM_PROFILES, "strict"),
        threads=table.integer("threads", 1, minimum=1),
        env=tuple((name, _variable(env_table, name)) for name in sorted(env_table.keys())),
        torch=tuple((name, read_switch(torch_table, name)) for name in sorted(torch_table.keys())),
    )
    table.finish()
    return determinism


def _variable(table: Table, name: str) -> str | None:
    if not VARIABLE.fullmatch(name):
        raise table.fail("not the name of an environment variable", name)
    if _REFUSED_VARIABLE.fullmatch(name):
        raise table.fail(
            "may not be set in the image: it changes what is loaded", name, hint="give it when the container runs"
        )
    if _SECRET_VARIABLE.fullmatch(name):
        raise table.fail("looks like a secret, and an image hides none", name, hint="give it when the container runs")
    if table.raw(name) is False:
        return None
    text = table.string(name)
    if not text.isprintable():
        raise table.fail("holds a control character", name)
    if _CREDENTIALS.search(text):
        raise table.fail("holds credentials, and an image hides none", name, hint="give it when the container runs")
    return text
