"""Facts about each NVIDIA GPU. Those about the driver and the node are `envlock.registry.nvidia`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from envlock.facts import Value
from envlock.registry.entry import (
    BITS,
    BOOLEAN,
    GPU,
    IDENTITY,
    INFORMATION,
    INTEGER,
    SPEED,
    STRING,
    STRINGS,
    Entry,
)

_CLOCKS_COMMAND = "nvidia-smi -i {gpu} -ac {gpu.clock_memory_application},{gpu.clock_graphics_application}"
_MODEL = "run on a host with the locked GPU model"
_VBIOS = "flash the vendor's VBIOS of the locked version"
_INFOROM = "ask the vendor for the InfoROM update"
_LINKS = "look for a GPU or switch with a fault in the kernel log (Xid, SXid), and at `nvidia-smi nvlink -s`"
_SLOT = "put the board into a slot as wide and fast, or look for a worn riser"


def _gpu(key: str, label: str, kind: str, why: str, source: str, group: str, remedy: str = "", unit: str = "",
         rule: str = "exact", severity: str = "warning", default: str = "", default_value: Value | None = None,
         volatile: bool = False, command: str = "", identity: str = "") -> Entry:  # fmt: skip
    """Return a locked fact read by the NVML call `source` (or from what `source` says, with a blank in it)."""
    read = source if " " in source or source.startswith("/") else "NVML " + source
    return Entry(
        key, label, kind, why, read, group, GPU, unit, True, rule, severity, remedy, default=default,
        default_value=default_value, volatile=volatile, command=command, identity=identity,
    )  # fmt: skip


def _seen(key: str, label: str, kind: str, why: str, source: str, group: str = INFORMATION, unit: str = "",
          unique: bool = False) -> Entry:  # fmt: skip
    """Return a fact that differs in normal life, or that names this one GPU: observed, never locked."""
    read = source if " " in source or source.startswith("/") else "NVML " + source
    return Entry(key, label, kind, why, read, group, GPU, unit, unique=unique)


_WHICH = (
    _seen("gpu.uuid", "UUID", STRING, "names this one GPU", "nvmlDeviceGetUUID", IDENTITY, unique=True),
    _seen("gpu.serial", "serial number", STRING, "names this one board; boards with two GPUs share it",
          "nvmlDeviceGetSerial", IDENTITY, unique=True),
    _seen("gpu.pdi", "device identifier", STRING, "names this one GPU to its maker",
          "nvmlDeviceGetPdi", IDENTITY, unique=True),
    _seen("gpu.chassis_serial", "chassis serial number", STRING, "names the chassis of a rack-scale system",
          "nvmlDeviceGetPlatformInfo", IDENTITY, unique=True),
    _seen("gpu.fabric_cluster", "fabric cluster", STRING, "names the NVLink domain of several nodes",
          "nvmlDeviceGetGpuFabricInfoV", IDENTITY, unique=True),
    _seen("gpu.slot", "slot", INTEGER, "the place in the chassis of a rack-scale system, switches counted",
          "nvmlDeviceGetPlatformInfo", IDENTITY),
    _seen("gpu.tray", "tray", INTEGER, "the compute tray in the chassis of a rack-scale system",
          "nvmlDeviceGetPlatformInfo", IDENTITY),
    _seen("gpu.tray_node", "node of the tray", INTEGER, "the node in its slot, where one slot holds several",
          "nvmlDeviceGetPlatformInfo", IDENTITY),
    _seen("gpu.index", "index", INTEGER, "the driver's number for this GPU; it may change with a reboot",
          "nvmlDeviceGetHandleByIndex", IDENTITY),
    _seen("gpu.minor", "device file", INTEGER, "the number of /dev/nvidiaN",
          "nvmlDeviceGetMinorNumber", IDENTITY),
    _seen("gpu.module_id", "module", INTEGER, "the place on a board with several GPUs",
          "nvmlDeviceGetModuleId", IDENTITY),
)  # fmt: skip

_PART = (
    _gpu("gpu.name", "name", STRING, "the model as the driver calls it; drivers rename models",
         "nvmlDeviceGetName", IDENTITY, _MODEL, identity="warning"),
    _gpu("gpu.brand", "brand", STRING, "product line; drivers switch features by it",
         "nvmlDeviceGetBrand", IDENTITY, _MODEL, identity="warning"),
    _gpu("gpu.architecture", "architecture", STRING, "generation of the chip",
         "nvmlDeviceGetArchitecture", BITS, _MODEL, severity="error", identity="error"),
    _gpu("gpu.compute_capability", "compute capability", STRING, "decides which kernels exist for this GPU",
         "nvmlDeviceGetCudaComputeCapability", BITS, _MODEL, severity="error", identity="error"),
    _gpu("gpu.cores", "CUDA cores", INTEGER, "kernels are split by the number of multiprocessors",
         "nvmlDeviceGetNumGpuCores", BITS, _MODEL, severity="error", identity="error"),
    _gpu("gpu.memory", "memory", INTEGER, "workspace sizes, and with them algorithms, are chosen by free memory",
         "nvmlDeviceGetMemoryInfo", BITS, _MODEL, "MiB", "within 64 MiB", "error", identity="error"),
    _gpu("gpu.memory_bus_width", "memory bus width", INTEGER, "tells variants of one model apart",
         "nvmlDeviceGetMemoryBusWidth", IDENTITY, _MODEL, "bit", identity="error"),
    _gpu("gpu.pci_id", "PCI id", STRING, "vendor:device, the model's one stable name",
         "/sys/bus/pci/devices/*/device", BITS, _MODEL, severity="error", identity="error"),
    _gpu("gpu.subsystem_id", "PCI subsystem", STRING, "which board carries the chip",
         "/sys/bus/pci/devices/*/subsystem_device", IDENTITY, _MODEL, identity="error"),
    _gpu("gpu.board_part", "board part number", STRING, "revision of the board; it may differ inside one node",
         "nvmlDeviceGetBoardPartNumber", IDENTITY, _MODEL, identity="warning"),
)  # fmt: skip

_FIRMWARE = (
    _gpu("gpu.vbios", "VBIOS", STRING, "firmware of the board: clocks, power, memory timing",
         "nvmlDeviceGetVbiosVersion", BITS, _VBIOS, severity="error", identity="warning"),
    _gpu("gpu.gsp", "GSP firmware", BOOLEAN, "with it, part of the driver runs on the GPU itself",
         "nvmlDeviceGetGspFirmwareMode", SPEED,
         "set the module parameter NVreg_EnableGpuFirmware and reload the driver", default="gpu.gsp_default"),
    _seen("gpu.gsp_default", "GSP firmware by default", BOOLEAN, "what this driver does when nobody chooses",
          "nvmlDeviceGetGspFirmwareMode"),
    _seen("gpu.gsp_version", "GSP version", STRING, "follows the driver in every case known",
          "nvmlDeviceGetGspFirmwareVersion"),
    _gpu("gpu.inforom", "InfoROM image", STRING, "the board's own settings and error records",
         "nvmlDeviceGetInforomImageVersion", INFORMATION, _INFOROM),
    _gpu("gpu.inforom_oem", "InfoROM OEM object", STRING, "part of the InfoROM",
         "nvmlDeviceGetInforomVersion", INFORMATION, _INFOROM),
    _gpu("gpu.inforom_ecc", "InfoROM ECC object", STRING, "part of the InfoROM",
         "nvmlDeviceGetInforomVersion", INFORMATION, _INFOROM),
    _gpu("gpu.inforom_power", "InfoROM power object", STRING, "part of the InfoROM",
         "nvmlDeviceGetInforomVersion", INFORMATION, _INFOROM),
    _seen("gpu.inforom_checksum", "InfoROM configuration checksum", STRING,
          "equal on equally configured GPUs of one fleet; changes with the ECC mode and the driver",
          "nvmlDeviceGetInforomConfigurationChecksum"),
    _seen("gpu.inforom_valid", "InfoROM intact", BOOLEAN, "a damaged InfoROM loses settings and error records",
          "nvmlDeviceValidateInforom"),
)  # fmt: skip

_MODES = (
    _gpu("gpu.ecc", "ECC", BOOLEAN, "without it a flipped bit of memory goes unseen",
         "nvmlDeviceGetEccMode", BITS, "`nvidia-smi -e 1` (or 0), then reset the GPU", severity="error",
         default="gpu.ecc_default", command="nvidia-smi -i {gpu} -e {value:bit}"),
    _gpu("gpu.ecc_pending", "ECC after a reset", BOOLEAN, "a change that waits for the next reset",
         "nvmlDeviceGetEccMode", BITS, "`nvidia-smi -e 1` (or 0)", default="gpu.ecc_default",
         command="nvidia-smi -i {gpu} -e {value:bit}"),
    _seen("gpu.ecc_default", "ECC by default", BOOLEAN, "what the board falls back to",
          "nvmlDeviceGetDefaultEccMode"),
    _gpu("gpu.mig", "MIG", BOOLEAN, "a slice has fewer SMs, so other kernels and other sums",
         "nvmlDeviceGetMigMode", BITS, "`nvidia-smi -mig 1` (or 0), then reset the GPU", severity="error",
         default_value=False, command="nvidia-smi -i {gpu} -mig {value:bit}"),
    _gpu("gpu.mig_pending", "MIG after a reset", BOOLEAN, "a change that waits for the next reset",
         "nvmlDeviceGetMigMode", BITS, "`nvidia-smi -mig 1` (or 0)", default_value=False,
         command="nvidia-smi -i {gpu} -mig {value:bit}"),
    _gpu("gpu.mig_layout", "MIG instances", STRINGS,
         "profile and placement of each instance; the mode survives a reboot, the instances do not",
         "nvmlDeviceGetMigDeviceHandleByIndex", BITS, "create the locked instances: `nvidia-smi mig -cgi PROFILES -C`",
         severity="error", default_value=(), command="nvidia-smi mig -i {gpu} -cgi {value:profiles} -C"),
    _gpu("gpu.persistence", "persistence", BOOLEAN, "without it limits fall back when the last user leaves",
         "nvmlDeviceGetPersistenceMode", SPEED, "`nvidia-smi -pm 1`, or start nvidia-persistenced",
         default_value=False, volatile=True, command="nvidia-smi -i {gpu} -pm {value:bit}"),
    _gpu("gpu.compute_mode", "compute mode", STRING, "whether several processes may share the GPU",
         "nvmlDeviceGetComputeMode", SPEED, "`nvidia-smi -c MODE`",
         default_value="default", volatile=True, command="nvidia-smi -i {gpu} -c {value:upper}"),
    _gpu("gpu.addressing_mode", "addressing mode", STRING, "how the GPU reaches the host's memory (HMM, ATS)",
         "nvmlDeviceGetAddressingMode", SPEED, "load the kernel module with the parameters of the golden host"),
    _gpu("gpu.operation_mode", "operation mode", STRING, "some boards can switch units off",
         "nvmlDeviceGetGpuOperationMode", BITS, "`nvidia-smi --gom=MODE`, then reboot",
         severity="error"),
    _gpu("gpu.virtualization", "virtualization", STRING, "whether a hypervisor stands between driver and GPU",
         "nvmlDeviceGetVirtualizationMode", INFORMATION, "run on the locked kind of machine: bare or virtual"),
    _gpu("gpu.host_vgpu", "vGPU host mode", STRING, "how a host shares this GPU among guests",
         "nvmlDeviceGetHostVgpuMode", INFORMATION, "set the locked vGPU mode on the host"),
    _gpu("gpu.c2c", "C2C link", BOOLEAN, "the coherent link to a CPU on the same module",
         "nvmlDeviceGetC2cModeInfoV", SPEED, _MODEL),
    _gpu("gpu.dram_encryption", "memory encryption", BOOLEAN, "costs bandwidth of the GPU's memory",
         "nvmlDeviceGetDramEncryptionMode", SPEED, "set the locked mode in the driver, then reset the GPU"),
)  # fmt: skip

_POWER = (
    _gpu("gpu.power_limit", "power limit", INTEGER, "a lower limit lowers the clocks under load",
         "nvmlDeviceGetPowerManagementLimit", SPEED, "`nvidia-smi -pl WATTS`, with persistence on",
         "mW", "within 1000 mW", default="gpu.power_limit_default", volatile=True,
         command="nvidia-smi -i {gpu} -pl {value:W}"),
    _gpu("gpu.power_limit_default", "default power limit", INTEGER, "what the board falls back to",
         "nvmlDeviceGetPowerManagementDefaultLimit", SPEED, _VBIOS, "mW", "within 1000 mW"),
    _gpu("gpu.power_limit_min", "lowest power limit", INTEGER, "the least that can be set",
         "nvmlDeviceGetPowerManagementLimitConstraints", SPEED, _VBIOS, "mW", "within 1000 mW"),
    _gpu("gpu.power_limit_max", "highest power limit", INTEGER, "the most that can be set",
         "nvmlDeviceGetPowerManagementLimitConstraints", SPEED, _VBIOS, "mW", "within 1000 mW"),
    _gpu("gpu.power_limit_enforced", "enforced power limit", INTEGER, "the lowest of all limits in force",
         "nvmlDeviceGetEnforcedPowerLimit", SPEED, "look for a limit of the chassis or the module",
         "mW", "within 1000 mW"),
    _gpu("gpu.power_limit_module", "module power limit", INTEGER,
         "GPU and CPU of one module share it; not the GPU's own limit",
         "NVML field values, nvidia-smi module_power_readings", SPEED, "look for a limit of the chassis or the module",
         "mW", "within 1000 mW"),
)  # fmt: skip

_CLOCKS = (
    _gpu("gpu.clock_graphics_max", "highest graphics clock", INTEGER, "upper limit of the clock",
         "nvmlDeviceGetMaxClockInfo", SPEED, "look at the VBIOS and at clock offsets", "MHz"),
    _gpu("gpu.clock_sm_max", "highest SM clock", INTEGER, "upper limit of the clock",
         "nvmlDeviceGetMaxClockInfo", SPEED, "look at the VBIOS and at clock offsets", "MHz"),
    _gpu("gpu.clock_memory_max", "highest memory clock", INTEGER, "upper limit of the clock",
         "nvmlDeviceGetMaxClockInfo", SPEED, "look at the VBIOS and at clock offsets", "MHz"),
    _gpu("gpu.clock_boost_max", "highest customer boost clock", INTEGER, "the site's own upper limit",
         "nvmlDeviceGetMaxCustomerBoostClock", SPEED, "`nvidia-smi -acp`, and look at the site's clock settings",
         "MHz"),
    _gpu("gpu.clock_graphics_application", "application graphics clock", INTEGER,
         "the clock that programs ask for; deprecated by drivers of 2025",
         "nvmlDeviceGetApplicationsClock", SPEED, "`nvidia-smi -ac MEMORY,GRAPHICS`, with persistence on",
         "MHz", default="gpu.clock_graphics_application_default", volatile=True, command=_CLOCKS_COMMAND),
    _gpu("gpu.clock_memory_application", "application memory clock", INTEGER,
         "the clock that programs ask for; deprecated by drivers of 2025",
         "nvmlDeviceGetApplicationsClock", SPEED, "`nvidia-smi -ac MEMORY,GRAPHICS`, with persistence on",
         "MHz", default="gpu.clock_memory_application_default", volatile=True, command=_CLOCKS_COMMAND),
    _seen("gpu.clock_graphics_application_default", "default application graphics clock", INTEGER,
          "what the board falls back to", "nvmlDeviceGetDefaultApplicationsClock", unit="MHz"),
    _seen("gpu.clock_memory_application_default", "default application memory clock", INTEGER,
          "what the board falls back to", "nvmlDeviceGetDefaultApplicationsClock", unit="MHz"),
    _gpu("gpu.clock_graphics_offset", "graphics clock offset", INTEGER, "overclocking moves the whole curve",
         "nvmlDeviceGetClockOffsets", SPEED, "set the offset back with the tool that set it", "MHz",
         default_value=0),
    _gpu("gpu.clock_memory_offset", "memory clock offset", INTEGER, "overclocking moves the whole curve",
         "nvmlDeviceGetClockOffsets", SPEED, "set the offset back with the tool that set it", "MHz",
         default_value=0),
    _seen("gpu.clock_locked", "locked clocks", STRING,
          "drivers can lock the clocks (`nvidia-smi -lgc`) and no driver says whether they are",
          "no call of NVML", SPEED),
    _seen("gpu.event_reasons", "what holds the clocks down", STRINGS,
          "a golden taken while a GPU is slowed down is not one to compare with",
          "nvmlDeviceGetCurrentClocksEventReasons", SPEED),
)  # fmt: skip

_LINK = (
    _gpu("gpu.pcie_generation_max", "highest PCIe generation", INTEGER, "what GPU and slot can do together",
         "nvmlDeviceGetMaxPcieLinkGeneration", SPEED, _SLOT),
    _gpu("gpu.pcie_generation_device", "highest PCIe generation of the GPU", INTEGER, "what the GPU alone can do",
         "nvmlDeviceGetGpuMaxPcieLinkGeneration", SPEED, _SLOT),
    _gpu("gpu.pcie_width_max", "highest PCIe width", INTEGER, "lanes between GPU and host",
         "nvmlDeviceGetMaxPcieLinkWidth", SPEED, _SLOT, "lanes"),
    _gpu("gpu.pcie_width", "PCIe width", INTEGER, "fewer lanes than possible: a worn slot or riser",
         "nvmlDeviceGetCurrPcieLinkWidth", SPEED, _SLOT, "lanes"),
    _seen("gpu.pcie_generation", "PCIe generation", INTEGER, "drops when the GPU is idle",
          "nvmlDeviceGetCurrPcieLinkGeneration", SPEED),
    _gpu("gpu.nvlink", "NVLink", STRINGS,
         "collectives choose their channels, and with them the order of sums, by the links that are up",
         "nvmlDeviceGetNvLinkState", BITS, _LINKS, severity="error"),
    _gpu("gpu.topology", "paths to the other GPUs", STRINGS,
         "collectives choose their algorithm, and with it the order of sums, by the paths between GPUs",
         "nvmlDeviceGetTopologyCommonAncestor", BITS, "put the boards into the slots of the golden host",
         severity="error"),
    _gpu("gpu.p2p", "peer access", STRINGS, "whether GPUs read each other's memory; collectives choose by it",
         "nvmlDeviceGetP2PStatus", BITS, "look at IOMMU and ACS settings of the firmware, and at NCCL_P2P_DISABLE",
         severity="error"),
    _gpu("gpu.cpu_affinity", "nearest CPUs", STRING, "CPUs on the GPU's side of the machine",
         "nvmlDeviceGetCpuAffinity", SPEED, "set the same NUMA (NPS, SNC) mode in the firmware"),
    _gpu("gpu.numa_node", "nearest NUMA node", STRING, "memory on the GPU's side of the machine",
         "nvmlDeviceGetMemoryAffinity", SPEED, "set the same NUMA (NPS, SNC) mode in the firmware"),
    _gpu("gpu.memory_node", "NUMA node of its own memory", INTEGER,
         "with it (Grace and its kin) the system hands out the GPU's memory like any other; without, the driver does",
         "nvmlDeviceGetNumaNodeId", SPEED, "load the kernel module with the parameters of the golden host"),
    _gpu("gpu.peer_type", "NVLink peers", STRING, "whether the platform joins its GPUs directly or by switches",
         "nvmlDeviceGetPlatformInfo", INFORMATION, _MODEL),
    _gpu("gpu.fabric", "NVLink fabric", STRING, "state of the GPU in the NVLink switch fabric",
         "nvmlDeviceGetGpuFabricInfoV", BITS, "start the fabric manager of the driver's version and read its log",
         severity="error"),
)  # fmt: skip

_HEALTH = (
    _seen("gpu.retired_pages_pending", "memory pages to be retired", BOOLEAN, "a reset is due",
          "nvmlDeviceGetRetiredPagesPendingStatus"),
    _seen("gpu.remapped_rows", "remapped memory rows", STRINGS, "memory that was repaired, and repairs that failed",
          "nvmlDeviceGetRemappedRows"),
    _seen("gpu.recovery_action", "recovery action", STRING, "what the driver asks for: none, reset, reboot",
          "nvmlDeviceGetFieldValues"),
)  # fmt: skip

DEVICE_FACTS: tuple[Entry, ...] = (*_PART, *_FIRMWARE, *_MODES, *_POWER, *_CLOCKS, *_LINK, *_HEALTH, *_WHICH)
