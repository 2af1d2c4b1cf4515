"""uv's answer, read again: one wheel per package for the target, or an error that names the package."""

import os
from pathlib import Path

import lock_sites
import pytest

from envlock.digest import sha256_file
from envlock.errors import IntegrityError, NetworkError, SpecError
from envlock.lock import python
from envlock.lock.indexes import Indexes, of_host
from envlock.lock.target import Target

X86 = Target(platform="linux/amd64", python="3.11.2", glibc=(2, 36))
NEW = Target(platform="linux/amd64", python="3.11.2", glibc=(2, 41))
ARM = Target(platform="linux/arm64", python="3.13.5", glibc=(2, 41))
OLD = Target(platform="linux/amd64", python="3.11.2", glibc=(2, 27))

HASH = "a" * 64


@pytest.fixture
def index(tmp_path: Path) -> lock_sites.Index:
    return lock_sites.Index(tmp_path / "site")


def indexes(index: lock_sites.Index, tmp_path: Path, **more: str) -> Indexes:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    variables = {
        **kept,
        "PIP_CONFIG_FILE": os.devnull,
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "UV_DEFAULT_INDEX": (index.root / "simple").as_uri(),
        **more,
    }
    return of_host(variables)


def resolve(
    index: lock_sites.Index, tmp_path: Path, *requirements: str, target: Target = X86, backend: str | None = None
) -> tuple[python.Wheel, ...]:
    with lock_sites.served(index.root) as server:
        wanted = python.Wanted(target=target, requirements=requirements, torch_backend=backend)
        return python.resolve(
            wanted, (), indexes(index, tmp_path, UV_DEFAULT_INDEX=f"{server.address}/simple"), "envlock.toml"
        )


def pylock(*wheels: str, name: str = "app", version: str = "1.0", sdist: bool = False) -> bytes:
    items = ", ".join(f'{{ url = "https://h/{wheel}", hashes = {{ sha256 = "{HASH}" }} }}' for wheel in wheels)
    text = f'lock-version = "1.0"\ncreated-by = "uv"\n[[packages]]\nname = "{name}"\nversion = "{version}"\n'
    if wheels:
        text += f"wheels = [{items}]\n"
    if sdist:
        text += f'sdist = {{ url = "https://h/app-1.0.tar.gz", hashes = {{ sha256 = "{HASH}" }} }}\n'
    return text.encode()


# ---- choosing -----------------------------------------------------------------------------

LEVELS = [
    "app-1.0-py3-none-any.whl",
    "app-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "app-1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    "app-1.0-cp313-cp313-manylinux_2_28_aarch64.whl",
    "app-1.0-cp38-abi3-manylinux_2_28_aarch64.whl",
    "app-1.0-cp311-cp311-musllinux_1_2_x86_64.whl",
    "app-1.0-cp311-cp311-macosx_11_0_arm64.whl",
    "app-1.0-cp311-cp311-win_amd64.whl",
]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (X86, "app-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"),
        (OLD, "app-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"),
        (ARM, "app-1.0-cp313-cp313-manylinux_2_28_aarch64.whl"),
        (
            Target(platform="linux/arm64", python="3.12.1", glibc=(2, 36)),
            "app-1.0-cp38-abi3-manylinux_2_28_aarch64.whl",
        ),
        (Target(platform="linux/amd64", python="3.12.1", glibc=(2, 36)), "app-1.0-py3-none-any.whl"),
    ],
    ids=["newest level", "old glibc", "arm64", "abi3", "pure"],
)
def test_the_target_s_tags_decide_never_this_host_s(target: Target, expected: str) -> None:
    """Best first by the target's Python, glibc and machine, in whatever order they are listed."""
    for order in (LEVELS, LEVELS[::-1]):
        assert [wheel.file for wheel in python.choose(pylock(*order), target, "x")] == [expected]


def test_no_wheel_for_the_target_names_package_and_target() -> None:
    """A package only for other systems: the error says for which it was wanted."""
    with pytest.raises(SpecError) as caught:
        python.choose(pylock("app-1.0-cp311-cp311-win_amd64.whl"), X86, "envlock.toml")

    assert "'app'" in str(caught.value)
    assert "(wanted: x86_64, glibc 2.36, Python 3.11.2)" in str(caught.value)


def test_a_package_with_source_only_is_named() -> None:
    """Building is not reproducible: the hint says what to do instead."""
    with pytest.raises(SpecError, match="'app' has no wheel for this target, only source") as caught:
        python.choose(pylock(sdist=True), X86, "envlock.toml")

    assert "build a wheel of it" in (caught.value.hint or "")


@pytest.mark.parametrize("digest", ["", "abc", "A" * 64, "g" * 64])
def test_a_hash_that_is_none_is_refused(digest: str) -> None:
    """`packaging` does not look inside a hash: 64 lower-case hex digits, or exit 4."""
    with pytest.raises(IntegrityError):
        python.choose(pylock("app-1.0-py3-none-any.whl").replace(HASH.encode(), digest.encode()), X86, "x")


@pytest.mark.parametrize(
    ("name", "version", "wheel"),
    [
        ("app", "2.0", "app-1.0-py3-none-any.whl"),
        ("other", "1.0", "app-1.0-py3-none-any.whl"),
    ],
)
def test_a_wheel_of_another_name_or_version_is_refused(name: str, version: str, wheel: str) -> None:
    """A bot that edited the version and not the files (uv#12235)."""
    with pytest.raises(IntegrityError, match=r"is announced as|is not consistent with"):
        python.choose(pylock(wheel, name=name, version=version), X86, "x")


def test_a_local_version_in_mixed_case_is_the_same_version() -> None:
    """`+cu12torch2.5cxx11abiFalse` in a file name is that version, normalised."""
    wheel = "app-2.7.3%2Bcu12torch2.5cxx11abiFalse-cp311-cp311-linux_x86_64.whl"
    found = python.choose(pylock(wheel, version="2.7.3+cu12torch2.5cxx11abifalse"), X86, "x")

    assert found[0].file == "app-2.7.3+cu12torch2.5cxx11abiFalse-cp311-cp311-linux_x86_64.whl"


def test_a_broken_answer_is_exit_4_without_an_address() -> None:
    """Whatever uv writes is checked, and its faults are told without where it came from."""
    for text in (b"", b"\xff", b"lock-version = '9.0'", pylock("app-1.0-py3-none-any.whl").replace(b"hashes", b"hash")):
        with pytest.raises((IntegrityError, SpecError)) as caught:
            python.choose(text, X86, "x")
        assert "https://h" not in str(caught.value)


def test_a_marker_for_another_python_is_followed_for_the_target() -> None:
    """`python_version < "3.12"` is asked of the target (uv#20147)."""
    text = pylock("app-1.0-py3-none-any.whl").replace(
        b'version = "1.0"\n', b'version = "1.0"\nmarker = "python_version < \'3.12\'"\n'
    )

    assert len(python.choose(text, X86, "x")) == 1
    assert python.choose(text, ARM, "x") == ()


# ---- with uv ------------------------------------------------------------------------------


def test_a_yanked_version_is_refused_with_its_reason(index: lock_sites.Index, tmp_path: Path) -> None:
    """uv only warns: a lockfile would keep the broken file for ever."""
    index.add(lock_sites.make_wheel(index.root / "files", "app", "1.0"), yanked="broken on Tuesdays")

    with pytest.raises(SpecError, match=r"'app==1.0' has been yanked from its index: broken on Tuesdays"):
        resolve(index, tmp_path, "app==1.0")


def test_a_yanked_version_is_not_chosen_freely(index: lock_sites.Index, tmp_path: Path) -> None:
    """The newest that is not yanked is taken."""
    index.wheel("app", "1.0")
    index.add(lock_sites.make_wheel(index.root / "files", "app", "1.1"), yanked="bad")

    assert [wheel.version for wheel in resolve(index, tmp_path, "app")] == ["1.0"]


def test_wheels_for_other_systems_only_are_an_error(index: lock_sites.Index, tmp_path: Path) -> None:
    """A release half uploaded: only the macOS wheel is there (uv#19508)."""
    index.wheel("app", "1.0", tag="cp311-cp311-macosx_11_0_arm64")

    with pytest.raises(SpecError, match="cannot be resolved"):
        resolve(index, tmp_path, "app")


def test_too_new_a_glibc_level_is_an_error(index: lock_sites.Index, tmp_path: Path) -> None:
    """manylinux_2_39 does not run on glibc 2.36 (uv#14268)."""
    index.wheel("app", "1.0", tag="cp311-cp311-manylinux_2_39_x86_64")

    with pytest.raises(SpecError):
        resolve(index, tmp_path, "app")
    assert (
        len(resolve(index, tmp_path, "app", target=Target(platform="linux/amd64", python="3.11.2", glibc=(2, 41)))) == 1
    )


def test_an_extra_brings_its_packages(index: lock_sites.Index, tmp_path: Path) -> None:
    """`app[fast]` needs what the extra needs, pinned and hashed like all others (pip#9644)."""
    path = lock_sites.make_wheel(index.root / "files", "app", "1.0", requires=('speed; extra == "fast"',))
    index.add(path)
    index.wheel("speed", "2.0")

    assert [wheel.name for wheel in resolve(index, tmp_path, "app[fast]")] == ["app", "speed"]


def test_an_index_without_hashes_is_hashed_by_uv(index: lock_sites.Index, tmp_path: Path) -> None:
    """No hash in the listing: none is made up, the file's own is taken."""
    path = lock_sites.make_wheel(index.root / "files", "app", "1.0")
    index.add(path, digest="")

    assert resolve(index, tmp_path, "app")[0].sha256 == sha256_file(path)[0]


def test_a_wheel_folder_of_the_site_wins_over_a_far_index(index: lock_sites.Index, tmp_path: Path) -> None:
    """`torch==2.13.0+cpu` with a backend: the folder that has it is asked first, and no network is needed."""
    folder = tmp_path / "wheels"
    lock_sites.make_wheel(folder, "torch", "2.13.0+cpu", tag="cp311-cp311-manylinux_2_28_x86_64")
    sources = indexes(index, tmp_path, UV_FIND_LINKS=str(folder))
    wanted = python.Wanted(target=X86, requirements=("torch==2.13.0+cpu",), torch_backend="cpu")

    found = python.resolve(wanted, (), sources, "x")

    assert [(wheel.file, wheel.size) for wheel in found] == [
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", None)
    ]
    assert found[0].url.startswith("file:///")


def test_an_index_that_is_gone_is_could_not_tell(index: lock_sites.Index, tmp_path: Path) -> None:
    """No connection is exit 3, not a fault of the spec, and its address is not told."""
    sources = indexes(index, tmp_path, UV_DEFAULT_INDEX="http://me:word@127.0.0.1:9/simple", UV_HTTP_RETRIES="0")

    with pytest.raises(NetworkError) as caught:
        python.resolve(python.Wanted(target=X86, requirements=("app",)), (), sources, "x")

    for secret in ("127.0.0.1", "word", ":9/"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app=1", "'app=1' is not a PEP 508 requirement"),
        ("-e .", "'-e .' is not a PEP 508 requirement"),
        ("-r more.txt", "'-r more.txt' is not a PEP 508 requirement"),
        ("--index-url=http://h app", "is not a PEP 508 requirement"),
        ("app @ https://h/app-1.0-py3-none-any.whl", "'app' is asked for by address, which a lockfile cannot hold"),
    ],
)
def test_what_cannot_be_locked_is_refused_before_uv_runs(text: str, message: str) -> None:
    """No option reaches uv through a requirement, and no address a lockfile."""
    with pytest.raises(SpecError) as caught:
        python.check_requirements([text], "envlock.toml")

    assert message in str(caught.value)


# ---- the target ---------------------------------------------------------------------------


def test_the_target_s_uv_platform_is_one_that_it_can_run() -> None:
    """uv knows some glibc levels; the nearest below is taken."""
    assert X86.uv_platform() == "x86_64-manylinux_2_36"
    assert ARM.uv_platform() == "aarch64-manylinux_2_40"
    assert OLD.uv_platform() == "x86_64-manylinux_2_17"


def test_the_target_s_tags_are_those_of_packaging_on_such_a_host() -> None:
    """On a host like the target, packaging's own list is the same, best first."""
    import platform
    import sys

    from packaging import tags

    libc = platform.libc_ver()
    if libc[0] != "glibc" or platform.machine() != "x86_64" or sys.implementation.name != "cpython":
        pytest.skip("packaging's own tags are those of this host, which is no x86-64 with glibc")
    major, minor = (int(part) for part in libc[1].split("."))
    here = Target(platform="linux/amd64", python=platform.python_version(), glibc=(major, minor))

    assert [str(tag) for tag in here.tags()] == [str(tag) for tag in tags.sys_tags()]


def test_the_target_s_markers_have_every_name_of_the_specification() -> None:
    """None is left to this host."""
    from packaging.markers import default_environment

    assert set(X86.markers()) == set(default_environment())
