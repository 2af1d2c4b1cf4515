"""The Python that probes, and the NVML binding it would import.

These are the only facts that depend on the interpreter: a bare node's Python and
envlock's own differ in them and in nothing else.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
from typing import Dict

from envlock.facts import NOT_SUPPORTED, VALUE, Observed
from envlock.probe.host import Absent, Host, observe

RIGHT = "nvidia-ml-py"


def read(host: Host) -> Dict[str, Observed]:
    """Return implementation, version, and the distribution behind the module `pynvml`."""
    return {
        "python.implementation": observe("sys.implementation", lambda: host.python()[0]),
        "python.version": observe("sys.version_info", lambda: host.python()[1]),
        "python.nvml_binding": binding(host),
    }


def binding(host: Host) -> Observed:
    """Return the distribution and version that `pynvml` comes from; the detail warns of a wrong one."""

    def name() -> str:
        path = host.module_file("pynvml")
        if path is None:
            raise Absent(NOT_SUPPORTED, "`{}` is not installed for this Python".format(RIGHT))
        return distribution_of(path)

    seen = observe("the folder of the module `pynvml`", name)
    if seen.has_value and not str(seen.value).startswith(RIGHT + " "):
        detail = "`pynvml` does not come from `{}`: its answers may be wrong or missing".format(RIGHT)
        return Observed(VALUE, seen.value, seen.source, detail)
    return seen


def distribution_of(path: str) -> str:
    """Return `NAME VERSION` of the distribution that installed the module file at `path`.

    Decided by the RECORD files beside it (PyPA, "Recording installed projects"): the
    path and, since one distribution may have overwritten another's file, the size.
    """
    folder, file_name = os.path.split(path)
    if file_name == "__init__.py":
        folder, package = os.path.split(folder)
        file_name = package + "/" + file_name
    installed = [name for name in sorted(os.listdir(folder)) if name.endswith(".dist-info")]
    likely = [name for name in installed if name.startswith(("nvidia_ml_py", "pynvml"))]
    claims = []
    for name in likely or installed:
        size = _recorded_size(os.path.join(folder, name, "RECORD"), file_name)
        if size is not None:
            claims.append((size == os.path.getsize(path), name[: -len(".dist-info")]))
    for fits, name in sorted(claims, reverse=True):
        distribution, _, version = name.partition("-")
        text = "{} {}".format(distribution.replace("_", "-").lower(), version)
        return text if fits else "changed after its installation by {}".format(text)
    return "no distribution that pip knows"


def _recorded_size(record: str, file_name: str) -> int | None:
    try:
        with open(record, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                path, _, rest = line.partition(",")
                if path == file_name:
                    size = rest.strip().rpartition(",")[2]
                    return int(size) if size.isdigit() else -1
    except OSError:
        return None
    return None
