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
OTHERS = 100  # handles from here on are MIG devices and GPU instances: not counted as GPUs


class Code(int):
    """The NVML error code that a call returns."""


class Library:
    """What `pynvml.nvmlLib` may be set to. `gpus` maps an index to that GPU's own table.

    `asked` lists every call: the function, and the index of the GPU or -1.
    """

    def __init__(self, system: Mapping[str, Any], gpus: Mapping[int, Mapping[str, Any]]) -> None:
        self._system = dict(system)
        self._gpus = dict(gpus)
        self.asked: list[tuple[str, int]] = []
        self.flags: list[int] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "nvmlErrorString":
            return _error_string
        if name in ("nvmlInitWithFlags", "nvmlInit_v2"):
            return self._init
        if name == "nvmlDeviceGetCount_v2":
            count = sum(1 for index in self._gpus if index < OTHERS)
            return lambda reference: _write([reference], self._system.get(name, count))
        if name == "nvmlDeviceGetHandleByIndex_v2":
            return self._handle
        if name in self._system:
            return lambda *arguments: _write(arguments, self._system[name])
        if any(name in gpu for gpu in self._gpus.values()):
            return lambda handle, *arguments: self._ask(name, handle, arguments)
        raise AttributeError(name)

    def _init(self, *flags: Any) -> int:
        self.flags += [int(getattr(flag, "value", flag)) for flag in flags]
        return int(self._system.get("nvmlInit", SUCCESS))

    def _handle(self, index: Any, reference: Any) -> int:
        found = self._gpus[int(getattr(index, "value", index))].get("handle", SUCCESS)
        if found == SUCCESS:
            _write([reference], handle(index.value))
        return int(found)

    def _ask(self, name: str, asked: Any, arguments: tuple[Any, ...]) -> int:
        index = index_of(asked)
        self.asked.append((name, index))
        return _write(arguments, self._gpus[index].get(name, Code(3)))


class _Handle(int):
    """An index, to be written as a handle: the address of nothing, one more than the index."""


def handle(index: int) -> _Handle:
    """Return what a function writes to hand out the GPU, MIG device or instance `index`."""
    return _Handle(index + 1)


def index_of(asked: Any) -> int:
    """Return the index that a handle stands for."""
    address = ctypes.cast(asked, ctypes.c_void_p).value
    assert address is not None
    return address - 1


def by_number(*answers: Any) -> Any:
    """Return a table's entry whose answer depends on the first number asked for; past the end: code 2."""

    def choose(arguments: tuple[Any, ...]) -> Any:
        number = int(getattr(arguments[0], "value", arguments[0]))
        return answers[number] if number < len(answers) else Code(2)

    return choose


def fields(**answers: Any) -> Any:
    """Return the entry of nvmlDeviceGetFieldValues: `f230=0` is the value of field 230, a `Code` its error."""

    def fill(arguments: tuple[Any, ...]) -> Any:
        for item in arguments[-1]._obj:
            found = answers.get(f"f{item.fieldId}", Code(3))
            item.nvmlReturn = int(found) if isinstance(found, Code) else SUCCESS
            item.valueType = 1
            item.value.uiVal = 0 if isinstance(found, Code) else found
        return ()

    return fill


def _error_string(code: Any) -> bytes:
    return f"error {int(getattr(code, 'value', code))}".encode()


def _write(arguments: Any, found: Any) -> int:
    """Write `found` (a tuple: one for each output) into the output arguments, which come last."""
    if callable(found):
        found = found(arguments)
    if isinstance(found, Exception):
        raise found
    if isinstance(found, Code):
        return int(found)
    if found == ():
        return SUCCESS
    outputs = [item for item in arguments if hasattr(item, "_obj") or isinstance(item, ctypes.Array)]
    for output, item in zip(outputs, found if isinstance(found, tuple) else (found,), strict=True):
        _put(output if isinstance(output, ctypes.Array) else output._obj, item, output)
    return SUCCESS


def _put(target: Any, item: Any, output: Any) -> None:
    if isinstance(item, _Handle):
        ctypes.cast(output, ctypes.POINTER(ctypes.c_void_p))[0] = int(item)
    elif isinstance(item, list):
        for place, word in enumerate(item):
            target[place] = word
    elif isinstance(item, dict):
        for field, text in item.items():
            if isinstance(text, (list, bytes)) and isinstance(getattr(target, field), ctypes.Array):
                _put(getattr(target, field), list(text), output)
            elif isinstance(text, dict):
                _put(getattr(target, field), text, output)
            else:
                setattr(target, field, text)
    else:
        target.value = item


SYSTEM = {
    "nvmlSystemGetDriverVersion": b"535.161.08",
    "nvmlSystemGetDriverBranch": {"branch": b"r535_00"},
    "nvmlSystemGetCudaDriverVersion_v2": 12040,
    "nvmlSystemGetConfComputeState": {"ccFeature": 0},
}


def gpu(bus: bytes = b"00000000:01:00.0", **changes: Any) -> dict[str, Any]:
    """Return the table of one H100 of an HGX board that answers everything, but for `changes`."""
    return {
        "nvmlDeviceGetName": b"NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetBrand": 14,
        "nvmlDeviceGetArchitecture": 9,
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetNumGpuCores": 16896,
        "nvmlDeviceGetMemoryInfo": {"total": 81559 << 20, "free": 1, "used": 1},
        "nvmlDeviceGetMemoryBusWidth": 5120,
        "nvmlDeviceGetPciInfo_v3": {"busId": bus, "pciDeviceId": 0x233010DE, "pciSubSystemId": 0x16C110DE},
        "nvmlDeviceGetBoardPartNumber": b"692-2G520-0200-000",
        "nvmlDeviceGetVbiosVersion": b"96.00.A5.00.01",
        "nvmlDeviceGetGspFirmwareMode": (1, 1),
        "nvmlDeviceGetGspFirmwareVersion": b"535.161.08",
        "nvmlDeviceGetInforomImageVersion": b"G520.0200.00.05",
        "nvmlDeviceGetInforomVersion": by_inforom,
        "nvmlDeviceGetInforomConfigurationChecksum": 0x1A2B3C,
        "nvmlDeviceValidateInforom": (),
        "nvmlDeviceGetEccMode": (1, 1),
        "nvmlDeviceGetDefaultEccMode": 1,
        "nvmlDeviceGetMigMode": (0, 0),
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetComputeMode": 0,
        "nvmlDeviceGetAddressingMode": {"value": 1},
        "nvmlDeviceGetGpuOperationMode": (0, 0),
        "nvmlDeviceGetVirtualizationMode": 0,
        "nvmlDeviceGetHostVgpuMode": 1,
        "nvmlDeviceGetC2cModeInfoV": {"isC2cEnabled": 0},
        "nvmlDeviceGetDramEncryptionMode": ({"encryptionState": 0}, {"encryptionState": 0}),
        "nvmlDeviceGetPowerManagementLimit": 650000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 700000,
        "nvmlDeviceGetPowerManagementLimitConstraints": (200000, 700000),
        "nvmlDeviceGetEnforcedPowerLimit": 650000,
        "nvmlDeviceGetFieldValues": fields(f230=0, f190=2500000),
        "nvmlDeviceGetMaxClockInfo": by_clock(1980, 1981, 2619),
        "nvmlDeviceGetMaxCustomerBoostClock": 1980,
        "nvmlDeviceGetApplicationsClock": by_clock(1755, 0, 2619),
        "nvmlDeviceGetDefaultApplicationsClock": by_clock(1980, 0, 2619),
        "nvmlDeviceGetClockOffsets": {"clockOffsetMHz": -15},
        "nvmlDeviceGetCurrentClocksEventReasons": 0b101,
        "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetCurrPcieLinkGeneration": 1,
        "nvmlDeviceGetNvLinkState": by_number(*[1] * 17, 0),
        "nvmlDeviceGetNvLinkVersion": 6,
        "nvmlDeviceGetNvLinkRemoteDeviceType": 2,
        "nvmlDeviceGetTopologyCommonAncestor": 40,
        "nvmlDeviceGetP2PStatus": 0,
        "nvmlDeviceGetCpuAffinity": [(1 << 56) - 1, 0xFFFF000000000000],
        "nvmlDeviceGetMemoryAffinity": [1],
        "nvmlDeviceGetGpuFabricInfoV": {"clusterUuid": [0] * 16, "status": 0, "state": 3},
        "nvmlDeviceGetRetiredPagesPendingStatus": 0,
        "nvmlDeviceGetRemappedRows": (1, 0, 0, 0),
        "nvmlDeviceGetUUID": b"GPU-0dd00000-0000-4000-8000-000000000001",
        "nvmlDeviceGetSerial": b"1650000000001",
        "nvmlDeviceGetPdi": {"value": 0x50A83763506D60D},
        "nvmlDeviceGetPlatformInfo": {
            "chassisSerialNumber": b"1935693299617",
            "slotNumber": b"\x0e",
            "trayIndex": b"\x04",
            "hostId": b"\x01",
            "peerType": b"\x01",
        },
        "nvmlDeviceGetNumaNodeId": 10,
        "nvmlDeviceGetMinorNumber": 0,
        "nvmlDeviceGetModuleId": 4,
        **changes,
    }


def by_inforom(arguments: tuple[Any, ...]) -> Any:
    """Return the version of the InfoROM object that is asked for."""
    return {0: b"2.1", 1: b"7.16"}.get(int(arguments[0].value), Code(3))


def by_clock(*clocks: int) -> Any:
    """Return a table's entry whose answer depends on the clock asked for: graphics, SM, memory."""
    return lambda arguments: clocks[int(arguments[0].value)]
