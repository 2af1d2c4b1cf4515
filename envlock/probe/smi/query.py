"""The text of `nvidia-smi -q`, drivers 367 to 610: labels indented below labels.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from envlock.errors import UsageError
from envlock.probe.smi.sheet import MOST_GPUS, Row, Sheet
from envlock.probe.smi.spellings import address, readable

FORM = "nvidia-smi -q"
START = re.compile(r"=+NVSMI LOG=+\s*$")
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
# Printed by every driver known for every GPU: the first of these early, the last at the end.
_EARLY = ("accounting mode", "display active", "board id", "pci/bus id")
_LATE = ("processes", "capabilities")


def is_part(line: str) -> bool:
    """Return whether `line` may belong to this form: a label, with or without a text behind it."""
    return not line.strip() or bool(re.match(r"\s{0,40}[A-Za-z][\w .()/+'&:-]{0,80}?\s*(?: : ?.*)?$", line))


def read(lines: List[str], ended: bool, where: object) -> Sheet:
    """Return the sheet in `lines`; `ended` says that the last one ends with a line break.

    `UsageError` when the text is cut off.
    """
    sheet = Sheet(FORM, whole=True)
    row: Row | None = None
    path: List[Tuple[int, str]] = []
    for line in lines:
        start = _GPU.match(line)
        if start:
            row = Row(address(start.group(1)))
            if any(other.address == row.address for other in sheet.rows[:MOST_GPUS]):
                raise UsageError("describes the GPU at {} twice".format(row.address), where=where)
            sheet.rows.append(row)
            path = []
        elif line.strip() and not START.match(line):
            place, text = _cell(line, path)
            if row is None:
                if text is not None:
                    sheet.cells.setdefault(place, text)
            else:
                _keep(row, place, text)
    _refuse_cut_off(sheet, lines, ended, where)
    for index, row in enumerate(sheet.rows):
        row.uuid = row.cells.get("gpu uuid", "")
        if sheet.attached == len(sheet.rows):
            row.index = index
    return sheet


def _cell(line: str, path: List[Tuple[int, str]]) -> Tuple[str, str | None]:
    """Return the place of a line, and its text; None for a label with nothing behind it."""
    indent = len(line) - len(line.lstrip())
    label, colon, text = line.partition(" : ")
    if not colon and line.rstrip().endswith(" :"):
        label, colon = line.rstrip()[:-2], ":"
    while path and path[-1][0] >= indent:
        path.pop()
    # 535 writes `Invalid HW Slowdown` for the label that it calls `HW Slowdown` elsewhere.
    path.append((indent, re.sub(r"^invalid ", "", label.strip().lower())))
    return "/".join(name for _, name in path), text.strip() if colon else None


def _keep(row: Row, place: str, text: str | None) -> None:
    if place.startswith("mig device"):
        if place == "mig device":
            row.instances = (*(row.instances or ()), "")
        return
    if place.startswith("processes/"):
        return
    if place.startswith("mig mode") and row.instances is None:
        row.instances = ()  # what follows lists them, if there are any
    if text is not None:
        row.put(place, text)
    elif place in _LATE:
        row.put(place, "")


def _refuse_cut_off(sheet: Sheet, lines: List[str], ended: bool, where: object) -> None:
    told = sheet.cells.get("attached gpus", "")
    sheet.attached = int(told) if re.match(r"\d{1,4}$", told) else None
    if sheet.attached is None:
        sheet.doubt = "the text does not say how many GPUs are attached"
    last: Dict[str, str] = sheet.rows[-1].cells if sheet.rows else {}
    if any(place in last for place in _LATE) or (not sheet.rows and sheet.attached == 0):
        return
    missing = sheet.attached is None or len(sheet.rows) < sheet.attached
    if any(place in last for place in _EARLY) or not ended or missing:
        tail = next((line.strip() for line in reversed(lines) if line.strip()), "")
        raise UsageError(
            "is cut off: {} of {} GPUs are described, and the last not to its end, which is `{}`".format(
                len(sheet.rows), "?" if sheet.attached is None else sheet.attached, readable(tail)
            ),
            where=where,
            hint="take the output again, whole: `nvidia-smi -q -x > FILE`",
        )
