"""The settings in force in a worker, as text: what could explain a difference of bits.

Two groups. `deciding` goes into the golden and is compared: threads, versions, ISA caps,
switches, variables, build ids. `informing` is for people: it may differ between two
hosts that agree in every bit.

Travels to nodes: standard library only, Python 3.8 and newer; torch is handed in.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, Dict, Iterable, List, Mapping

from envlock.canary import knobs, libraries, switches


def deciding(
    torch: Any, wanted: Iterable[str], loaded: List[Dict[str, str]], environment: Mapping[str, str]
) -> Dict[str, str]:
    """Return the settings that can decide bits, by name. `wanted` are the switches to read."""
    found = {
        "threads": str(torch.get_num_threads()),
        "torch.version": str(torch.__version__),
        "torch.git": str(getattr(torch.version, "git_version", "unknown")),
        "aten.cpu-capability": str(torch.backends.cpu.get_cpu_capability()),
    }
    if torch.version.cuda:
        found["torch.cuda"] = str(torch.version.cuda)
        found["torch.cudnn"] = str(torch.backends.cudnn.version())
    for name, text in switches.in_force(torch, wanted).items():
        found["switch." + name] = text
    for name, text in knobs.in_force(environment).items():
        found["env." + name] = text
    for name, identity in libraries.deciding(loaded):
        key = "library." + name
        # Two files of one name loaded at once is worth seeing: both build ids stand there.
        found[key] = found[key] + " " + identity if key in found else identity
    return found


def informing(torch: Any) -> Dict[str, str]:
    """Return what is worth knowing and decides no bit of the suite."""
    numpy = sys.modules.get("numpy")
    return {
        "python.version": platform.python_version(),
        "numpy.version": str(getattr(numpy, "__version__", "(not loaded)")),
        "interop-threads": str(torch.get_num_interop_threads()),
        "mkl": str(bool(torch.backends.mkl.is_available())),
        "onednn": str(bool(torch.backends.mkldnn.is_available())),
        "kernel": os.uname().release,
    }
