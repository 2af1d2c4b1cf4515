"""What the XML of nvidia-smi holds that envlock has no use for: drivers 340 to 595.

A name that is neither here nor in `envlock.probe.smi.fields` is one that no version
known here had, and is told.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

HOST = frozenset(("timestamp", "attached_gpus"))

GROUPS = (
    "temperature/", "supported_gpu_target_temp/", "utilization/", "encoder_stats/", "fbc_stats/", "clocks/",
    "bar1_memory_usage/", "fb_memory_usage/", "cc_protected_memory_usage/", "voltage/", "deferred_clocks/",
    "clock_policy/", "accounted_processes/", "accounting_mode/", "processes/", "ecc_errors/", "capabilities/",
    "power_smoothing/", "power_profiles/", "gpu_memory_power_readings/", "inforom_bbx_flush/", "ibmnpu/",
    "driver_model/", "vgpu_software_licensed_product/", "gpu_reset_status/", "pci/pci_bridge_chip/",
    "clocks_event_reasons_counters/", "fabric/health/", "remapped_rows/row_remapper_histogram/",
    "retired_pages/multiple_single_bit_retirement/", "retired_pages/double_bit_retirement/", "module_power_readings/",
    "inforom_time_data/", "supported_clocks/",
)  # fmt: skip

LEAVES = frozenset((
    "display_mode", "display_active", "display_attached", "accounting_mode", "accounting_mode_buffer_size",
    "multigpu_board", "board_id", "gpu_part_number", "gpu_fru_part_number", "fan_speed", "performance_state",
    "sparse_operation_mode", "edpp_multiplier", "mig_devices", "processes", "power_smoothing", "temperature",
    "utilization", "supported_clocks", "voltage", "accounted_processes", "encoder_stats", "fbc_stats", "clocks",
    "clocks_throttle_reasons", "clocks_event_reasons", "gpu_operation_mode/pending_gom", "ecc_errors",
    "gpu_virtualization_mode/vgpu_heterogeneous_mode", "dram_encryption_mode/pending_dram_encryption",
    "platforminfo/gpu_fabric_guid", "pci/pci_bus", "pci/pci_device", "pci/pci_domain", "pci/pci_base_class",
    "pci/pci_sub_class", "pci/pci_bus_id", "pci/replay_counter", "pci/replay_rollover_counter", "pci/tx_util",
    "pci/rx_util", "pci/atomic_caps_outbound", "pci/atomic_caps_inbound", "fabric/status", "fabric/cliqueid",
    "pci/pci_gpu_link_info/pcie_gen/device_current_link_gen", "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen",
    "gpu_power_readings/power_state", "gpu_power_readings/power_draw", "gpu_power_readings/average_power_draw",
    "gpu_power_readings/instant_power_draw", "power_readings/power_state", "power_readings/power_management",
    "power_readings/power_draw", "remapped_rows/remapped_row_corr_inactive",
    "remapped_rows/remapped_row_unc_inactive", "max_clocks/video_clock", "default_applications_clocks/sm_clock",
    "applications_clocks/sm_clock",
))  # fmt: skip
