"""NVML's numbers as words: what they are called, and that none is invented."""

import nvml_fake
import pynvml
import pytest
from nvml_fake import Code
from nvml_unit import collect, seen

from envlock.facts import FAILED, HIDDEN, NOT_IN_DRIVER, NOT_SUPPORTED
from envlock.probe.nvml import words as nvml_words


@pytest.mark.parametrize(
    ("function", "answer", "key"),
    [
        ("nvmlDeviceGetBrand", 77, "gpu.brand"),
        ("nvmlDeviceGetBrand", 0, "gpu.brand"),
        ("nvmlDeviceGetArchitecture", 99, "gpu.architecture"),
        ("nvmlDeviceGetComputeMode", 9, "gpu.compute_mode"),
        ("nvmlDeviceGetAddressingMode", {"value": 9}, "gpu.addressing_mode"),
        ("nvmlDeviceGetGpuOperationMode", (9, 0), "gpu.operation_mode"),
        ("nvmlDeviceGetVirtualizationMode", 9, "gpu.virtualization"),
        ("nvmlDeviceGetHostVgpuMode", 9, "gpu.host_vgpu"),
        ("nvmlDeviceGetGpuFabricInfoV", {"state": 9}, "gpu.fabric"),
        ("nvmlDeviceGetPlatformInfo", {"peerType": b"\x02"}, "gpu.peer_type"),
        ("nvmlDeviceGetFieldValues", nvml_fake.fields(f230=99), "gpu.recovery_action"),
        ("nvmlDeviceGetNvLinkVersion", 99, "gpu.nvlink"),
        ("nvmlDeviceGetNvLinkRemoteDeviceType", 99, "gpu.nvlink"),
        ("nvmlDeviceGetCurrentClocksEventReasons", 1 << 40, "gpu.event_reasons"),
        ("nvmlDeviceGetEccMode", (7, 7), "gpu.ecc"),
        ("nvmlDeviceGetVbiosVersion", b"", "gpu.vbios"),
    ],
)
def test_number_without_a_name_is_failed(function: str, answer: object, key: str) -> None:
    """A number that this envlock does not know is a failure that shows it, never a guess."""
    found = seen(collect({0: nvml_fake.gpu(**{function: answer})}), key)

    assert found.outcome == FAILED
    assert not isinstance(answer, int) or f"{answer:#x}" in found.detail or str(answer) in found.detail


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("NVML_BRAND_", nvml_words.BRANDS),
        ("NVML_COMPUTEMODE_", nvml_words.COMPUTE_MODES),
        ("NVML_DEVICE_ADDRESSING_MODE_", nvml_words.ADDRESSING),
        ("NVML_GOM_", nvml_words.OPERATION),
        ("NVML_GPU_VIRTUALIZATION_MODE_", nvml_words.VIRTUALIZATION),
        ("NVML_HOST_VGPU_MODE_", nvml_words.HOST_VGPU),
        ("NVML_GPU_RECOVERY_ACTION_", nvml_words.RECOVERY),
        ("NVML_GPU_FABRIC_STATE_", nvml_words.FABRIC),
        ("NVML_TOPOLOGY_", nvml_words.PATHS),
        ("NVML_P2P_STATUS_", nvml_words.PEERS),
        ("NVML_NVLINK_VERSION_", nvml_words.LINK_VERSIONS),
        ("NVML_NVLINK_DEVICE_TYPE_", nvml_words.LINK_ENDS),
        ("NVML_DEVICE_ARCH_", nvml_words.ARCHITECTURES),
    ],
)
def test_named_numbers_are_those_of_the_header(prefix: str, names: dict[int, str]) -> None:
    """Every name is of a number that NVIDIA's own module has, and no number of its list is forgotten unseen."""
    listed = {getattr(pynvml, name) for name in dir(pynvml) if name.startswith(prefix) and not name.endswith("COUNT")}
    unnamed = {"NVML_BRAND_": {0, 17, 18, 19}, "NVML_DEVICE_ARCH_": {11, 12, 15, 0xFFFFFFFF},
               "NVML_GPU_FABRIC_STATE_": {0}, "NVML_P2P_STATUS_": {6}, "NVML_NVLINK_VERSION_": {0}}  # fmt: skip

    assert listed - set(names) == unnamed.get(prefix, set())
    assert set(names) <= listed


def test_a100_link_is_version_three() -> None:
    """The link version is an enumeration: the 5 of an A100 is 3.1."""
    assert nvml_words.LINK_VERSIONS[pynvml.NVML_NVLINK_VERSION_3_1] == "3.1"


def test_vbios_of_zeros_is_hidden() -> None:
    """The VBIOS of zeros that a virtual GPU shows is no version."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetVbiosVersion=b"00.00.00.00.00")})

    assert seen(document, "gpu.vbios").outcome == HIDDEN


@pytest.mark.parametrize(
    ("function", "answer", "key"),
    [("nvmlDeviceGetSerial", b"0", "gpu.serial"), ("nvmlDeviceGetPdi", {"value": 0}, "gpu.pdi"),
     ("nvmlDeviceGetPlatformInfo", {"chassisSerialNumber": b""}, "gpu.chassis_serial"),
     ("nvmlDeviceGetGpuFabricInfoV", {"state": 0}, "gpu.fabric"), ("nvmlDeviceGetNumaNodeId", -1, "gpu.memory_node"),
     ("nvmlDeviceGetCpuAffinity", [0], "gpu.cpu_affinity"), ("nvmlDeviceGetMemoryAffinity", [0], "gpu.numa_node")],
)  # fmt: skip
def test_zeros_that_stand_for_nothing_are_no_value(function: str, answer: object, key: str) -> None:
    """Zeros in place of a serial number, an identifier, a state or a set are "not supported"."""
    assert seen(collect({0: nvml_fake.gpu(**{function: answer})}), key).outcome == NOT_SUPPORTED


def test_fabric_of_several_nodes_has_a_name() -> None:
    """The UUID of a multi-node NVLink domain is written as UUIDs are."""
    cluster = bytes.fromhex("6cdfe88740483d433ac2c8ee6ba213a8")
    table = nvml_fake.gpu(nvmlDeviceGetGpuFabricInfoV={"clusterUuid": list(cluster), "state": 3})

    assert seen(collect({0: table}), "gpu.fabric_cluster").value == "6cdfe887-4048-3d43-3ac2-c8ee6ba213a8"


def test_fabric_that_ended_with_an_error_is_failed() -> None:
    """A registration that was completed with an error is not "completed"."""
    table = nvml_fake.gpu(nvmlDeviceGetGpuFabricInfoV={"state": 3, "status": 999})

    assert seen(collect({0: table}), "gpu.fabric").outcome == FAILED
    assert "NVML code 999" in seen(collect({0: table}), "gpu.fabric").detail


def test_no_reason_is_an_empty_list() -> None:
    """Clocks that nothing holds down have no reasons: an answer, not an absence."""
    assert seen(collect({0: nvml_fake.gpu(nvmlDeviceGetCurrentClocksEventReasons=0)}), "gpu.event_reasons").value == ()


def test_recovery_action_of_a_sick_gpu_is_told() -> None:
    """A GPU that asks to be reset says so, though every other answer is in order."""
    table = nvml_fake.gpu(nvmlDeviceGetFieldValues=nvml_fake.fields(f230=1, f190=Code(3)))
    document = collect({0: table})

    assert seen(document, "gpu.recovery_action").value == "reset"
    assert seen(document, "gpu.power_limit_module").outcome == NOT_SUPPORTED


def test_field_that_the_driver_does_not_know_is_not_in_driver() -> None:
    """Each field has its own error: an unknown one is of a newer driver."""
    table = nvml_fake.gpu(nvmlDeviceGetFieldValues=nvml_fake.fields(f230=Code(2), f190=2500000))
    document = collect({0: table})

    assert seen(document, "gpu.recovery_action").outcome == NOT_IN_DRIVER
    assert seen(document, "gpu.power_limit_module").value == 2500000
