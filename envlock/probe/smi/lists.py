"""The short outputs: `-L`, `nvlink -s`, `--version`, and `lspci -nn` in place of a driver.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Dict, List, Tuple

from envlock.facts import FAILED, NOT_SUPPORTED, VALUE, Observed, absent, value
from envlock.probe.pci import normal_address
from envlock.probe.smi.sheet import UNENDED, Row, Sheet
from envlock.probe.smi.spellings import readable

LIST = "nvidia-smi -L"
LINKS = "nvidia-smi nvlink -s"
VERSION = "nvidia-smi --version"
LSPCI = "lspci -nn"

GPU = re.compile(r"GPU (\d{1,4}): (.{1,200}?) \(UUID: ([^()]{1,80})\)\s*$")
_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+:")
_LINK = re.compile(r"\s+Link (\d{1,3}): (?:<?(inactive)>?|([\d.]+ GB/s))\s*$", re.IGNORECASE)
_NO_LINKS = re.compile(r"Nvlink queries are not supported|does not have or support Nvlink", re.IGNORECASE)
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)
_VERSIONS = re.compile(r"(NVIDIA-SMI|NVML|DRIVER|CUDA|KMD|CUDA UMD) version\s*:", re.IGNORECASE)
_FUNCTION = re.compile(
    r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .{1,100}?\[([0-9a-f]{4})\]: (.*)\[([0-9a-f]{4}):([0-9a-f]{4})\]"
)
_WHOLE = re.compile(r"\]( \([^()]*\))?$")
_DISPLAYS = ("0300", "0302", "0380")


def is_list(line: str) -> bool:
    """Return whether a line belongs to `-L` or `nvlink -s`."""
    return any(pattern.match(line) for pattern in (GPU, _INSTANCE, _LINK)) or bool(
        _NO_LINKS.search(line) or _ALL_INACTIVE.search(line)
    )


def read_list(lines: List[str], ended: bool) -> Sheet:
    """Return the sheet of `-L`, or of `nvlink -s`: both name each GPU in one line, with more below it."""
    linked = any(_LINK.match(line) or _NO_LINKS.search(line) or _ALL_INACTIVE.search(line) for line in lines)
    sheet = Sheet(LINKS if linked else LIST, counts=not linked)
    sheet.doubt = "" if ended else UNENDED
    below: List[str] = []
    for line in [*lines, "GPU"]:
        if not line.startswith("GPU"):
            below.append(line)
            continue
        if sheet.rows:
            _below(sheet.rows[-1], below, linked)
        below = []
        found = GPU.match(line)
        if found:
            row = Row("", int(found.group(1)), found.group(3))
            row.put("name", found.group(2))
            row.put("uuid", found.group(3))
            sheet.rows.append(row)
    return sheet


def links(lines: List[str]) -> Tuple[int, ...]:
    """Return how many links each GPU shows in the text of `nvlink -s`."""
    counts: List[int] = []
    for line in lines:
        if GPU.match(line):
            counts.append(0)
        elif counts and _LINK.match(line):
            counts[-1] += 1
    return tuple(counts)


def _below(row: Row, lines: List[str], linked: bool) -> None:
    if linked:
        row.facts["gpu.nvlink"] = _links(lines)
        return
    profiles = tuple(found.group(1) for found in map(_INSTANCE.match, lines) if found)
    if profiles:
        row.facts["gpu.mig_layout"] = Observed(VALUE, tuple(sorted(profiles)), LIST, "without placement")


def _links(lines: List[str]) -> Observed:
    text = " ".join(lines)
    if _NO_LINKS.search(text):
        return absent(NOT_SUPPORTED, LINKS, "nvidia-smi says: {}".format(readable(text.strip())))
    if _ALL_INACTIVE.search(text):
        return absent(FAILED, LINKS, "all links are inactive; this output does not say how many there are")
    found = [link for link in map(_LINK.match, lines) if link]
    if not found:
        return absent(FAILED, LINKS, "no links are listed")
    if all(link.group(2) for link in found):
        return value(["{} x inactive".format(len(found))], LINKS)
    speeds = Counter((link.group(3) or "inactive") for link in found)
    counted = ", ".join("{} x {}".format(number, speed) for speed, number in sorted(speeds.items()))
    return absent(FAILED, LINKS, "{}; this output does not say which version, nor what they lead to".format(counted))


def is_version(line: str) -> bool:
    return bool(_VERSIONS.match(line))


def read_version(lines: List[str], ended: bool) -> Sheet:
    """Return the sheet of `--version`; without a line break at its end the last line may be cut off."""
    sheet = Sheet(VERSION, counts=False)
    for line in lines if ended else lines[:-1]:
        label, _, text = line.partition(":")
        if text.strip():
            sheet.cells.setdefault(label.strip().lower(), text.strip())
    return sheet


# ---- lspci -----------------------------------------------------------------------------------


def is_lspci(line: str) -> bool:
    return bool(_FUNCTION.match(line))


def is_whole(line: str) -> bool:
    """Return whether a line of `lspci` has its end: many a copy lacks the last line break."""
    return bool(_WHOLE.search(line))


def functions(lines: List[str]) -> List[Dict[str, str]]:
    """Return each NVIDIA function in the text of `lspci -nn`: address, class, name and ids."""
    found = []
    for line in lines:
        match = _FUNCTION.match(line)
        if match and match.group(4) == "10de":
            place = match.group(1) if match.group(1).count(":") == 2 else "0000:" + match.group(1)
            name = line.partition("]: ")[2].replace("NVIDIA Corporation ", "", 1)
            found.append({"address": normal_address(place), "class": match.group(2), "name": name,
                          "id": "{}:{}".format(match.group(4), match.group(5))})  # fmt: skip
    return found


def read_lspci(lines: List[str], ended: bool) -> Sheet:
    """Return the GPUs on the PCI bus: what can be known of them without a driver. One cut off counts nothing."""
    sheet = Sheet(LSPCI, counts=False)
    for function in functions(lines):
        if function["class"] in _DISPLAYS:
            row = Row(function["address"])
            row.facts["gpu.pci_id"] = value(function["id"], LSPCI)
            sheet.rows.append(row)
    if ended:
        sheet.cells["pci count"] = str(len(sheet.rows))
    return sheet
