"""What NVML says, through the module `pynvml` of the distribution nvidia-ml-py.

`collect` is given the module and returns a JSON document, because it runs in a child
process (`envlock.probe.nvml_child`): a driver that hangs must not hang the probe. Every
answer keeps one of the outcomes of `envlock.facts`; nothing NVML can return raises.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple

from envlock.facts import (
    FAILED,
    HIDDEN,
    NO_PERMISSION,
    NOT_IN_DRIVER,
    NOT_SUPPORTED,
    Observed,
    Value,
    absent,
    value,
)
from envlock.probe.host import Absent
from envlock.probe.pci import normal_address

# nvmlReturn_t (nvml.h). A missing symbol (13) means a driver older than the function.
_OUTCOMES = {3: NOT_SUPPORTED, 26: NOT_SUPPORTED, 13: NOT_IN_DRIVER, 4: NO_PERMISSION}
NOT_LOADED = 9
NO_LIBRARY = 12


class Question(NamedTuple):
    """One call: its function, further arguments, and how its answer becomes a value."""

    key: str
    function: str
    convert: Callable[[Any], Value]
    arguments: tuple[int, ...] = ()


def _text(found: Any) -> str:
    text = found.decode("utf-8") if isinstance(found, bytes) else str(found)
    if not text.strip():
        raise ValueError("an empty answer")
    return text


def _vbios(found: Any) -> str:
    text = _text(found)
    if not text.strip("0."):
        raise Absent(HIDDEN, "a guest with a virtual GPU does not see it ({})".format(text))
    return text


def _number(found: Any) -> int:
    return int(getattr(found, "value", found))


def _switch(found: Any) -> bool:
    number = _number(found)
    if number not in (0, 1):
        raise ValueError("neither on nor off: {}".format(number))
    return number == 1


def _cuda(found: Any) -> str:
    number = _number(found)
    return "{}.{}".format(number // 1000, number % 1000 // 10)


def _ids(found: int) -> str:
    """Return `vendor:device` of an id whose upper half is the device (nvmlPciInfo_t)."""
    return "{:04x}:{:04x}".format(found & 0xFFFF, found >> 16)


_HOST = (
    Question("nvidia.driver", "nvmlSystemGetDriverVersion", _text),
    Question("nvidia.cuda", "nvmlSystemGetCudaDriverVersion_v2", _cuda),
)

_GPU = (
    Question("gpu.name", "nvmlDeviceGetName", _text),
    Question("gpu.pci_id", "nvmlDeviceGetPciInfo", lambda pci: _ids(pci.pciDeviceId)),
    Question("gpu.subsystem_id", "nvmlDeviceGetPciInfo", lambda pci: _ids(pci.pciSubSystemId)),
    Question("gpu.uuid", "nvmlDeviceGetUUID", _text),
    Question("gpu.compute_capability", "nvmlDeviceGetCudaComputeCapability", lambda pair: "{}.{}".format(*pair)),
    Question("gpu.memory", "nvmlDeviceGetMemoryInfo", lambda memory: int(memory.total) >> 20),
    Question("gpu.vbios", "nvmlDeviceGetVbiosVersion", _vbios),
    Question("gpu.gsp", "nvmlDeviceGetGspFirmwareMode", lambda modes: _switch(modes[0])),
    Question("gpu.gsp_version", "nvmlDeviceGetGspFirmwareVersion", _text),
    Question("gpu.inforom", "nvmlDeviceGetInforomImageVersion", _text),
    Question("gpu.power_limit", "nvmlDeviceGetPowerManagementLimit", _number),
    Question("gpu.power_limit_default", "nvmlDeviceGetPowerManagementDefaultLimit", _number),
    Question("gpu.power_limit_enforced", "nvmlDeviceGetEnforcedPowerLimit", _number),
    Question("gpu.clock_graphics_max", "nvmlDeviceGetMaxClockInfo", _number, (0,)),
    Question("gpu.clock_sm_max", "nvmlDeviceGetMaxClockInfo", _number, (1,)),
    Question("gpu.clock_memory_max", "nvmlDeviceGetMaxClockInfo", _number, (2,)),
    Question("gpu.ecc", "nvmlDeviceGetEccMode", lambda modes: _switch(modes[0])),
    Question("gpu.ecc_pending", "nvmlDeviceGetEccMode", lambda modes: _switch(modes[1])),
    Question("gpu.mig", "nvmlDeviceGetMigMode", lambda modes: _switch(modes[0])),
    Question("gpu.mig_pending", "nvmlDeviceGetMigMode", lambda modes: _switch(modes[1])),
    Question("gpu.persistence", "nvmlDeviceGetPersistenceMode", _switch),
)
GPU_KEYS = tuple(question.key for question in _GPU)


def collect(pynvml: Any) -> Dict[str, Any]:
    """Return `{"error": …}` when NVML cannot be used, else `{"host": …, "gpus": […]}`.

    Facts are in the form of `Observed.to_document`; a GPU is its PCI address (empty when
    the driver would not say) and its facts.
    """
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return {"error": _described(error), "code": _code(error)}
    stub = _stub()
    if stub:
        return {
            "error": "{} is the stub that programs are linked with, not a driver's library".format(stub),
            "code": -1,
        }
    host = {question.key: _ask(pynvml, question, ()).to_document() for question in _HOST}
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    except Exception as error:
        return {"error": "the driver does not say how many GPUs there are: " + _described(error), "code": _code(error)}
    return {"host": host, "gpus": [_gpu(pynvml, index) for index in range(count)]}


def _gpu(pynvml: Any, index: int) -> Dict[str, Any]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:
        seen = absent(
            _outcome(error),
            "NVML nvmlDeviceGetHandleByIndex",
            "GPU {} cannot be opened: {}".format(index, _described(error)),
        )
        return {"id": "", "facts": {key: seen.to_document() for key in GPU_KEYS}}
    facts = {question.key: _ask(pynvml, question, (handle,)).to_document() for question in _GPU}
    return {"id": _address(pynvml, handle), "facts": facts}


def _address(pynvml: Any, handle: Any) -> str:
    try:
        return normal_address(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
    except Exception:
        # `gpu.pci_id` comes from the same call and says why; the reader of this document names the GPU.
        return ""


def _ask(pynvml: Any, question: Question, first: tuple[Any, ...]) -> Observed:
    source = "NVML " + question.function
    function = getattr(pynvml, question.function, None)
    if function is None:
        return absent(FAILED, source, "this NVML binding is too old to ask")
    try:
        return value(question.convert(function(*first, *question.arguments)), source)
    except Absent as absence:
        return absent(absence.outcome, source, absence.detail)
    except Exception as error:
        return absent(_outcome(error), source, _described(error))


def _code(error: Exception) -> int:
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else -1


def _outcome(error: Exception) -> str:
    return _OUTCOMES.get(_code(error), FAILED)


def _described(error: Exception) -> str:
    if _code(error) >= 0:
        return "{} (NVML code {})".format(str(error).strip().lower() or "error", _code(error))
    if isinstance(error, UnicodeDecodeError):
        return "the driver answered with bytes that are not text"
    return "{}: {}".format(type(error).__name__, error)


def _stub() -> str:
    """Return the path of the loaded NVML library when it is CUDA's link-time stub; else empty."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
            paths = {line.split(None, 5)[5].strip() for line in stream if "libnvidia-ml" in line}
    except (OSError, IndexError):
        return ""
    return next((path for path in sorted(paths) if "/stubs/" in path), "")
