"""A driver library in pure Python, for the unmodified module `pynvml`.

`pynvml` looks each function up by name, passes output arguments as `byref` objects or
character arrays, and takes an integer code back. `Library` does that from a table: a
function's name to what it writes, to an error code, or to an exception; a name that is
not in the table is a symbol that this driver does not have.
"""

import ctypes
from collections.abc import Mapping
from typing import Any

SUCCESS = 0


class Code(int):
    """The NVML error code that a call returns."""


class Library:
    """What `pynvml.nvmlLib` may be set to. `gpus` maps an index to that GPU's own table."""

    def __init__(self, system: Mapping[str, Any], gpus: Mapping[int, Mapping[str, Any]]) -> None:
        self._system = dict(system)
        self._gpus = dict(gpus)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "nvmlErrorString":
            return _error_string
        if name in ("nvmlInitWithFlags", "nvmlInit_v2"):
            return lambda *_: int(self._system.get("nvmlInit", SUCCESS))
        if name == "nvmlDeviceGetCount_v2":
            return lambda reference: _write([reference], self._system.get(name, len(self._gpus)))
        if name == "nvmlDeviceGetHandleByIndex_v2":
            return self._handle
        if name in self._system:
            return lambda *arguments: _write(arguments, self._system[name])
        if any(name in gpu for gpu in self._gpus.values()):
            return lambda handle, *arguments: self._ask(name, handle, arguments)
        raise AttributeError(name)

    def _handle(self, index: Any, reference: Any) -> int:
        found = self._gpus[int(getattr(index, "value", index))].get("handle", SUCCESS)
        if found == SUCCESS:
            # A handle that names its GPU: the address of nothing, one more than the index.
            ctypes.cast(reference, ctypes.POINTER(ctypes.c_void_p))[0] = index.value + 1
        return int(found)

    def _ask(self, name: str, handle: Any, arguments: tuple[Any, ...]) -> int:
        index = ctypes.cast(handle, ctypes.c_void_p).value
        assert index is not None
        return _write(arguments, self._gpus[index - 1].get(name, Code(3)))


def _error_string(code: Any) -> bytes:
    return f"error {int(getattr(code, 'value', code))}".encode()


def _write(arguments: Any, found: Any) -> int:
    """Write `found` (a tuple: one for each output) into the output arguments, which come last."""
    if isinstance(found, Exception):
        raise found
    if callable(found):
        found = found(arguments)
    if isinstance(found, Code):
        return int(found)
    outputs = [item for item in arguments if hasattr(item, "_obj") or isinstance(item, ctypes.Array)]
    for output, item in zip(outputs, found if isinstance(found, tuple) else (found,), strict=True):
        if isinstance(output, ctypes.Array):
            output.value = item
        elif isinstance(item, dict):
            for field, text in item.items():
                setattr(output._obj, field, text)
        else:
            output._obj.value = item
    return SUCCESS


SYSTEM = {"nvmlSystemGetDriverVersion": b"535.161.08", "nvmlSystemGetCudaDriverVersion_v2": 12040}


def gpu(bus: bytes = b"00000000:01:00.0", **changes: Any) -> dict[str, Any]:
    """Return the table of one H100 that answers everything, but for `changes`."""
    return {
        "nvmlDeviceGetName": b"NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetPciInfo_v3": {"busId": bus, "pciDeviceId": 0x233010DE, "pciSubSystemId": 0x16C110DE},
        "nvmlDeviceGetUUID": b"GPU-0dd00000-0000-4000-8000-000000000001",
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetMemoryInfo": {"total": 81559 << 20, "free": 1, "used": 1},
        "nvmlDeviceGetVbiosVersion": b"96.00.A5.00.01",
        "nvmlDeviceGetGspFirmwareMode": (1, 1),
        "nvmlDeviceGetGspFirmwareVersion": b"535.161.08",
        "nvmlDeviceGetInforomImageVersion": b"G520.0200.00.05",
        "nvmlDeviceGetPowerManagementLimit": 700000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 700000,
        "nvmlDeviceGetEnforcedPowerLimit": 700000,
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetEccMode": (1, 1),
        "nvmlDeviceGetMigMode": (0, 0),
        "nvmlDeviceGetPersistenceMode": 1,
        **changes,
    }
