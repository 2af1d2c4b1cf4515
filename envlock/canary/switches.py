"""The torch switches that a lockfile can hold: how each is set, and how it is read back.

The names are the keys of `[determinism.torch]`. Each is torch's own name without the
leading `torch.` and `backends.`; `docs/canary.md` lists them. A switch is set before the
first operator runs and read back after the last one: a library that flips a flag in
between is then seen. An unknown name is an error, never ignored.

torch is handed in, never imported: this module also loads where there is none.
Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import difflib
from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple, Union

from envlock.errors import UsageError

Value = Union[str, int, bool]
Setter = Callable[[Any, Any], None]
Getter = Callable[[Any], Any]

_PRECISIONS = ("ieee", "tf32", "bf16", "none")


class Switch:
    """One switch: the type of its value, the words allowed, and how to set and read it."""

    __slots__ = ("get", "kind", "set", "words")

    def __init__(self, kind: type, put: Setter, get: Getter, words: Tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.set = put
        self.get = get
        self.words = words


def version_of(torch: Any) -> Tuple[int, int]:
    """Return torch's major and minor version as integers."""
    major, minor = str(torch.__version__).split(".")[:2]
    return int(major), int(minor)


def _reach(torch: Any, path: str) -> Tuple[Any, str]:
    parts = path.split(".")
    owner = torch
    for part in parts[:-1]:
        owner = getattr(owner, part)
    return owner, parts[-1]


def _attribute(path: str, kind: type = bool) -> Switch:
    """Return the switch that is the plain attribute at `path` under torch."""

    def put(torch: Any, value: Any) -> None:
        owner, name = _reach(torch, path)
        if not hasattr(owner, name):
            raise AttributeError("torch {} has no `torch.{}`".format(torch.__version__, path))
        setattr(owner, name, value)

    def get(torch: Any) -> Any:
        owner, name = _reach(torch, path)
        return getattr(owner, name)

    return Switch(kind, put, get)


def _called(setter: str, getter: str) -> Switch:
    """Return the boolean switch with a setter and a getter function under torch."""

    def put(torch: Any, value: Any) -> None:
        owner, name = _reach(torch, setter)
        getattr(owner, name)(value)

    def get(torch: Any) -> Any:
        owner, name = _reach(torch, getter)
        return bool(getattr(owner, name)())

    return Switch(bool, put, get)


def _precision(path: str, old: str) -> Switch:
    """Return an fp32 precision switch: `fp32_precision` since torch 2.9, `old` before.

    Mixing the two interfaces in one process raises in torch (pytorch#194680), so the
    version decides and only one is ever touched.
    """

    def put(torch: Any, value: Any) -> None:
        if version_of(torch) >= (2, 9):
            owner, _ = _reach(torch, path + ".fp32_precision")
            owner.fp32_precision = value
            return
        if value not in ("ieee", "tf32") or not old:
            raise AttributeError("torch {} cannot set `{}` to {!r}".format(torch.__version__, path, value))
        owner, name = _reach(torch, old)
        setattr(owner, name, value == "tf32")

    def get(torch: Any) -> Any:
        if version_of(torch) >= (2, 9):
            owner, _ = _reach(torch, path + ".fp32_precision")
            return owner.fp32_precision
        owner, name = _reach(torch, old)
        return "tf32" if getattr(owner, name) else "ieee"

    return Switch(str, put, get, _PRECISIONS)


def _reduced(path: str) -> Switch:
    """Return a reduced-precision switch; since torch 2.10 it may read as a pair with split-K."""

    def put(torch: Any, value: Any) -> None:
        owner, name = _reach(torch, path)
        # The second item allows split-K, whose partial sums would be reduced in low precision.
        setattr(owner, name, (value, value) if version_of(torch) >= (2, 10) else value)

    def get(torch: Any) -> Any:
        owner, name = _reach(torch, path)
        found = getattr(owner, name)
        if isinstance(found, (tuple, list)):
            return bool(found[0]) if len(set(found)) == 1 else list(found)
        return bool(found)

    return Switch(bool, put, get)


def _blas_library() -> Switch:
    def put(torch: Any, value: Any) -> None:
        torch.backends.cuda.preferred_blas_library(value)

    def get(torch: Any) -> Any:
        return str(torch.backends.cuda.preferred_blas_library()).rsplit(".", 1)[-1].lower()

    return Switch(str, put, get, ("cublas", "cublaslt", "ck"))


def _flush_denormal() -> Switch:
    def put(torch: Any, value: Any) -> None:
        # False means "this processor cannot": keeping subnormals is then what it does anyway.
        if not torch.set_flush_denormal(value) and value:
            raise RuntimeError("this processor cannot flush subnormals")

    def get(torch: Any) -> Any:
        # torch has no getter; the smallest subnormal of binary64 times one says it.
        smallest = torch.tensor([5e-324], dtype=torch.float64)
        return bool((smallest * 1.0)[0].item() == 0.0)

    return Switch(bool, put, get)


def _deterministic() -> Switch:
    def put(torch: Any, value: Any) -> None:
        # Sets the same flag as `torch.use_deterministic_algorithms(value)`, which in newer versions
        # imports the compiler as well: seconds, for a suite that compiles nothing.
        torch.set_deterministic_debug_mode("error" if value else "default")

    def get(torch: Any) -> Any:
        return bool(torch.are_deterministic_algorithms_enabled()) and torch.get_deterministic_debug_mode() == 2

    return Switch(bool, put, get)


def _inductor() -> Switch:
    def put(torch: Any, value: Any) -> None:
        import torch._inductor.config as config

        if not hasattr(config, "deterministic"):
            raise AttributeError("torch {} has no `torch._inductor.config.deterministic`".format(torch.__version__))
        config.deterministic = value

    def get(torch: Any) -> Any:
        import torch._inductor.config as config

        return bool(config.deterministic)

    return Switch(bool, put, get)


_SDP = "backends.cuda."

SWITCHES: Dict[str, Switch] = {
    "use_deterministic_algorithms": _deterministic(),
    "fill_uninitialized_memory": _attribute("utils.deterministic.fill_uninitialized_memory"),
    "flush_denormal": _flush_denormal(),
    "matmul.fp32_precision": _precision("backends.cuda.matmul", "backends.cuda.matmul.allow_tf32"),
    "cudnn.conv.fp32_precision": _precision("backends.cudnn.conv", "backends.cudnn.allow_tf32"),
    "cudnn.rnn.fp32_precision": _precision("backends.cudnn.rnn", "backends.cudnn.allow_tf32"),
    "mkldnn.matmul.fp32_precision": _precision("backends.mkldnn.matmul", ""),
    "mkldnn.conv.fp32_precision": _precision("backends.mkldnn.conv", ""),
    "mkldnn.rnn.fp32_precision": _precision("backends.mkldnn.rnn", ""),
    "matmul.allow_fp16_reduced_precision_reduction": _reduced(
        "backends.cuda.matmul.allow_fp16_reduced_precision_reduction"
    ),
    "matmul.allow_bf16_reduced_precision_reduction": _reduced(
        "backends.cuda.matmul.allow_bf16_reduced_precision_reduction"
    ),
    "matmul.allow_fp16_accumulation": _attribute("backends.cuda.matmul.allow_fp16_accumulation"),
    "preferred_blas_library": _blas_library(),
    "cudnn.deterministic": _attribute("backends.cudnn.deterministic"),
    "cudnn.benchmark": _attribute("backends.cudnn.benchmark"),
    "cudnn.enabled": _attribute("backends.cudnn.enabled"),
    "mkldnn.deterministic": _attribute("backends.mkldnn.deterministic"),
    "mkldnn.enabled": _attribute("backends.mkldnn.enabled"),
    "opt_einsum.enabled": _attribute("backends.opt_einsum.enabled"),
    "sdp.flash": _called(_SDP + "enable_flash_sdp", _SDP + "flash_sdp_enabled"),
    "sdp.mem_efficient": _called(_SDP + "enable_mem_efficient_sdp", _SDP + "mem_efficient_sdp_enabled"),
    "sdp.math": _called(_SDP + "enable_math_sdp", _SDP + "math_sdp_enabled"),
    "sdp.cudnn": _called(_SDP + "enable_cudnn_sdp", _SDP + "cudnn_sdp_enabled"),
    "sdp.allow_fp16_bf16_reduction": _called(
        _SDP + "allow_fp16_bf16_reduction_math_sdp", _SDP + "fp16_bf16_reduction_math_sdp_allowed"
    ),
    "inductor.deterministic": _inductor(),
    "python_native.triton.enabled": _attribute("backends.python_native.triton.enabled"),
    "python_native.cutedsl.enabled": _attribute("backends.python_native.cutedsl.enabled"),
}


def check(name: str, value: object) -> None:
    """Raise `UsageError` when `name` is no switch or `value` is not one of its values."""
    switch = SWITCHES.get(name)
    if switch is None:
        near = difflib.get_close_matches(name, SWITCHES, n=1)
        known = "did you mean `{}`?".format(near[0]) if near else "known: " + ", ".join(sorted(SWITCHES))
        raise UsageError("unknown torch switch {!r}".format(name), hint=known)
    if type(value) is not switch.kind:
        raise UsageError(
            "torch switch {!r} takes a {}, not {!r}".format(name, "boolean" if switch.kind is bool else "string", value)
        )
    if switch.words and value not in switch.words:
        raise UsageError("torch switch {!r} takes one of {}, not {!r}".format(name, ", ".join(switch.words), value))


def apply(torch: Any, wanted: Mapping[str, Value]) -> None:
    """Set every switch in `wanted`; `UsageError` names one that is unknown or cannot be set."""
    for name in sorted(wanted):
        check(name, wanted[name])
        try:
            SWITCHES[name].set(torch, wanted[name])
        except (AttributeError, RuntimeError, ImportError, TypeError, ValueError) as error:
            raise UsageError("torch switch {!r} cannot be set: {}".format(name, error)) from error


def in_force(torch: Any, names: Iterable[str]) -> Dict[str, str]:
    """Return what each switch in `names` reads as now, in words."""
    return {name: _words(SWITCHES[name].get(torch)) for name in sorted(names)}


def not_in_force(torch: Any, wanted: Mapping[str, Value]) -> List[str]:
    """Return a sentence for each switch in `wanted` that no longer reads as it was set."""
    now = in_force(torch, wanted)
    return [
        "torch switch `{}` was set to {} and reads {}".format(name, _words(wanted[name]), now[name])
        for name in sorted(wanted)
        if now[name] != _words(wanted[name])
    ]


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
