"""One model run, operator by operator: each output in the chain, and each operator alone.

A chain digest that differs says where outputs part; it does not say whose fault it is.
So every operator runs a second time *alone*, on inputs of the same shapes taken from a
pool that the generator made: where that digest (`NAME/solo`) differs as well, the
operator's own kernel is another one; where it does not, the cause lies upstream or in
how operators are fused.

Travels to nodes: standard library only, Python 3.8 and newer; torch is handed in.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from envlock.canary import generator
from envlock.canary.inputs import Input
from envlock.canary.tensors import SAMPLES, Maker, Output, hash_tensor, output_of

POOL = 1 << 18
"""Elements in each pool; an operator with more data than that reads the pool round and round."""

INPUTS = (
    Input("t3.pool.float32", (POOL,)),
    Input("t3.pool.bfloat16", (POOL,), generator.BFLOAT16),
    Input("t3.pool.int8", (POOL,), generator.INT8),
)


class Trace:
    """The outputs of one model, in the order of computation: `t3.MODEL.007.softmax`.

    With `keep` the outputs carry `samples` elements (0: all); without it only digests,
    which is all that a repeated run needs.
    """

    def __init__(self, torch: Any, maker: Maker, model: str, keep: bool = True, samples: int = SAMPLES) -> None:
        self.torch = torch
        self.maker = maker
        self.outputs: List[Output] = []
        self._model = model
        self._keep = keep
        self._samples = samples
        self._number = 0
        self._pools: Dict[Any, Any] = {
            getattr(torch, dtype): maker.get("t3.pool." + dtype) for dtype in ("float32", "bfloat16", "int8")
        }

    def step(self, operator: str, function: Callable[..., Any], *data: Any) -> Any:
        """Run `function` on `data`, record its output and that of the operator alone; return the former."""
        self._number += 1
        name = "t3.{}.{:03d}.{}".format(self._model, self._number, operator)
        result = function(*data)
        alone = function(*[self._alone(tensor, place) for place, tensor in enumerate(data)])
        self._record(name, result, self._samples)
        self._record(name + "/solo", alone, SAMPLES)
        return result

    def _record(self, name: str, tensor: Any, samples: int) -> None:
        if self._keep:
            self.outputs.append(output_of(self.torch, name, tensor, samples))
        else:
            self.outputs.append(Output(name, hash_tensor(self.torch, tensor)))

    def _alone(self, tensor: Any, place: int) -> Any:
        """Return pool data in the shape and dtype of `tensor`; indexes stay as they are."""
        pool = self._pools.get(tensor.dtype)
        if pool is None:
            return tensor
        count = tensor.numel()
        start = (1009 * self._number + 331 * place) % (POOL - 1)
        doubled = self.torch.cat((pool[start:], pool[:start]))
        while doubled.numel() < count:
            doubled = self.torch.cat((doubled, doubled))
        # A clone starts on an allocation of its own, aligned like any other tensor.
        return doubled[:count].reshape(tensor.shape).clone()
