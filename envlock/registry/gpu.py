"""Facts about the NVIDIA driver (host scope) and about each GPU (gpu scope).

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from envlock.registry.entry import (
    BITS,
    BOOLEAN,
    GPU,
    IDENTITY,
    INFORMATION,
    INTEGER,
    SPEED,
    STRING,
    Entry,
)

_NVML = "NVML"
_DRIVER = "install the locked driver, then reload the kernel module or reboot"
_MODEL = "run on a host with the locked GPU model"

HOST_FACTS: tuple[Entry, ...] = (
    Entry(
        "nvidia.gpu_count", "GPUs", INTEGER,
        "a GPU that is missing changes how work is split",
        _NVML + " nvmlDeviceGetCount", BITS, locked=True, rule="exact", severity="error",
        remedy="look for a lost GPU in the kernel log (Xid), and for one hidden from this container",
    ),
    Entry(
        "nvidia.pci_count", "GPUs on the PCI bus", INTEGER,
        "more than the driver shows: some are lost, hidden or given to another driver",
        "/sys/bus/pci/devices", INFORMATION, locked=True, rule="exact",
        remedy="look for a lost GPU in the kernel log (Xid), and at `lspci -k` for its driver",
    ),
    Entry(
        "nvidia.driver", "driver", STRING,
        "it compiles and schedules kernels; libraries choose code by it",
        _NVML + " nvmlSystemGetDriverVersion", BITS, locked=True, rule="exact", severity="error", remedy=_DRIVER,
    ),
    Entry(
        "nvidia.kernel_driver", "loaded kernel module", STRING,
        "differs from the driver library after an upgrade without a reboot",
        "/proc/driver/nvidia/version", BITS, locked=True, rule="exact", severity="error", remedy=_DRIVER,
    ),
    Entry(
        "nvidia.kernel_module", "kernel module kind", STRING,
        "the open and the proprietary module are two programs",
        "/proc/driver/nvidia/version", INFORMATION, locked=True, rule="exact",
        remedy="install the other kind of kernel module",
    ),
    Entry(
        "nvidia.cuda", "CUDA level of the driver", STRING,
        "the newest CUDA this driver can run; not the toolkit's version",
        _NVML + " nvmlSystemGetCudaDriverVersion_v2", BITS, locked=True, rule="exact", severity="error",
        remedy=_DRIVER,
    ),
)  # fmt: skip


def _gpu(key: str, label: str, kind: str, why: str, source: str, group: str, remedy: str = "", unit: str = "",
         rule: str = "exact", severity: str = "warning", locked: bool = True) -> Entry:  # fmt: skip
    return Entry(key, label, kind, why, source, group, GPU, unit, locked, rule, severity, remedy=remedy)


DEVICE_FACTS: tuple[Entry, ...] = (
    _gpu("gpu.name", "name", STRING, "the model as the driver calls it; drivers rename models",
         _NVML + " nvmlDeviceGetName", IDENTITY, _MODEL),
    _gpu("gpu.pci_id", "PCI id", STRING, "vendor:device, the model's one stable name",
         "/sys/bus/pci/devices/*/device", BITS, _MODEL, severity="error"),
    _gpu("gpu.subsystem_id", "PCI subsystem", STRING, "which board carries the chip",
         "/sys/bus/pci/devices/*/subsystem_device", IDENTITY, _MODEL),
    _gpu("gpu.uuid", "UUID", STRING, "names this one GPU",
         _NVML + " nvmlDeviceGetUUID", IDENTITY, rule="ignore", locked=False),
    _gpu("gpu.compute_capability", "compute capability", STRING, "decides which kernels exist for this GPU",
         _NVML + " nvmlDeviceGetCudaComputeCapability", BITS, _MODEL, severity="error"),
    _gpu("gpu.memory", "memory", INTEGER, "workspace sizes, and with them algorithms, are chosen by free memory",
         _NVML + " nvmlDeviceGetMemoryInfo", BITS, _MODEL, unit="MiB", severity="error", rule="within 64 MiB"),
    _gpu("gpu.vbios", "VBIOS", STRING, "firmware of the board: clocks, power, memory timing",
         _NVML + " nvmlDeviceGetVbiosVersion", BITS, "flash the vendor's VBIOS of the locked version",
         severity="error"),
    _gpu("gpu.gsp", "GSP firmware", BOOLEAN, "with it, part of the driver runs on the GPU itself",
         _NVML + " nvmlDeviceGetGspFirmwareMode", SPEED,
         "set the module parameter NVreg_EnableGpuFirmware and reload the driver"),
    _gpu("gpu.gsp_version", "GSP version", STRING, "follows the driver in every case known",
         _NVML + " nvmlDeviceGetGspFirmwareVersion", INFORMATION, rule="ignore", locked=False),
    _gpu("gpu.inforom", "InfoROM image", STRING, "the board's own settings and error records",
         _NVML + " nvmlDeviceGetInforomImageVersion", INFORMATION, "ask the vendor for the InfoROM update"),
    _gpu("gpu.power_limit", "power limit", INTEGER, "a lower limit lowers the clocks under load",
         _NVML + " nvmlDeviceGetPowerManagementLimit", SPEED, "`nvidia-smi -pl WATTS`, with persistence on",
         "mW", "within 1000 mW"),
    _gpu("gpu.power_limit_default", "default power limit", INTEGER, "what the board falls back to",
         _NVML + " nvmlDeviceGetPowerManagementDefaultLimit", SPEED, "flash the vendor's VBIOS of the locked version",
         "mW", "within 1000 mW"),
    _gpu("gpu.power_limit_enforced", "enforced power limit", INTEGER, "the lowest of all limits in force",
         _NVML + " nvmlDeviceGetEnforcedPowerLimit", SPEED, "look for a limit of the chassis or the module",
         "mW", "within 1000 mW"),
    _gpu("gpu.clock_graphics_max", "highest graphics clock", INTEGER, "upper limit of the clock",
         _NVML + " nvmlDeviceGetMaxClockInfo", SPEED, "`nvidia-smi -rgc`, and look at the VBIOS", "MHz"),
    _gpu("gpu.clock_sm_max", "highest SM clock", INTEGER, "upper limit of the clock",
         _NVML + " nvmlDeviceGetMaxClockInfo", SPEED, "`nvidia-smi -rgc`, and look at the VBIOS", "MHz"),
    _gpu("gpu.clock_memory_max", "highest memory clock", INTEGER, "upper limit of the clock",
         _NVML + " nvmlDeviceGetMaxClockInfo", SPEED, "`nvidia-smi -rmc`, and look at the VBIOS", "MHz"),
    _gpu("gpu.ecc", "ECC", BOOLEAN, "without it a flipped bit of memory goes unseen",
         _NVML + " nvmlDeviceGetEccMode", BITS, "`nvidia-smi -e 1` (or 0), then reset the GPU", severity="error"),
    _gpu("gpu.ecc_pending", "ECC after a reset", BOOLEAN, "a change that waits for the next reset",
         _NVML + " nvmlDeviceGetEccMode", BITS, "`nvidia-smi -e 1` (or 0)"),
    _gpu("gpu.mig", "MIG", BOOLEAN, "a slice has fewer SMs, so other kernels and other sums",
         _NVML + " nvmlDeviceGetMigMode", BITS, "`nvidia-smi -mig 1` (or 0), then reset the GPU", severity="error"),
    _gpu("gpu.mig_pending", "MIG after a reset", BOOLEAN, "a change that waits for the next reset",
         _NVML + " nvmlDeviceGetMigMode", BITS, "`nvidia-smi -mig 1` (or 0)"),
    _gpu("gpu.persistence", "persistence", BOOLEAN, "without it limits fall back when the last user leaves",
         _NVML + " nvmlDeviceGetPersistenceMode", SPEED, "`nvidia-smi -pm 1`, or start nvidia-persistenced"),
)  # fmt: skip
