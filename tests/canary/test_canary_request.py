"""`envlock.canary.request`, `knobs` and `platform`: what is asked, and what decides bits."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from envlock.canary import knobs, platform, request
from envlock.errors import CouldNotTell, UsageError

DOCUMENT: dict[str, Any] = {
    "schema": request.SCHEMA,
    "nonce": "00112233445566778899aabbccddeeff",
    "runs": 3,
    "processes": 2,
    "threads": 4,
    "torch": {"cudnn.benchmark": False},
    "weight-bit-flip": {"tensor": "t3.encoder.o.weight", "bit": 7},
}


def parsed(**changed: Any) -> request.Request:
    """Return the request with keys changed."""
    return request.parse(json.dumps({**DOCUMENT, **changed}).encode())


def test_a_request_comes_back_as_it_was() -> None:
    """Writing and reading a request are one definition."""
    asked = parsed()

    assert asked.to_document() == request.parse(json.dumps(asked.to_document()).encode()).to_document()
    assert (
        asked.runs, asked.processes, asked.threads, asked.flip, asked.backend
    ) == (3, 2, 4, ("t3.encoder.o.weight", 7), "cpu")  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"runs": 0}, "is 0 \\(expected an integer from 1"),
        ({"runs": True}, "is True"),
        ({"threads": None}, "is None"),
        ({"backend": "tpu"}, "is 'tpu' \\(expected one of cpu, cuda\\)"),
        ({"values": "yes"}, "is not a boolean"),
        ({"speed": 9}, "unknown key, at `speed`"),
        ({"torch": {"nope": True}}, "unknown torch switch 'nope'"),
        ({"weight-bit-flip": {"tensor": "x"}}, "needs `tensor` and `bit`"),
        ({"nonce": "abc"}, "not a nonce"),
        ({"schema": "other/1"}, "not a canary request"),
    ],
)
def test_a_request_that_is_wrong_says_where(changed: dict[str, Any], message: str) -> None:
    """Each fault has its key and its reason."""
    with pytest.raises(UsageError, match=message):
        parsed(**changed)


def test_what_is_no_json_is_refused() -> None:
    """Bytes that are no JSON give an error in words."""
    with pytest.raises(UsageError, match="the request is not JSON"):
        request.parse(b"\xff{")


def test_the_nonce_is_found_in_a_request_of_no_other_use() -> None:
    """A faulty request still gets its answer, in a frame that its sender can trust."""
    assert DOCUMENT["nonce"] == request.nonce_in(json.dumps({"nonce": DOCUMENT["nonce"], "runs": "x"}).encode())
    assert request.nonce_in(b"{}") is None
    assert request.nonce_in(b"[1]") is None


@pytest.mark.parametrize(
    "name", ["MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "NCCL_ALGO"]
)
def test_variables_that_decide_bits_are_knobs(name: str) -> None:
    """What libraries choose kernels by is watched."""
    assert knobs.is_knob(name)


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "MKL_VERBOSE", "CUDNN_LOGDEST_DBG_PATH", "AWS_SECRET_ACCESS_KEY", "NCCL_DEBUG"]
)
def test_other_variables_are_left_out(name: str) -> None:
    """What only prints, names a place or is secret never reaches a report."""
    assert knobs.in_force({name: "x"}) == {}


CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
flags\t\t: fpu sse2 avx2 fma avx512f avx512_vnni smep

processor\t: 1
vendor_id\t: GenuineIntel
flags\t\t: fpu sse2 avx2 fma avx512f avx512_vnni smep
"""


def test_the_class_of_a_cpu_is_its_vendor_and_what_selects_kernels() -> None:
    """Flags that select no kernel do not split a class."""
    found = platform.of_cpu(CPUINFO, "x86_64")

    assert found == {
        "backend": "cpu",
        "machine": "x86_64",
        "cpu.vendor": "GenuineIntel",
        "cpu.flags": "avx2 avx512_vnni avx512f fma",
    }


@pytest.mark.parametrize("text", ["", "processor : 0\nvendor_id : GenuineIntel\n"])
def test_a_cpu_that_does_not_say_what_it_can_do_has_no_class(text: str) -> None:
    """An empty set of flags would make all such hosts one class."""
    with pytest.raises(CouldNotTell, match="does not say which instructions"):
        platform.of_cpu(text, "x86_64")


def gpu_torch(name: str) -> Any:
    """Return a torch that sees one GPU of that name."""
    seen = SimpleNamespace(name=name, major=9, minor=0, multi_processor_count=132, uuid="GPU-1")
    return SimpleNamespace(
        __version__="2.13.0",
        cuda=SimpleNamespace(is_available=lambda: True, get_device_properties=lambda _: seen, device_count=lambda: 1),
    )


def test_the_class_of_a_gpu_is_its_architecture_sms_and_mig_profile() -> None:
    """A slice of a GPU is another class than the whole of it."""
    whole = platform.read(gpu_torch("NVIDIA H100 80GB HBM3"), "cuda")
    part = platform.read(gpu_torch("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), "cuda")

    assert whole == {"backend": "cuda", "gpu.arch": "sm_90", "gpu.sms": "132", "gpu.mig": "none"}
    assert part["gpu.mig"] == "1g.10gb"


def test_a_gpu_that_was_asked_for_and_is_not_seen_could_not_tell() -> None:
    """Never a run on the CPU in its place."""
    torch = SimpleNamespace(__version__="2.13.0", cuda=SimpleNamespace(is_available=lambda: False))

    with pytest.raises(CouldNotTell, match=r"CUDA was asked for and torch 2\.13\.0 sees no GPU"):
        platform.read(torch, "cuda")


def test_why_torch_sees_no_gpu_is_said() -> None:
    """`is_available` keeps the reason to itself; starting CUDA tells it."""

    def init() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nPlease update")

    torch = SimpleNamespace(__version__="2.13.0", cuda=SimpleNamespace(is_available=lambda: False, init=init))

    with pytest.raises(CouldNotTell, match=r"sees no GPU \(The NVIDIA driver on your system is too old .*11040\)\.\)$"):
        platform.read(torch, "cuda")


@pytest.mark.parametrize(
    ("said", "shown"),
    [("95309e33-ce3b", "GPU-95309e33-ce3b"), ("GPU-95309e33", "GPU-95309e33"), ("MIG-e0397653", "MIG-e0397653")],
)
def test_a_uuid_is_written_as_nvml_writes_it(said: str, shown: str) -> None:
    """What torch saw can be found among the facts of the probe."""
    assert platform.uuid_of(SimpleNamespace(uuid=said)) == shown


def test_a_torch_that_tells_no_uuid_says_so() -> None:
    """Never an invented one."""
    assert platform.uuid_of(SimpleNamespace()) == "(this torch does not say)"
