"""T3, a small transformer encoder: one block in float32, one in bfloat16, and a head.

Hidden size 1024 makes libraries take the kernels that real models get (blocked and
threaded products, split reductions). Weights are rough and scaled so that activations
stay near one. Nothing is trained and nothing random: eval-mode mathematics only.

Travels to nodes: standard library only, Python 3.8 and newer; torch is handed in.
"""

from __future__ import annotations

from typing import Any

from envlock.canary import generator
from envlock.canary.inputs import Input
from envlock.canary.trace import Trace

BATCH, LENGTH, HIDDEN, HEADS, KV_HEADS, WIDE, VOCABULARY = 2, 48, 1024, 16, 4, 1536, 509
SIZE = HIDDEN // HEADS
KV = KV_HEADS * SIZE


def _weight(name: str, *shape: int, dtype: str = generator.FLOAT32, scale: int = 3) -> Input:
    return Input("t3.encoder." + name, shape, dtype, scale)


INPUTS = (
    _weight("embedding", VOCABULARY, HIDDEN, scale=0),
    _weight("position", LENGTH, HIDDEN, scale=1),
    _weight("norm1.weight", HIDDEN, scale=0),
    _weight("norm1.bias", HIDDEN, scale=2),
    _weight("q.weight", HIDDEN, HIDDEN, scale=2),
    _weight("k.weight", KV, HIDDEN, scale=2),
    _weight("v.weight", KV, HIDDEN),
    _weight("o.weight", HIDDEN, HIDDEN),
    _weight("norm2.weight", HIDDEN, scale=0),
    _weight("norm2.bias", HIDDEN, scale=2),
    _weight("up.weight", WIDE, HIDDEN),
    _weight("up.bias", WIDE, scale=2),
    _weight("gate.weight", WIDE, HIDDEN),
    _weight("down.weight", HIDDEN, WIDE),
    _weight("half.q.weight", HIDDEN, HIDDEN, dtype=generator.BFLOAT16, scale=2),
    _weight("half.kv.weight", HIDDEN, HIDDEN, dtype=generator.BFLOAT16),
    _weight("head.weight", 64, HIDDEN),
)


def run(trace: Trace) -> None:
    """Run the encoder, recording every operator in `trace`."""
    torch, get = trace.torch, trace.maker.get
    functional = torch.nn.functional
    device = trace.maker.device
    words = generator.indexes("t3.encoder.words", BATCH * LENGTH, VOCABULARY)
    tokens = torch.tensor(words, device=device).reshape(BATCH, LENGTH)
    x = trace.step("embedding", lambda t: functional.embedding(t, get("t3.encoder.embedding")), tokens)
    x = trace.step("add_position", lambda a: a + get("t3.encoder.position"), x)
    x = _attention(trace, x)
    x = _feed_forward(trace, x)
    x = _half(trace, x)
    _head(trace, x)


def _norm(trace: Trace, name: str, x: Any) -> Any:
    torch, get = trace.torch, trace.maker.get
    weight, bias = get("t3.encoder.{}.weight".format(name)), get("t3.encoder.{}.bias".format(name))
    return trace.step("layernorm", lambda a: torch.nn.functional.layer_norm(a, (HIDDEN,), weight, bias), x)


def _linear(trace: Trace, name: str, x: Any) -> Any:
    weight = trace.maker.get("t3.encoder.{}.weight".format(name))
    label = "linear_" + name.replace(".", "_")
    return trace.step(label, lambda a: trace.torch.nn.functional.linear(a, weight), x)


def _heads(x: Any, heads: int) -> Any:
    return x.reshape(BATCH, LENGTH, heads, SIZE).transpose(1, 2)


def _attention(trace: Trace, x: Any) -> Any:
    """Grouped-query attention: the library's fused operator, then the same written out."""
    torch = trace.torch
    normed = _norm(trace, "norm1", x)
    q, k, v = (_linear(trace, name, normed) for name in "qkv")

    def fused(a: Any, b: Any, c: Any) -> Any:
        queries = _heads(a, HEADS)
        # Repeating by hand, not `enable_gqa`: one graph for every torch from 2.4 on.
        keys, values = (_heads(part, KV_HEADS).repeat_interleave(HEADS // KV_HEADS, 1) for part in (b, c))
        attended = torch.nn.functional.scaled_dot_product_attention(queries, keys, values)
        return attended.transpose(1, 2).reshape(BATCH, LENGTH, HIDDEN)

    mixed = trace.step("sdpa_gqa", fused, q, k, v)

    def scored(a: Any, b: Any) -> Any:
        keys = _heads(b, KV_HEADS).repeat_interleave(HEADS // KV_HEADS, 1)
        return _heads(a, HEADS) @ keys.transpose(2, 3)

    scores = trace.step("scores", scored, q, k)
    scaled = trace.step("scale", lambda a: a * (1.0 / 8.0), scores)
    chances = trace.step("softmax", lambda a: torch.softmax(a, -1), scaled)

    def weighed(a: Any, b: Any) -> Any:
        values = _heads(b, KV_HEADS).repeat_interleave(HEADS // KV_HEADS, 1)
        return (a @ values).transpose(1, 2).reshape(BATCH, LENGTH, HIDDEN)

    written = trace.step("context", weighed, chances, v)
    both = trace.step("average", lambda a, b: (a + b) * 0.5, mixed, written)
    return trace.step("residual", lambda a, b: a + b, x, _linear(trace, "o", both))


def _feed_forward(trace: Trace, x: Any) -> Any:
    torch, get = trace.torch, trace.maker.get
    functional = torch.nn.functional
    normed = _norm(trace, "norm2", x)
    weight, bias = get("t3.encoder.up.weight"), get("t3.encoder.up.bias")
    up = trace.step("linear_up", lambda a: functional.linear(a, weight, bias), normed)
    up = trace.step("gelu", functional.gelu, up)
    gate = trace.step("silu", functional.silu, _linear(trace, "gate", normed))
    both = trace.step("multiply", lambda a, b: a * b, up, gate)
    return trace.step("residual", lambda a, b: a + b, x, _linear(trace, "down", both))


def _half(trace: Trace, x: Any) -> Any:
    """The second block, in bfloat16."""
    torch = trace.torch
    functional = torch.nn.functional
    half = trace.step("to_bfloat16", lambda a: a.to(torch.bfloat16), x)
    normed = trace.step("layernorm_bfloat16", lambda a: functional.layer_norm(a, (HIDDEN,)), half)
    q, kv = (_linear(trace, name, normed) for name in ("half.q", "half.kv"))

    def fused(a: Any, b: Any) -> Any:
        keys = _heads(b, HEADS)
        attended = functional.scaled_dot_product_attention(_heads(a, HEADS), keys, keys)
        return attended.transpose(1, 2).reshape(BATCH, LENGTH, HIDDEN)

    mixed = trace.step("sdpa_bfloat16", fused, q, kv)
    active = trace.step("gelu_tanh_bfloat16", lambda a: functional.gelu(a, approximate="tanh"), mixed)
    return trace.step("residual_float32", lambda a, b: a + b.to(torch.float32), x, active)


def _head(trace: Trace, x: Any) -> None:
    torch, get = trace.torch, trace.maker.get
    pooled = trace.step("mean", lambda a: a.mean(1), x)
    active = trace.step("tanh", torch.tanh, pooled)
    weight = get("t3.encoder.head.weight")
    # One row: the path that libraries take for a matrix times a vector.
    logits = trace.step("linear_head_row", lambda a: torch.nn.functional.linear(a[:1], weight), active)
    chances = trace.step("log_softmax", lambda a: torch.log_softmax(a, -1), logits)
    trace.step("topk", lambda a: torch.topk(a, 5, -1).values, chances)
