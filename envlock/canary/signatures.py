"""T2, mode signatures: which arithmetic really ran, as small values compared with the golden.

A difference here is another setting or kernel, never a broken device, and its name says
which: mantissa kept (S1), FMA (S2), accumulator (S3), subnormals (S4), order of sums
(S5, `envlock.canary.trees`), vector mathematics (S7), batch (S8), threads (S9).

Travels to nodes: standard library only, Python 3.8 and newer; torch is handed in.
"""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Dict, List, Sequence, Tuple

from envlock.canary import known, trees
from envlock.canary.inputs import Input
from envlock.canary.known import UNAVAILABLE, first_line
from envlock.canary.tensors import Maker, Output, hash_tensor, raw_bytes
from envlock.digest import Digest

LENGTHS = (1, 7, 15, 16, 17, 33, 1027, 33891)
BATCHES = (1, 2, 17, 33, 128, 257)

INPUTS = (
    Input("t2.s7.x", (max(LENGTHS),), scale=0),
    Input("t2.s8.rows", (max(BATCHES), 1024), scale=1),
    Input("t2.s8.weight", (256, 1024), scale=2),
    Input("t2.s9.vector", (1, 56), scale=0),
    Input("t2.s9.weight", (444, 56), scale=1),
)


def run(torch: Any, maker: Maker) -> List[Output]:
    """Return every T2 output; a probe that this build cannot run says so in its text."""
    outputs: List[Output] = []
    for name, probe in PROBES:
        try:
            outputs.extend(probe(torch, maker))
        except Exception as error:  # a probe that raises is an answer, and the others still run
            outputs.append(Output(name, "{}{}: {}".format(UNAVAILABLE, type(error).__name__, first_line(error))))
    return outputs


def _mantissa(torch: Any, maker: Maker) -> List[Output]:
    """S1: the largest k for which 1 + 2**-k comes back: 7 bfloat16, 10 TF32 or float16, 23 float32."""
    eye = torch.eye(64, dtype=torch.float32, device=maker.device)
    steps = [1 + i % 23 for i in range(64)]
    ladder = torch.diag(torch.tensor([1.0 + 2.0**-k for k in steps], dtype=torch.float32, device=maker.device))
    picture = ladder.reshape(1, 64, 8, 8)
    functional = torch.nn.functional
    middle = torch.zeros(64, 64, 3, 3, dtype=torch.float32, device=maker.device)
    middle[:, :, 1, 1] = eye
    results = {
        "mm": ladder @ eye,
        "bmm": torch.bmm(ladder.reshape(1, 64, 64), eye.reshape(1, 64, 64)),
        "linear": functional.linear(ladder, eye),
        "conv1x1": functional.conv2d(picture, eye.reshape(64, 64, 1, 1)),
        "conv3x3": functional.conv2d(picture, middle, padding=1),
    }
    outputs = []
    for label, result in results.items():
        kept = torch.diagonal(result.reshape(64, 64)).to("cpu").to(torch.float64).tolist()
        good = {k for k, value in zip(steps, kept) if value == 1.0 + 2.0**-k}
        depth = 0
        while depth + 1 in good:
            depth += 1
        outputs.append(Output("t2.s1.mantissa." + label, str(depth)))
    return outputs


def _fma(torch: Any, maker: Maker) -> List[Output]:
    """S2: a*a + c with a = 1 + 2**-12 is 0 when the product is rounded first, 2**-24 when it is not."""
    a, c = 1.0 + 2.0**-12, -(1.0 + 2.0**-11)
    outputs = []

    def words(value: float) -> str:
        return {0.0: "separate", 2.0**-24: "fused"}.get(value, repr(value))

    for count in (1, 64):
        left = torch.full((count,), a, dtype=torch.float32, device=maker.device)
        base = torch.full((count,), c, dtype=torch.float32, device=maker.device)
        found = sorted({words(value) for value in torch.addcmul(base, left, left).tolist()})
        outputs.append(Output("t2.s2.fma.addcmul.{}".format(count), " ".join(found)))
    # Both orders of the two terms: the answer also tells which one is added first.
    for rows in (1, 64):
        found = []
        for first, second in (((a, a), (c, 1.0)), ((c, 1.0), (a, a))):
            left = torch.tensor([[first[0], second[0]]], dtype=torch.float32, device=maker.device).expand(rows, 2)
            right = torch.tensor([[first[1]], [second[1]]], dtype=torch.float32, device=maker.device).expand(2, 16)
            found.append(words(float((left.contiguous() @ right.contiguous())[0, 0])))
        outputs.append(Output("t2.s2.fma.mm.m{}".format(rows), " ".join(found)))
    return outputs


def _accumulator(torch: Any, maker: Maker) -> List[Output]:
    """S3: what is left of one unit between large sums that cancel; `1` each where sums are float32."""
    outputs = []
    for dtype in ("float32", "float16", "bfloat16"):
        kept = getattr(torch, dtype)
        left = []
        for size in (1, 2, 4, 16):
            row = torch.full((33, 4096), float(size), dtype=torch.float32)
            row[:, 2048:] = -float(size)
            row[:, 777] = size + 1.0
            ones = torch.ones(4096, 16, dtype=kept, device=maker.device)
            total = float((row.to(kept).to(maker.device) @ ones)[0, 0])
            left.append("{:g}".format(total))
        outputs.append(Output("t2.s3.accumulator.mm." + dtype, " ".join(left)))
    # Wide integer products in half precision: exact only with a float32 accumulator and no low-precision split.
    for dtype, shape in (("bfloat16", known.GEMMS[1]), ("float16", known.NARROW[1])):
        a, b = (maker.get(name) for name in known._gemm_names("wide" if shape in known.GEMMS else "narrow", shape))
        kept = getattr(torch, dtype)
        exact = a.to("cpu").to(torch.int64) @ b.to("cpu").to(torch.int64)
        result = known.compare(torch, "", (a.to(kept) @ b.to(kept)), exact.to(torch.float32).to(kept))
        outputs.append(Output("t2.s3.wide.mm." + dtype, result.value))
    return outputs


def _subnormals(torch: Any, maker: Maker) -> List[Output]:
    """S4: whether the smallest numbers are kept or flushed to zero, by operator and dtype."""
    device = maker.device
    eye = torch.eye(64, dtype=torch.float32, device=device)

    def words(value: float) -> str:
        return "kept" if value != 0.0 else "flushed"

    tiny = torch.full((64,), 2.0**-130, dtype=torch.float32, device=device)
    found = {
        "mul": float((tiny * 1.0)[0]),
        "underflow": float(
            (
                torch.full((64,), 2.0**-70, dtype=torch.float32, device=device)
                * torch.full((64,), 2.0**-60, dtype=torch.float32, device=device)
            )[0]
        ),
        "mm.float32": float((eye * 2.0**-130 @ eye)[0, 0]),
        "mm.float16": float(((eye * 2.0**-24).to(torch.float16) @ eye.to(torch.float16))[0, 0]),
        "mm.bfloat16": float(((eye * 2.0**-130).to(torch.bfloat16) @ eye.to(torch.bfloat16))[0, 0]),
    }
    return [Output("t2.s4.subnormal." + label, words(value)) for label, value in found.items()]


def _trees(torch: Any, maker: Maker) -> List[Output]:
    return trees.run(torch, maker.device)


def _mathematics(torch: Any, maker: Maker) -> List[Output]:
    """S7: one digest per function over several lengths, so that vector tails are in it."""
    functional = torch.nn.functional
    functions: Dict[str, Callable[[Any], Any]] = {
        "exp": torch.exp,
        "log": lambda x: torch.log(x.abs()),
        "tanh": torch.tanh,
        "erf": torch.erf,
        "sin": torch.sin,
        "sqrt": lambda x: torch.sqrt(x.abs()),
        "rsqrt": lambda x: torch.rsqrt(x.abs()),
        "pow": lambda x: torch.pow(x.abs(), 1.7),
        "sigmoid": torch.sigmoid,
        "silu": functional.silu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    }
    x = maker.get("t2.s7.x")
    outputs = []
    for label, function in functions.items():
        state = hashlib.sha256()
        for length in LENGTHS:
            state.update(raw_bytes(torch, function(x[:length].contiguous())))
        outputs.append(Output("t2.s7.math." + label, Digest.from_hex(state.hexdigest())))
    return outputs


def partition(labelled: Sequence[Tuple[str, str]]) -> str:
    """Return labels grouped by equal digest, groups in order of appearance: `1 | 2 17 33`."""
    groups: Dict[str, List[str]] = {}
    for label, digest in labelled:
        groups.setdefault(digest, []).append(label)
    return " | ".join(" ".join(labels) for labels in groups.values())


def _batches(torch: Any, maker: Maker) -> List[Output]:
    """S8: in which batch sizes, and at which place in the batch, one row gets the same bits."""
    rows, weight = maker.get("t2.s8.rows"), maker.get("t2.s8.weight")
    row = rows[:1]
    functional = torch.nn.functional
    half, small = weight.to(torch.bfloat16), rows.to(torch.bfloat16)
    operators: Dict[str, Tuple[Any, Callable[[Any], Any]]] = {
        "linear.float32": (rows, lambda x: functional.linear(x, weight)),
        "linear.bfloat16": (small, lambda x: functional.linear(x, half)),
        "softmax.float32": (rows, lambda x: torch.softmax(x, -1)),
        "layernorm.float32": (rows, lambda x: functional.layer_norm(x, (1024,))),
    }
    outputs = []
    for label, (source, operator) in operators.items():
        first = row.to(source.dtype)
        found = []
        for batch in BATCHES:
            for place, at in _places(batch):
                x = source[:batch].clone()
                x[at] = first[0]
                found.append((place, hash_tensor(torch, operator(x)[at : at + 1])))
        outputs.append(Output("t2.s8.batch." + label, partition(_merged(found))))
    return outputs


def _places(batch: int) -> List[Tuple[str, int]]:
    places = {0: "{}", batch // 2: "{}@middle", batch - 1: "{}@last"}
    places[0] = "{}"
    return [(text.format(batch), at) for at, text in sorted(places.items())]


def _merged(found: Sequence[Tuple[str, str]]) -> List[Tuple[str, str]]:
    """Drop the places of a batch that agree with its first place: they say nothing more."""
    first = {label: digest for label, digest in found if "@" not in label}
    return [(label, digest) for label, digest in found if "@" not in label or first[label.split("@")[0]] != digest]


def _threads(torch: Any, maker: Maker) -> List[Output]:
    """S9: which thread counts up to the one in force give the same bits."""
    in_force = torch.get_num_threads()
    counts = sorted({count for count in (1, 2, 4, 8) if count <= in_force} | {in_force})
    functional = torch.nn.functional
    x, long = maker.get("t2.s8.rows"), maker.get("t2.s7.x")
    vector, weight = maker.get("t2.s9.vector"), maker.get("t2.s9.weight")
    operators: Dict[str, Callable[[], Any]] = {
        "gemv": lambda: functional.linear(vector, weight),
        "mm": lambda: x @ maker.get("t2.s8.weight").t(),
        "sum": long.sum,
        "sigmoid": lambda: torch.sigmoid(long),
        "softmax": lambda: torch.softmax(x, -1),
    }
    outputs = []
    try:
        for label, operator in operators.items():
            found = []
            for count in counts:
                torch.set_num_threads(count)
                found.append((str(count), hash_tensor(torch, operator())))
            outputs.append(Output("t2.s9.threads." + label, partition(found)))
    finally:
        torch.set_num_threads(in_force)
    return outputs


PROBES: Tuple[Tuple[str, Callable[[Any, Maker], List[Output]]], ...] = (
    ("t2.s1.mantissa", _mantissa),
    ("t2.s2.fma", _fma),
    ("t2.s3.accumulator", _accumulator),
    ("t2.s4.subnormal", _subnormals),
    ("t2.s5.tree", _trees),
    ("t2.s7.math", _mathematics),
    ("t2.s8.batch", _batches),
    ("t2.s9.threads", _threads),
)
