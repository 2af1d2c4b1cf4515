"""`envlock.probe.libraries.findings`: each thing that can be wrong, in its own words."""

from collections.abc import Sequence

import pytest

from envlock.facts import FAILED, Observed, absent, value
from envlock.probe.libraries import findings, levels
from envlock.probe.libraries.kinds import kind_of
from envlock.probe.libraries.values import Finding, Library, Package

SITE = "/v/lib/python3.12/site-packages"


def library(
    path: str,
    place: str = "wheel",
    version: str = "",
    package: tuple[str, str] | None = None,
    deleted: bool = False,
    size: int = 10,
    recorded: int | None = None,
    soname: str = "",
) -> Library:
    name = path.rpartition("/")[2]
    kind = kind_of(name)
    assert kind is not None
    return Library(
        name=soname or name,
        kind=kind.stem,
        title=kind.title,
        path=path,
        place=place,
        deleted=deleted,
        version=value(version) if version else absent(FAILED),
        package=Package("wheel", *package, size=recorded) if package else None,
        build_id=value("ab" * 20),
        size=value(size),
    )


def everything(*libraries: Library, **driver: str) -> list[Finding]:
    facts: dict[str, Observed] = {f"nvidia.{key}": value(text) for key, text in driver.items()}
    return findings.of_process(libraries, "process 1 (p)", facts)


def found(*libraries: Library, **driver: str) -> list[Finding]:
    """Return what is found, but for the remark that these few libraries have no runtime among them."""
    return [item for item in everything(*libraries, **driver) if item.code != "runtime-not-seen"]


def codes(items: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(item.code, item.severity) for item in items]


WHEEL_CUDNN = (
    library(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9", version="9.20.0", package=("nvidia-cudnn-cu12", "9.20.0.48")),
    library(f"{SITE}/nvidia/cudnn/lib/libcudnn_graph.so.9", package=("nvidia-cudnn-cu12", "9.20.0.48")),
)


def test_libraries_of_one_installation_are_nothing_to_say() -> None:
    """One cuDNN, one runtime, a driver that is new enough: no finding."""
    runtime = library(f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12", version="12.9")

    assert found(*WHEEL_CUDNN, runtime, cuda="12.9") == []


def test_one_part_of_cudnn_from_the_system_is_an_error() -> None:
    """The main library is right, and one engine library is another release's."""
    system = library("/usr/lib/x86_64-linux-gnu/libcudnn_engines_precompiled.so.9.23.0", "system")
    (finding,) = found(*WHEEL_CUDNN, system)

    assert (finding.code, finding.severity) == ("mixed-cudnn", "error")
    assert finding.what == (
        "cuDNN is put together from more than one installation: libcudnn.so.9, libcudnn_graph.so.9 from"
        f" nvidia-cudnn-cu12 9.20.0.48 (wheel, {SITE}/nvidia/cudnn/lib); libcudnn_engines_precompiled.so.9.23.0 from"
        " /usr/lib/x86_64-linux-gnu (system)"
    )
    assert "LD_LIBRARY_PATH" in finding.fix


def test_two_versions_in_one_folder_are_mixed_too() -> None:
    """An upgrade that stopped half way leaves parts of two releases side by side."""
    folder = "/usr/lib/x86_64-linux-gnu"
    parts = [
        library(f"{folder}/libcudnn.so.9.20.0", "system", version="9.20.0"),
        library(f"{folder}/libcudnn_graph.so.9.23.0", "system", version="9.23.0"),
    ]

    assert codes(found(*parts)) == [("mixed-cudnn", "error")]


def test_a_package_version_is_not_compared_with_a_librarys_own() -> None:
    """9.20.0.48 of a package and 9.20.0 of a call are one release: the folder decides."""
    parts = [
        WHEEL_CUDNN[0],
        library(f"{SITE}/nvidia/cudnn/lib/libcudnn_graph.so.9", version="9.20.0"),
    ]
    (finding,) = found(*parts)

    assert finding.code == "mixed-cudnn"  # a file of the same folder that the package does not own


def test_cublas_and_its_lt_must_be_one() -> None:
    """cuBLAS calls cuBLASLt: of two installations they are mixed."""
    parts = [library(f"{SITE}/nvidia/cublas/lib/libcublas.so.12"), library("/usr/lib64/libcublasLt.so.12", "system")]

    assert codes(found(*parts)) == [("mixed-cublas", "error")]


def test_two_majors_in_one_process_are_an_error() -> None:
    """Loaded side by side in one process, CUDA 12 and 13 are named with their libraries."""
    parts = [
        library(f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"),
        library(f"{SITE}/nvidia/cu13/lib/libnvJitLink.so.13"),
        library(f"{SITE}/nvidia/cu13/lib/libcusparse.so.12"),
    ]
    (finding,) = found(*parts)

    assert (finding.code, finding.severity) == ("two-cuda-majors", "error")
    assert finding.what.endswith("CUDA 12: libcudart.so.12; CUDA 13: libnvJitLink.so.13")


def test_installed_beside_is_information_only() -> None:
    """Two majors on disk, of which one is loaded, is worth knowing and no error."""
    wheels = [("nvidia-cuda-runtime-cu12", "12.9.79"), ("nvidia-cuda-runtime", "13.0.96"), ("torch", "2.14.1")]
    loaded = [library(f"{SITE}/nvidia/cu13/lib/libcudart.so.13")]
    (finding,) = findings.of_installed(wheels, loaded, SITE)

    assert (finding.code, finding.severity) == ("installed-beside", "information")
    assert "CUDA 12: nvidia-cuda-runtime-cu12 12.9.79; CUDA 13: nvidia-cuda-runtime 13.0.96" in finding.what
    both = [*loaded, library(f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12")]
    assert findings.of_installed(wheels, both, SITE) == []
    assert findings.of_installed(wheels[1:], loaded, SITE) == []


@pytest.mark.parametrize(
    ("name", "version", "major"),
    [
        ("nvidia-cublas-cu12", "12.9.1.4", "12"),
        ("nvidia-cudnn-cu13", "9.24.0.43", "13"),
        ("nvidia-cublas", "13.1.1.3", "13"),
        ("nvidia-cufft", "12.0.0.61", ""),
        ("nvidia-ml-py", "13.615.71", ""),
    ],
)
def test_the_major_of_a_wheel(name: str, version: str, major: str) -> None:
    """cuFFT 12.0 is in CUDA 13: only some versions are CUDA's own."""
    assert findings.major_of_wheel(name, version) == major


def test_a_stub_is_an_error() -> None:
    """The linker's stub of libcuda or NVML, loaded, is not the driver."""
    stub = library("/usr/local/cuda/lib64/stubs/libcuda.so", "stub")

    assert codes(found(stub, kernel_driver="570.148.08")) == [("stub", "error")]


def test_a_deleted_library_is_an_error() -> None:
    """A driver that was replaced under a running process."""
    gone = library("/usr/lib/x86_64-linux-gnu/libcuda.so.570.148.08", "driver", deleted=True)
    (finding,) = found(gone, kernel_driver="570.148.08")

    assert (finding.code, finding.severity) == ("deleted", "error")
    assert finding.fix == "start the process again; after a driver update, reload the module or reboot"


def test_a_file_of_another_size_than_its_package_installed() -> None:
    """What was copied over a package's file is not what the package's version says."""
    copied = library(
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2", package=("nvidia-nccl-cu13", "2.30.7"), size=11, recorded=10
    )
    (finding,) = found(copied)

    assert finding.code == "changed-file"
    assert finding.what.endswith("is 11 bytes, but nvidia-nccl-cu13 2.30.7 installed 10 bytes")


@pytest.mark.parametrize(
    ("version", "module", "severity"),
    [("575.51.03", "570.148.08", "warning"), ("550.54.15", "570.148.08", "error"), ("575.51.03", "", "warning")],
)
def test_a_compat_libcuda_is_told(version: str, module: str, severity: str) -> None:
    """A newer one is meant to be used, and decides; one older than the module is a fault."""
    compat = library(f"/usr/local/cuda-12.9/compat/libcuda.so.{version}", "compat")
    driver = {"kernel_driver": module} if module else {}

    assert codes(found(compat, **driver)) == [("compat-driver", severity)]


def test_a_libcuda_of_another_release_than_the_module() -> None:
    """Library and module differ after an upgrade without a reboot."""
    other = library("/usr/lib/x86_64-linux-gnu/libcuda.so.525.85.12", "driver")

    assert codes(found(other, kernel_driver="520.56.06")) == [("driver-mismatch", "error")]
    assert found(other, kernel_driver="525.85.12") == []
    assert found(library("/usr/lib/libcuda.so.1", "driver"), kernel_driver="525.85.12") == []


@pytest.mark.parametrize(
    ("level", "runtime", "severity"),
    [("12.2", "13.0", "error"), ("12.2", "12.9", "warning"), ("13.0", "12.9", ""), ("13.0", "13.0", "")],
)
def test_a_driver_too_old_for_the_loaded_runtime(level: str, runtime: str, severity: str) -> None:
    """Another major refuses to start; a later minor runs, with limits that are named."""
    loaded = library(f"{SITE}/nvidia/cu13/lib/libcudart.so.13", version=runtime)
    items = found(loaded, cuda=level)

    assert codes(items) == ([("driver-too-old", severity)] if severity else [])
    if severity == "warning":
        assert items[0].why.startswith("minor version compatibility: it runs, but")


def test_the_loaded_libcuda_outranks_the_hosts_driver() -> None:
    """With the compatibility package the level is that of its libcuda."""
    loaded = library(f"{SITE}/nvidia/cu13/lib/libcudart.so.13", version="13.0")
    compat = library("/usr/local/cuda/compat/libcuda.so.580.65.06", "compat", version="13.0")

    assert codes(found(loaded, compat, cuda="12.2", kernel_driver="535.161.08")) == [("compat-driver", "warning")]


def test_a_level_that_nobody_tells_is_unknown() -> None:
    """With a driver in use whose level is not known, the runtime may or may not run: unknown, not fine."""
    loaded = library(f"{SITE}/nvidia/cu13/lib/libcudart.so.13", version="13.0")
    driver = library("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "driver")

    assert codes(found(loaded, driver)) == [("driver-level-unknown", "unknown")]
    assert found(loaded) == []  # no driver in use, none known: a process on a host without GPUs


def test_one_library_from_two_files() -> None:
    """Two copies of one runtime in one process each have their own state."""
    parts = [
        library(f"{SITE}/nvidia/nccl/lib/libnccl.so.2"),
        library("/usr/lib64/libnccl.so.2.23.4", "system", soname="libnccl.so.2"),
    ]

    assert codes(found(*parts)) == [("loaded-twice", "warning")]


def test_empty_files_on_the_search_path() -> None:
    """0-byte libraries are named; none is nothing to say."""
    assert findings.of_search_path(()) == []
    assert codes(findings.of_search_path(("/usr/lib64/libcuda.so.1",))) == [("empty-library", "warning")]


def test_the_worst_comes_first() -> None:
    """Errors before warnings."""
    compat = library("/usr/local/cuda/compat/libcuda.so.580.65.06", "compat", deleted=True)

    assert [item.severity for item in found(compat, kernel_driver="570.148.08")] == ["error", "warning"]


def test_levels_are_read_and_judged() -> None:
    """Majors of CUDA 10 and before had no minor version compatibility."""
    assert levels.level_of("12.9.79") == (12, 9)
    assert levels.level_of("12") is None
    assert levels.level_of("Not Found") is None
    assert levels.judged((10, 1), (10, 2)) == levels.TOO_OLD
    assert [levels.major_of_driver(text) for text in ("580.65.06", "535.161.08", "470.57", "418.40", "Not Found")] == [
        13, 12, 11, 10, None,
    ]  # fmt: skip
    assert [levels.level_of_driver(text) for text in ("570.26", "580.65.06", "612.1", "", "1a.2")] == [
        (12, 8), (13, 0), None, None, None,
    ]  # fmt: skip
    assert levels.major_of_driver("612.1") == 13


@pytest.mark.parametrize(
    ("package", "said"),
    [
        (("nvidia-cuda-runtime-cu12", "12.9.79"), "libcudart.so.12 is CUDA 12.9"),
        (("cuda-cudart-12-4", "12.4.127-1"), "libcudart.so.12 is CUDA 12.4"),
        (("my-copy", "1.0"), "libcudart.so.12 is CUDA 12"),
        (None, "libcudart.so.12 is CUDA 12"),
    ],
)
def test_a_runtime_that_was_not_asked_still_needs_a_driver(package: tuple[str, str] | None, said: str) -> None:
    """Seen from outside, a container's library is not loaded: package or soname tells its release."""
    runtime = library(f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12", package=package)
    (finding,) = found(runtime, cuda="11.4")

    assert (finding.code, finding.severity) == ("driver-too-old", "error")
    assert finding.what == f"{said}, the driver runs CUDA 11.4 (nvidia.cuda)"
    assert codes(found(library(f"{SITE}/x/libcudart.so.12"), cuda="12.0")) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libcuda.so.580.65.06", [("compat-driver", "warning")]),
        ("libcuda.so.999.1", [("driver-level-unknown", "unknown"), ("compat-driver", "warning")]),
    ],
)
def test_a_compat_libcuda_that_was_not_asked_is_not_judged_as_the_host(
    name: str, expected: list[tuple[str, str]]
) -> None:
    """The name of its file tells its branch; where it does not, the host's level is not taken for its."""
    compat = library(f"/usr/local/cuda-13.0/compat/{name}", "compat")
    runtime = library(f"{SITE}/nvidia/cu13/lib/libcudart.so.13", package=("nvidia-cuda-runtime", "13.0.96"))

    assert codes(found(compat, runtime, cuda="12.4", kernel_driver="550.120")) == expected


def test_a_driver_without_a_runtime_is_told() -> None:
    """A runtime that is linked into the program cannot be seen, and that it may be there is said."""
    cuda = library("/usr/lib64/libcuda.so.580.65.06", "driver")

    assert codes(everything(cuda)) == [("runtime-not-seen", "information")]
    assert codes(everything(cuda, library(f"{SITE}/x/libcudart.so.13"), cuda="13.0")) == []
    assert codes(everything(library("/usr/lib64/stubs/libcuda.so", "stub"))) == [("stub", "error")]


def test_a_level_follows_from_the_drivers_branch() -> None:
    """Where only /proc tells the module's version, a runtime of a newer major is still too old a driver's."""
    runtime = library(f"{SITE}/nvidia/cu13/lib/libcudart.so.13", version="13.0")
    cuda = library("/usr/lib64/libcuda.so.535.161.08", "driver")

    assert codes(found(runtime, cuda, kernel_driver="535.161.08")) == [("driver-too-old", "error")]
    assert codes(found(runtime, kernel_driver="535.161.08")) == [("driver-too-old", "error")]
    nameless = library("/usr/lib64/libcuda.so.1", "driver")
    assert codes(found(runtime, nameless, kernel_driver="")) == [("driver-level-unknown", "unknown")]
