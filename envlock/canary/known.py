"""T1, known answers: work whose exact result is known without any golden.

Integers small enough that every partial sum is exact give one answer under every order,
split, thread count and instruction set: an answer that differs is broken hardware, a
broken library, or a switch that breaks it (a oneDNN ISA cap saturates int8 on VNNI
processors). Case names are stable: `t1.k1.mm.float32.33x64x47`.

The reference of a product is an integer product made by torch itself, and is trusted
only when its digest is the one in `ANSWERS`, which came from plain Python.
Travels to nodes: standard library only, Python 3.8 and newer; torch is handed in.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from envlock.canary import exact, generator
from envlock.canary.answers import ANSWERS
from envlock.canary.inputs import Input
from envlock.canary.tensors import Maker, Output, columns, hash_tensor, raw_bytes

OK = "ok"
UNAVAILABLE = "unavailable: "

# K * most**2 <= 2**24: every partial sum is an integer that binary32 holds exactly.
GEMMS = ((33, 64, 47, 127), (33, 1000, 47, 127), (33, 4096, 47, 64), (1, 1000, 263, 127), (257, 1000, 263, 127))
# K * most**2 <= 256: exact even where partial sums are kept in bfloat16 (or binary16).
NARROW = ((33, 64, 47, 2), (33, 256, 47, 1))
# Full range, and shapes that CUDA's int8 product takes as well.
INT8S = ((48, 64, 56, 127), (40, 1000, 48, 127))
# Channels in and out, size, kernel, stride, groups.
CONVS = ((8, 16, 9, 3, 1, 1), (8, 16, 11, 5, 2, 1), (8, 8, 9, 3, 1, 8), (8, 16, 9, 3, 2, 2))
UNIQUE = 40009
ROUNDED = 1031


def _gemm_names(kind: str, shape: Tuple[int, int, int, int]) -> Tuple[str, str]:
    m, k, n, _ = shape
    stem = "t1.{}.{}x{}x{}".format(kind, m, k, n)
    return stem + ".a", stem + ".b"


def _conv_names(shape: Tuple[int, int, int, int, int, int]) -> Tuple[str, str]:
    stem = "t1.conv.{}".format("-".join(str(part) for part in shape))
    return stem + ".x", stem + ".w"


def _declare() -> Tuple[Input, ...]:
    found: List[Input] = []
    for kind, shapes in (("wide", GEMMS), ("narrow", NARROW), ("int8", INT8S)):
        for shape in shapes:
            m, k, n, most = shape
            a, b = _gemm_names(kind, shape)
            found.append(Input(a, (m, k), generator.INT8, most=most))
            found.append(Input(b, (k, n), generator.INT8, most=most))
    for conv in CONVS:
        channels, out, size, kernel, _, groups = conv
        x, w = _conv_names(conv)
        found.append(Input(x, (2, channels, size, size), generator.INT8, most=15))
        found.append(Input(w, (out, channels // groups, kernel, kernel), generator.INT8, most=15))
    for dtype in (generator.FLOAT32, generator.BFLOAT16):
        for side in ("a", "b"):
            found.append(Input("t1.k7.{}.{}".format(dtype, side), (ROUNDED,), dtype))
    return tuple(found)


INPUTS = _declare()


def compare(torch: Any, name: str, got: Any, expected: Any) -> Output:
    """Return `ok` when every element of `got` is the integer in `expected`, else how many are not."""
    output = Output(name, _difference(torch, got, expected))
    output.device = str(got.device)
    return output


def _difference(torch: Any, got: Any, expected: Any) -> str:
    if tuple(got.shape) != tuple(expected.shape):
        return "wrong: shape {}, expected {}".format(list(got.shape), list(expected.shape))
    # Every value here is below 2**53, so binary64 holds both sides exactly.
    differs = got.detach().to("cpu").to(torch.float64) != expected.to(torch.float64)
    count = int(differs.sum())
    if not count:
        return OK
    where = [int(index) for index in differs.nonzero()[0]]
    place = tuple(where)
    return "wrong: {} of {}, first at {}: {}, expected {}".format(
        count, differs.numel(), where, got[place].item(), int(expected[place])
    )


def reference(torch: Any, name: str, exact_result: Any) -> Tuple[Any, str]:
    """Return the integer result as int64, and what is wrong with it (nothing: an empty text)."""
    held = exact_result.to(torch.int64)
    found = hash_tensor(torch, held)
    if found != ANSWERS.get(name):
        return held, "wrong: the integer reference itself has digest {}, expected {}".format(found, ANSWERS.get(name))
    return held, ""


Step = Callable[[Any, Maker], List[Output]]


def run(torch: Any, maker: Maker) -> List[Output]:
    """Return every T1 output; a case that raised says so in its text."""
    outputs: List[Output] = []
    for name, case in CASES:
        try:
            outputs.extend(case(torch, maker))
        except Exception as error:  # no answer is not a wrong answer, and the other cases still run
            outputs.append(Output(name, "{}{}: {}".format(UNAVAILABLE, type(error).__name__, first_line(error))))
    return outputs


def first_line(error: BaseException) -> str:
    """Return the first line of what `error` says."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _gemms(kind: str, shapes: Any, dtypes: Tuple[str, ...], tier: str) -> Step:
    def case(torch: Any, maker: Maker) -> List[Output]:
        outputs = []
        for shape in shapes:
            a, b = (maker.get(name) for name in _gemm_names(kind, shape))
            label = "x".join(str(part) for part in shape[:3])
            held, fault = reference(torch, "{}.{}".format(kind, label), _integer_product(torch, a, b))
            for dtype in dtypes:
                name = "t1.{}.mm.{}.{}".format(tier, dtype, label)
                if fault:
                    outputs.append(Output(name, fault))
                    continue
                kept = getattr(torch, dtype)
                outputs.append(compare(torch, name, a.to(kept) @ b.to(kept), held))
        return outputs

    return case


def _integer_product(torch: Any, a: Any, b: Any) -> Any:
    return a.to("cpu").to(torch.int64) @ b.to("cpu").to(torch.int64)


def _shapes_of_product(torch: Any, maker: Maker) -> List[Output]:
    """K1 through the other doors to the same kernels: linear with bias, batched, matrix times vector."""
    a, b = (maker.get(name).to(torch.float32) for name in _gemm_names("wide", GEMMS[1]))
    held = _integer_product(torch, a, b)
    bias = torch.arange(b.shape[1], dtype=torch.float32, device=maker.device)
    linear = torch.nn.functional.linear(a, b.t().contiguous(), bias)
    batch = torch.bmm(torch.stack((a, a.flip(0))), torch.stack((b, b)))
    return [
        compare(torch, "t1.k1.linear.float32.33x1000x47", linear, held + torch.arange(b.shape[1])),
        compare(torch, "t1.k1.bmm.float32.2x33x1000x47", batch, torch.stack((held, held.flip(0)))),
        compare(torch, "t1.k1.mv.float32.47x1000", torch.mv(b.t().contiguous(), a[7]), held[7]),
        compare(torch, "t1.k1.empty.float32", a[:0] @ b, held[:0]),
    ]


def _int8(torch: Any, maker: Maker) -> List[Output]:
    outputs = []
    for shape in INT8S:
        a, b = (maker.get(name) for name in _gemm_names("int8", shape))
        label = "x".join(str(part) for part in shape[:3])
        name = "t1.k3.int_mm.int8." + label
        held, fault = reference(torch, "int8." + label, _integer_product(torch, a, b))
        if fault:
            outputs.append(Output(name, fault))
            continue
        outputs.append(compare(torch, name, torch._int_mm(a, columns(b, maker.device)), held))
    full = torch.full((64, 64), 127, dtype=torch.int8, device=maker.device)
    # 64 * 127 * 127: a kernel that adds pairs in 16 bits saturates here.
    expected = torch.full((64, 64), 64 * 127 * 127, dtype=torch.int64)
    outputs.append(compare(torch, "t1.k3.int_mm.int8.full", torch._int_mm(full, columns(full, maker.device)), expected))
    return outputs


def _convs(torch: Any, maker: Maker) -> List[Output]:
    outputs = []
    for shape in CONVS:
        _, out, size, kernel, stride, groups = shape
        x, w = (maker.get(name).to(torch.float32) for name in _conv_names(shape))
        label = "-".join(str(part) for part in shape)
        # Winograd transforms on a GPU may round even integers: there it is a mode, not a fault.
        tier = "t1" if maker.device == "cpu" else "t2"
        name = "{}.k5.conv.float32.{}".format(tier, label)
        held, fault = reference(torch, "conv." + label, _integer_conv(torch, x, w, stride, groups))
        got = torch.nn.functional.conv2d(x, w, stride=stride, groups=groups)
        outputs.append(Output(name, fault) if fault else compare(torch, name, got, held))
    return outputs


def _integer_conv(torch: Any, x: Any, w: Any, stride: int, groups: int) -> Any:
    """Return the convolution as integer products over unfolded patches (unfolding only copies)."""
    kernel = w.shape[-1]
    side = (x.shape[-1] - kernel) // stride + 1
    parts = []
    for part, weights in zip(x.to("cpu").chunk(groups, 1), w.to("cpu").chunk(groups, 0)):
        patches = torch.nn.functional.unfold(part, kernel, stride=stride).to(torch.int64)
        flat = weights.reshape(weights.shape[0], -1).to(torch.int64)
        parts.append(flat @ patches)
    return torch.cat(parts, 1).reshape(x.shape[0], w.shape[0], side, side)


def _order_free(torch: Any, maker: Maker) -> List[Output]:
    """K6: operators that move or choose and never round; the answers come from Python lists."""
    keys = generator.permutation("t1.k6.keys", UNIQUE)
    picks = generator.indexes("t1.k6.picks", 5003, UNIQUE)
    x = torch.tensor(keys, device=maker.device)
    real = x.to(torch.float32)
    at = torch.tensor(picks, device=maker.device)
    middle = UNIQUE // 2
    running, total = [], 0
    for key in keys:
        total += key
        running.append(total)
    largest = sorted(keys, reverse=True)[:17]
    grid = real[:40000].reshape(8, 50, 100)
    found: Dict[str, Tuple[Any, Any]] = {
        "max": (real.max(), max(keys)),
        "min": (real.min(), min(keys)),
        "argmax": (real.argmax(), keys.index(max(keys))),
        "argmin": (real.argmin(), keys.index(min(keys))),
        "sort": (torch.sort(real).values, sorted(keys)),
        "argsort": (torch.argsort(x), sorted(range(UNIQUE), key=keys.__getitem__)),
        "topk": (torch.topk(real, 17).values, largest),
        "gather": (torch.gather(real, 0, at), [keys[i] for i in picks]),
        "index_select": (torch.index_select(x, 0, at), [keys[i] for i in picks]),
        "cat": (torch.cat((real[middle:], real[:middle])), keys[middle:] + keys[:middle]),
        "flip": (real.flip(0), keys[::-1]),
        "relu": (torch.relu(real - middle), [max(0, key - middle) for key in keys]),
        "cumsum": (torch.cumsum(x, 0), running),
        "sum": (x.sum(), total),
        "permute": (
            grid.permute(2, 0, 1).contiguous().reshape(-1),
            [keys[i * 5000 + j * 100 + k] for k in range(100) for i in range(8) for j in range(50)],
        ),
    }
    return [
        compare(torch, "t1.k6." + name, got, torch.tensor(expected, dtype=torch.int64))
        for name, (got, expected) in found.items()
    ]


def _rounded(torch: Any, maker: Maker) -> List[Output]:
    """K7: +, -, * and / are correctly rounded; the answers come from integer arithmetic."""
    outputs = []
    for dtype, form, width in ((generator.FLOAT32, exact.BINARY32, 4), (generator.BFLOAT16, exact.BFLOAT16, 2)):
        names = ["t1.k7.{}.{}".format(dtype, side) for side in ("a", "b")]
        patterns = [generator.reference_floats(name, ROUNDED, dtype=dtype) for name in names]
        a, b = (maker.get(name) for name in names)
        for operation, got in (("add", a + b), ("sub", a - b), ("mul", a * b), ("div", a / b)):
            expected = [exact.apply(operation, x, y, form) for x, y in zip(*patterns)]
            name = "t1.k7.{}.{}".format(operation, dtype)
            outputs.append(_same_bits(name, raw_bytes(torch, got), expected, width))
            outputs[-1].device = str(got.device)
    return outputs


def _same_bits(name: str, data: bytes, expected: List[int], width: int) -> Output:
    found = [int.from_bytes(data[i * width : (i + 1) * width], "little") for i in range(len(expected))]
    wrong = [i for i, (got, want) in enumerate(zip(found, expected)) if got != want]
    if not wrong:
        return Output(name, OK)
    first = wrong[0]
    text = "wrong: {} of {}, first at [{}]: bits {:#x}, expected {:#x}"
    return Output(name, text.format(len(wrong), len(expected), first, found[first], expected[first]))


CASES: Tuple[Tuple[str, Step], ...] = (
    ("t1.k1.mm", _gemms("wide", GEMMS, ("float32", "float64"), "k1")),
    ("t1.k1.shapes", _shapes_of_product),
    ("t1.k2.mm", _gemms("narrow", NARROW, ("float32", "float16", "bfloat16"), "k2")),
    ("t1.k3.int_mm", _int8),
    ("t1.k5.conv", _convs),
    ("t1.k6", _order_free),
    ("t1.k7", _rounded),
)


def control(torch: Any, maker: Maker) -> bool:
    """Return whether the comparison sees one integer that is off by one: it must."""
    a, b = (maker.get(name) for name in _gemm_names("wide", GEMMS[0]))
    held = _integer_product(torch, a, b)
    spoilt = held.clone()
    spoilt[-1, -1] += 1
    return (
        compare(torch, "control", held.to(torch.float32), held).value == OK
        and compare(torch, "control", spoilt.to(torch.float32), held).value != OK
    )
