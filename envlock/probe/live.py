"""This machine as a host to probe: its files, its programs, its sockets, its driver.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
import sys
from typing import Callable, Dict, Mapping, Sequence

from envlock.errors import ToolError
from envlock.facts import FAILED, NOT_SUPPORTED
from envlock.probe import engine, pci
from envlock.probe.host import Absent, Host, Printed, deferred
from envlock.probe.nvml import child as nvml_child

# Where it lies when PATH does not lead to it; the last is Windows' own, under WSL.
_NVIDIA_SMI = ("/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")


class LiveHost(Host):
    """This machine. `deadline` is in seconds, for each program and socket."""

    def __init__(self, deadline: float = 5.0, nvml_deadline: float = 60.0, smi_deadline: float = 60.0) -> None:
        super().__init__("/")
        self._deadline = deadline
        # Without persistence the first user wakes every GPU: seconds for each of up to sixteen.
        self._nvml_deadline = nvml_deadline
        self._smi_deadline = smi_deadline
        self._begun: Dict[bool, Callable[[], Mapping[str, object]]] = {}

    def machine(self) -> str:
        return os.uname().machine

    def libc(self) -> str:
        try:
            found = os.confstr("CS_GNU_LIBC_VERSION")
        except (ValueError, OSError):
            found = None
        if not found:
            raise Absent(NOT_SUPPORTED, "the C library of this Python is not glibc")
        return found

    def python(self) -> tuple[str, str]:
        return sys.implementation.name, ".".join(str(part) for part in sys.version_info[:3])

    def module_file(self, name: str) -> str | None:
        from importlib.machinery import PathFinder  # importlib.util takes longer to import than to use

        spec = PathFinder.find_spec(name)
        return None if spec is None else spec.origin

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def program(self, name: str) -> str | None:
        # shutil.which loads every compression module on its way.
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
            path = os.path.join(folder, name)
            if folder and os.path.isfile(path) and os.access(path, os.X_OK):
                return path
        return None

    def output(self, argv: Sequence[str]) -> Callable[[], str]:
        from envlock.process import checked, start

        running = start(argv)
        return lambda: checked(running.wait(self._deadline), argv[0]).decode("utf-8", "backslashreplace")

    def ask(self, socket_path: str, request: bytes) -> Callable[[], bytes]:
        return engine.send(socket_path, request, self._deadline)

    def begin_nvml(self, gpus: bool = True) -> None:
        if gpus not in self._begun and pci.signs(self):
            self._begun[gpus] = deferred(lambda: self._ask_nvml(gpus))

    def nvml(self, gpus: bool = True) -> Mapping[str, object]:
        begun = self._begun.pop(gpus, None)
        return begun() if begun is not None else self._ask_nvml(gpus)()

    def _ask_nvml(self, gpus: bool) -> Callable[[], Mapping[str, object]]:
        deadline = nvml_child.deadline(self.variable(nvml_child.DEADLINE), self._nvml_deadline)
        return nvml_child.begin(self.module_file("pynvml"), deadline, gpus=gpus)

    def nvidia_smi(self, *arguments: str) -> Callable[[], Printed]:
        from envlock.process import start

        program = self.program("nvidia-smi") or next((path for path in _NVIDIA_SMI if os.access(path, os.X_OK)), None)
        if program is None:
            raise Absent(FAILED, "`nvidia-smi` is not installed")
        command = " ".join(("nvidia-smi", *arguments))
        deadline = nvml_child.deadline(self.variable(nvml_child.DEADLINE), self._smi_deadline)
        try:
            running = start((program, *arguments))
        except ToolError as error:
            raise Absent(FAILED, error.message.replace(program, command)) from None

        def wait() -> Printed:
            try:
                finished = running.wait(deadline)
            except ToolError as error:
                raise Absent(FAILED, error.message.replace(program, command)) from None
            return Printed(finished.status, finished.stdout, finished.stderr)

        return wait
