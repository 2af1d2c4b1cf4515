"""Lockfile to Dockerfile: the only user of jinja2.

What is meant is built first, as a list of instructions; the template writes text; the
text is read back and must say exactly what was meant. So no value of a lockfile, whatever
it holds, can add, remove or change an instruction.
"""

import dataclasses
import json
import os
import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from envlock.errors import LockfileError, UsageError
from envlock.image import dockerfile
from envlock.image.dockerfile import Instruction
from envlock.image.wheels import VENV
from envlock.lockfile import ImageBase, Lockfile

USER = "1000:1000"
"""The image's user: no root, and the one under which the canary runs."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RESERVED = ("PATH", "LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH")
# A file there would be hidden at run time, or change the mode of a folder that is special.
_NO_FILES_BELOW = ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp", "/root", VENV)
_MAX_FOLDERS = 100  # one COPY each; engines stop at 127 layers
_MAX_TEMPLATE = 64 << 10
_MAX_TEXT = 1 << 20
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_REGISTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}(:[0-9]{1,5})?")
_PLACE = re.compile(r"(/[A-Za-z0-9._+@=-]{1,255})+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Values:
    """All that a template can use. Every string has passed a validator."""

    inputs: str
    base_image: str
    debs: bool
    venv: str
    copies: tuple[tuple[str, ...], ...]
    env: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    user: str
    command: tuple[str, ...]


def dockerfile_text(lock: Lockfile, registry: str = "", template: Path | None = None, base: str = "") -> str:
    """Return the Dockerfile of `lock`, read back and compared with what was meant.

    `registry` (`HOST` or `HOST:PORT`) goes before an image base's repository; `base`
    names that image in another way, which a builder's proof still holds it to. A template
    of the user's runs in Jinja's sandbox, in a process with limits; values must not
    change which instructions it gives. Raises `LockfileError` and `UsageError`.
    """
    values = values_of(lock, registry)
    if base and values.base_image:
        values = dataclasses.replace(values, base_image=_plain(base, "base"))
    if template is None:
        text: str = _environment(sandboxed=False).from_string(built_in("Dockerfile.j2")).render(_variables(values))
        _compare(dockerfile.parse(text, "the rendered Dockerfile"), meant(values))
        return text
    source = _read_template(template)
    text = _render_limited(source, values, template)
    plain = _render_limited(source, _harmless(values), template)
    found, expected = dockerfile.parse(text, str(template)), dockerfile.parse(plain, str(template))
    if [item.keyword for item in found] != [item.keyword for item in expected]:
        raise UsageError(
            "a value of the lockfile changes the instructions",
            where=template,
            hint="write each value with the filter `quote` or `json`",
        )
    return text


def values_of(lock: Lockfile, registry: str = "") -> Values:
    """Return what the template gets; `LockfileError` names the value that cannot be used."""
    try:
        inputs = str(lock.inputs())
    except UnicodeEncodeError:
        raise LockfileError("the lockfile holds text that is not Unicode") from None
    base = ""
    if isinstance(lock.base, ImageBase):
        if registry and not _REGISTRY.fullmatch(registry):
            raise UsageError(f"not a registry: {registry!r} (expected HOST or HOST:PORT)")
        base = f"{registry}/" * bool(registry) + f"{_plain(lock.base.repository, 'base.repository')}@{lock.base.digest}"
    env = [("PATH", f"{VENV}/bin:{_PATH}")]
    for name, value in lock.determinism.env:
        if name in _RESERVED or not _VARIABLE.fullmatch(name):
            raise LockfileError(f"variable {name!r} cannot be set in an image", key=f"determinism.env.{name}")
        env.append((name, _plain(value, f"determinism.env.{name}")))
    return Values(
        inputs=inputs,
        base_image=base,
        debs=bool(base and lock.apt),
        venv=VENV,
        copies=_copies(lock),
        env=tuple(env),
        labels=(("dev.envlock.lock.inputs", inputs),),
        user=USER,
        command=("python",),
    )


def _plain(text: str, key: str) -> str:
    if not text.isprintable() or len(text) > 4096:
        raise LockfileError("holds a control character, or is too long", key=key)
    return text


def _copies(lock: Lockfile) -> tuple[tuple[str, ...], ...]:
    """Return one COPY per folder of locked files: its sources, then the folder.

    File by file, not folder by folder: copying a folder onto one that is there changes
    the mode of that one (classic builder).
    """
    folders: dict[str, list[str]] = {}
    for index, held in enumerate(lock.files):
        parts = held.path.split("/")
        if not _PLACE.fullmatch(held.path) or {".", ".."} & set(parts):
            raise LockfileError(f"not a path for a file: {held.path!r}", key=f"file[{index}].path")
        if any(held.path == place or held.path.startswith(place + "/") for place in _NO_FILES_BELOW):
            raise LockfileError(
                f"no file can be put there: {held.path}",
                key=f"file[{index}].path",
                hint="choose a folder such as `/models`",
            )
        folders.setdefault(str(PurePosixPath(held.path).parent), []).append(f"files{held.path}")
    if len(folders) > _MAX_FOLDERS:
        raise LockfileError(f"files in {len(folders)} folders (at most {_MAX_FOLDERS})", key="file")
    return tuple((*sorted(folders[folder]), folder.rstrip("/") + "/") for folder in sorted(folders))


def meant(values: Values) -> tuple[Instruction, ...]:
    """Return the instructions that the built-in template must give for `values`."""
    found = [Instruction("FROM", ("scratch",)), Instruction("ADD", ("base.tar", "/"))]
    if values.base_image:
        found = [
            Instruction("ARG", (f"BASE={values.base_image}",)),
            Instruction("FROM", ("${BASE}",)),
            Instruction("USER", ("0:0",)),
        ]
    if values.debs:
        found.append(Instruction("COPY", ("debs/", "/.envlock-debs/")))
        found.append(Instruction("RUN", ("/bin/sh", "/.envlock-debs/install.sh"), is_array=True))
    found.append(Instruction("COPY", ("venv/", f"{values.venv}/")))
    found += [Instruction("COPY", copy, is_array=True) for copy in values.copies]
    found.append(Instruction("ENV", tuple(part for pair in values.env for part in pair)))
    found.append(Instruction("LABEL", tuple(part for pair in values.labels for part in pair)))
    found.append(Instruction("USER", (values.user,)))
    if values.base_image:
        found.append(Instruction("ENTRYPOINT", (), is_array=True))
    found.append(Instruction("CMD", values.command, is_array=True))
    return tuple(found)


def _compare(found: tuple[Instruction, ...], expected: tuple[Instruction, ...]) -> None:
    for index in range(max(len(found), len(expected))):
        one = found[index] if index < len(found) else None
        other = expected[index] if index < len(expected) else None
        if one != other:
            raise LockfileError(
                f"the rendered Dockerfile does not say what was meant: at {index + 1}, {one} (expected {other})",
                hint="this lockfile holds a value that cannot be written in a Dockerfile",
            )


# ---- templates -------------------------------------------------------------------------


def built_in(name: str) -> str:
    """Return the text of a shipped template: inside the package, or beside it in a source tree."""
    shipped = resources.files("envlock") / "_templates" / name
    if shipped.is_file():
        return shipped.read_text("utf-8")
    return (Path(__file__).parents[2] / "templates" / name).read_text("utf-8")


def _environment(sandboxed: bool) -> Any:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    kind = ImmutableSandboxedEnvironment if sandboxed else jinja2.Environment
    environment = kind(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = lambda text: dockerfile.quote(str(text))
    environment.filters["json"] = lambda items: json.dumps(list(items), ensure_ascii=False)
    return environment


def _variables(values: Values) -> Mapping[str, Any]:
    return {field.name: getattr(values, field.name) for field in dataclasses.fields(values)}


def _harmless(values: Values) -> Values:
    """Return values of the same shape in which no text can mean anything."""
    return dataclasses.replace(
        values,
        base_image="base" if values.base_image else "",
        copies=tuple(tuple("x" for _ in copy) for copy in values.copies),
        env=tuple((name, "x") for name, _ in values.env),
        labels=tuple((name, "x") for name, _ in values.labels),
    )


def _read_template(path: Path) -> str:
    from envlock.files import read_bytes

    try:
        return read_bytes(path, _MAX_TEMPLATE).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("is not UTF-8", where=path) from None


def _render_limited(source: str, values: Values, where: Path) -> str:
    """Return the text of a user's template, rendered by a child with little time and memory."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            text = _sandboxed(source, values)
            with os.fdopen(writing, "wb") as stream:
                stream.write(text.encode("utf-8"))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        data = stream.read(_MAX_TEXT + 1)
    _, ended = os.waitpid(child, 0)
    if ended != 0 or len(data) > _MAX_TEXT or not data:
        raise UsageError("the template took too much time, memory or text", where=where)
    if data[:1] == b"!":
        raise UsageError(data[1:].decode("utf-8"), where=where)
    return data[1:].decode("utf-8")


def _sandboxed(source: str, values: Values) -> str:
    import jinja2

    environment = _environment(sandboxed=True)
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    try:
        return "=" + str(environment.from_string(source).render(_variables(values)))
    except jinja2.TemplateError as error:
        line = getattr(error, "lineno", None)
        return f"!the template fails{f' in line {line}' if line else ''}: {error.message or error}"
    except Exception as error:
        # The template is the user's program: whatever it raises is a fault of it.
        return f"!the template fails: {type(error).__name__}: {error}"
