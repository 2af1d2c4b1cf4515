"""T3, a small convolutional network with an 8-bit block.

Plain, depthwise, pointwise and strided convolutions, both norms in evaluation form,
pooling, and a quantised product whose scales are computed from the data. It is small
enough to be the model of the control that must fail.

Travels to nodes: standard library only, Python 3.8 and newer; torch is handed in.
"""

from __future__ import annotations

from typing import Any

from envlock.canary import generator
from envlock.canary.inputs import Input
from envlock.canary.tensors import columns
from envlock.canary.trace import Trace

BATCH, SIDE = 4, 32


def _weight(name: str, *shape: int, scale: int = 1) -> Input:
    return Input("t3.convnet." + name, shape, generator.FLOAT32, scale)


INPUTS = (
    _weight("image", BATCH, 3, SIDE, SIDE, scale=0),
    _weight("stem.weight", 32, 3, 3, 3, scale=1),
    _weight("batchnorm.mean", 32, scale=2),
    _weight("batchnorm.variance", 32, scale=0),
    _weight("batchnorm.weight", 32, scale=0),
    _weight("batchnorm.bias", 32, scale=2),
    _weight("depthwise.weight", 32, 1, 3, 3, scale=1),
    _weight("pointwise.weight", 64, 32, 1, 1, scale=1),
    _weight("groupnorm.weight", 64, scale=0),
    _weight("groupnorm.bias", 64, scale=2),
    _weight("strided.weight", 128, 64, 3, 3, scale=2),
    Input("t3.convnet.int8.weight", (128, 64), generator.INT8),
    _weight("fc.weight", 1024, 64, scale=2),
    _weight("fc.bias", 1024, scale=2),
)

CONTROL_WEIGHT = "t3.convnet.stem.weight"
CONTROL_BIT = 14
"""The bit that the control flips: a middle mantissa bit of the first weight of the stem."""


def run(trace: Trace) -> None:
    """Run the network, recording every operator in `trace`."""
    torch, get = trace.torch, trace.maker.get
    functional = torch.nn.functional
    conv = functional.conv2d

    def weight(name: str) -> Any:
        return get("t3.convnet." + name)

    x = trace.step("conv3x3", lambda a: conv(a, weight("stem.weight"), padding=1), weight("image"))
    norms = [weight("batchnorm." + part) for part in ("mean", "variance", "weight", "bias")]
    x = trace.step("batchnorm", lambda a: functional.batch_norm(a, norms[0], norms[1].abs(), *norms[2:]), x)
    x = trace.step("relu", torch.relu, x)
    x = trace.step("conv_depthwise", lambda a: conv(a, weight("depthwise.weight"), padding=1, groups=32), x)
    x = trace.step("conv_pointwise", lambda a: conv(a, weight("pointwise.weight")), x)
    x = trace.step(
        "groupnorm", lambda a: functional.group_norm(a, 8, weight("groupnorm.weight"), weight("groupnorm.bias")), x
    )
    x = trace.step("hardswish", functional.hardswish, x)
    x = trace.step("conv_strided", lambda a: conv(a, weight("strided.weight"), stride=2, padding=1), x)
    x = trace.step("sigmoid", torch.sigmoid, x)
    x = trace.step("max_pool", lambda a: functional.max_pool2d(a, 2), x)
    x = _quantised(trace, x)
    x = trace.step("avg_pool", lambda a: a.reshape(BATCH, 64, 64).mean(1), x)
    x = trace.step("linear_fc", lambda a: functional.linear(a, weight("fc.weight"), weight("fc.bias")), x)
    trace.step("softmax", lambda a: torch.softmax(a, -1), x)


def _quantised(trace: Trace, x: Any) -> Any:
    """The 8-bit block: quantise by the largest magnitude, multiply in integers, scale back."""
    torch, get = trace.torch, trace.maker.get
    rows = trace.step("rows", lambda a: a.flatten(2).transpose(1, 2).reshape(-1, 128), x)
    scale = trace.step("scale", lambda a: a.abs().amax().reshape(1) / 127.0, rows)
    small = trace.step("quantise", lambda a, s: torch.round(a / s).clamp(-127, 127).to(torch.int8), rows, scale)
    weight = columns(get("t3.convnet.int8.weight"), trace.maker.device)
    product = trace.step("int_mm", lambda a: torch._int_mm(a, weight), small)
    return trace.step("dequantise", lambda a, s: a.to(torch.float32) * (s / 127.0), product, scale)
