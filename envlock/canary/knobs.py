"""Environment variables that decide bits, as far as they are known.

The names come from the manuals of the libraries and from public fault reports;
`docs/canary.md` says what each family does. Values that are paths of a machine are left
out of goldens: what was loaded from there is known by its build id.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, Mapping

_NAMES = frozenset(
    (
        "ATEN_CPU_CAPABILITY",
        "BLIS_ARCH_TYPE",
        "BLIS_NUM_THREADS",
        "CUDA_LAUNCH_BLOCKING",
        "DISABLE_ADDMM_CUDA_LT",
        "GLIBC_TUNABLES",
        "KMP_DETERMINISTIC_REDUCTION",
        "NPY_DISABLE_CPU_FEATURES",
        "NUMEXPR_NUM_THREADS",
        "NVIDIA_TF32_OVERRIDE",
        "OMP_DYNAMIC",
        "OMP_NUM_THREADS",
        "OMP_SCHEDULE",
        "OMP_THREAD_LIMIT",
        "OPENBLAS_CORETYPE",
        "OPENBLAS_NUM_THREADS",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "PYTORCH_TUNABLEOP_ENABLED",
        "PYTORCH_TUNABLEOP_TUNING",
        "TORCHINDUCTOR_DETERMINISTIC",
        "TORCHINDUCTOR_MAX_AUTOTUNE",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "TORCH_BLAS_PREFER_CUBLASLT",
        "TORCH_CUDNN_SDPA_PREFERRED",
        "TORCH_CUDNN_V8_API_DISABLED",
    )
)
_PREFIXES = (
    "CUBLASLT_",
    "CUBLAS_",
    "CUDNN_",
    "DNNL_",
    "HIPBLASLT_",
    "MIOPEN_DEBUG_",
    "MIOPEN_FIND_",
    "MKL_",
    "NCCL_ALGO",
    "NCCL_COLLNET_",
    "NCCL_LAUNCH_MODE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NTHREADS",
    "NCCL_NVLS_",
    "NCCL_PROTO",
    "ONEDNN_",
    "ROCBLAS_",
)
# These only print, or name places: no bit depends on them.
_SILENT = ("_VERBOSE", "_LOGDEST", "_LOGINFO", "_LOGLEVEL", "_LOG_LEVEL", "_DIR", "_PATH", "_FILE")

UNSET = "(unset)"


def is_knob(name: str) -> bool:
    """Return whether the variable `name` may decide bits."""
    if name in _NAMES:
        return True
    return name.startswith(_PREFIXES) and not name.endswith(_SILENT)


def in_force(environment: Mapping[str, str]) -> Dict[str, str]:
    """Return the knobs that are set in `environment`, by name."""
    return {name: environment[name] for name in sorted(environment) if is_knob(name)}
