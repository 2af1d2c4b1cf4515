"""Determinism profiles: which variables and torch switches a profile puts in force.

What each fixes, and what it costs, is in `docs/spec.md`; `strict` itself is
`envlock.canary.strict`. A switch that is not there can still be set in the spec, by a
name that `envlock.canary.switches` knows.
"""

from envlock import spec as specs
from envlock.canary import strict, switches
from envlock.errors import SpecError, UsageError
from envlock.lockfile import Determinism

# All three together made CPUs of several makers agree bit by bit (FastSurfer#892). Never
# plain AVX2 for oneDNN: torch asks the processor, not oneDNN's cap, whether there is VNNI,
# and int8 products then saturate (pytorch#136746).
_PORTABLE_ENV = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}


def determinism_of(wanted: specs.Determinism, where: str) -> Determinism:
    """Return the settings of the spec's profile with the spec's own changes in them.

    Raises `SpecError` for a torch switch that does not exist or a value it does not take.
    """
    env: dict[str, str] = {name: str(wanted.threads) for name in strict.THREADS}
    torch: dict[str, str | int | bool] = {}
    if wanted.profile in ("strict", "portable"):
        env.update(strict.ENV)
        torch.update(strict.TORCH)
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
