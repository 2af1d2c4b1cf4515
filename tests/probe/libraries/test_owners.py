"""`envlock.probe.libraries.owners`: which package owns a file, whoever's Python it is for."""

import json
from pathlib import Path

from envlock.probe.libraries.owners import is_conda, is_site, owners, wheels_in
from envlock.probe.libraries.values import Package

SITE = "/venv/lib/python3.12/site-packages"
CUDART = f"{SITE}/nvidia/cu13/lib/libcudart.so.13"


def wheel(root: Path, name: str, version: str, record: str, metadata: str | None = None) -> None:
    """Write the metadata of an installed wheel."""
    folder = root / SITE[1:] / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "RECORD").write_text(record)
    (folder / "METADATA").write_text(metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nText\n")


def test_a_wheel_is_found_by_its_record(tmp_path: Path) -> None:
    """Name and version are the metadata's, the size is the record's."""
    wheel(tmp_path, "other", "1.0", "nvidia/cu13/lib/libcudart.so.130,sha256=x,5\n")
    wheel(tmp_path, "nvidia-cuda-runtime", "13.0.96", "a.py,,\nnvidia/cu13/lib/libcudart.so.13,sha256=abc,704288\n")

    assert owners(str(tmp_path), [(CUDART, "wheel")]) == {
        CUDART: Package("wheel", "nvidia-cuda-runtime", "13.0.96", 704288)
    }


def test_a_record_without_a_size_has_none(tmp_path: Path) -> None:
    """Hash and size of a record are optional."""
    wheel(tmp_path, "nvidia-cuda-runtime", "13.0.96", "nvidia/cu13/lib/libcudart.so.13,,\r\n")

    assert owners(str(tmp_path), [(CUDART, "wheel")])[CUDART].size is None


def test_of_two_wheels_that_claim_a_file_the_one_that_fits_owns_it(tmp_path: Path) -> None:
    """Two packages wrote the same path: the size says whose bytes are there, whatever their order."""
    wheel(tmp_path, "a-first", "1.0", "nvidia/cu13/lib/libcudart.so.13,sha256=x,10\n")
    wheel(tmp_path, "b-second", "2.0", "nvidia/cu13/lib/libcudart.so.13,sha256=y,3\n")
    wheel(tmp_path, "c-third", "3.0", "nvidia/cu13/lib/libcudart.so.13,sha256=z,11\n")
    path = tmp_path / CUDART[1:]
    path.parent.mkdir(parents=True)
    path.write_bytes(b"abc")

    assert owners(str(tmp_path), [(CUDART, "wheel")])[CUDART].name == "b-second"


def test_broken_metadata_leaves_the_folder_name(tmp_path: Path) -> None:
    """A wheel without readable headers is still named."""
    wheel(tmp_path, "nvidia-cuda-runtime", "13.0.96", "nvidia/cu13/lib/libcudart.so.13,,\n", metadata="\xff garbage")

    assert owners(str(tmp_path), [(CUDART, "wheel")])[CUDART].version == "13.0.96"


def test_what_no_package_claims_is_nobodys(tmp_path: Path) -> None:
    """A file that was copied there has no owner, and nothing that cannot be read is an error."""
    wheel(tmp_path, "other", "1.0", "other.py,,\n")

    assert owners(str(tmp_path), [(CUDART, "wheel"), ("/x/libcudart.so.12", "other")]) == {}
    assert owners("/nonexistent", [(CUDART, "wheel"), ("/opt/c/lib/libcudart.so", "conda")]) == {}


def test_a_conda_package_is_found_by_its_list(tmp_path: Path) -> None:
    """The prefix is the nearest folder with `conda-meta`."""
    meta = tmp_path / "opt/conda/envs/a/conda-meta"
    meta.mkdir(parents=True)
    (meta / "broken.json").write_text('{"files": ["lib/libcudart.so.12.9.79"')
    (meta / "history").write_text("")
    document = {"name": "cuda-cudart", "version": "12.9.79", "files": ["lib/libcudart.so.12.9.79"]}
    (meta / "cuda-cudart.json").write_text(json.dumps(document))
    path = "/opt/conda/envs/a/lib/libcudart.so.12.9.79"

    assert is_conda(str(tmp_path), "/opt/conda/envs/a")
    assert owners(str(tmp_path), [(path, "conda")]) == {path: Package("conda", "cuda-cudart", "12.9.79")}


def test_a_debian_package_is_found_on_a_merged_usr(tmp_path: Path) -> None:
    """A package may list `/lib` for what lies in `/usr/lib`; its version is in dpkg's status."""
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "libnccl2:amd64.list").write_text("/.\n/lib/x86_64-linux-gnu/libnccl.so.2.23.4\n")
    (info / "zlib1g.list").write_text("/.\n/lib/x86_64-linux-gnu/libnccl.so.2.23.45\n")
    (tmp_path / "var/lib/dpkg/status").write_text(
        "Package: zlib1g\nVersion: 1\n\nPackage: libnccl2\nStatus: install ok installed\nVersion: 2.23.4-1+cuda12.6\n"
    )
    path = "/usr/lib/x86_64-linux-gnu/libnccl.so.2.23.4"

    assert owners(str(tmp_path), [(path, "system")]) == {path: Package("debian", "libnccl2", "2.23.4-1+cuda12.6")}


def test_installed_wheels_are_listed_by_name(tmp_path: Path) -> None:
    """Names are normalised as PyPI does; eggs and other folders are none."""
    wheel(tmp_path, "nvidia-cuda-runtime-cu12", "12.9.79", "")
    (tmp_path / SITE[1:] / "old.egg-info").mkdir()

    assert wheels_in(str(tmp_path), SITE) == [("nvidia-cuda-runtime-cu12", "12.9.79")]


def test_a_folder_of_any_name_holds_wheels_where_their_metadata_lies(tmp_path: Path) -> None:
    """A target folder is found by the metadata beside the package."""
    folder = tmp_path / "app/deps/nvidia_cuda_runtime-13.0.96.dist-info"
    folder.mkdir(parents=True)
    (folder / "RECORD").write_text("nvidia/cu13/lib/libcudart.so.13,,7\n")
    path = "/app/deps/nvidia/cu13/lib/libcudart.so.13"

    assert is_site(str(tmp_path), "/app/deps")
    assert not is_site(str(tmp_path), "/app")
    assert owners(str(tmp_path), [(path, "wheel")])[path].name == "nvidia-cuda-runtime"
