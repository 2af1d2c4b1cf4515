"""What NVML says, through the unmodified `pynvml` and a driver library in pure Python."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import nvml_fake
import pynvml
import pytest
from nvml_fake import SYSTEM, Code, Library

from envlock.facts import FAILED, HIDDEN, NO_PERMISSION, NOT_IN_DRIVER, NOT_SUPPORTED, VALUE, observed_from
from envlock.probe import nvml
from envlock.registry import GPU, in_scope


@pytest.fixture(autouse=True)
def _no_library_left() -> Iterator[None]:
    before = pynvml.nvmlLib
    yield
    pynvml.nvmlLib = before


def collect(gpus: Mapping[int, Mapping[str, Any]], **system: Any) -> dict[str, Any]:
    pynvml.nvmlLib = Library({**SYSTEM, **system}, gpus)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    return nvml.collect(pynvml)


def seen(document: Mapping[str, Any], key: str, index: int = 0) -> Any:
    return observed_from(document["gpus"][index]["facts"][key], "test", key)


def test_all_values_when_driver_answers() -> None:
    """A driver that answers everything gives a value for every registered GPU fact."""
    document = collect({0: nvml_fake.gpu()})

    assert document["host"]["nvidia.driver"]["value"] == "535.161.08"
    assert document["host"]["nvidia.cuda"]["value"] == "12.4"
    assert {key: item.get("value") for key, item in document["gpus"][0]["facts"].items()} == {
        "gpu.name": "NVIDIA H100 80GB HBM3",
        "gpu.pci_id": "10de:2330",
        "gpu.subsystem_id": "10de:16c1",
        "gpu.uuid": "GPU-0dd00000-0000-4000-8000-000000000001",
        "gpu.compute_capability": "9.0",
        "gpu.memory": 81559,
        "gpu.vbios": "96.00.A5.00.01",
        "gpu.gsp": True,
        "gpu.gsp_version": "535.161.08",
        "gpu.inforom": "G520.0200.00.05",
        "gpu.power_limit": 700000,
        "gpu.power_limit_default": 700000,
        "gpu.power_limit_enforced": 700000,
        "gpu.clock_graphics_max": 1980,
        "gpu.clock_sm_max": 1980,
        "gpu.clock_memory_max": 1980,
        "gpu.ecc": True,
        "gpu.ecc_pending": True,
        "gpu.mig": False,
        "gpu.mig_pending": False,
        "gpu.persistence": True,
    }
    assert document["gpus"][0]["id"] == "0000:01:00.0"


def test_questions_are_the_registered_facts() -> None:
    """NVML is asked for exactly the GPU facts of the registry."""
    assert {entry.key for entry in in_scope(GPU)} == set(nvml.GPU_KEYS)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(3, NOT_SUPPORTED), (26, NOT_SUPPORTED), (13, NOT_IN_DRIVER), (4, NO_PERMISSION), (14, FAILED), (15, FAILED),
     (16, FAILED), (999, FAILED)],
)  # fmt: skip
def test_each_error_code_keeps_its_outcome(code: int, outcome: str) -> None:
    """An error of one call is that fact's outcome, with the code in its detail, and no other fact's."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetVbiosVersion=Code(code))})

    assert seen(document, "gpu.vbios").outcome == outcome
    assert f"(NVML code {code})" in seen(document, "gpu.vbios").detail
    assert seen(document, "gpu.name").outcome == VALUE


def test_name_that_is_not_text_is_failed() -> None:
    """A driver that answers with garbage for a name fails that fact alone."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetName=b"\xf8\x81garbage")})

    assert (seen(document, "gpu.name").outcome, seen(document, "gpu.name").detail) == (
        FAILED,
        "the driver answered with bytes that are not text",
    )
    assert seen(document, "gpu.uuid").has_value


def test_symbol_that_is_missing_is_not_in_driver() -> None:
    """A function that the driver's library does not have is "not in this driver"."""
    table = nvml_fake.gpu()
    del table["nvmlDeviceGetGspFirmwareMode"]

    assert seen(collect({0: table}), "gpu.gsp").outcome == NOT_IN_DRIVER


def test_binding_without_the_function_is_failed() -> None:
    """A `pynvml` too old to have a function fails the fact: the driver was never asked."""

    class Old:
        def __getattr__(self, name: str) -> Any:
            if name == "nvmlDeviceGetMigMode":
                raise AttributeError(name)
            return getattr(pynvml, name)

    pynvml.nvmlLib = Library(SYSTEM, {0: nvml_fake.gpu()})
    pynvml._nvmlGetFunctionPointer_cache.clear()

    document = nvml.collect(Old())

    assert seen(document, "gpu.mig").outcome == FAILED
    assert seen(document, "gpu.mig").detail == "this NVML binding is too old to ask"


def test_call_that_raises_type_error_is_failed() -> None:
    """A call that does not fit its function fails the fact and goes no further."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetEccMode=TypeError("this function takes a struct"))})

    assert seen(document, "gpu.ecc").outcome == FAILED
    assert seen(document, "gpu.ecc").detail == "TypeError: this function takes a struct"


@pytest.mark.parametrize("code", [18, 12, 9, 999])
def test_init_that_fails_is_an_error_with_its_code(code: int) -> None:
    """NVML that cannot be started is an error with its code, never a list of no GPUs."""
    document = collect({0: nvml_fake.gpu()}, nvmlInit=code)

    assert document["code"] == code
    assert f"(NVML code {code})" in document["error"]
    assert "gpus" not in document


def test_count_that_fails_is_an_error() -> None:
    """A driver that does not say how many GPUs there are has not said "none"."""
    document = collect({}, nvmlDeviceGetCount_v2=Code(999))

    assert "how many GPUs" in document["error"]
    assert "gpus" not in document


@pytest.mark.parametrize(("code", "outcome"), [(4, NO_PERMISSION), (15, FAILED)])
def test_gpu_that_cannot_be_opened_is_listed_with_the_reason(code: int, outcome: str) -> None:
    """A GPU that is counted and cannot be opened stays in the list; all its facts say why."""
    document = collect({0: nvml_fake.gpu(), 1: {"handle": code}})

    assert len(document["gpus"]) == 2
    assert {item["outcome"] for item in document["gpus"][1]["facts"].values()} == {outcome}
    assert "GPU 1 cannot be opened" in seen(document, "gpu.name", 1).detail


def test_change_that_waits_for_a_reset_is_pending() -> None:
    """What is in force and what comes after a reset are two facts."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetEccMode=(1, 0), nvmlDeviceGetMigMode=(0, 1))})

    assert [seen(document, key).value for key in ("gpu.ecc", "gpu.ecc_pending", "gpu.mig", "gpu.mig_pending")] == [
        True, False, False, True,
    ]  # fmt: skip


def test_vbios_of_zeros_is_hidden() -> None:
    """The VBIOS of zeros that a virtual GPU shows is no version."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetVbiosVersion=b"00.00.00.00.00")})

    assert seen(document, "gpu.vbios").outcome == HIDDEN


@pytest.mark.parametrize(("answer", "key"), [(b"", "gpu.vbios"), ((7, 7), "gpu.ecc")])
def test_answer_out_of_its_range_is_failed(answer: object, key: str) -> None:
    """An empty text, or a switch that is neither on nor off, is no value."""
    name = {"gpu.vbios": "nvmlDeviceGetVbiosVersion", "gpu.ecc": "nvmlDeviceGetEccMode"}[key]

    assert seen(collect({0: {**nvml_fake.gpu(), name: answer}}), key).outcome == FAILED


def test_document_is_json() -> None:
    """What the child process prints can be written as JSON, whatever the driver answered."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetName=b"\xff"), 1: {"handle": 15}})

    assert json.loads(json.dumps(document)) == document
