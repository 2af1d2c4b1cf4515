"""What NVML says, through the unmodified `pynvml` and a driver library in pure Python."""

import ctypes
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import nvml_fake
import pytest
from nvml_fake import Code
from nvml_unit import collect, library, seen

from envlock.facts import FAILED, HIDDEN, NO_PERMISSION, NOT_IN_DRIVER, NOT_SUPPORTED, VALUE
from envlock.probe.nvml import collecting
from envlock.registry import GPU, REGISTRY, in_scope

H100 = {
    "gpu.name": "NVIDIA H100 80GB HBM3",
    "gpu.brand": "nvidia",
    "gpu.architecture": "hopper",
    "gpu.compute_capability": "9.0",
    "gpu.cores": 16896,
    "gpu.memory": 81559,
    "gpu.memory_bus_width": 5120,
    "gpu.pci_id": "10de:2330",
    "gpu.subsystem_id": "10de:16c1",
    "gpu.board_part": "692-2G520-0200-000",
    "gpu.vbios": "96.00.A5.00.01",
    "gpu.gsp": True,
    "gpu.gsp_default": True,
    "gpu.gsp_version": "535.161.08",
    "gpu.inforom": "G520.0200.00.05",
    "gpu.inforom_oem": "2.1",
    "gpu.inforom_ecc": "7.16",
    "gpu.inforom_checksum": "0x001a2b3c",
    "gpu.inforom_valid": True,
    "gpu.ecc": True,
    "gpu.ecc_pending": True,
    "gpu.ecc_default": True,
    "gpu.mig": False,
    "gpu.mig_pending": False,
    "gpu.persistence": True,
    "gpu.compute_mode": "default",
    "gpu.addressing_mode": "hmm",
    "gpu.operation_mode": "all on",
    "gpu.virtualization": "none",
    "gpu.host_vgpu": "sr-iov",
    "gpu.c2c": False,
    "gpu.dram_encryption": False,
    "gpu.power_limit": 650000,
    "gpu.power_limit_default": 700000,
    "gpu.power_limit_min": 200000,
    "gpu.power_limit_max": 700000,
    "gpu.power_limit_enforced": 650000,
    "gpu.power_limit_module": 2500000,
    "gpu.clock_graphics_max": 1980,
    "gpu.clock_sm_max": 1981,
    "gpu.clock_memory_max": 2619,
    "gpu.clock_boost_max": 1980,
    "gpu.clock_graphics_application": 1755,
    "gpu.clock_memory_application": 2619,
    "gpu.clock_graphics_application_default": 1980,
    "gpu.clock_memory_application_default": 2619,
    "gpu.clock_graphics_offset": -15,
    "gpu.clock_memory_offset": -15,
    "gpu.event_reasons": ["gpu idle", "sw power cap"],
    "gpu.pcie_generation_max": 5,
    "gpu.pcie_generation_device": 5,
    "gpu.pcie_width_max": 16,
    "gpu.pcie_width": 16,
    "gpu.pcie_generation": 1,
    "gpu.cpu_affinity": "0-55,112-127",
    "gpu.numa_node": "0",
    "gpu.memory_node": 10,
    "gpu.peer_type": "switch connected",
    "gpu.fabric": "completed",
    "gpu.retired_pages_pending": False,
    "gpu.remapped_rows": ["correctable 1", "uncorrectable 0", "pending no", "failed no"],
    "gpu.recovery_action": "none",
    "gpu.uuid": "GPU-0dd00000-0000-4000-8000-000000000001",
    "gpu.serial": "1650000000001",
    "gpu.pdi": "0x050a83763506d60d",
    "gpu.chassis_serial": "1935693299617",
    "gpu.slot": 14,
    "gpu.tray": 4,
    "gpu.tray_node": 1,
    "gpu.minor": 0,
    "gpu.module_id": 4,
    "gpu.nvlink": ["1 x inactive", "17 x version 4 to switch"],
    "gpu.index": 0,
    "gpu.topology": [],
    "gpu.p2p": [],
}


def test_all_values_when_driver_answers() -> None:
    """A driver that answers everything gives a value for every fact that this board has."""
    document = collect({0: nvml_fake.gpu()})
    facts = document["gpus"][0]["facts"]

    assert {key: item["value"] for key, item in document["host"].items()} == {
        "nvidia.driver": "535.161.08",
        "nvidia.driver_branch": "r535_00",
        "nvidia.cuda": "12.4",
        "nvidia.confidential_computing": False,
    }
    assert {key: item["value"] for key, item in facts.items() if "value" in item} == H100
    assert {key: item["outcome"] for key, item in facts.items() if "value" not in item} == {
        "gpu.inforom_power": NOT_SUPPORTED,
        "gpu.mig_layout": NOT_SUPPORTED,
        "gpu.fabric_cluster": NOT_SUPPORTED,
        "gpu.clock_locked": HIDDEN,
    }
    assert (document["gpus"][0]["id"], document["count"]) == ("0000:01:00.0", 1)


def test_questions_are_the_registered_facts() -> None:
    """NVML is asked for exactly the GPU facts of the registry, and tells those of the driver that it can."""
    assert {entry.key for entry in in_scope(GPU)} == set(collecting.GPU_KEYS)
    assert len(set(collecting.GPU_KEYS)) == len(collecting.GPU_KEYS)
    assert set(collecting.HOST_KEYS) < set(REGISTRY)


def test_values_have_the_registered_types() -> None:
    """Each value has the type that the registry says."""
    types = {"string": str, "integer": int, "boolean": bool, "strings": list}

    assert {key for key, item in H100.items() if type(item) is not types[REGISTRY[key].type]} == set()


def test_no_call_is_made_twice() -> None:
    """A call that answers for several facts is made once for each GPU, whether it answers or fails."""
    fake = library({0: nvml_fake.gpu(nvmlDeviceGetEccMode=Code(3)), 1: nvml_fake.gpu()})
    collecting.collect(fake.module)
    calls = Counter(fake.asked)
    differing = {"nvmlDeviceGetInforomVersion", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetApplicationsClock",
                 "nvmlDeviceGetDefaultApplicationsClock", "nvmlDeviceGetClockOffsets"}  # fmt: skip

    again = {name for (name, _), times in calls.items() if times > 1} - differing
    assert {name for name in again if "NvLink" not in name} == set()
    assert calls["nvmlDeviceGetTopologyCommonAncestor", 0] == 1  # a pair has one path, not two


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(3, NOT_SUPPORTED), (26, NOT_SUPPORTED), (13, NOT_IN_DRIVER), (25, NOT_IN_DRIVER), (4, NO_PERMISSION),
     (14, FAILED), (15, FAILED), (16, FAILED), (999, FAILED)],
)  # fmt: skip
def test_each_error_code_keeps_its_outcome(code: int, outcome: str) -> None:
    """An error of one call is that fact's outcome, with the code in its detail, and no other fact's."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetVbiosVersion=Code(code))})

    assert seen(document, "gpu.vbios").outcome == outcome
    assert f"(NVML code {code})" in seen(document, "gpu.vbios").detail
    assert seen(document, "gpu.name").outcome == VALUE


@pytest.mark.parametrize(
    ("function", "key"),
    [("nvmlDeviceGetClockOffsets", "gpu.clock_graphics_offset"), ("nvmlDeviceGetModuleId", "gpu.module_id"),
     ("nvmlDeviceGetGspFirmwareMode", "gpu.gsp"), ("nvmlDeviceGetGpuFabricInfoV", "gpu.fabric"),
     ("nvmlDeviceGetPlatformInfo", "gpu.chassis_serial"), ("nvmlDeviceGetFieldValues", "gpu.recovery_action"),
     ("nvmlDeviceGetGspFirmwareVersion", "gpu.gsp_version"), ("nvmlDeviceGetCpuAffinity", "gpu.cpu_affinity")],
)  # fmt: skip
def test_structure_that_was_not_filled_is_no_value(function: str, key: str) -> None:
    """The zeros in a structure that the driver refused to fill are never read, whatever the binding returns."""
    document = collect({0: nvml_fake.gpu(**{function: Code(15)})})

    assert seen(document, key).outcome == FAILED
    assert seen(document, key).detail == "gpu is lost (NVML code 15)"


@pytest.mark.parametrize("answer", [b"\xf8\x81garbage", b"NVIDIA \xff"])
def test_name_that_is_not_text_is_failed(answer: bytes) -> None:
    """A driver that answers with garbage for a name fails that fact alone, and the bytes are told."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetName=answer)})

    assert (seen(document, "gpu.name").outcome, seen(document, "gpu.name").detail) == (
        FAILED,
        f"the driver answered with bytes that are not text: {answer.hex()}",
    )
    assert seen(document, "gpu.uuid").has_value


def test_structure_with_bytes_that_are_not_text_is_failed() -> None:
    """Garbage inside a structure fails as garbage in a text does."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetPlatformInfo={"chassisSerialNumber": b"\xf8"})})

    assert seen(document, "gpu.chassis_serial").outcome == FAILED


def test_symbol_that_is_missing_is_not_in_driver() -> None:
    """A function that the driver's library does not have is "not in this driver"."""
    table = nvml_fake.gpu()
    del table["nvmlDeviceGetGspFirmwareMode"], table["nvmlDeviceGetPdi"]
    document = collect({0: table})

    assert {seen(document, key).outcome for key in ("gpu.gsp", "gpu.gsp_default", "gpu.pdi")} == {NOT_IN_DRIVER}


@pytest.mark.parametrize(
    ("newer", "older", "key", "expected"),
    [
        ("nvmlDeviceGetClockOffsets", {"nvmlDeviceGetGpcClkVfOffset": 30}, "gpu.clock_graphics_offset", 30),
        ("nvmlDeviceGetClockOffsets", {"nvmlDeviceGetMemClkVfOffset": -40}, "gpu.clock_memory_offset", -40),
        ("nvmlDeviceGetCurrentClocksEventReasons", {"nvmlDeviceGetCurrentClocksThrottleReasons": 8},
         "gpu.event_reasons", ("hw slowdown",)),
        ("nvmlDeviceGetGpuFabricInfoV", {"nvmlDeviceGetGpuFabricInfo": {"state": 2}}, "gpu.fabric", "in progress"),
    ],
)  # fmt: skip
def test_older_driver_is_asked_by_the_older_function(
    newer: str, older: Mapping[str, Any], key: str, expected: object
) -> None:
    """Where the driver lacks a function, the one that it replaced is asked, and named as the source."""
    table = nvml_fake.gpu(**older)
    del table[newer]
    found = seen(collect({0: table}), key)

    assert found.value == expected
    assert found.source == "NVML " + next(iter(older))


def test_answer_of_the_newer_function_is_final() -> None:
    """A driver that has the newer function and says "not supported" is not asked by the older one."""
    table = nvml_fake.gpu(nvmlDeviceGetClockOffsets=Code(3), nvmlDeviceGetGpcClkVfOffset=99)

    assert seen(collect({0: table}), "gpu.clock_graphics_offset").outcome == NOT_SUPPORTED


def test_binding_without_the_function_is_failed() -> None:
    """A `pynvml` too old to have a function or a structure fails the fact: the driver was never asked."""
    fake = library({0: nvml_fake.gpu()})
    lacking = {"nvmlDeviceGetMigMode", "c_nvmlPlatformInfo_v2_t", "nvmlDeviceGetPdi"}

    class Old:
        def __getattr__(self, name: str) -> Any:
            if name in lacking:
                raise AttributeError(name)
            return getattr(fake.module, name)

    document = collecting.collect(Old())

    for key in ("gpu.mig", "gpu.mig_layout", "gpu.chassis_serial", "gpu.pdi"):
        assert seen(document, key).outcome == FAILED
        assert seen(document, key).detail == "this NVML binding is too old to ask"


def test_structure_of_the_wrong_size_is_not_read() -> None:
    """A `pynvml` whose structure is larger than the driver's would read other bytes: it is not used."""
    fake = library({0: nvml_fake.gpu()})

    class Uuid(ctypes.Structure):
        """As `pynvml` 12.550 has it: a UUID of 80 bytes before the state, where the driver writes 16."""

        _fields_: ClassVar = [("version", ctypes.c_uint), ("clusterUuid", ctypes.c_char * 80),
                              ("status", ctypes.c_uint), ("cliqueId", ctypes.c_uint), ("state", ctypes.c_uint),
                              ("healthMask", ctypes.c_uint)]  # fmt: skip

    class Old:
        def __getattr__(self, name: str) -> Any:
            return Uuid if name.startswith("c_nvmlGpuFabricInfo") else getattr(fake.module, name)

    document = collecting.collect(Old())

    for key in ("gpu.fabric", "gpu.fabric_cluster"):
        assert seen(document, key).outcome == FAILED
        assert seen(document, key).detail == "this NVML binding has the wrong size for the answer"


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
    """A GPU that is counted and cannot be opened stays in the list; all that it would have said says why."""
    document = collect({0: nvml_fake.gpu(), 1: {"handle": code}})
    facts = document["gpus"][1]["facts"]

    assert len(document["gpus"]) == 2
    assert set(facts) == set(collecting.GPU_KEYS)
    known = {"gpu.index", "gpu.clock_locked"}
    assert {item["outcome"] for key, item in facts.items() if key not in known} == {outcome}
    assert "the GPU cannot be opened" in seen(document, "gpu.name", 1).detail
    assert seen(document, "gpu.index", 1).value == 1


def test_lost_gpu_fails_and_the_others_answer() -> None:
    """A GPU that fell off the bus fails in every fact, with NVML's code; its neighbours are as they were."""
    lost = dict.fromkeys(nvml_fake.gpu(), Code(15))
    document = collect({0: {**lost, "handle": 0}, 1: nvml_fake.gpu()})
    facts = document["gpus"][0]["facts"]

    known = {"gpu.index", "gpu.clock_locked"}
    assert {item["outcome"] for key, item in facts.items() if key not in known} == {FAILED}
    assert document["gpus"][0]["id"] == ""
    assert seen(document, "gpu.vbios", 1).has_value
    assert seen(document, "gpu.topology", 1).detail == "to GPU 0: gpu is lost (NVML code 15)"


def test_only_the_host_wakes_no_gpu() -> None:
    """Without its GPUs the driver is started so that it attaches none, and none is opened or asked."""
    fake = library({0: nvml_fake.gpu(), 1: nvml_fake.gpu()})
    document = collecting.collect(fake.module, gpus=False)

    assert (document["count"], document["gpus"]) == (2, [])
    assert fake.flags == [3]  # NO_GPUS and NO_ATTACH
    assert fake.asked == []
    assert document["host"]["nvidia.driver"]["value"] == "535.161.08"


def test_all_of_sixteen_gpus_are_asked() -> None:
    """Nothing stops at eight."""
    document = collect({index: nvml_fake.gpu(b"00000000:%02X:00.0" % (index + 1)) for index in range(16)})

    assert len({gpu["id"] for gpu in document["gpus"]}) == 16
    assert seen(document, "gpu.topology", 15).value == ("15 x node",)


def test_change_that_waits_for_a_reset_is_pending() -> None:
    """What is in force and what comes after a reset are two facts."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetEccMode=(1, 0), nvmlDeviceGetMigMode=(0, 1))})

    assert [seen(document, key).value for key in ("gpu.ecc", "gpu.ecc_pending", "gpu.mig", "gpu.mig_pending")] == [
        True, False, False, True,
    ]  # fmt: skip


def test_limit_that_a_laptop_hides_leaves_the_one_in_force() -> None:
    """A laptop that does not support the limit still tells the one in force."""
    table = nvml_fake.gpu(nvmlDeviceGetPowerManagementLimit=Code(3), nvmlDeviceGetEnforcedPowerLimit=80000)
    document = collect({0: table})

    assert seen(document, "gpu.power_limit").outcome == NOT_SUPPORTED
    assert seen(document, "gpu.power_limit_enforced").value == 80000


def test_corrupted_inforom_is_an_answer() -> None:
    """Asked whether the InfoROM is intact, code 14 means no; any other code leaves it open."""
    corrupted = collect({0: nvml_fake.gpu(nvmlDeviceValidateInforom=Code(14))})
    lost = collect({0: nvml_fake.gpu(nvmlDeviceValidateInforom=Code(15))})

    assert seen(corrupted, "gpu.inforom_valid").value is False
    assert seen(lost, "gpu.inforom_valid").outcome == FAILED


def test_document_is_json() -> None:
    """What the child process prints can be written as JSON, whatever the driver answered."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetName=b"\xff"), 1: {"handle": 15}})

    assert json.loads(json.dumps(document)) == document


def test_what_breaks_off_keeps_the_answers_before() -> None:
    """Of a driver that stopped answering, what it said is kept; the rest has failed with the reason."""
    fake = library({0: nvml_fake.gpu(), 1: nvml_fake.gpu(b"00000000:02:00.0")})
    first = list(collecting.events(fake.module))
    document = collecting.assembled(first[:4], "it hung")

    assert document["notes"] == ["it hung"]
    assert seen(document, "gpu.vbios", 0).value == "96.00.A5.00.01"
    assert (seen(document, "gpu.topology", 0).outcome, seen(document, "gpu.vbios", 1).detail) == (FAILED, "it hung")
    assert set(document["gpus"][1]["facts"]) == set(collecting.GPU_KEYS)
    assert seen(document, "gpu.index", 1).value == 1
    # The GPU that did not come back from a question is known by its place.
    assert [gpu["id"] for gpu in document["gpus"]] == ["0000:01:00.0", "0000:02:00.0"]


def test_absurd_number_of_gpus_is_an_error() -> None:
    """A driver that counts four billion GPUs has broken; nobody goes through them."""
    document = collect({0: nvml_fake.gpu()}, nvmlDeviceGetCount_v2=4294967295)

    assert document["error"] == "the driver counts 4294967295 GPUs, which is more than any host has"
