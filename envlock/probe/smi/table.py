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
    ("driver version", re.compile(r"(?:Driver|KMD) Version: *(\S+)")),
    ("kmd version", re.compile(r"KMD Version: *(\S+)")),
    ("cuda version", re.compile(r"CUDA (?:UMD )?Version: *(\S+)")),
)
_FIRST = re.compile(r"\| *(\d{1,4}) +(.*?) +(\S+) *\| +([0-9A-Fa-f:]+\.[0-7]) +\S+ *\|")
_SECOND = re.compile(r"\|.*?(\S+) */ +(\S+) *\| *(\S+) */ *(\S+) *\| *(\S+) +(.*?) *\|")
_MODES = {"e. process": "Exclusive_Process", "e. thread": "Exclusive_Thread"}


def is_part(line: str) -> bool:
    return line.startswith(("|", "+")) or not line.strip()


def read(lines: List[str]) -> Sheet:
    """Return the sheet in the lines of one table."""
    sheet = Sheet(FORM)
    persistence = True
    row: Row | None = None
    since = 0
    for line in lines:
        first = _FIRST.match(line)
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
        elif first and address(first.group(4)):
            row, since = Row(address(first.group(4)), int(first.group(1))), 0
            row.put("product name", first.group(2).strip())
            if persistence:
                row.put("persistence mode", first.group(3))
            sheet.rows.append(row)
        elif row is not None and since == 1:
            _second(row, line)
        elif row is not None and since == 2 and line.startswith("|"):
            row.put("mig mode/current", line.rstrip().rstrip("|").rpartition("|")[2].strip())
    if row is not None and since < 3 and not any("Processes:" in line for line in lines):
        row.cells.clear()
        row.facts = {"gpu.name": absent(FAILED, FORM, "the table is cut off inside this GPU")}
    if not any("Processes:" in line for line in lines):
        sheet.doubt = "the table ends before its list of processes, so that more GPUs may have been listed"
    return sheet


def _second(row: Row, line: str) -> None:
    found = _SECOND.match(line)
    if found:
        row.put("power readings/power limit", found.group(2))
        row.put("fb memory usage/total", found.group(4))
        row.put("compute mode", _MODES.get(found.group(6).lower(), found.group(6)))
