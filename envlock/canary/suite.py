"""The whole suite: every input it needs, and one run of all three tiers in their order.

`SUITE` names what is computed. It changes with any change of an input, an operator or
the name of an output: goldens of another suite are not compared, they are recorded anew.
Travels to nodes: standard library only, Python 3.8 and newer; torch is handed in.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Tuple

from envlock.canary import convnet, encoder, known, signatures, trace
from envlock.canary.known import first_line
from envlock.canary.tensors import SAMPLES, Maker, Output
from envlock.canary.trace import Trace

SUITE = "torch/1"

INPUTS = known.INPUTS + signatures.INPUTS + trace.INPUTS + encoder.INPUTS + convnet.INPUTS

MODELS = (("encoder", encoder.run), ("convnet", convnet.run))


def run_once(
    torch: Any, maker: Maker, keep: bool = True, samples: int = SAMPLES
) -> Tuple[List[Output], List[str], Dict[str, int]]:
    """Run all tiers once: the outputs in order, what went wrong in words, milliseconds per tier."""
    problems: List[str] = []
    outputs: List[Output] = []
    spent: Dict[str, int] = {}
    with torch.inference_mode():
        for tier, part in (("t1", known.run), ("t2", signatures.run)):
            begin = time.monotonic()
            outputs.extend(part(torch, maker))
            spent[tier] = round(1000 * (time.monotonic() - begin))
        begin = time.monotonic()
        for model, run in MODELS:
            traced = Trace(torch, maker, model, keep, samples)
            try:
                run(traced)
            except Exception as error:  # one model that cannot run must not hide the rest
                problems.append("t3.{}: raised {}: {}".format(model, type(error).__name__, first_line(error)))
            outputs.extend(traced.outputs)
        spent["t3"] = round(1000 * (time.monotonic() - begin))
    return outputs, problems, spent


def controls(torch: Any, maker: Maker) -> Dict[str, bool]:
    """Return whether each control that must fail did: one wrong integer, one flipped weight bit."""
    with torch.inference_mode():
        seen = known.control(torch, maker)
        clean = _digests(torch, maker)
        maker.flip(convnet.CONTROL_WEIGHT, convnet.CONTROL_BIT)
        flipped = _digests(torch, maker)
        maker.flip(convnet.CONTROL_WEIGHT, convnet.CONTROL_BIT)
        restored = _digests(torch, maker)
    return {"wrong-integer": seen, "weight-bit": flipped != clean and restored == clean}


def _digests(torch: Any, maker: Maker) -> List[str]:
    traced = Trace(torch, maker, "control", keep=False)
    convnet.run(traced)
    return [output.value for output in traced.outputs if not output.name.endswith("/solo")]
