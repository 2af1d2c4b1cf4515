"""The table that plain `nvidia-smi` prints: three lines for each GPU.

It tells little, and cuts long names. It does not say how many GPUs there are.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import List

from envlock.facts import FAILED, absent
from envlock.probe.smi.sheet import Row, Sheet
from envlock.probe.smi.spellings import address

FORM = "nvidia-smi (table)"
START = re.compile(r"\| NVIDIA-SMI\s")
_VERSIONS = (
    ("driver version", re.compile(r"(?:Driver|KMD) Version: *(\S+)(?=\s)")),
    ("kmd version", re.compile(r"KMD Version: *(\S+)(?=\s)")),
    ("cuda version", re.compile(r"CUDA (?:UMD )?Version: *(\S+)(?=\s)")),
)
_WIDEST = 300
_MODES = {"e. process": "Exclusive_Process", "e. thread": "Exclusive_Thread"}


def is_part(line: str) -> bool:
    return line.startswith(("|", "+")) or not line.strip()


def read(lines: List[str]) -> Sheet:
    """Return the sheet in the lines of one table."""
    sheet = Sheet(FORM)
    persistence = True
    row: Row | None = None
    since = 0
    for line in (line[:_WIDEST] for line in lines):
        cells = line.split("|")
        first = cells[1].split() if len(cells) == 5 else []
        place = address(cells[2].split()[0]) if len(cells) == 5 and cells[2].split() else ""
        since += 1
        if "Persistence-M" in line or "Driver-Model" in line:
            persistence = "Persistence-M" in line
        elif "Processes:" in line:
            break
        elif START.match(line):
            for place, pattern in _VERSIONS:
                found = pattern.search(line)
                if found:
                    sheet.cells[place] = found.group(1)
        elif place and len(first) > 2 and first[0].isdigit() and len(first[0]) < 5:
            row, since = Row(place, int(first[0])), 0
            row.put("product name", " ".join(first[1:-1]))
            if persistence:
                row.put("persistence mode", first[-1])
            sheet.rows.append(row)
        elif row is not None and since == 1:
            _second(row, cells)
        elif row is not None and since == 2 and line.startswith("|"):
            row.put("mig mode/current", line.rstrip().rstrip("|").rpartition("|")[2].strip())
    if row is not None and since < 3 and not any("Processes:" in line for line in lines):
        row.cells.clear()
        row.facts = {"gpu.name": absent(FAILED, FORM, "the table is cut off inside this GPU")}
    if not any("Processes:" in line for line in lines):
        sheet.doubt = "the table ends before its list of processes, so that more GPUs may have been listed"
    return sheet


def _second(row: Row, cells: List[str]) -> None:
    """Take the second line of a GPU: power, memory and compute mode."""
    if len(cells) != 5 or "/" not in cells[1] or "/" not in cells[2]:
        return
    row.put("power readings/power limit", cells[1].rpartition(" / ")[2].strip())
    row.put("fb memory usage/total", cells[2].rpartition("/")[2].strip())
    mode = cells[3].split(None, 1)[1:]
    if mode:
        row.put("compute mode", _MODES.get(mode[0].strip().lower(), mode[0].strip()))
