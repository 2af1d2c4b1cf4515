"""Where this host takes packages from: pip's and uv's configuration, apt's sources; read, never followed blindly."""

import os
from pathlib import Path

import pytest

from envlock.errors import SpecError, ToolError
from envlock.lock import mirrors
from envlock.lock.indexes import of_host, without_indexes
from envlock.lock.mirrors import Source, parse_deb822, parse_list
from envlock.lock.redact import redact
from envlock.lock.settings import determinism_of
from envlock.spec import Determinism

# ---- pip and uv ---------------------------------------------------------------------------


def home(tmp_path: Path, text: str = "") -> dict[str, str]:
    """Return the variables of a host whose user has this pip.conf and nothing else."""
    folder = tmp_path / "home" / ".config" / "pip"
    folder.mkdir(parents=True)
    (folder / "pip.conf").write_text(text)
    (tmp_path / "wheels").mkdir()
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "none")}


@pytest.fixture(autouse=True)
def _no_system_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own /etc/pip.conf is no part of these tests."""
    from envlock.lock import indexes

    real = indexes._pip_files
    monkeypatch.setattr(
        indexes, "_pip_files", lambda variables: (path for path in real(variables) if not path.is_relative_to("/etc"))
    )


def test_pip_s_file_is_handed_to_uv(tmp_path: Path) -> None:
    """uv reads none of it by itself: indexes, wheel folders and the CA file are passed on."""
    found = of_host(
        home(
            tmp_path,
            f"[global]\nindex-url = https://a/simple\nextra-index-url = https://b/simple\n  https://c/simple\n"
            f"find-links = {tmp_path}/wheels\ncert = /ca.pem\nconstraint = /c.txt\n",
        )
    )

    assert found.arguments == (
        *("--index-url", "https://a/simple", "--extra-index-url", "https://b/simple"),
        *("--extra-index-url", "https://c/simple", "--index-strategy", "unsafe-best-match"),
        *("--find-links", f"{tmp_path}/wheels"),
    )
    assert found.folders == (tmp_path / "wheels",)
    assert found.certificates == "/ca.pem"
    assert dict(found.environment)["SSL_CERT_FILE"] == "/ca.pem"


def test_pip_s_variables_win_over_its_files(tmp_path: Path) -> None:
    """PIP_INDEX_URL over the file, as pip has it."""
    variables = {**home(tmp_path, "[global]\nindex-url = https://a/simple\n"), "PIP_INDEX_URL": "https://z/simple"}

    assert of_host(variables).arguments[:2] == ("--index-url", "https://z/simple")


def test_uv_s_variables_win_over_all_of_pip_s(tmp_path: Path) -> None:
    """Who has set uv's index means uv's index."""
    variables = {**home(tmp_path, "[global]\nindex-url = https://a/simple\n"), "UV_DEFAULT_INDEX": "https://u/simple"}
    found = of_host(variables)

    assert found.arguments == ()
    assert dict(found.environment)["UV_DEFAULT_INDEX"] == "https://u/simple"


def test_what_would_change_the_choice_is_left_out(tmp_path: Path) -> None:
    """Constraints, pre-releases, backends and cut-off dates of one user do not reach the lockfile."""
    unwanted = ("UV_CONSTRAINT", "UV_PRERELEASE", "UV_TORCH_BACKEND", "UV_EXCLUDE_NEWER", "UV_RESOLUTION", "UV_OFFLINE")
    found = of_host({**home(tmp_path), **dict.fromkeys(unwanted, "x"), "UV_CACHE_DIR": "/c"})

    assert not set(unwanted) & set(dict(found.environment))
    assert dict(found.environment)["UV_CACHE_DIR"] == "/c"


def test_no_index_means_no_index(tmp_path: Path) -> None:
    """An air-gapped site: only its wheel folder is asked."""
    found = of_host(home(tmp_path, f"[global]\nno-index = true\nfind-links = file://{tmp_path}/wheels\n"))

    assert found.arguments == ("--no-index", "--find-links", f"file://{tmp_path}/wheels")
    assert found.folders == (tmp_path / "wheels",)


def test_a_login_is_kept_for_its_host_only(tmp_path: Path) -> None:
    """The user and password in an index's address, decoded, by host."""
    found = of_host(home(tmp_path, "[global]\nindex-url = https://me:p%40ss@a.example/simple\n"))

    assert found.logins == (("a.example", ("me", "p@ss")),)


def test_a_broken_pip_file_is_pip_s_affair(tmp_path: Path) -> None:
    """uv then works with its own defaults."""
    assert "--index-url" not in of_host(home(tmp_path, "not an ini file")).arguments


def test_without_indexes_nothing_to_fetch_from_is_left(tmp_path: Path) -> None:
    """For resolving from the store alone."""
    found = of_host({**home(tmp_path), "UV_DEFAULT_INDEX": "https://u", "UV_FIND_LINKS": "/w"})

    assert not [name for name, _ in without_indexes(found.environment) if name.startswith("UV_")]


# ---- apt ----------------------------------------------------------------------------------

LIST = """\
# a remark
deb http://h/debian bookworm main contrib   # another
deb [arch=amd64 signed-by=/k.gpg] http://h/debian/ bookworm-updates main
deb-src http://h/debian bookworm main
deb http://h/flat ./
"""

DEB822 = """\
Types: deb deb-src
# a remark
URIs: http://h/debian http://i/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /k.gpg

Types: deb
URIs: http://off/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb
URIs: http://h/debian-security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
"""


def test_the_one_line_form_is_read() -> None:
    """Options, remarks and source packages as sources.list(5) has them."""
    assert parse_list(LIST) == [
        Source(uri="http://h/debian", suite="bookworm", components=("main", "contrib")),
        Source(uri="http://h/debian", suite="bookworm-updates", components=("main",), keyring="/k.gpg"),
    ]


def test_the_deb822_form_is_read() -> None:
    """Several addresses and suites in one stanza, one switched off, one with its key inside."""
    assert parse_deb822(DEB822) == [
        Source(uri="http://h/debian", suite="bookworm", components=("main",), keyring="/k.gpg"),
        Source(uri="http://h/debian", suite="bookworm-updates", components=("main",), keyring="/k.gpg"),
        Source(uri="http://i/debian", suite="bookworm", components=("main",), keyring="/k.gpg"),
        Source(uri="http://i/debian", suite="bookworm-updates", components=("main",), keyring="/k.gpg"),
        Source(uri="http://h/debian-security", suite="bookworm-security", components=("main",)),
    ]


def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "sources.list").write_text(text)
    conf = tmp_path / "apt.conf"
    conf.write_text(f'Dir::Etc::sourcelist "{tmp_path}/sources.list";\nDir::Etc::sourceparts "-";\n')
    monkeypatch.setenv("APT_CONFIG", str(conf))


def test_only_debian_s_own_sources_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor's repository in apt's sources is no mirror of Debian."""
    apt(
        tmp_path,
        monkeypatch,
        "deb http://vendor/linux/debian bookworm stable\ndeb http://vendor/repo bookworm main\n"
        "deb http://h/debian bookworm main\ndeb http://h/debian-security bookworm-security main\n"
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://proxy/debian-remote bookworm main\n",
    )
    found = mirrors.host_mirrors()

    assert found.main == ("http://h/debian", "http://proxy/debian-remote")
    assert found.security == ("http://h/debian-security",)


def test_without_a_source_the_bootstrap_tool_s_default_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address comes from the tool on this host, never from envlock."""
    apt(tmp_path, monkeypatch, "")
    tool = tmp_path / "debootstrap"
    tool.write_text('#!/bin/sh\nDEF_MIRROR="http://default.example/debian"\n')
    monkeypatch.setattr(mirrors, "_TOOLS", (str(tmp_path / "none"), str(tool)))

    found = mirrors.host_mirrors()

    assert (found.main, found.security) == (
        ("http://default.example/debian",),
        ("http://default.example/debian-security",),
    )
    monkeypatch.setattr(mirrors, "_TOOLS", ())
    with pytest.raises(ToolError, match="no Debian mirror is configured on this host"):
        mirrors.host_mirrors()


def test_without_apt_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3 with the packages' names: another system cannot resolve Debian's packages by itself."""
    monkeypatch.setenv("PATH", os.devnull)

    with pytest.raises(ToolError, match="`apt-get` is not installed") as caught:
        mirrors.host_mirrors()

    assert caught.value.exit_code == 3
    assert "debian-archive-keyring" in (caught.value.hint or "")


# ---- redaction ----------------------------------------------------------------------------

NOBODY = "//…"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Failed to fetch: `https://me:word@host:81/simple/a/`", "Failed to fetch: `https:" + NOBODY + "/simple/a/`"),
        ("no http://host", "no http:" + NOBODY),
        ("E: 'http://h/debian bookworm Release'", "E: 'http:" + NOBODY + "/debian bookworm Release'"),
        ("from file:///srv/wheels/a-1.whl now", "from file://…/a-1.whl now"),
        ("nothing here: a/b c@d", "nothing here: a/b c@d"),
    ],
)
def test_addresses_lose_who_and_where(text: str, expected: str) -> None:
    """What was asked for stays, of whom it was asked does not."""
    assert redact(text) == expected


# ---- determinism profiles -----------------------------------------------------------------


def settings(profile: str, **more: object) -> tuple[dict[str, str], dict[str, object]]:
    wanted = {"threads": 3, "env": (), "torch": (), **more}
    found = determinism_of(Determinism(profile=profile, **wanted), "envlock.toml")  # type: ignore[arg-type]
    return dict(found.env), dict(found.torch)


def test_relaxed_fixes_the_threads_and_nothing_else() -> None:
    """Four variables, no switch."""
    env, torch = settings("relaxed")

    assert set(env.values()) == {"3"}
    assert {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"} < set(env)
    assert torch == {}


def test_strict_holds_what_the_documents_say() -> None:
    """The variables and switches that make one host agree with itself."""
    env, torch = settings("strict")

    assert (
        env.items()
        >= {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NVIDIA_TF32_OVERRIDE": "0", "PYTHONHASHSEED": "0"}.items()
    )
    assert env.items() >= {"OMP_DYNAMIC": "FALSE", "MKL_DYNAMIC": "FALSE", "OMP_NUM_THREADS": "3"}.items()
    assert torch.items() >= {"use_deterministic_algorithms": True, "cudnn.benchmark": False}.items()
    assert {torch[f"{name}.fp32_precision"] for name in ("matmul", "cudnn.conv", "cudnn.rnn")} == {"ieee"}
    assert "MKL_CBWR" not in env


def test_portable_adds_the_three_caps_and_never_the_one_that_breaks_int8() -> None:
    """Plain AVX2 for oneDNN saturates int8 products on processors with VNNI (pytorch#136746)."""
    strict, _ = settings("strict")
    portable, _ = settings("portable")

    assert portable.items() - strict.items() == {
        ("ATEN_CPU_CAPABILITY", "avx2"),
        ("MKL_CBWR", "COMPATIBLE"),
        ("ONEDNN_MAX_CPU_ISA", "AVX2_VNNI"),
    }


def test_the_spec_s_own_settings_win() -> None:
    """A variable set, one left out, a switch set."""
    env, torch = settings(
        "strict", env=(("MKL_CBWR", "AVX2,STRICT"), ("PYTHONHASHSEED", None)), torch=(("cudnn.benchmark", True),)
    )

    assert env["MKL_CBWR"] == "AVX2,STRICT"
    assert "PYTHONHASHSEED" not in env
    assert torch["cudnn.benchmark"] is True


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        ("cudnn.benchmrk", True, "unknown torch switch 'cudnn.benchmrk'", "did you mean `cudnn.benchmark`?"),
        ("cudnn.benchmark", "yes", "takes a boolean, not 'yes'", None),
        ("matmul.fp32_precision", "tf33", "takes one of ieee, tf32, bf16, none, not 'tf33'", None),
    ],
)
def test_a_torch_switch_that_does_not_exist_is_refused(
    name: str, value: object, message: str, hint: str | None
) -> None:
    """A switch that is never set would be a promise not kept."""
    with pytest.raises(SpecError) as caught:
        settings("strict", torch=((name, value),))

    assert message in str(caught.value)
    assert f'at `determinism.torch."{name}"`' in str(caught.value)
    assert caught.value.hint == hint


def test_every_switch_of_the_profiles_is_one_that_the_canary_can_set() -> None:
    """What is locked is what is set and read back at run time."""
    from envlock.canary import switches

    for profile in ("strict", "portable", "relaxed"):
        for name, value in settings(profile)[1].items():
            switches.check(name, value)
