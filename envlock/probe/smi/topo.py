"""The matrix of `nvidia-smi topo -m`: paths between GPUs, and their CPUs and memory.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import List

from envlock.facts import FAILED, NOT_SUPPORTED, VALUE, Observed, absent, value
from envlock.probe.smi.sheet import Row, Sheet
from envlock.probe.smi.spellings import readable

FORM = "nvidia-smi topo -m"
# nvmlGpuTopologyLevel_t (nvml.h); PSB is PIX on a board with two GPUs.
_PATHS = {
    "PSB": "internal", "PIX": "single-switch", "PXB": "multiple-switch", "PHB": "host-bridge",
    "NODE": "node", "SYS": "system", "SOC": "system",
}  # fmt: skip
_OWN_NODE = "GPU NUMA ID"  # from driver 535 on
_STYLE = re.compile("\x1b\\[[0-9;]*m")
_HEADER = re.compile(r"\s*\tGPU0\b")
_NUMBERS = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*$")


def unstyled(line: str) -> str:
    """Return a line without the underlining that is there even in a pipe."""
    return _STYLE.sub("", line)


def is_header(line: str) -> bool:
    return bool(_HEADER.match(unstyled(line)))


def is_part(line: str) -> bool:
    return bool(re.match(r"(GPU|NIC|CPU|mlx|IB)\S*\t", unstyled(line)))


def read(lines: List[str], ended: bool) -> Sheet:
    """Return the sheet of one matrix, its header first; without a line break at its end the last line is no line."""
    sheet = Sheet(FORM, counts=False)
    names = [name.strip() for name in unstyled(lines[0]).split("\t")[1:]]
    gpus = [name for name in names if re.match(r"GPU\d+$", name)]
    rows = {}
    for line in lines[1:] if ended else lines[1:-1]:
        cells = [cell.strip() for cell in unstyled(line).split("\t")]
        if re.match(r"GPU\d{1,4}$", cells[0]):
            rows[cells[0]] = cells[1:]
    for name in gpus:
        row = Row("", int(name[3:]))
        row.facts = _facts(name, names, gpus, rows.get(name))
        sheet.rows.append(row)
    return sheet


def _facts(name: str, names: List[str], gpus: List[str], cells: List[str] | None) -> dict[str, Observed]:
    if cells is None or len(cells) < len(gpus):
        why = absent(FAILED, FORM, "the matrix is cut off before the line of {}".format(name))
        return dict.fromkeys(("gpu.topology", "gpu.cpu_affinity", "gpu.numa_node", "gpu.memory_node"), why)
    found = {"gpu.topology": _paths(name, gpus, cells)}
    for key, title in (("gpu.cpu_affinity", "CPU Affinity"), ("gpu.numa_node", "NUMA Affinity")):
        if title in names and names.index(title) < len(cells):
            found[key] = _numbers(cells[names.index(title)])
    # The last column; an empty cell stands before it, and none in the header.
    if names[-1] == _OWN_NODE and len(cells) >= len(names):
        found["gpu.memory_node"] = _node(cells[-1])
    return found


def _paths(name: str, gpus: List[str], cells: List[str]) -> Observed:
    others = [cell for other, cell in zip(gpus, cells) if other != name]
    strange = sorted({cell for cell in others if cell not in _PATHS})
    if strange:
        linked = all(re.match(r"NV\d+$", cell) for cell in strange)
        why = "NVLinks are shown in place of the path" if linked else "not understood: `{}`"
        return absent(FAILED, FORM, why.format(readable(" ".join(strange))))
    counted = Counter(_PATHS[cell] for cell in others)
    paths = tuple(sorted("{} x {}".format(number, path) for path, number in counted.items()))
    return Observed(VALUE, paths, FORM)


def _node(text: str) -> Observed:
    found = _numbers(text)
    if found.has_value and not text.isdigit():
        return absent(FAILED, FORM, "not understood: `{}`".format(readable(text)))
    return value(int(text), FORM) if found.has_value else found


def _numbers(text: str) -> Observed:
    if text in ("N/A", ""):
        return absent(NOT_SUPPORTED, FORM, "nvidia-smi prints `{}`".format(text or "nothing"))
    if not _NUMBERS.match(text):
        return absent(FAILED, FORM, "not understood: `{}`".format(readable(text)))
    return value(text, FORM)
