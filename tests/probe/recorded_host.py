"""A recorded host: a tree of files written for one test, and calls that answer as told."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envlock.errors import ToolError
from envlock.facts import FAILED
from envlock.probe.host import Absent, Host, Printed


class RecordedHost(Host):
    """The files in `tree` (path to text) below `root`, with the answers of the calls by name."""

    def __init__(
        self,
        root: Path,
        tree: Mapping[str, str],
        outputs: Mapping[str, str] | None = None,
        answers: Mapping[str, bytes | OSError] | None = None,
        nvml: Mapping[str, object] | Exception | None = None,
        variables: Mapping[str, str] | None = None,
        modules: Mapping[str, str] | None = None,
        smi: Mapping[tuple[str, ...], Printed | Absent] | None = None,
    ) -> None:
        super().__init__(root)
        for path, text in tree.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                target.symlink_to(text[3:])
            else:
                target.write_bytes(text.encode("latin-1"))
        self._outputs = outputs or {}
        self._answers = answers or {}
        self._nvml = nvml
        self._variables = variables or {}
        self._modules = modules or {}
        self._smi = smi
        self.nvml_was_asked = False
        self.smi_was_asked: list[tuple[str, ...]] = []

    def machine(self) -> str:
        return "x86_64"

    def libc(self) -> str:
        return "glibc 2.36"

    def python(self) -> tuple[str, str]:
        return "cpython", "3.11.2"

    def module_file(self, name: str) -> str | None:
        return self._modules.get(name)

    def variable(self, name: str) -> str | None:
        return self._variables.get(name)

    def program(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self._outputs else None

    def output(self, argv: Sequence[str]) -> Callable[[], str]:
        text = self._outputs[argv[0]]
        if text.startswith("error: "):
            raise ToolError(text[7:])
        return lambda: text

    def ask(self, socket_path: str, request: bytes) -> Callable[[], bytes]:
        found = self._answers[socket_path]
        if isinstance(found, OSError):
            raise found
        return lambda: found

    def nvidia_smi(self, *arguments: str) -> Callable[[], Printed]:
        self.smi_was_asked.append(arguments)
        if self._smi is None:
            raise Absent(FAILED, "`nvidia-smi` is not installed")
        found = self._smi.get(arguments, Printed(2, b"", b"refused\n"))

        def wait() -> Printed:
            if isinstance(found, Absent):
                raise found
            return found

        return wait

    def nvml(self, gpus: bool = True) -> Mapping[str, object]:
        self.nvml_was_asked = True
        if isinstance(self._nvml, Exception):
            raise self._nvml
        if self._nvml is None:
            raise Absent(FAILED, "this Python has no NVML binding")
        return self._nvml


def cpuinfo(count: int = 2, differing: Mapping[int, Mapping[str, str]] | None = None, **lines: Any) -> str:
    """Return the text of /proc/cpuinfo for `count` equal x86 CPUs, but for the lines in `differing`."""
    common = {
        "vendor_id": "GenuineIntel",
        "cpu family": "6",
        "model": "143",
        "model name": "Some CPU",
        "stepping": "8",
        "microcode": "0x2b000603",
        "physical id": "0",
        "flags": "fpu sse sse2 avx2",
        **{name.replace("_", " ") if name != "vendor_id" else name: text for name, text in lines.items()},
    }
    blocks = []
    for number in range(count):
        found = {"processor": str(number), "core id": str(number), **common, **(differing or {}).get(number, {})}
        blocks.append("".join(f"{key}\t: {text}\n" for key, text in found.items() if text is not None))
    return "\n".join(blocks) + "\n"


def pci_gpu(address: str = "0000:01:00.0", device: str = "0x2330", kind: str = "0x030200") -> dict[str, str]:
    """Return the sysfs files of one NVIDIA GPU."""
    folder = f"/sys/bus/pci/devices/{address}"
    return {
        f"{folder}/vendor": "0x10de\n",
        f"{folder}/device": f"{device}\n",
        f"{folder}/class": f"{kind}\n",
        f"{folder}/subsystem_vendor": "0x10de\n",
        f"{folder}/subsystem_device": "0x16c1\n",
    }
