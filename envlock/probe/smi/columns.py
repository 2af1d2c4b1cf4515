"""The CSV of `nvidia-smi --query-gpu=… --format=csv`: one line for each GPU.

Without a header only what shows by its shape is taken: address, UUID, index, model.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import List, Optional

from envlock.errors import UsageError
from envlock.facts import FAILED, NOT_SUPPORTED, absent
from envlock.probe.smi.fields import PLACES, REASON_PLACES, ROW_PLACES
from envlock.probe.smi.sheet import UNENDED, Row, Sheet
from envlock.probe.smi.spellings import absence, address, bare, readable

FORM = "nvidia-smi --query-gpu"
_ADDRESSES = ("pci.bus_id", "gpu_bus_id")
_COLUMNS = {*PLACES, *REASON_PLACES, *ROW_PLACES, *_ADDRESSES, "index", "count", "uuid", "driver_version"}
# Lists with a line for each process or page, not for each GPU.
_OTHERS = ("pid", "retired_pages.address", "retired_pages.cause", "vgpu_id")
_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
_MODEL = re.compile(r"(?:NVIDIA|GeForce|Quadro|Tesla|GRID|TITAN|Graphics Device)\b")


def columns(line: str) -> Optional[List[str]]:
    """Return the columns that a header names, in lower case and without units; None for another line."""
    cells = [re.sub(r" \[[^\]]*\]$", "", cell.strip()) for cell in line.split(",")]
    if not all(re.match(r"[A-Za-z][\w.]*$", cell) for cell in cells):
        return None
    names = [cell.lower() for cell in cells]
    # One word alone is a header only where it is one for certain.
    return names if any(name in _COLUMNS for name in names) else None


def is_of_others(names: List[str]) -> bool:
    """Return whether a list with these columns has its lines for something else than GPUs."""
    return any(name in _OTHERS for name in names)


def is_headless(line: str) -> bool:
    """Return whether a line is one of a list without a header: it has an address or a UUID among its cells."""
    cells = [cell.strip() for cell in line.split(",")]
    return len(cells) > 1 and any(address(cell) or _UUID.match(cell) for cell in cells)


def read(names: List[str], lines: List[str], ended: bool, where: object) -> Sheet:
    """Return the sheet of the `lines` below a header; `ended` says that the last one ends with a line break."""
    sheet = Sheet(FORM)
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(names):
            if line is lines[-1] and not ended:
                raise UsageError("is cut off in its last line: `{}`".format(readable(line)), where=where)
            row = Row()
            why = "{} cells where the header has {}: `{}`".format(len(cells), len(names), readable(line))
            row.facts = {"gpu.name": absent(FAILED, FORM, why)}
            sheet.rows.append(row)
            continue
        sheet.rows.append(_row(names, cells, broken=line is lines[-1] and not ended))
    _of_all(sheet)
    sheet.doubt = "" if ended else UNENDED
    return sheet


def read_headless(lines: List[str], ended: bool) -> Sheet:
    """Return the sheet of lines without a header; the last cell may lack its end where the last line does."""
    sheet = Sheet(FORM + " (without a header)")
    split = [[cell.strip() for cell in line.split(",")] for line in lines]
    numbers = [cells[0] for cells in split]
    indexed = all(re.match(r"\d{1,4}$", text) for text in numbers) and len(set(numbers)) == len(numbers)
    if not ended:
        split[-1].pop()
        sheet.doubt = UNENDED
    for cells in split:
        row = Row(next((address(cell) for cell in cells if address(cell)), ""))
        row.index = int(cells[0]) if indexed else None
        row.uuid = next((cell for cell in cells if _UUID.match(cell)), "")
        models = [cell for cell in cells if _MODEL.match(cell)]
        if row.uuid:
            row.put("uuid", row.uuid)
        if len(models) == 1:
            row.put("name", models[0])
        sheet.rows.append(row)
    return sheet


def _row(names: List[str], cells: List[str], broken: bool) -> Row:
    """Return the row of one line; the last cell of a `broken` one may lack its end."""
    row = Row()
    for name, text in zip(names, cells[:-1] if broken else cells):
        row.put(name, text)
    row.address = next((address(row.cells[name]) for name in _ADDRESSES if name in row.cells), "")
    index = row.cells.get("index", "")
    row.index = int(index) if re.match(r"\d{1,4}$", index) else None
    row.uuid = row.cells.get("uuid", row.cells.get("gpu_uuid", ""))
    # The mode of GSP is told apart from its version; where it is not, neither is known.
    if absence(row.cells.get("gsp.mode.current", "")) == NOT_SUPPORTED:
        row.facts["gpu.gsp"] = absent(NOT_SUPPORTED, FORM, "nvidia-smi prints `N/A`")
    return row


def _of_all(sheet: Sheet) -> None:
    """Take what every line says of the whole host."""
    for name in ("driver_version", "kmd_version", "count"):
        said = sorted({bare(row.cells[name]) for row in sheet.rows if name in row.cells})
        if len(said) == 1:
            sheet.cells[name] = said[0]
        elif said:
            sheet.notes.append("{}: the lines disagree about {}: {}".format(FORM, name, ", ".join(said)))
    count = sheet.cells.get("count", "")
    sheet.attached = int(count) if re.match(r"\d{1,4}$", count) else None
