"""Facts about the operating system, container engines and the Python that probes.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from envlock.registry.entry import INFORMATION, INTEGER, SPEED, STRING, STRINGS, Entry

FACTS: tuple[Entry, ...] = (
    Entry(
        "system.distribution", "distribution", STRING,
        "who built the host's programs",
        "/etc/os-release", INFORMATION, locked=True, rule="exact", remedy="install the locked distribution",
    ),
    Entry(
        "system.distribution_version", "version", STRING,
        "which release of it",
        "/etc/os-release", INFORMATION, locked=True, rule="exact", remedy="upgrade the host to the locked release",
    ),
    Entry(
        "system.kernel", "kernel", STRING,
        "it schedules threads, gives memory and carries the driver",
        "/proc/sys/kernel/osrelease", INFORMATION, locked=True, rule="exact",
        remedy="install and boot the locked kernel",
    ),
    Entry(
        "system.libc", "C library", STRING,
        "its mathematical functions are used by work on the bare host; images bring their own",
        "confstr", INFORMATION, locked=True, rule="exact", remedy="upgrade the host to the locked release",
    ),
    Entry(
        "system.kernel_parameters", "kernel parameters", STRINGS,
        "parameters that hide instructions, cost speed or move memory; only those are recorded",
        "/proc/cmdline", SPEED, locked=True, rule="exact",
        remedy="edit the kernel command line in the boot loader and reboot",
    ),
    Entry(
        "system.memory", "memory", INTEGER,
        "what the kernel can use; firmware and kernel take a varying part",
        "/proc/meminfo", INFORMATION, unit="MiB",
    ),
    Entry(
        "system.transparent_hugepage", "huge pages", STRING,
        "alignment and cost of large blocks of memory",
        "/sys/kernel/mm/transparent_hugepage/enabled", SPEED, locked=True, rule="exact",
        remedy="write the locked word to /sys/kernel/mm/transparent_hugepage/enabled",
        command="echo {value} > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    Entry(
        "system.numa_balancing", "NUMA balancing", STRING,
        "the kernel moves memory between nodes while work runs",
        "/proc/sys/kernel/numa_balancing", SPEED, locked=True, rule="exact",
        remedy="`sysctl kernel.numa_balancing=VALUE`", command="sysctl kernel.numa_balancing={value}",
    ),
    Entry(
        "container.inside", "inside a container", STRING,
        "facts of a container are partly those of its host",
        "/proc/self/mountinfo and marker files", INFORMATION,
    ),
    Entry(
        "container.cgroup", "cgroup version", STRING,
        "how limits of CPU and memory are set and read",
        "/proc/self/mountinfo", INFORMATION, locked=True, rule="exact",
        remedy="boot with `systemd.unified_cgroup_hierarchy=1` (v2) or `=0` (v1)",
    ),
    Entry(
        "container.engine", "engine", STRING,
        "which engine answers on its local socket",
        "local API socket", INFORMATION,
    ),
    Entry(
        "container.engine_version", "engine version", STRING,
        "builds and runs images; the canonical image does not depend on it",
        "local API socket", INFORMATION,
    ),
    Entry(
        "container.containerd", "containerd", STRING,
        "starts the engine's containers",
        "local API socket", INFORMATION,
    ),
    Entry(
        "container.runc", "OCI runtime", STRING,
        "sets the limits, devices and masks of a container",
        "local API socket", INFORMATION,
    ),
    Entry(
        "container.docker_client", "docker client", STRING,
        "the program people type; it may be of another version than the engine",
        "`docker --version`", INFORMATION,
    ),
    Entry(
        "container.podman_client", "podman client", STRING,
        "an engine without a daemon: the program is the engine",
        "`podman --version`", INFORMATION,
    ),
    Entry(
        "python.implementation", "implementation", STRING,
        "the Python that ran this probe, not the environment's",
        "sys.implementation", INFORMATION,
    ),
    Entry(
        "python.version", "version", STRING,
        "the Python that ran this probe, not the environment's",
        "sys.version_info", INFORMATION,
    ),
    Entry(
        "python.nvml_binding", "NVML binding", STRING,
        "several distributions bring a module `pynvml`; only nvidia-ml-py is maintained",
        "the folder of the module `pynvml`", INFORMATION,
        remedy="`pip uninstall pynvml nvidia-ml-py3`, then `pip install --force-reinstall nvidia-ml-py`",
    ),
)  # fmt: skip
