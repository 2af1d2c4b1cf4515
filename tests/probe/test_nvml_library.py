"""Which NVML library is loaded, and what its place tells about a fault."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes.nvml import library

from envlock import nvml_start
from envlock.probe.nvml import library as nvml_library
from envlock.probe.nvml.binding import NO_LIBRARY
from envlock.probe.nvml.child import package_root


def test_wrong_library_under_wsl_names_the_right_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution's library that finds no driver, beside WSL's own, is told which one to use."""
    monkeypatch.setattr(nvml_library, "_WSL", str(tmp_path))
    assert (
        nvml_library.remark(9, {"library": "/usr/lib/libnvidia-ml.so.1"})
        == "; the library is /usr/lib/libnvidia-ml.so.1"
    )

    (tmp_path / "libnvidia-ml.so.1").touch()

    assert nvml_library.remark(9, {"library": "/usr/lib/libnvidia-ml.so.1"}) == (
        f"; /usr/lib/libnvidia-ml.so.1 is not the library of this WSL: "
        f"name {tmp_path}/libnvidia-ml.so.1 in ENVLOCK_NVML_LIBRARY"
    )
    assert "WSL" not in nvml_library.remark(9, {"library": f"{tmp_path}/libnvidia-ml.so.1"})


@pytest.mark.parametrize(
    ("found", "words"),
    [({"library": "/l/libnvidia-ml.so.535.1", "library_version": "535.1"}, "; the library is version 535.1"),
     ({"library": "/l/nvml.so", "library_version": ""}, "; the library is /l/nvml.so"), ({}, "")],
)  # fmt: skip
def test_remark_is_the_version_or_else_the_place(found: dict[str, str], words: str) -> None:
    """Beside an error stands the library's version where its name tells it, else where it lies."""
    assert nvml_library.remark(18, found) == words


def test_host_without_a_library_has_code_twelve(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is nowhere is NVML's own "library not found"."""
    monkeypatch.setattr(nvml_library, "NAME", "libenvlock-is-not-here.so.1")

    with pytest.raises(nvml_library.Unusable, match="there is no NVML library") as caught:
        nvml_library.load(SimpleNamespace(nvmlLib=None), {})

    assert caught.value.number == NO_LIBRARY


def test_binding_that_loads_for_itself_gets_the_chosen_library() -> None:
    """A module that ignores what is set in it (an old `pynvml`) loads by name, and the name leads to the chosen one."""
    program = (
        f"import sys; sys.path.insert(0, {package_root()!r})\n"
        "import ctypes\n"
        "from types import SimpleNamespace\n"
        "from envlock.probe.nvml import library as nvml_library\n"
        f"print(nvml_library.load(SimpleNamespace(), {{'ENVLOCK_NVML_LIBRARY': {str(library())!r}}})['library'])\n"
        "ctypes.CDLL('libnvidia-ml.so.1').nvmlErrorString\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", f"{library()}\n")


@pytest.mark.parametrize("chosen", ["relative.so", "/nowhere/lib.so", os.devnull])
def test_start_in_a_thread_says_nothing_of_a_bad_library(chosen: str) -> None:
    """What cannot be loaded is not said here: loading it for use says it in words."""
    nvml_start.begin(chosen, True)
