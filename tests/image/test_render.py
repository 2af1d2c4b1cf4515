"""The rendered Dockerfile: what it says, and that no value changes what it says."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from samples import lock as sample_lock
from samples import sha

from envlock.digest import Digest
from envlock.errors import EnvlockError, LockfileError, UsageError
from envlock.image import dockerfile, render
from envlock.lockfile import Determinism, ImageBase, LockedFile, Lockfile

BASE = ImageBase(
    repository="library/debian", tag="12", digest=sha("manifest"), config=sha("config"), diff_ids=(sha("layer"),)
)


def locked(env: tuple[tuple[str, str], ...] = (("OMP_NUM_THREADS", "2"),), base: ImageBase | None = None) -> Lockfile:
    held = sample_lock()
    return dataclasses.replace(
        held,
        base=base or held.base,
        determinism=Determinism(profile="strict", threads=2, env=env, torch=()),
        files=(
            LockedFile(path="/models/b.bin", source="b.bin", size=1, sha256=sha("b")),
            LockedFile(path="/models/a.bin", source="a.bin", size=1, sha256=sha("a")),
            LockedFile(path="/data/x", source="x", size=1, sha256=sha("x")),
        ),
    )


def test_a_debian_base_needs_nothing_but_the_folder() -> None:
    """The whole text, as a person reads it."""
    lock = locked()

    assert render.dockerfile_text(lock) == (
        f"# Written by envlock from a lockfile with the inputs {lock.inputs()}\n"
        "# Complete: `docker build --network none .` needs nothing but this folder\n"
        "FROM scratch\n"
        "ADD base.tar /\n"
        "COPY venv/ /opt/venv/\n"
        'COPY ["files/data/x", "/data/"]\n'
        'COPY ["files/models/a.bin", "files/models/b.bin", "/models/"]\n'
        'ENV PATH="/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \\\n'
        '    OMP_NUM_THREADS="2"\n'
        f'LABEL dev.envlock.lock.inputs="{lock.inputs()}"\n'
        "USER 1000:1000\n"
        'CMD ["python"]\n'
    )


def test_an_image_base_is_named_by_digest_and_its_registry_stays_open() -> None:
    """The lockfile names no registry; the one who builds may."""
    text = render.dockerfile_text(locked(base=BASE))
    assert f'ARG BASE="library/debian@{BASE.digest}"\nFROM ${{BASE}}\nUSER 0:0\n' in text
    assert 'RUN ["/bin/sh", "/.envlock-debs/install.sh"]\n' in text
    assert "ENTRYPOINT []\n" in text

    text = render.dockerfile_text(locked(base=BASE), registry="mirror.example:5000")
    assert f'ARG BASE="mirror.example:5000/library/debian@{BASE.digest}"\n' in text


def test_an_image_base_without_packages_runs_nothing() -> None:
    """No RUN, no debs folder."""
    text = render.dockerfile_text(dataclasses.replace(locked(base=BASE), apt=()))

    assert "RUN" not in text
    assert "debs" not in text


@pytest.mark.parametrize(
    "path", ["/tmp/x", "/root/x", "/proc/x", "/dev/shm/x", "/opt/venv/x", "/run/x", "/x/../y", "relative"]
)
def test_a_file_where_none_can_be_is_refused(path: str) -> None:
    """Hidden at run time, or it would change the mode of a special folder."""
    held = LockedFile(path=path, source="x", size=1, sha256=sha("x"))

    with pytest.raises(LockfileError, match=r"at `file\[0\].path`"):
        render.dockerfile_text(dataclasses.replace(locked(), files=(held,)))


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "A B", "1A", "A=B", ""])
def test_a_variable_that_decides_what_code_runs_is_refused(name: str) -> None:
    """And so is one that is no name."""
    with pytest.raises(LockfileError, match="cannot be set in an image"):
        render.dockerfile_text(locked(env=((name, "x"),)))


# ---- injection -------------------------------------------------------------------------

PAYLOADS = (
    *("\nRUN id", "\r\nRUN id", "\rRUN id", "\x85RUN id", "\u2028RUN id", "\u2029RUN id", "\x0bRUN id", "\x0cRUN id"),
    *(
        "\x00",
        "\\",
        "\\\nRUN id",
        "x\\",
        '"',
        '" RUN="id',
        '"\nRUN id\n"',
        "'",
        "' RUN='id",
        "`id`",
        "$(id)",
        "${HOME}",
    ),
    *(
        "$HOME",
        "\\$(id)",
        "{{ 7*7 }}",
        "{% for x in y %}",
        "{# x #}",
        "{{ ''.__class__ }}",
        "<<EOF",
        "<<-'EOF'\nid\nEOF",
    ),
    *("# syntax=evil/x", "\n# syntax=evil/x", "# escape=`", "\n# escape=`\n", "#", " ", "a b", "a=b", "\t", '["a"]'),
    *("&& id", "; id", "| id", "\ud800", "\u202e", "\ufeff", "ü", "x" * 5000),
)


def _env(lock: Lockfile, payload: str) -> Lockfile:
    return dataclasses.replace(
        lock, determinism=dataclasses.replace(lock.determinism, env=(("A", payload), ("B", "1")))
    )


def _env_name(lock: Lockfile, payload: str) -> Lockfile:
    return dataclasses.replace(lock, determinism=dataclasses.replace(lock.determinism, env=((f"A{payload}", "x"),)))


def _file(lock: Lockfile, payload: str) -> Lockfile:
    return dataclasses.replace(lock, files=(dataclasses.replace(lock.files[0], path=f"/m/{payload}"),))


def _repository(lock: Lockfile, payload: str) -> Lockfile:
    return dataclasses.replace(lock, base=dataclasses.replace(BASE, repository=f"a{payload}"))


def _digest(lock: Lockfile, payload: str) -> Lockfile:
    return dataclasses.replace(lock, base=dataclasses.replace(BASE, digest=Digest(f"sha256:{payload}")))


def _environment(field: str) -> Callable[[Lockfile, str], Lockfile]:
    def change(lock: Lockfile, payload: str) -> Lockfile:
        changes: dict[str, Any] = {field: payload}
        return dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, **changes))

    return change


def _package(field: str) -> Callable[[Lockfile, str], Lockfile]:
    def change(lock: Lockfile, payload: str) -> Lockfile:
        changes: dict[str, Any] = {field: payload}
        return dataclasses.replace(lock, apt=(dataclasses.replace(lock.apt[0], **changes),))

    return change


FIELDS: dict[str, Callable[[Lockfile, str], Lockfile]] = {
    "env value": _env,
    "env name": _env_name,
    "file path": _file,
    "base repository": _repository,
    "base digest": _digest,
    "name": _environment("name"),
    "interpreter": _environment("interpreter"),
    "python": _environment("python"),
    "apt name": _package("name"),
    "apt version": _package("version"),
}


def _keywords(text: str) -> list[str]:
    return [item.keyword for item in dockerfile.parse(text, "x")]


def _rendered(lock: Lockfile) -> str | EnvlockError:
    try:
        return render.dockerfile_text(lock)
    except EnvlockError as error:
        return error


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_changes_the_instructions(field: str) -> None:
    """Every field with every payload: the same instructions as with a harmless value, or exit 2."""
    change = FIELDS[field]
    harmless = _keywords(render.dockerfile_text(change(locked(), sha("x")[7:] if field == "base digest" else "x")))
    passed = 0
    for payload in PAYLOADS:
        found = _rendered(change(locked(), payload))
        if isinstance(found, EnvlockError):
            assert found.exit_code == 2, payload
        else:
            assert _keywords(found) == harmless, payload
            passed += 1
    assert len(PAYLOADS) >= 40
    assert passed or field in ("env name", "file path", "base digest")


@pytest.mark.parametrize("payload", ['"', "$(id)", "\\", "{{ 7*7 }}", "a b", "<<EOF", "# escape=`"])
def test_a_printable_value_arrives_as_it_is(payload: str) -> None:
    """Harmless is not the same as refused: the variable has exactly this value."""
    found = dockerfile.parse(render.dockerfile_text(_env(locked(), payload)), "x")
    env = next(item.arguments for item in found if item.keyword == "ENV")

    assert dict(zip(env[::2], env[1::2], strict=True))["A"] == payload


@pytest.mark.parametrize("registry", ["a b", "a\nRUN id", "-x", "a/b", "user:password@host", "host:port"])
def test_a_registry_that_is_none_is_refused(registry: str) -> None:
    """HOST or HOST:PORT, nothing else."""
    with pytest.raises(UsageError, match="not a registry"):
        render.dockerfile_text(locked(base=BASE), registry=registry)


# ---- templates of a person's own --------------------------------------------------------


def custom(folder: Path, text: str, lock: Lockfile | None = None) -> str:
    path = folder / "Dockerfile.j2"
    path.write_text(text)
    return render.dockerfile_text(lock or locked(), template=path)


def test_a_template_of_ones_own_gets_the_same_values(tmp_path: Path) -> None:
    """With the filters that make a value one word or one array."""
    template = "FROM scratch\nADD base.tar /\nCOPY venv/ {{ venv }}/\n"
    template += "{% for n, v in env %}ENV {{ n }}={{ v | quote }}\n{% endfor %}CMD {{ command | json }}\n"
    text = custom(tmp_path, template)

    assert _keywords(text) == ["FROM", "ADD", "COPY", "ENV", "ENV", "CMD"]


def test_an_unquoted_value_that_adds_an_instruction_is_refused(tmp_path: Path) -> None:
    """A value cannot hold a newline; one that breaks out of its word in another way is found as well."""
    template = "FROM scratch\n{% for n, v in env %}{{ v }}\n{% endfor %}CMD x\n"

    with pytest.raises(UsageError):
        custom(tmp_path, template, locked(env=(("A", "RUN id"),)))


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}", "{{ env.__class__ }}", "{{ quote.__globals__ }}", "{{ missing }}", "{% if %}",
        "{{ self._TemplateReference__context }}", "{{ env.append(1) }}", "{% include '/etc/passwd' %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 99999999 }}", "{{ 'x' * 10 ** 12 }}", "{{ 1 // 0 }}",
    ],
)  # fmt: skip
def test_a_template_cannot_leave_its_sandbox(template: str, tmp_path: Path) -> None:
    """Attributes, files, endless loops and endless text end in exit 2, in seconds."""
    with pytest.raises(UsageError) as caught:
        custom(tmp_path, template)

    assert caught.value.exit_code == 2


def test_a_template_with_a_directive_is_refused(tmp_path: Path) -> None:
    """It would bring a frontend from the network."""
    with pytest.raises(UsageError, match="parser directive"):
        custom(tmp_path, "# syntax=docker/dockerfile:1\nFROM scratch\n")
