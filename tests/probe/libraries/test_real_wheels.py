"""NVIDIA's own wheels of CUDA 12 and 13, as this host's pip gets them: they install and answer without a GPU.

Slow: some megabytes are installed. Where the index does not answer, the tests are skipped with pip's words.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from envlock.probe.libraries.operation import of_command
from envlock.probe.libraries.values import Library, Loaded

pytestmark = pytest.mark.slow

# Small ones: 3.5, 2.3 and 0.1 MB.
WHEELS = ("nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cuda-runtime==13.0.96", "nvidia-nvtx-cu12==12.9.79")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `site-packages` with the runtimes of CUDA 12 and 13 side by side."""
    folder = tmp_path_factory.mktemp("wheels") / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--target", str(folder), *WHEELS]
    installed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if installed.returncode != 0:
        said = (installed.stderr.strip() or "pip said nothing").splitlines()[-1]
        pytest.skip(f"the wheels cannot be had: {said}")
    return folder


def loading(*paths: Path) -> Loaded:
    program = "; ".join(["import ctypes", *(f"ctypes.CDLL({str(path)!r})" for path in paths)])
    return of_command([sys.executable, "-c", program], driver=dict)


def told(library: Library) -> tuple[str, str, str, str]:
    assert library.package is not None
    return library.name, library.version.text(), f"{library.package.name} {library.package.version}", library.place


def test_each_runtime_tells_its_version_and_its_wheel(site: Path) -> None:
    """The old layout and the shared one of CUDA 13 are both known; the file is as the wheel recorded it."""
    twelve = loading(site / "nvidia/cuda_runtime/lib/libcudart.so.12").libraries[0]
    thirteen = loading(site / "nvidia/cu13/lib/libcudart.so.13").libraries[0]

    assert told(twelve) == ("libcudart.so.12", "12.9", "nvidia-cuda-runtime-cu12 12.9.79", "wheel")
    assert told(thirteen) == ("libcudart.so.13", "13.0", "nvidia-cuda-runtime 13.0.96", "wheel")
    for library in (twelve, thirteen):
        assert len(library.build_id.text()) == 40
        assert library.package is not None
        assert library.size.value == library.package.size


def test_two_majors_side_by_side_are_found(site: Path) -> None:
    """On disk they are information; loaded into one process, an error."""
    one = loading(site / "nvidia/cu13/lib/libcudart.so.13")
    both = loading(site / "nvidia/cuda_runtime/lib/libcudart.so.12", site / "nvidia/cu13/lib/libcudart.so.13")

    assert [(item.code, item.severity) for item in one.findings] == [("installed-beside", "information")]
    assert [(item.code, item.severity) for item in both.findings] == [("two-cuda-majors", "error")]


def test_a_file_that_was_copied_over_a_wheels_own(site: Path) -> None:
    """A library of another size than its wheel recorded is named, whatever its version says."""
    path = site / "nvidia/cuda_runtime/lib/libcudart.so.12"
    held = path.read_bytes()
    path.write_bytes(held + b"\0")
    try:
        codes = [item.code for item in loading(path).findings]
    finally:
        path.write_bytes(held)

    assert codes == ["changed-file", "installed-beside"]
