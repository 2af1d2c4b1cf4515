"""nvidia-smi asked on this host, in place of NVML.

First the whole report; then, when there is one, what it leaves out: the compute
capability, the mode of GSP, the topology, the names of MIG instances. It changes
nothing, and one that hangs in the driver is left behind.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Callable, List, Tuple

from envlock.errors import UsageError
from envlock.facts import FAILED
from envlock.probe import smi
from envlock.probe.host import Absent, Host, Printed
from envlock.probe.smi.document import OPEN

WHERE = "nvidia-smi"
_REPORT = ("-q", "-x")
# Asked one by one: a driver that does not know a field refuses the whole list.
_MORE: Tuple[Tuple[str, ...], ...] = (
    ("--query-gpu=pci.bus_id,compute_cap", "--format=csv"),
    ("--query-gpu=pci.bus_id,gsp.mode.current,gsp.mode.default", "--format=csv"),
    ("topo", "-m"),
    ("-L",),
)


def ask(host: Host) -> smi.Answer:
    """Return what nvidia-smi says on `host`; `Absent` says why it says nothing."""
    printed = host.nvidia_smi(*_REPORT)()
    report = _text(printed)
    if not report.strip():
        raise Absent(FAILED, "`nvidia-smi -q -x` ended with status {} and printed nothing".format(printed.status))
    if OPEN.encode() not in printed.stdout:
        return _read(report, printed.status)
    whole = b"\n".join([report, *_more(host)])
    try:
        return smi.read(whole, WHERE)
    except UsageError:
        return _read(report, printed.status)  # what came later is not worth the report


def _more(host: Host) -> List[bytes]:
    """Return what nvidia-smi says to the further questions; one that it refuses is left out."""
    waiting: List[Callable[[], Printed]] = []
    for arguments in _MORE:
        try:
            waiting.append(host.nvidia_smi(*arguments))
        except Absent:
            continue
    said = []
    for wait in waiting:
        try:
            printed = wait()
        except Absent:
            continue
        if printed.status == 0:
            said.append(printed.stdout)
    return said


def _read(report: bytes, status: int) -> smi.Answer:
    try:
        answer = smi.read(report, WHERE)
    except UsageError as error:
        raise Absent(FAILED, "{} (status {})".format(error, status)) from None
    if not answer.fault:
        return answer
    return answer._replace(fault="{} (status {})".format(answer.fault, status))


def _text(printed: Printed) -> bytes:
    """Return the report with what was said beside it, which may be on either stream."""
    return printed.stdout + (b"\n" + printed.stderr if printed.stderr.strip() else b"")
