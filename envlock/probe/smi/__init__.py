"""What nvidia-smi printed, as facts: the second source for GPUs, and one that needs no host.

`read` takes the bytes of any of its outputs, or of several one after another, and tells
from their content which they are: `-q -x`, `-q`, the table, `--query-gpu` with
`--format=csv`, `-L`, `topo -m`, `nvlink -s`, `--version`, a capture of them all, the one
line that is left when there is no answer, and `lspci -nn` in place of a driver. It
starts nothing and reads no file.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

from envlock.errors import UsageError
from envlock.facts import Device, Observed

MAX_BYTES = 16 << 20
"""More than ten times what a node with sixteen GPUs prints."""

_FORMS = "expected what `nvidia-smi -q -x`, `-q`, `-L`, `--query-gpu=… --format=csv` or plain `nvidia-smi` prints"


class Answer(NamedTuple):
    """What one input tells.

    `host` maps the registered `nvidia.` facts to what was observed, `gpus` are the GPUs
    with every registered fact, by PCI address in sysfs' form. `described` is how many GPUs
    were listed with facts of their own, `fault` in nvidia-smi's words why there is no
    answer at all, empty when there is one; `notes` are its warnings and what it
    disagrees about with itself.
    """

    host: Dict[str, Observed]
    gpus: Tuple[Device, ...]
    notes: Tuple[str, ...]
    described: int
    fault: str


def read(data: bytes, where: object) -> Answer:
    """Return what the bytes `data` tell; `where` names them in errors.

    `UsageError` for what is empty, too large, no output of nvidia-smi, or cut off: a part
    is never passed on as the whole.
    """
    if len(data) > MAX_BYTES:
        raise UsageError("is larger than {} bytes".format(MAX_BYTES), where=where, hint=_FORMS)
    from envlock.probe.smi.merge import merge
    from envlock.probe.smi.sections import split
    from envlock.probe.smi.spellings import decoded

    text = decoded(data)
    if not text.strip():
        raise UsageError("is empty", where=where, hint="did the program that should have written it fail?")
    sheets = split(text, where)
    if not any(sheet.rows or sheet.cells or sheet.lost or sheet.fault or sheet.attached == 0 for sheet in sheets):
        raise UsageError("is no output of nvidia-smi", where=where, hint=_FORMS)
    return merge(sheets)
