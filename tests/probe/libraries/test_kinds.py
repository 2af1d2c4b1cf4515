"""`envlock.probe.libraries.kinds`: which files are looked at, and how numbers become versions."""

import pytest

from envlock.probe.libraries.kinds import KINDS, READ, cuda_major, kind_of, number_of


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("libcudart.so.13", "libcudart"),
        ("libcudart.so.11.0", "libcudart"),
        ("libcudart-9335f6a2.so.12", "libcudart"),
        ("libcudnn_engines_precompiled.so.9.23.0", "libcudnn_engines_precompiled"),
        ("libcudnn_ops_infer.so.8", "libcudnn_ops_infer"),
        ("libcuda.so.570.148.08", "libcuda"),
        ("libnvidia-ml.so.1", "libnvidia-ml"),
        ("libnvrtc-builtins.so.13.0", "libnvrtc-builtins"),
        ("libnvrtc-builtins.alt.so.13.0", "libnvrtc-builtins"),
        ("libtorch_cuda.so", "libtorch_cuda"),
        ("libcudart.so", "libcudart"),
        ("libcudartx.so.1", None),
        ("libm.so.6", None),
        ("libcudart.a", None),
        ("cudart64_12.dll", None),
    ],
)
def test_a_library_is_known_by_its_file_name(name: str, stem: str | None) -> None:
    """The number after `.so` and the hash that a wheel's repair adds are no part of the name."""
    kind = kind_of(name)

    assert (kind.stem if kind else None) == stem


@pytest.mark.parametrize(
    ("read", "numbers", "version"),
    [
        ("cuda", [12090], "12.9"),
        ("cuda", [11080], "11.8"),
        ("cudnn", [92400], "9.24.0"),
        ("cudnn", [8902], "8.9.2"),
        ("nccl", [23007], "2.30.7"),
        ("nccl", [2804], "2.8.4"),
        ("bytes", [0x91800], "9.24.0"),
        ("dotted", [12, 6, 3], "12.6.3"),
        ("ten-thousands", [101303], "10.13.3"),
        ("thousands", [1150], "1.15"),
        ("number", [130001], "130001"),
    ],
)
def test_numbers_are_read_as_the_headers_define_them(read: str, numbers: list[int], version: str) -> None:
    """Each library packs its version in its own way, and some changed it once."""
    assert READ[read](numbers) == version


@pytest.mark.parametrize(
    ("name", "major"),
    [
        ("libcudart.so.12", 12),
        ("libcudart.so.11.0", 11),
        ("libnvJitLink.so.13", 13),
        ("libcusparse.so.12", None),  # in CUDA 12 and in CUDA 13
        ("libcudnn.so.9", None),
        ("libcudart.so", None),
    ],
)
def test_only_some_sonames_tell_the_cuda_major(name: str, major: int | None) -> None:
    """A soname that counts in its own way says nothing about CUDA's major."""
    assert cuda_major(name) == major


def test_each_kind_is_there_once_and_can_be_read() -> None:
    """No name twice; each call's numbers have a reader."""
    assert len({kind.stem for kind in KINDS}) == len(KINDS)
    assert {call.read for kind in KINDS for call in kind.calls} <= set(READ)
    assert number_of("libcuda.so.570.148.08") == "570.148.08"
