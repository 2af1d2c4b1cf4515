"""`envlock.probe.libraries.installed`: what lies on disk, and what an image says about itself."""

import os
from pathlib import Path

import pytest

from envlock.probe.libraries import installed


def test_toolkits_are_listed_once(tmp_path: Path) -> None:
    """The link `cuda` is no toolkit of its own; one without a version file (a runtime image) says nothing."""
    for name, text in (("cuda-12.6", '{"cuda_cudart": {"version": "12.6.77"}}'), ("cuda-11.8", "garbage")):
        (tmp_path / "usr/local" / name).mkdir(parents=True)
        (tmp_path / "usr/local" / name / "version.json").write_text(text)
    (tmp_path / "usr/local/cuda-12.9").mkdir()
    (tmp_path / "usr/local/cuda").symlink_to("cuda-12.6")

    assert installed.toolkits(str(tmp_path)) == [
        ("toolkit /usr/local/cuda-11.8", "(its version.json cannot be read)"),
        ("toolkit /usr/local/cuda-12.6", "runtime 12.6.77"),
    ]
    assert installed.toolkits("/nonexistent") == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("version-11.8.json", "runtime 11.8.89"), ("version-12.6-date.json", "runtime 12.6.77, compiler 12.6.85")],
)
def test_the_recorded_version_files(name: str, expected: str) -> None:
    """The entry `cuda`, which may hold a date, is not taken for a version."""
    corpus = os.environ.get("ENVLOCK_CORPUS")
    if not corpus:
        pytest.skip("ENVLOCK_CORPUS is not set")

    assert installed.toolkit(Path(corpus, "hosts/cuda", name).read_bytes()) == expected


@pytest.mark.parametrize(
    "text", [b"[]", b"{}", b'{"cuda_cudart": "12"}', b"\xff", b'{"cuda": {"version": "12.6.2024"}}']
)
def test_a_version_file_that_says_nothing_is_said_so(text: bytes) -> None:
    """Whatever stands there, the answer is in words."""
    assert installed.toolkit(text).startswith("(its version.json")


def test_variables_of_an_image() -> None:
    """What an image says of itself is information, and only what it says."""
    said = installed.variables({"CUDA_VERSION": "12.4.1", "NCCL_VERSION": "", "PATH": "/bin"})

    assert said == [("variable CUDA_VERSION", "12.4.1")]


def test_empty_libraries_are_found_where_the_loader_looks(tmp_path: Path) -> None:
    """0 bytes in a given folder or in the driver's; other empty files and dangling links are none of ours."""
    for name in ("odd/libcudart.so.12", "odd/libother.so", "usr/lib64/libnvidia-ml.so.1", "usr/lib64/libnvidia-x.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "odd/libnccl.so.2").write_bytes(b"x")
    (tmp_path / "odd/libcudnn.so.9").symlink_to("nowhere")

    assert installed.empty(str(tmp_path), ["/odd", "/odd/"]) == ("/odd/libcudart.so.12", "/usr/lib64/libnvidia-ml.so.1")
