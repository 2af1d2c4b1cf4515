"""The determinism profile `strict`: variables and torch switches that it puts in force.

What each fixes, and what it costs, is in `docs/spec.md`. Here and not with the lockfile's
code, because a bare machine without an environment of its own is tried under it too.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict

from envlock.canary.switches import Value

# The same work in the same order needs the same number of workers, in every library.
THREADS = ("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")

ENV: Dict[str, str] = {
    # Nobody but us decides how many threads really run.
    "MKL_DYNAMIC": "FALSE",
    "OMP_DYNAMIC": "FALSE",
    "PYTHONHASHSEED": "0",
    # cuBLAS chooses its workspace, and with it the kernel, once and not per stream.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # One variable can turn FP32 into emulated BF16x9: say no before anyone is asked.
    "CUBLAS_EMULATE_DOUBLE_PRECISION": "0",
    "CUBLAS_EMULATE_SINGLE_PRECISION": "0",
    "NVIDIA_TF32_OVERRIDE": "0",
    "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
    # Inductor otherwise times kernels on the device and keeps the fastest of that day.
    "TORCHINDUCTOR_DETERMINISTIC": "1",
}

TORCH: Dict[str, Value] = {
    "use_deterministic_algorithms": True,
    "fill_uninitialized_memory": True,
    "flush_denormal": False,
    "cudnn.deterministic": True,
    "cudnn.benchmark": False,
    # Each by itself: the global setter reaches neither convolutions nor RNNs (pytorch#179445).
    "matmul.fp32_precision": "ieee",
    "cudnn.conv.fp32_precision": "ieee",
    "cudnn.rnn.fp32_precision": "ieee",
    "matmul.allow_fp16_reduced_precision_reduction": False,
    "matmul.allow_bf16_reduced_precision_reduction": False,
    "mkldnn.deterministic": True,
    # The order of an einsum must not hang on whether the package opt_einsum is installed.
    "opt_einsum.enabled": False,
}


def environment(threads: int) -> Dict[str, str]:
    """Return the variables of the profile for `threads` threads."""
    return {**{name: str(threads) for name in THREADS}, **ENV}
