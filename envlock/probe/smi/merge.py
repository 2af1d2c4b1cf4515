"""The sheets of one input as one answer: the GPUs put together, and how many there are.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Optional, Tuple

from envlock.facts import FAILED, NOT_IN_DRIVER, VALUE, Device, Observed, absent, value
from envlock.probe.smi import Answer, columns, document, fields, lists, query, table
from envlock.probe.smi.sheet import Row, Sheet
from envlock.probe.smi.spellings import readable
from envlock.registry import GPU, REGISTRY, in_scope

_FIRST = (document.FORM, query.FORM, columns.FORM, table.FORM)
COUNT = "nvidia.gpu_count"
PCI_COUNT = "nvidia.pci_count"


class _Gpu:
    """One GPU with what each sheet tells of it."""

    def __init__(self) -> None:
        self.address = ""
        self.index: Optional[int] = None
        self.uuid = ""
        self.told: List[Tuple[Sheet, Dict[str, Observed]]] = []
        self.lost = ""

    def is_same(self, row: Row) -> bool:
        for mine, other in ((self.address, row.address), (self.uuid, row.uuid), (self.index, row.index)):
            if mine not in ("", None) and other not in ("", None):
                return mine == other
        return False

    def take(self, sheet: Sheet, row: Row) -> None:
        self.address = self.address or row.address
        self.uuid = self.uuid or row.uuid
        self.index = row.index if self.index is None else self.index
        self.told.append((sheet, fields.facts_of(row, sheet.form)))


def merge(sheets: List[Sheet]) -> Answer:
    """Return the answer that the sheets of one input give together."""
    ordered = sorted(sheets, key=lambda sheet: _FIRST.index(sheet.form) if sheet.form in _FIRST else len(_FIRST))
    notes = [note for sheet in sheets for note in sheet.notes]
    gpus = _gpus(ordered)
    described = len(gpus)
    for address, words in (lost for sheet in sheets for lost in sheet.lost):
        gpu = next((gpu for gpu in gpus if address and gpu.address == address), None)
        if gpu is None:
            gpu = _Gpu()
            gpu.address = address
            gpus.append(gpu)
        gpu.lost = "nvidia-smi says: {}".format(readable(words))
        notes.append(readable(words))
    fault = next((sheet.fault for sheet in sheets if sheet.fault), "") if not gpus else ""
    places = _places(gpus, notes)
    devices = tuple(Device("gpu", place, _facts(gpu, notes)) for place, gpu in zip(places, gpus))
    host = _host(ordered, fault, notes)
    host[COUNT] = absent(FAILED, "nvidia-smi", readable(fault)) if fault else _count(ordered, gpus, described)
    return Answer(host, devices, tuple(dict.fromkeys(notes)), described, readable(fault))


def _gpus(sheets: List[Sheet]) -> List[_Gpu]:
    gpus: List[_Gpu] = []
    for sheet in sheets:
        # Two lines without any name are two GPUs, also where both look alike.
        before = list(gpus)
        for row in sheet.rows:
            known = next((gpu for gpu in before if gpu.is_same(row)), None)
            if known is None and len(before) == len(sheet.rows) == 1 and not (row.address or row.uuid):
                known = before[0]
            if known is None:
                known = _Gpu()
                gpus.append(known)
            known.take(sheet, row)
    return gpus


def _places(gpus: List[_Gpu], notes: List[str]) -> List[str]:
    """Return where each GPU is; an address that is printed for several is none of theirs."""
    counted = Counter(gpu.address for gpu in gpus if gpu.address)
    for place, number in counted.items():
        if number > 1:
            notes.append("{} GPUs at {}: which of them is there cannot be told".format(number, place))
    return [gpu.address if counted[gpu.address] == 1 else "unknown-{}".format(index) for index, gpu in enumerate(gpus)]


def _facts(gpu: _Gpu, notes: List[str]) -> Dict[str, Observed]:
    """Return every registered fact of one GPU: from the first sheet with a value, else from the first that tells."""
    if gpu.lost:
        return {entry.key: absent(FAILED, "nvidia-smi", gpu.lost) for entry in in_scope(GPU)}
    whole = next((sheet.form for sheet, _ in gpu.told if sheet.whole), "")
    forms = " and ".join(dict.fromkeys(sheet.form for sheet, _ in gpu.told))
    missing = absent(FAILED, forms, "not part of this output")
    if whole:
        missing = absent(NOT_IN_DRIVER, whole, "`{}` of this driver prints no such field".format(whole))
    dead = [facts for sheet, facts in gpu.told if facts and not any(seen.has_value for seen in facts.values())]
    if dead and any("is lost" in seen.detail.lower() for seen in dead[0].values()):
        missing = next(iter(dead[0].values()))
        return {entry.key: missing for entry in in_scope(GPU)}
    found = {}
    for entry in in_scope(GPU):
        told = [facts[entry.key] for _, facts in gpu.told if entry.key in facts]
        values = [seen for seen in told if seen.has_value]
        found[entry.key] = (values or told or [fields.ALWAYS.get(entry.key, missing)])[0]
        if entry.locked:
            notes.extend(_disagreement("GPU at {}: {}".format(gpu.address, entry.label), values))
    return found


def _disagreement(what: str, values: List[Observed]) -> List[str]:
    """Return a note when outputs disagree; letter case is none of their business (VBIOS)."""
    said = {seen.text().lower(): seen for seen in reversed(values)}
    if len(said) < 2 or any(seen.detail for seen in values):
        return []
    return ["{}: {}".format(what, "; ".join("{} says {}".format(seen.source, seen.text()) for seen in said.values()))]


def _host(sheets: List[Sheet], fault: str, notes: List[str]) -> Dict[str, Observed]:
    found: Dict[str, Observed] = {}
    for key in REGISTRY:
        if not key.startswith("nvidia."):
            continue
        whole = next((sheet.form for sheet in sheets if sheet.whole), "")
        field = next((field for field in fields.HOST if field.key == key), None)
        if fault:
            found[key] = absent(FAILED, "nvidia-smi", readable(fault))
            continue
        told = [fields.observed(field, sheet.cells, sheet.form) for sheet in sheets] if field else []
        seen = [item for item in told if item is not None]
        values = [item for item in seen if item.has_value]
        missing = absent(FAILED, "nvidia-smi", "not part of this output")
        if whole and field is not None and key != "nvidia.kernel_driver":
            missing = absent(NOT_IN_DRIVER, whole, "`{}` of this driver prints no such field".format(whole))
        found[key] = (values or seen or [missing])[0]
        notes.extend(_disagreement(REGISTRY[key].label, values))
    on_bus = [sheet for sheet in sheets if "pci count" in sheet.cells]
    if on_bus:
        found[PCI_COUNT] = value(len(on_bus[0].rows), lists.LSPCI)
    return found


def _count(sheets: List[Sheet], gpus: List[_Gpu], described: int) -> Observed:
    """Return how many GPUs there are: as many as are said to be attached, not as many as are described."""
    said = [(sheet.attached, sheet.form) for sheet in sheets if sheet.attached is not None]
    listing = [sheet for sheet in sheets if sheet.counts and sheet.rows]
    if len({attached for attached, _ in said}) > 1:
        return absent(FAILED, said[0][1], "outputs disagree: {}".format(
            ", ".join("{} in {}".format(attached, form) for attached, form in said)))  # fmt: skip
    if said:
        attached, form = said[0]
        if attached is not None and attached >= len(gpus):
            detail = "{} attached, {} described".format(attached, described) if attached != described else ""
            detail = detail or ("" if attached else "the driver shows no GPU")
            return Observed(VALUE, attached, form, detail)
        return absent(FAILED, form, "{} attached, but {} described".format(attached, len(gpus)))
    if not listing:
        return absent(FAILED, "nvidia-smi", "not part of this output")
    form = listing[0].form
    doubt = next((sheet.doubt for sheet in sheets if sheet.doubt), "")
    indexes = sorted(gpu.index for gpu in gpus if gpu.index is not None)
    gap = sorted(set(range(indexes[-1] + 1)) - set(indexes)) if indexes else []
    if len(gpus) > described and not doubt:
        return Observed(VALUE, len(gpus), form, "{} of them described".format(described))
    if gap:
        missing = ", ".join(str(index) for index in gap[:8])
        return absent(FAILED, form, "{} listed, but none with the index {}".format(described, missing))
    if doubt and not any(sheet.form in (columns.FORM, lists.LIST) and not sheet.doubt for sheet in listing):
        return absent(FAILED, form, "{} listed; {}".format(described, doubt))
    return value(len(gpus), form)
