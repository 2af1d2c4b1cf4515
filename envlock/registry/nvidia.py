"""Facts about the NVIDIA driver of a host, and about its GPUs as a whole.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from envlock.registry.entry import BITS, BOOLEAN, INFORMATION, INTEGER, STRING, Entry

_NVML = "NVML"
_DRIVER = "install the locked driver, then reload the kernel module or reboot"

FACTS: tuple[Entry, ...] = (
    Entry(
        "nvidia.gpu_count", "GPUs", INTEGER,
        "a GPU that is missing changes how work is split",
        _NVML + " nvmlDeviceGetCount", BITS, locked=True, rule="exact", severity="error", identity="error",
        remedy="look for a lost GPU in the kernel log (Xid), and for one hidden from this container",
    ),
    Entry(
        "nvidia.pci_count", "GPUs on the PCI bus", INTEGER,
        "more than the driver shows: some are lost, hidden or given to another driver",
        "/sys/bus/pci/devices", INFORMATION, locked=True, rule="exact", identity="warning",
        remedy="look for a lost GPU in the kernel log (Xid), and at `lspci -k` for its driver",
    ),
    Entry(
        "nvidia.driver", "driver", STRING,
        "it compiles and schedules kernels; libraries choose code by it",
        _NVML + " nvmlSystemGetDriverVersion", BITS, locked=True, rule="exact", severity="error", remedy=_DRIVER,
    ),
    Entry(
        "nvidia.driver_branch", "driver branch", STRING,
        "the release line the driver belongs to",
        _NVML + " nvmlSystemGetDriverBranch", INFORMATION, locked=True, rule="exact", remedy=_DRIVER,
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
    Entry(
        "nvidia.confidential_computing", "confidential computing", BOOLEAN,
        "encrypts what passes between CPU and GPU, and forbids some paths",
        _NVML + " nvmlSystemGetConfComputeState", INFORMATION, locked=True, rule="exact",
        remedy="set the locked mode in the hypervisor or firmware",
    ),
)  # fmt: skip
