"""Wheels as a virtual environment: what goes where, verified, the same each time."""

import csv
import hashlib
import io
import warnings
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path

import pytest
from worlds import wheel

from envlock.errors import IntegrityError
from envlock.image import wheels
from envlock.image.context import Item, checked
from envlock.image.wheels import Wheel

SITE = "lib/python3.11/site-packages"
SCRIPTS = "[console_scripts]\ntool = pkg.cli:main\n"


def tree(*paths: Path, python: str = "3.11") -> tuple[dict[str, tuple[Item, bytes]], tuple[str, ...]]:
    """Return the planned tree of wheels by path, each item with its content, and the clashes."""
    with wheels.planned(
        tuple(Wheel(file=path.name, path=path) for path in paths), python, "/usr/bin/python3.11"
    ) as plan:
        return {item.path: (item, b"".join(checked(item))) for item in plan.items}, plan.clashes


def test_a_wheel_lies_where_an_installer_puts_it(tmp_path: Path) -> None:
    """Modules, metadata, a console script with the environment's interpreter, and who installed it."""
    path = wheel(tmp_path, "pkg", {"pkg/__init__.py": b"x = 1\n", "pkg/cli.py": b"def main(): ...\n"}, scripts=SCRIPTS)
    found, clashes = tree(path)

    assert found[f"{SITE}/pkg/__init__.py"][1] == b"x = 1\n"
    assert found[f"{SITE}/pkg-1.0.dist-info/INSTALLER"][1] == b"envlock\n"
    assert found["bin/tool"][1].startswith(b"#!/opt/venv/bin/python\n")
    assert b"from pkg.cli import main" in found["bin/tool"][1]
    assert found["bin/tool"][0].mode == 0o755
    assert found[f"{SITE}/pkg/__init__.py"][0].mode == 0o644
    assert clashes == ()
    assert not [name for name in found if "direct_url" in name or "__pycache__" in name]


def test_the_environment_is_one_for_python(tmp_path: Path) -> None:
    """pyvenv.cfg names the interpreter's folder, bin/python leads to it."""
    found, _ = tree(wheel(tmp_path, "pkg", {}))

    assert found["pyvenv.cfg"][1] == b"home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11\n"
    assert found["bin/python"][0].link == "/usr/bin/python3.11"
    assert (found["bin/python3"][0].link, found["bin/python3.11"][0].link) == ("python", "python")


def test_every_file_is_in_record_with_its_hash(tmp_path: Path) -> None:
    """What pip and importlib.metadata read of the installation is true for every file, scripts included."""
    found, _ = tree(wheel(tmp_path, "pkg", {"pkg/a.py": b"a", "pkg/with,comma.txt": b"c"}, scripts=SCRIPTS))
    rows = list(csv.reader(io.StringIO(found[f"{SITE}/pkg-1.0.dist-info/RECORD"][1].decode())))

    assert rows == sorted(rows)
    listed = {row[0] for row in rows}
    assert "../../../bin/tool" in listed
    for path, digest, size in rows:
        if path.endswith("RECORD"):
            assert (digest, size) == ("", "")
            continue
        content = found[path.removeprefix("../../../") if path.startswith("..") else f"{SITE}/{path}"][1]
        expected = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={expected}", str(len(content)))
    own = {name.removeprefix(f"{SITE}/") for name in found if name.startswith(SITE) and not found[name][0].folder}
    assert own == {path for path in listed if not path.startswith("..")}


def test_scripts_and_data_of_a_wheel_have_their_places(tmp_path: Path) -> None:
    """A script gets the interpreter in its first line; data lies below the environment, headers in include."""
    path = wheel(
        tmp_path, "pkg",
        {
            "pkg-1.0.data/scripts/run": b"#!python\nprint(1)\n", "pkg-1.0.data/scripts/sh": b"#!/bin/sh\n",
            "pkg-1.0.data/data/share/x.txt": b"x", "pkg-1.0.data/headers/x.h": b"h", "pkg-1.0.data/platlib/y.so": b"so",
        },
        programs=("pkg-1.0.data/platlib/y.so",),
    )  # fmt: skip
    found, _ = tree(path)

    assert found["bin/run"][1] == b"#!/opt/venv/bin/python\nprint(1)\n"
    assert found["bin/sh"][1] == b"#!/bin/sh\n"
    assert found["bin/sh"][0].mode == 0o755
    assert found["share/x.txt"][1] == b"x"
    assert found["include/site/python3.11/pkg/x.h"][1] == b"h"
    assert (found[f"{SITE}/y.so"][1], found[f"{SITE}/y.so"][0].mode) == (b"so", 0o755)


def test_bytecode_in_a_wheel_is_left_out(tmp_path: Path) -> None:
    """It may be another body of the same source, and is never needed."""
    found, _ = tree(
        wheel(tmp_path, "pkg", {"pkg/__init__.py": b"", "pkg/__pycache__/__init__.cpython-311.pyc": b"old"})
    )

    assert not [name for name in found if name.endswith(".pyc")]


def test_the_tree_is_the_same_whatever_the_blob_is_called(tmp_path: Path) -> None:
    """The store names wheels by digest; the lockfile's file name is what counts."""
    path = wheel(tmp_path, "pkg", {"pkg/a.py": b"a"}, scripts=SCRIPTS)
    first, _ = tree(path)
    moved = path.rename(tmp_path / "abcdef")
    with wheels.planned((Wheel(file="pkg-1.0-py3-none-any.whl", path=moved),), "3.11", "/usr/bin/python3.11") as plan:
        second = {item.path: b"".join(checked(item)) for item in plan.items}

    assert {name: content for name, (_, content) in first.items()} == second


def test_two_wheels_that_disagree_are_listed(tmp_path: Path) -> None:
    """The later one has the path; equal bytes are no disagreement (namespace packages)."""
    one = wheel(tmp_path, "one", {"ns/__init__.py": b"", "ns/x.py": b"1"})
    two = wheel(tmp_path, "two", {"ns/__init__.py": b"", "ns/x.py": b"2"})
    found, clashes = tree(one, two)

    assert clashes == (f"{SITE}/ns/x.py (from two-1.0-py3-none-any.whl)",)
    assert found[f"{SITE}/ns/x.py"][1] == b"2"


def test_a_member_that_is_not_what_record_says_is_an_integrity_error(tmp_path: Path) -> None:
    """A repacked wheel has right checksums of its own; its RECORD tells."""
    path = wheel(tmp_path, "pkg", {"pkg/a.py": b"good"}, damaged="pkg/a.py")

    with pytest.raises(IntegrityError, match=r"'pkg/a.py' is not what its RECORD says"):
        tree(path)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["../evil.py"], "unsafe name"), (["/evil.py"], "unsafe name"), (["a/../../evil.py"], "unsafe name"),
        (["a\\b.py"], "unsafe name"), (["a\n.py"], "unsafe name"), (["a//b.py"], "unsafe name"),
        (["a.py", "a.py"], "two members"), (["unlisted.py"], "has no sha256"),
    ],
)  # fmt: skip
def test_a_wheel_with_odd_members_is_refused(names: Iterable[str], words: str, tmp_path: Path) -> None:
    """Nothing is written outside the environment, and nothing that RECORD does not vouch for (uv#15136)."""
    path = wheel(tmp_path, "pkg", {"pkg/a.py": b""})
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings(action="ignore"):
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"evil")

    with pytest.raises(IntegrityError, match=words):
        tree(path)


def test_a_link_in_a_wheel_is_refused(tmp_path: Path) -> None:
    """A symbolic link in a zip leads wherever it likes."""
    path = wheel(tmp_path, "pkg", {"pkg/a.py": b""})
    with zipfile.ZipFile(path, "a") as archive:
        member = zipfile.ZipInfo("pkg/link")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, b"/etc/passwd")

    with pytest.raises(IntegrityError, match="link"):
        tree(path)


@pytest.mark.parametrize(
    "data", [b"", b"PK\x05\x06" + bytes(18), b"no zip at all" * 100], ids=["empty", "empty zip", "text"]
)
def test_what_is_no_wheel_is_an_integrity_error(data: bytes, tmp_path: Path) -> None:
    """In words, with the wheel's name, and never a traceback."""
    path = tmp_path / "pkg-1.0-py3-none-any.whl"
    path.write_bytes(data)

    with pytest.raises(IntegrityError, match=r"pkg-1.0-py3-none-any.whl: is not a wheel in order"):
        tree(path)


@pytest.mark.parametrize("record", [b"", b"pkg/a.py,,\n", b"pkg/a.py,md5=abc,4\n", b"one,two\n", b"\xff\xfe"])
def test_a_wheel_whose_record_vouches_for_nothing_is_refused(record: bytes, tmp_path: Path) -> None:
    """No hash, a weak hash, a broken file."""
    with pytest.raises(IntegrityError):
        tree(wheel(tmp_path, "pkg", {"pkg/a.py": b"good"}, record=record))
