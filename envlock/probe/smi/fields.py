"""Which fact is found in which places of nvidia-smi's outputs.

One row for each fact: how its text is read, and the places it was printed at by drivers
340 to 610, in XML (`-q -x`), text (`-q`) and CSV (`--query-gpu`), the newest first.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, VALUE, Observed, absent, value
from envlock.probe.smi import spellings as say
from envlock.probe.smi.sheet import Row


class Field(NamedTuple):
    """One fact: its key, how its text is read, and where it may stand."""

    key: str
    convert: say.Convert
    places: Tuple[str, ...]


HOST = (
    Field("nvidia.driver", say.version, ("kmd_version", "kmd version", "driver_version", "driver version")),
    Field("nvidia.kernel_driver", say.version, ("kmd_version", "kmd version")),
    Field("nvidia.cuda", say.version, ("cuda_umd_version", "cuda umd version", "cuda_version", "cuda version")),
)

_XML_PCIE = "pci/pci_gpu_link_info/"
_TEXT_PCIE = "pci/gpu link info/"

GPU = (
    Field("gpu.name", say.model, ("product_name", "product name", "name", "gpu_name")),
    Field("gpu.brand", say.word, ("product_brand", "product brand")),
    Field("gpu.architecture", say.word, ("product_architecture", "product architecture")),
    Field("gpu.compute_capability", say.capability, ("compute_cap",)),
    Field("gpu.memory", say.mebibytes, ("fb_memory_usage/total", "fb memory usage/total", "memory.total")),
    Field("gpu.pci_id", say.ids, ("pci/pci_device_id", "pci/device id", "pci.device_id")),
    Field("gpu.subsystem_id", say.ids, ("pci/pci_sub_system_id", "pci/sub system id", "pci.sub_device_id")),
    Field("gpu.board_part", say.plain, ("board_part_number", "board part number")),
    Field("gpu.vbios", say.vbios, ("vbios_version", "vbios version")),
    Field("gpu.gsp", say.gsp, ("gsp.mode.current", "gsp_firmware_version", "gsp firmware version")),
    Field("gpu.gsp_default", say.switch, ("gsp.mode.default",)),
    Field("gpu.gsp_version", say.plain, ("gsp_firmware_version", "gsp firmware version")),
    Field("gpu.inforom", say.plain,
          ("inforom_version/img_version", "inforom version/image version", "inforom.img", "inforom.image")),
    Field("gpu.inforom_oem", say.plain, ("inforom_version/oem_object", "inforom version/oem object", "inforom.oem")),
    Field("gpu.inforom_ecc", say.plain, ("inforom_version/ecc_object", "inforom version/ecc object", "inforom.ecc")),
    Field("gpu.inforom_power", say.plain,
          ("inforom_version/pwr_object", "inforom version/power management object", "inforom.pwr", "inforom.power")),
    Field("gpu.inforom_valid", say.switch, ("inforom.checksum_validation",)),
    Field("gpu.ecc", say.switch, ("ecc_mode/current_ecc", "ecc mode/current", "ecc.mode.current")),
    Field("gpu.ecc_pending", say.switch, ("ecc_mode/pending_ecc", "ecc mode/pending", "ecc.mode.pending")),
    Field("gpu.mig", say.switch, ("mig_mode/current_mig", "mig mode/current", "mig.mode.current")),
    Field("gpu.mig_pending", say.switch, ("mig_mode/pending_mig", "mig mode/pending", "mig.mode.pending")),
    Field("gpu.persistence", say.switch, ("persistence_mode", "persistence mode")),
    Field("gpu.compute_mode", say.word, ("compute_mode", "compute mode")),
    Field("gpu.addressing_mode", say.word, ("addressing_mode", "addressing mode")),
    Field("gpu.operation_mode", say.word,
          ("gpu_operation_mode/current_gom", "gpu operation mode/current", "gom.current")),
    Field("gpu.virtualization", say.word,
          ("gpu_virtualization_mode/virtualization_mode", "gpu virtualization mode/virtualization mode",
           "gpu virtualization mode/virtualization")),
    Field("gpu.host_vgpu", say.word,
          ("gpu_virtualization_mode/host_vgpu_mode", "gpu virtualization mode/host vgpu mode")),
    Field("gpu.c2c", say.switch, ("c2c_mode", "gpu c2c mode", "c2c.mode")),
    Field("gpu.dram_encryption", say.switch,
          ("dram_encryption_mode/current_dram_encryption", "dram encryption mode/current",
           "dramencryption.mode.current")),
    Field("gpu.power_limit", say.milliwatts,
          ("gpu_power_readings/gpu_ceiling_power_limit/requested_power_limit",
           "gpu_power_readings/requested_power_limit", "gpu_power_readings/gpu_ceiling_power_limit/current_power_limit",
           "gpu_power_readings/current_power_limit", "power_readings/power_limit",
           "gpu power readings/gpu ceiling power limit/requested power limit",
           "gpu power readings/requested power limit",
           "gpu power readings/gpu ceiling power limit/current power limit", "gpu power readings/current power limit",
           "power readings/power limit", "power.limit")),
    Field("gpu.power_limit_default", say.milliwatts,
          ("gpu_power_readings/gpu_ceiling_power_limit/default_power_limit", "gpu_power_readings/default_power_limit",
           "power_readings/default_power_limit", "gpu power readings/gpu ceiling power limit/default power limit",
           "gpu power readings/default power limit", "power readings/default power limit", "power.default_limit")),
    Field("gpu.power_limit_min", say.milliwatts,
          ("gpu_power_readings/min_power_limit", "power_readings/min_power_limit",
           "gpu power readings/min power limit", "power readings/min power limit", "power.min_limit")),
    Field("gpu.power_limit_max", say.milliwatts,
          ("gpu_power_readings/max_power_limit", "power_readings/max_power_limit",
           "gpu power readings/max power limit", "power readings/max power limit", "power.max_limit")),
    Field("gpu.power_limit_enforced", say.milliwatts,
          ("gpu_power_readings/gpu_ceiling_power_limit/current_power_limit", "gpu_power_readings/current_power_limit",
           "power_readings/enforced_power_limit", "gpu power readings/gpu ceiling power limit/current power limit",
           "gpu power readings/current power limit", "power readings/enforced power limit", "enforced.power.limit")),
    Field("gpu.power_limit_module", say.milliwatts,
          ("module_power_readings/current_power_limit", "module power readings/current power limit",
           "module.power.limit")),
    Field("gpu.clock_graphics_max", say.megahertz,
          ("max_clocks/graphics_clock", "max clocks/graphics", "clocks.max.graphics", "clocks.max.gr")),
    Field("gpu.clock_sm_max", say.megahertz, ("max_clocks/sm_clock", "max clocks/sm", "clocks.max.sm")),
    Field("gpu.clock_memory_max", say.megahertz,
          ("max_clocks/mem_clock", "max clocks/memory", "clocks.max.memory", "clocks.max.mem")),
    Field("gpu.clock_boost_max", say.megahertz,
          ("max_customer_boost_clocks/graphics_clock", "max customer boost clocks/graphics")),
    Field("gpu.clock_graphics_application", say.megahertz,
          ("applications_clocks/graphics_clock", "applications clocks/graphics", "clocks.applications.graphics",
           "clocks.applications.gr")),
    Field("gpu.clock_memory_application", say.megahertz,
          ("applications_clocks/mem_clock", "applications clocks/memory", "clocks.applications.memory",
           "clocks.applications.mem")),
    Field("gpu.clock_graphics_application_default", say.megahertz,
          ("default_applications_clocks/graphics_clock", "default applications clocks/graphics",
           "clocks.default_applications.graphics", "clocks.default_applications.gr")),
    Field("gpu.clock_memory_application_default", say.megahertz,
          ("default_applications_clocks/mem_clock", "default applications clocks/memory",
           "clocks.default_applications.memory", "clocks.default_applications.mem")),
    Field("gpu.pcie_generation_max", say.number,
          (_XML_PCIE + "pcie_gen/max_link_gen", _TEXT_PCIE + "pcie generation/max", "pcie.link.gen.max")),
    Field("gpu.pcie_generation_device", say.number,
          (_XML_PCIE + "pcie_gen/max_device_link_gen", _TEXT_PCIE + "pcie generation/device max",
           "pcie.link.gen.gpumax")),
    Field("gpu.pcie_generation", say.number,
          (_XML_PCIE + "pcie_gen/current_link_gen", _TEXT_PCIE + "pcie generation/current", "pcie.link.gen.current")),
    Field("gpu.pcie_width_max", say.number,
          (_XML_PCIE + "link_widths/max_link_width", _TEXT_PCIE + "link width/max", "pcie.link.width.max")),
    Field("gpu.pcie_width", say.number,
          (_XML_PCIE + "link_widths/current_link_width", _TEXT_PCIE + "link width/current",
           "pcie.link.width.current")),
    Field("gpu.fabric", say.word, ("fabric/state", "fabric.state")),
    Field("gpu.retired_pages_pending", say.switch,
          ("retired_pages/pending_retirement", "retired_pages/pending_blacklist", "retired pages/pending",
           "retired pages/pending page blacklist", "retired_pages.pending")),
    Field("gpu.recovery_action", say.word, ("gpu_recovery_action", "gpu recovery action")),
    Field("gpu.uuid", say.plain, ("uuid", "gpu uuid", "gpu_uuid")),
    Field("gpu.serial", say.named, ("serial", "serial number", "gpu_serial")),
    Field("gpu.pdi", say.lower_named, ("pdi", "gpu pdi")),
    Field("gpu.chassis_serial", say.named,
          ("platforminfo/chassis_serial_number", "platform info/chassis serial number",
           "platform.chassis_serial_number")),
    Field("gpu.slot", say.number,
          ("platforminfo/slot_number", "platform info/slot number", "platform.slot_number")),
    Field("gpu.tray", say.number,
          ("platforminfo/tray_index", "platform info/tray index", "platform.tray_index")),
    Field("gpu.tray_node", say.number,
          ("platforminfo/host_id", "platform info/host id", "platform.host_id")),
    Field("gpu.peer_type", say.word,
          ("platforminfo/peer_type", "platform info/peer type", "platform.peer_type")),
    Field("gpu.fabric_cluster", say.lower_named,
          ("fabric/clusteruuid", "fabric.clusteruuid")),
    Field("gpu.minor", say.number, ("minor_number", "minor number")),
    Field("gpu.module_id", say.number,
          ("platforminfo/module_id", "gpu_module_id", "platform info/module id", "gpu module id", "module id",
           "platform.module_id")),
)  # fmt: skip

PLACES = frozenset(place for field in (*HOST, *GPU) for place in field.places)
"""Every place that a fact is read from."""


def observed(field: Field, cells: Dict[str, str], source: str) -> Optional[Observed]:
    """Return the fact of `field` from the first place that holds a value, else from the first that is there."""
    first: Optional[Observed] = None
    for place in field.places:
        if place in cells and not _superseded(cells[place]):
            seen = say.observed(cells[place], field.convert, source)
            if seen.has_value:
                return seen
            first = first or seen
    return first


def _superseded(text: str) -> bool:
    """Return whether a cell only says that another one took its place (`Deprecated, see "KMD version" instead`)."""
    return text.lower().startswith("deprecated")


def facts_of(row: Row, form: str) -> Dict[str, Observed]:
    """Return what one row tells of its GPU; facts whose places it lacks are left out."""
    lost = next((text for text in row.cells.values() if say.is_lost(text)), "")
    found = {field.key: observed(field, row.cells, form) for field in GPU}
    facts = {key: seen for key, seen in found.items() if seen is not None}
    facts.update(_several(row, form))
    facts.update(row.facts)
    if row.index is not None:
        facts["gpu.index"] = value(row.index, form)
    if facts.get("gpu.gsp", value(True)).outcome == NOT_SUPPORTED:
        facts["gpu.gsp"] = absent(NOT_SUPPORTED, form, "GSP firmware is off or absent; nvidia-smi does not say which")
    status = next((row.cells[place] for place in ("fabric/status", "fabric.status") if place in row.cells), "Success")
    if facts.get("gpu.fabric") == value("completed") and say.bare(status).lower() not in ("success", "n/a"):
        facts["gpu.fabric"] = absent(FAILED, form, "completed, with the status `{}`".format(say.readable(status)))
    layout = _layout(row, facts.get("gpu.mig"), form)
    if layout is not None:
        facts["gpu.mig_layout"] = layout
    if lost:
        why = "nvidia-smi prints `{}`".format(say.readable(say.bare(lost)))
        facts = dict.fromkeys(facts, absent(FAILED, form, why))
    return facts


def _layout(row: Row, mig: Optional[Observed], form: str) -> Optional[Observed]:
    """Return the MIG instances of a row, when it can tell whether there are any."""
    if mig is not None and mig.outcome == NOT_SUPPORTED:
        return absent(NOT_SUPPORTED, form, mig.detail)
    if mig is not None and mig == value(False):
        return absent(NOT_SUPPORTED, form, "MIG is off")
    if row.instances is None:
        return None
    if "" in row.instances:
        why = "{} instances, whose profiles this output does not name; add the output of `nvidia-smi -L`"
        return absent(FAILED, form, why.format(len(row.instances)))
    return Observed(VALUE, tuple(sorted(row.instances)), form) if row.instances or mig == value(True) else None


# ---- facts made of several cells ----------------------------------------------------------------

_REASONS = {
    "gpu idle": ("gpu_idle", "idle"),
    "applications clocks setting": ("applications_clocks_setting", "applications clocks setting"),
    "sw power cap": ("sw_power_cap", "sw power cap"),
    "hw slowdown": ("hw_slowdown", "hw slowdown"),
    "sync boost": ("sync_boost", "sync boost"),
    "sw thermal slowdown": ("sw_thermal_slowdown", "sw thermal slowdown"),
    "hw thermal slowdown": ("hw_thermal_slowdown", "hw slowdown/hw thermal slowdown"),
    "hw power brake slowdown": ("hw_power_brake_slowdown", "hw slowdown/hw power brake slowdown"),
    "display clock setting": ("display_clocks_setting", "display clock setting"),
}
REASON_PLACES: Dict[str, str] = {}
for _reason, (_name, _label) in _REASONS.items():
    for _kind in ("event", "throttle"):
        REASON_PLACES["clocks_{0}_reasons/clocks_{0}_reason_{1}".format(_kind, _name)] = _reason
        REASON_PLACES["clocks_{}_reasons.{}".format(_kind, _name)] = _reason
        REASON_PLACES["clocks {} reasons/{}".format(_kind, _label)] = _reason

_ROWS: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("correctable", ("remapped_rows/remapped_row_corr", "remapped rows/correctable error",
                     "remapped_rows.correctable")),
    ("uncorrectable", ("remapped_rows/remapped_row_unc", "remapped rows/uncorrectable error",
                       "remapped_rows.uncorrectable")),
    ("pending", ("remapped_rows/remapped_row_pending", "remapped rows/pending", "remapped_rows.pending")),
    ("failed", ("remapped_rows/remapped_row_failure", "remapped rows/remapping failure occurred",
                "remapped_rows.failure")),
)  # fmt: skip
ROW_PLACES = frozenset(place for _, places in _ROWS for place in places) | {"remapped_rows", "remapped rows"}


def _several(row: Row, form: str) -> Dict[str, Observed]:
    found = {}
    reasons = [(REASON_PLACES[place], text) for place, text in row.cells.items() if place in REASON_PLACES]
    if reasons:
        found["gpu.event_reasons"] = _reasons(reasons, form)
    rows = _rows(row.cells, form)
    if rows is not None:
        found["gpu.remapped_rows"] = rows
    return found


def _reasons(reasons: list[Tuple[str, str]], form: str) -> Observed:
    """Return the reasons in force; one that is not told fails them all."""
    for _, text in reasons:
        if text.lower() not in ("active", "not active"):
            outcome = say.absence(text) or FAILED
            return absent(outcome, form, "nvidia-smi prints `{}`".format(say.readable(text)))
    return Observed(VALUE, tuple(sorted({reason for reason, text in reasons if text.lower() == "active"})), form)


def _rows(cells: Dict[str, str], form: str) -> Optional[Observed]:
    told = []
    for name, places in _ROWS:
        text = next((cells[place] for place in places if place in cells), None)
        if text is None:
            whole = cells.get("remapped_rows", cells.get("remapped rows"))
            return None if whole is None else say.observed(whole, _no_rows, form)
        if say.absence(text) is not None:
            return say.observed(text, say.plain, form)
        told.append("{} {}".format(name, say.bare(text).lower()))
    if not all(text.split()[-1].isdigit() or text.split()[-1] in ("yes", "no") for text in told):
        return absent(FAILED, form, "not understood: `{}`".format(say.readable(", ".join(told))))
    return value(told, form)


def _no_rows(text: str) -> str:
    raise ValueError(text)


ALWAYS = {
    "gpu.clock_locked": absent(HIDDEN, "nvidia-smi", "no driver tells whether clocks are locked (`nvidia-smi -lgc`)"),
}
"""Facts that are the same whatever was printed."""
