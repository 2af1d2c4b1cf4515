"""Determinism profiles: which variables and torch switches a profile puts in force.

What each fixes, and what it costs, is in `docs/spec.md`. A switch that is
not here can still be set in the spec, by a name that `envlock.canary.switches` knows.
"""

from envlock import spec as specs
from envlock.canary import switches
from envlock.errors import SpecError, UsageError
from envlock.lockfile import Determinism

# The same work in the same order needs the same number of workers, in every library.
_THREADS = ("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_STRICT_ENV = {
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

# All three together made CPUs of several makers agree bit by bit (FastSurfer#892). Never
# plain AVX2 for oneDNN: torch asks the processor, not oneDNN's cap, whether there is VNNI,
# and int8 products then saturate (pytorch#136746).
_PORTABLE_ENV = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}

_STRICT_TORCH: dict[str, str | int | bool] = {
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


def determinism_of(wanted: specs.Determinism, where: str) -> Determinism:
    """Return the settings of the spec's profile with the spec's own changes in them.

    Raises `SpecError` for a torch switch that does not exist or a value it does not take.
    """
    env: dict[str, str] = {name: str(wanted.threads) for name in _THREADS}
    torch: dict[str, str | int | bool] = {}
    if wanted.profile in ("strict", "portable"):
        env.update(_STRICT_ENV)
        torch.update(_STRICT_TORCH)
    if wanted.profile == "portable":
        env.update(_PORTABLE_ENV)
    for name, text in wanted.env:
        if text is None:
            env.pop(name, None)
        else:
            env[name] = text
    for name, value in wanted.torch:
        try:
            switches.check(name, value)
        except UsageError as fault:
            raise SpecError(fault.message, where=where, key=f'determinism.torch."{name}"', hint=fault.hint) from None
        torch[name] = value
    return Determinism(
        profile=wanted.profile,
        threads=wanted.threads,
        env=tuple(sorted(env.items())),
        torch=tuple(sorted(torch.items())),
    )
