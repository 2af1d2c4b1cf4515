"""The libraries that are looked at, and how each of them tells its own version.

The calls are those of NVIDIA's public headers (cuda_runtime_api.h, cudnn_version.h,
cublasLt.h, nccl.h, nvJitLink.h, cusparseLt.h ...). None of them needs a GPU or a driver.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Tuple

INT = "int"  # result = call(int *), 0 when all is well
SIZE = "size"  # size_t call(void)
RETURNED = "returned"  # int call(void)
PROPERTY = "property"  # call(part, int *) for the parts 0, 1, 2: libraryPropertyType of library_types.h
PARTS = "parts"  # call(int *, int *), or with three
CONSTANT = "constant"  # an unsigned 32-bit constant of the library, no call


class Call(NamedTuple):
    """A function or constant that tells a version: its name, how it is called, how its numbers are read."""

    name: str
    form: str
    parts: int
    read: str


class Kind(NamedTuple):
    """One library. `stem` is its file name up to `.so`; `family` those that must be of one release.

    `major`: the number in its soname is the CUDA major it belongs to.
    """

    stem: str
    title: str
    family: str
    calls: Tuple[Call, ...] = ()
    major: bool = False
    driver: bool = False


def _ten_thousands(number: int) -> str:
    return "{}.{}.{}".format(number // 10000, number % 10000 // 100, number % 100)


def _thousands(number: int) -> str:
    return "{}.{}.{}".format(number // 1000, number % 1000 // 100, number % 100)


READ: Dict[str, Callable[[Sequence[int]], str]] = {
    # CUDART_VERSION: 12090 is 12.9.
    "cuda": lambda said: "{}.{}".format(said[0] // 1000, said[0] % 1000 // 10),
    # CUDNN_VERSION: 8902 is 8.9.2, from 9 on 92400 is 9.24.0.
    "cudnn": lambda said: _ten_thousands(said[0]) if said[0] >= 90000 else _thousands(said[0]),
    # NCCL_VERSION: 2804 is 2.8.4, from 2.9 on 23007 is 2.30.7.
    "nccl": lambda said: _ten_thousands(said[0]) if said[0] >= 10000 else _thousands(said[0]),
    "ten-thousands": lambda said: _ten_thousands(said[0]),
    "thousands": lambda said: "{}.{}".format(said[0] // 1000, said[0] % 1000 // 10),
    "bytes": lambda said: "{}.{}.{}".format(said[0] >> 16, said[0] >> 8 & 255, said[0] & 255),
    "number": lambda said: str(said[0]),
    "dotted": lambda said: ".".join(str(part) for part in said),
}


def _property(name: str) -> Tuple[Call, ...]:
    return (Call(name, PROPERTY, 3, "dotted"),)


def _cudnn(part: str, title: str, *calls: Call) -> Kind:
    return Kind("libcudnn" + part, title, "cudnn", calls)


_CUDNN_VERSION = Call("cudnnGetVersion", SIZE, 1, "cudnn")

KINDS: Tuple[Kind, ...] = (
    Kind("libcuda", "CUDA driver", "driver", (Call("cuDriverGetVersion", INT, 1, "cuda"),), driver=True),
    Kind("libnvidia-ml", "NVML", "driver", driver=True),
    Kind("libnvidia-ptxjitcompiler", "PTX compiler of the driver", "driver", driver=True),
    Kind("libnvidia-nvvm", "NVVM of the driver", "driver", driver=True),
    Kind("libnvidia-gpucomp", "GPU compiler of the driver", "driver", driver=True),
    Kind("libcudadebugger", "CUDA debugger", "driver", driver=True),
    Kind("libcudart", "CUDA runtime", "cudart", (Call("cudaRuntimeGetVersion", INT, 1, "cuda"),), major=True),
    _cudnn("", "cuDNN", _CUDNN_VERSION),
    _cudnn("_graph", "cuDNN graph", _CUDNN_VERSION),
    _cudnn("_ops", "cuDNN ops", Call("cudnn_ops_infer_version", CONSTANT, 1, "bytes")),
    _cudnn("_cnn", "cuDNN cnn", Call("cudnn_cnn_infer_version", CONSTANT, 1, "bytes")),
    _cudnn("_adv", "cuDNN adv", Call("cudnn_adv_infer_version", CONSTANT, 1, "bytes")),
    _cudnn("_ext", "cuDNN ext"),
    _cudnn("_heuristic", "cuDNN heuristic"),
    _cudnn("_engines_precompiled", "cuDNN precompiled engines"),
    _cudnn("_engines_runtime_compiled", "cuDNN runtime-compiled engines"),
    _cudnn("_engines_tensor_ir", "cuDNN tensor IR engines"),
    # cuDNN 8.
    _cudnn("_ops_infer", "cuDNN ops, inference"),
    _cudnn("_ops_train", "cuDNN ops, training"),
    _cudnn("_cnn_infer", "cuDNN cnn, inference"),
    _cudnn("_cnn_train", "cuDNN cnn, training"),
    _cudnn("_adv_infer", "cuDNN adv, inference"),
    _cudnn("_adv_train", "cuDNN adv, training"),
    Kind("libcublas", "cuBLAS", "cublas", _property("cublasGetProperty"), major=True),
    Kind("libcublasLt", "cuBLASLt", "cublas", _property("cublasLtGetProperty"), major=True),
    Kind("libnvblas", "NVBLAS", "cublas", major=True),
    Kind("libcufft", "cuFFT", "cufft", _property("cufftGetProperty")),
    Kind("libcufftw", "cuFFTW", "cufft"),
    Kind("libcurand", "cuRAND", "curand", _property("curandGetProperty")),
    Kind("libcusolver", "cuSOLVER", "cusolver", _property("cusolverGetProperty")),
    Kind("libcusolverMg", "cuSOLVER, several GPUs", "cusolver"),
    Kind("libcusparse", "cuSPARSE", "cusparse", _property("cusparseGetProperty")),
    Kind("libcusparseLt", "cuSPARSELt", "cusparselt", _property("cusparseLtGetProperty")),
    Kind("libcudss", "cuDSS", "cudss", _property("cudssGetProperty")),
    Kind("libcutensor", "cuTENSOR", "cutensor", (Call("cutensorGetVersion", SIZE, 1, "ten-thousands"),)),
    Kind("libnccl", "NCCL", "nccl", (Call("ncclGetVersion", INT, 1, "nccl"),)),
    Kind(
        "libnvshmem_host", "NVSHMEM", "nvshmem",
        (Call("nvshmemx_vendor_get_version_info", PARTS, 3, "dotted"),
         Call("nvshmem_info_get_version", PARTS, 2, "dotted")),
    ),
    Kind("libnvJitLink", "nvJitLink", "nvjitlink", (Call("nvJitLinkVersion", PARTS, 2, "dotted"),), major=True),
    Kind("libnvrtc", "NVRTC", "nvrtc", (Call("nvrtcVersion", PARTS, 2, "dotted"),), major=True),
    Kind("libnvrtc-builtins", "NVRTC builtins", "nvrtc"),
    Kind("libnvfatbin", "nvFatbin", "nvfatbin", (Call("nvFatbinVersion", PARTS, 2, "dotted"),), major=True),
    Kind("libcupti", "CUPTI", "cupti", (Call("cuptiGetVersion", INT, 1, "number"),)),
    Kind("libcufile", "cuFile", "cufile", (Call("cuFileGetVersion", INT, 1, "thousands"),)),
    Kind("libnvinfer", "TensorRT", "tensorrt", (Call("getInferLibVersion", RETURNED, 1, "ten-thousands"),)),
    Kind("libtorch_cuda", "torch, CUDA part", "torch"),
    Kind("libc10_cuda", "torch, CUDA core", "torch"),
    Kind("libonnxruntime_providers_cuda", "ONNX Runtime, CUDA part", "onnxruntime"),
)  # fmt: skip

BY_STEM = {kind.stem: kind for kind in KINDS}

# Wheels that carry CUDA libraries in themselves rename them: `libcudart-9335f6a2.so.12`.
_NAME = re.compile(r"(lib[A-Za-z0-9_-]+?)(?:-[0-9a-f]{8})?(?:\.alt)?\.so((?:\.[0-9]+)*)")


def kind_of(name: str) -> Optional[Kind]:
    """Return which library the file `name` is, or None when it is none that is looked at."""
    match = _NAME.fullmatch(name)
    return BY_STEM.get(match.group(1)) if match else None


def number_of(name: str) -> str:
    """Return the number after `.so.` in a file name or soname, `` when there is none."""
    match = _NAME.fullmatch(name)
    return match.group(2)[1:] if match else ""


def cuda_major(name: str) -> Optional[int]:
    """Return the CUDA major that a soname stands for, None for libraries that count in another way.

    cuFFT, cuRAND, cuSOLVER and cuSPARSE keep a number of their own: `libcusparse.so.12`
    is in CUDA 12 and in CUDA 13.
    """
    kind, number = kind_of(name), number_of(name)
    return int(number.split(".")[0]) if kind is not None and kind.major and number else None
