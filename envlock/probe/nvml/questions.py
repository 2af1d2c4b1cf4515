"""The questions to NVML: which call answers which fact, and how.

What needs more than one call (MIG instances, links, paths between GPUs) is
`envlock.probe.nvml.layout`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Callable, Tuple

from envlock.facts import HIDDEN, NOT_IN_DRIVER, Value, absent
from envlock.probe.host import Absent
from envlock.probe.nvml import words
from envlock.probe.nvml.binding import CORRUPTED_INFOROM, INVALID, Binding, Call, Question, Told, TooOld, code, sized

LOCKED_CLOCKS = absent(HIDDEN, "no call of NVML", "no driver tells whether clocks are locked (`nvidia-smi -lgc`)")

# nvmlClockType_t, nvmlInforomObject_t, nvmlAffinityScope_t, nvmlPowerScopeType_t, field ids (nvml.h).
_GRAPHICS, _SM, _MEMORY = 0, 1, 2
_OEM, _ECC, _POWER = 0, 1, 2
_NODE = 0
_FIELDS = ((230, 0), (190, 1))  # recovery action; power limit in force, of the module
_CPU_WORDS, _NODE_WORDS = 64, 16  # room for 4096 CPUs and 1024 NUMA nodes


def _ask(key: str, function: str, convert: Callable[[Any], Value | Told], *arguments: Any) -> Question:
    return Question(key, (Call(function, arguments),), convert)


def _part(index: int, convert: Callable[[Any], Value | Told]) -> Callable[[Any], Value | Told]:
    return lambda found: convert(found[index])


# ---- calls that the binding cannot be left alone with -----------------------------------------


def _gsp_modes(binding: Binding, handle: Any) -> Tuple[int, int]:
    """Bindings before 12.570 want both results as arguments."""
    from ctypes import byref, c_uint

    enabled, default = c_uint(), c_uint()
    binding.raw("nvmlDeviceGetGspFirmwareMode", handle, byref(enabled), byref(default))
    return enabled.value, default.value


def _gsp_version(binding: Binding, handle: Any) -> bytes:
    """Bindings before 12.570 want the buffer as an argument; newer ones return its bytes."""
    from ctypes import create_string_buffer

    version = create_string_buffer(64)  # NVML_GSP_FIRMWARE_VERSION_BUF_SIZE
    binding.raw("nvmlDeviceGetGspFirmwareVersion", handle, version)
    return version.value


def _module_id(binding: Binding, handle: Any) -> int:
    """Bindings before 12.570 want the result as an argument, and drop the error code."""
    from ctypes import byref, c_uint

    module = c_uint()
    binding.raw("nvmlDeviceGetModuleId", handle, byref(module))
    return module.value


def _fabric(binding: Binding, handle: Any) -> Any:
    return binding.filled(
        "nvmlDeviceGetGpuFabricInfoV", handle, "c_nvmlGpuFabricInfoV_t", "nvmlGpuFabricInfo_v2"
    )  # fmt: skip


def _fabric_before_550(binding: Binding, handle: Any) -> Any:
    from ctypes import byref

    kind = getattr(binding.module, "c_nvmlGpuFabricInfo_t", None)
    if kind is None:
        raise TooOld
    found = sized(kind(), 28)  # nvmlGpuFabricInfo_t carries no version, and so no size
    binding.raw("nvmlDeviceGetGpuFabricInfo", handle, byref(found))
    return found


def _platform(binding: Binding, handle: Any) -> Any:
    return binding.filled(
        "nvmlDeviceGetPlatformInfo", handle, "c_nvmlPlatformInfo_v2_t", "nvmlPlatformInfo_v2"
    )  # fmt: skip


def _offset(kind: int) -> Callable[[Binding, Any], int]:
    """The binding's own function drops the error code: 0 would be an invented offset."""

    def ask(binding: Binding, handle: Any) -> int:
        found = binding.filled(
            "nvmlDeviceGetClockOffsets", handle, "c_nvmlClockOffset_t", "nvmlClockOffset_v1", type=kind, pstate=0
        )
        return int(found.clockOffsetMHz)

    return ask


def _intact(binding: Binding, handle: Any) -> bool:
    """A corrupted InfoROM is this call's answer, not its failure."""
    try:
        binding.call("nvmlDeviceValidateInforom", handle)
    except Exception as error:
        if code(error) != CORRUPTED_INFOROM:
            raise
        return False
    return True


def _fields(binding: Binding, handle: Any) -> Any:
    found = binding.call("nvmlDeviceGetFieldValues", handle, list(_FIELDS))
    return tuple((binding, item) for item in found)


def _field(found: Tuple[Binding, Any]) -> int:
    """Return one value of nvmlDeviceGetFieldValues; each has a code and a type of its own."""
    binding, item = found
    if item.nvmlReturn == INVALID:
        raise Absent(NOT_IN_DRIVER, "the driver does not know field {}".format(item.fieldId))
    if item.nvmlReturn != 0:
        raise binding.error(item.nvmlReturn)
    kinds = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    if item.valueType not in kinds:
        raise ValueError("a type of value that this envlock does not know: {}".format(item.valueType))
    return int(getattr(item.value, kinds[item.valueType]))


_GSP = (Call("nvmlDeviceGetGspFirmwareMode", (), _gsp_modes),)
_FABRIC = (
    Call("nvmlDeviceGetGpuFabricInfoV", (), _fabric),
    Call("nvmlDeviceGetGpuFabricInfo", (), _fabric_before_550),
)
_PLATFORM = (Call("nvmlDeviceGetPlatformInfo", (), _platform),)
_FIELD_VALUES = (Call("nvmlDeviceGetFieldValues", (), _fields),)


# ---- the table --------------------------------------------------------------------------------

HOST = (
    _ask("nvidia.driver", "nvmlSystemGetDriverVersion", words.text),
    _ask("nvidia.driver_branch", "nvmlSystemGetDriverBranch", lambda found: words.text(found.branch)),
    _ask("nvidia.cuda", "nvmlSystemGetCudaDriverVersion_v2", words.cuda),
    _ask("nvidia.confidential_computing", "nvmlSystemGetConfComputeState", lambda found: words.switch(found.ccFeature)),
)

_PART = (
    _ask("gpu.name", "nvmlDeviceGetName", words.text),
    _ask("gpu.brand", "nvmlDeviceGetBrand", words.named(words.BRANDS)),
    _ask("gpu.architecture", "nvmlDeviceGetArchitecture", words.named(words.ARCHITECTURES)),
    _ask("gpu.compute_capability", "nvmlDeviceGetCudaComputeCapability", lambda pair: "{}.{}".format(*pair)),
    _ask("gpu.cores", "nvmlDeviceGetNumGpuCores", words.number),
    _ask("gpu.memory", "nvmlDeviceGetMemoryInfo", words.mebibytes),
    _ask("gpu.memory_bus_width", "nvmlDeviceGetMemoryBusWidth", words.number),
    _ask("gpu.pci_id", "nvmlDeviceGetPciInfo", lambda pci: words.pci_ids(pci.pciDeviceId)),
    _ask("gpu.subsystem_id", "nvmlDeviceGetPciInfo", lambda pci: words.pci_ids(pci.pciSubSystemId)),
    _ask("gpu.board_part", "nvmlDeviceGetBoardPartNumber", words.text),
)

_FIRMWARE = (
    _ask("gpu.vbios", "nvmlDeviceGetVbiosVersion", words.vbios),
    Question("gpu.gsp", _GSP, _part(0, words.switch)),
    Question("gpu.gsp_default", _GSP, _part(1, words.switch)),
    Question("gpu.gsp_version", (Call("nvmlDeviceGetGspFirmwareVersion", (), _gsp_version),), words.text),
    _ask("gpu.inforom", "nvmlDeviceGetInforomImageVersion", words.text),
    _ask("gpu.inforom_oem", "nvmlDeviceGetInforomVersion", words.text, _OEM),
    _ask("gpu.inforom_ecc", "nvmlDeviceGetInforomVersion", words.text, _ECC),
    _ask("gpu.inforom_power", "nvmlDeviceGetInforomVersion", words.text, _POWER),
    _ask("gpu.inforom_checksum", "nvmlDeviceGetInforomConfigurationChecksum", lambda found: "{:#010x}".format(found)),
    Question("gpu.inforom_valid", (Call("nvmlDeviceValidateInforom", (), _intact),), bool),
)

_MODES = (
    _ask("gpu.ecc", "nvmlDeviceGetEccMode", _part(0, words.switch)),
    _ask("gpu.ecc_pending", "nvmlDeviceGetEccMode", _part(1, words.switch)),
    _ask("gpu.ecc_default", "nvmlDeviceGetDefaultEccMode", _part(0, words.switch)),
    _ask("gpu.mig", "nvmlDeviceGetMigMode", _part(0, words.switch)),
    _ask("gpu.mig_pending", "nvmlDeviceGetMigMode", _part(1, words.switch)),
    _ask("gpu.persistence", "nvmlDeviceGetPersistenceMode", words.switch),
    _ask("gpu.compute_mode", "nvmlDeviceGetComputeMode", words.named(words.COMPUTE_MODES)),
    _ask("gpu.addressing_mode", "nvmlDeviceGetAddressingMode", words.named(words.ADDRESSING)),
    _ask("gpu.operation_mode", "nvmlDeviceGetGpuOperationMode", _part(0, words.named(words.OPERATION))),
    _ask("gpu.virtualization", "nvmlDeviceGetVirtualizationMode", words.named(words.VIRTUALIZATION)),
    _ask("gpu.host_vgpu", "nvmlDeviceGetHostVgpuMode", words.named(words.HOST_VGPU)),
    _ask("gpu.c2c", "nvmlDeviceGetC2cModeInfoV", lambda found: words.switch(found.isC2cEnabled)),
    _ask("gpu.dram_encryption", "nvmlDeviceGetDramEncryptionMode", _part(0, words.switch)),
)

_LIMITS = (
    _ask("gpu.power_limit", "nvmlDeviceGetPowerManagementLimit", words.number),
    _ask("gpu.power_limit_default", "nvmlDeviceGetPowerManagementDefaultLimit", words.number),
    _ask("gpu.power_limit_min", "nvmlDeviceGetPowerManagementLimitConstraints", _part(0, words.number)),
    _ask("gpu.power_limit_max", "nvmlDeviceGetPowerManagementLimitConstraints", _part(1, words.number)),
    _ask("gpu.power_limit_enforced", "nvmlDeviceGetEnforcedPowerLimit", words.number),
    Question("gpu.power_limit_module", _FIELD_VALUES, _part(1, _field)),
    _ask("gpu.clock_graphics_max", "nvmlDeviceGetMaxClockInfo", words.number, _GRAPHICS),
    _ask("gpu.clock_sm_max", "nvmlDeviceGetMaxClockInfo", words.number, _SM),
    _ask("gpu.clock_memory_max", "nvmlDeviceGetMaxClockInfo", words.number, _MEMORY),
    _ask("gpu.clock_boost_max", "nvmlDeviceGetMaxCustomerBoostClock", words.number, _GRAPHICS),
    _ask("gpu.clock_graphics_application", "nvmlDeviceGetApplicationsClock", words.number, _GRAPHICS),
    _ask("gpu.clock_memory_application", "nvmlDeviceGetApplicationsClock", words.number, _MEMORY),
    _ask("gpu.clock_graphics_application_default", "nvmlDeviceGetDefaultApplicationsClock", words.number, _GRAPHICS),
    _ask("gpu.clock_memory_application_default", "nvmlDeviceGetDefaultApplicationsClock", words.number, _MEMORY),
    Question(
        "gpu.clock_graphics_offset",
        (Call("nvmlDeviceGetClockOffsets", (_GRAPHICS,), _offset(_GRAPHICS)), Call("nvmlDeviceGetGpcClkVfOffset")),
        words.number,
    ),
    Question(
        "gpu.clock_memory_offset",
        (Call("nvmlDeviceGetClockOffsets", (_MEMORY,), _offset(_MEMORY)), Call("nvmlDeviceGetMemClkVfOffset")),
        words.number,
    ),
    Question(
        "gpu.event_reasons",
        (Call("nvmlDeviceGetCurrentClocksEventReasons"), Call("nvmlDeviceGetCurrentClocksThrottleReasons")),
        words.reasons,
    ),
)

_LINK = (
    _ask("gpu.pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", words.number),
    _ask("gpu.pcie_generation_device", "nvmlDeviceGetGpuMaxPcieLinkGeneration", words.number),
    _ask("gpu.pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", words.number),
    _ask("gpu.pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", words.number),
    _ask("gpu.pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", words.number),
    _ask("gpu.cpu_affinity", "nvmlDeviceGetCpuAffinity", words.set_of("CPU"), _CPU_WORDS),
    _ask("gpu.numa_node", "nvmlDeviceGetMemoryAffinity", words.set_of("NUMA node"), _NODE_WORDS, _NODE),
    _ask("gpu.memory_node", "nvmlDeviceGetNumaNodeId", words.memory_node),
    Question("gpu.peer_type", _PLATFORM, lambda found: words.name_of(words.PEER_TYPES, ord(found.peerType))),
    Question("gpu.fabric", _FABRIC, words.fabric),
)

_HEALTH = (
    _ask("gpu.retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus", words.switch),
    _ask("gpu.remapped_rows", "nvmlDeviceGetRemappedRows", words.remapped),
    Question(
        "gpu.recovery_action", _FIELD_VALUES, lambda found: words.name_of(words.RECOVERY, _field(found[0]))
    ),
)  # fmt: skip

_WHICH = (
    _ask("gpu.uuid", "nvmlDeviceGetUUID", words.text),
    _ask("gpu.serial", "nvmlDeviceGetSerial", words.serial),
    _ask("gpu.pdi", "nvmlDeviceGetPdi", words.pdi),
    Question("gpu.chassis_serial", _PLATFORM, words.chassis),
    Question("gpu.slot", _PLATFORM, lambda found: ord(found.slotNumber)),
    Question("gpu.tray", _PLATFORM, lambda found: ord(found.trayIndex)),
    Question("gpu.tray_node", _PLATFORM, lambda found: ord(found.hostId)),
    Question("gpu.fabric_cluster", _FABRIC, words.fabric_cluster),
    _ask("gpu.minor", "nvmlDeviceGetMinorNumber", words.number),
    Question("gpu.module_id", (Call("nvmlDeviceGetModuleId", (), _module_id),), words.number),
)

GPU = (*_PART, *_FIRMWARE, *_MODES, *_LIMITS, *_LINK, *_HEALTH, *_WHICH)
