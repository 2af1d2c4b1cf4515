"""The canary's tiers in this process, for `make bench`: `python -m bench.canary t1 t2`.

Imports torch, makes all inputs, runs the tiers that are named, and prints milliseconds
for each step as one JSON object.
"""

import json
import os
import sys
import time

from envlock.canary import known, signatures, suite
from envlock.canary.tensors import Maker
from envlock.canary.trace import Trace


def main(tiers: list[str]) -> None:
    """Run `tiers` (`t1`, `t2`, `t3`) once and print how long each step took."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the worker does
    spent: dict[str, int] = {}
    begin = time.monotonic()
    import torch

    spent["import"] = round(1000 * (time.monotonic() - begin))
    begin = time.monotonic()
    maker = Maker(torch, "cpu", suite.INPUTS)
    spent["inputs"] = round(1000 * (time.monotonic() - begin))
    with torch.inference_mode():
        for tier in tiers:
            begin = time.monotonic()
            if tier == "t3":
                for model, run in suite.MODELS:
                    run(Trace(torch, maker, model))
            else:
                {"t1": known.run, "t2": signatures.run}[tier](torch, maker)
            spent[tier] = round(1000 * (time.monotonic() - begin))
    print(json.dumps(spent))


if __name__ == "__main__":
    main(sys.argv[1:])
