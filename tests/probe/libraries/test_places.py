"""`envlock.probe.libraries.places`: where a library came from."""

import os
from pathlib import Path

import pytest

from envlock.probe.libraries.places import mount_points, place_of

NOWHERE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/opt/venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9", "wheel"),
        ("/usr/lib/python3/dist-packages/torch/lib/libtorch_cuda.so", "wheel"),
        ("/opt/conda/lib/libcudart.so.12", "conda"),
        ("/opt/conda/lib/python3.12/site-packages/nvidia/cu13/lib/libcudart.so.13", "wheel"),
        ("/usr/local/cuda-12.6/targets/x86_64-linux/lib/libcublas.so.12", "toolkit"),
        ("/usr/local/cuda/lib64/libcudart.so.12", "toolkit"),
        ("/opt/nvidia/hpc_sdk/Linux_x86_64/24.5/cuda/12.4/lib64/libcudart.so.12", "toolkit"),
        ("/usr/local/cuda/lib64/stubs/libcuda.so", "stub"),
        ("/usr/local/cuda/targets/x86_64-linux/lib/stubs/libnvidia-ml.so.1", "stub"),
        ("/usr/local/cuda-12.9/compat/libcuda.so.575.51.03", "compat"),
        ("/usr/local/cuda-12.6/compat_orin/libcuda.so.560.35.03", "compat"),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.570.148.08", "driver"),
        ("/usr/lib/wsl/drivers/nv_dispi/libcuda.so.1.1", "driver"),
        ("/run/opengl-driver/lib/libcuda.so.570.148.08", "driver"),
        ("/usr/lib/x86_64-linux-gnu/libcudnn_ops.so.9.23.0", "system"),
        ("/lib64/libnccl.so.2", "system"),
        ("/home/me/build/libcudart.so.12", "other"),
        ("/home/me/compat/libcudart.so.12", "other"),
    ],
)
def test_the_place_follows_from_the_path(path: str, place: str) -> None:
    """Stub and compatibility folders outrank the toolkit they lie in, a wheel its conda environment."""
    assert place_of(path, NOWHERE, lambda folder: folder == "/opt/conda") == place


def test_a_driver_that_is_mounted_file_by_file_comes_from_the_host() -> None:
    """A mount of that very file is what container runtimes make; a mount of the folder's disk is not."""
    path = "/usr/lib/x86_64-linux-gnu/libcuda.so.570.148.08"

    assert place_of(path, frozenset({path}), lambda _: False) == "mounted-driver"
    assert place_of(path, frozenset({"/usr", "/usr/lib/x86_64-linux-gnu"}), lambda _: False) == "driver"
    assert place_of("/usr/lib/wsl/lib/libcuda.so.1", frozenset({"/usr/lib/wsl"}), lambda _: False) == "mounted-driver"


def test_only_the_driver_counts_as_mounted_driver() -> None:
    """A runtime library on a mount of its own is where its path says."""
    path = "/usr/lib/x86_64-linux-gnu/libcudnn.so.9"

    assert place_of(path, frozenset({path}), lambda _: False) == "system"


def test_mount_points_are_unescaped() -> None:
    """Blanks in a mount point are octal in the kernel's text; the root itself is no sign of anything."""
    text = "812 800 0:55 / / rw - overlay overlay rw\n830 812 254:1 /a /with\\040blank ro - ext4 /dev/vda1 rw\nbroken\n"

    assert mount_points(text) == {"/with blank"}


def test_the_recorded_mounts_of_a_container() -> None:
    """In the recorded container the driver is the host's."""
    corpus = os.environ.get("ENVLOCK_CORPUS")
    if not corpus:
        pytest.skip("ENVLOCK_CORPUS is not set")
    mounts = mount_points(Path(corpus, "hosts/cuda/mountinfo-container.txt").read_text())

    for name in ("libcuda.so.570.148.08", "libnvidia-ml.so.570.148.08"):
        assert place_of(f"/usr/lib/x86_64-linux-gnu/{name}", mounts, lambda _: False) == "mounted-driver"


def test_wheels_may_lie_in_a_folder_of_any_name() -> None:
    """`pip install --target` and archives of uv have no `site-packages` in their paths."""
    path = "/app/deps/nvidia/cu13/lib/libcudart.so.13"

    assert place_of(path, NOWHERE, lambda _: False, lambda folder: folder == "/app/deps") == "wheel"
    assert place_of(path, NOWHERE, lambda _: False, lambda _: False) == "other"
