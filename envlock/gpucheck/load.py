"""The load under which clocks are looked at: products of matrices on one GPU, for some seconds.

A program of its own, because whoever computes cannot look at the clocks meanwhile. It
prints one JSON object: the GPU's UUID, how many products were done in how long, and which
CUDA libraries it had loaded to do them.

Standard library only but torch, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Dict, Sequence

from envlock.errors import EnvlockError

SIZE = 4096


def multiply(torch: Any, device: str, seconds: float, size: int = SIZE) -> Dict[str, Any]:
    """Multiply two matrices on `device` for `seconds`; return how often, and how long it took."""
    left = torch.ones((size, size), dtype=torch.float32, device=device)
    right = torch.full((size, size), 0.5, dtype=torch.float32, device=device)
    done = 0
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        for _ in range(4):
            product = left @ right
        # Waits for the GPU: without it the queue, not the GPU, would be timed.
        product[0, 0].item()
        done += 4
    return {"products": done, "seconds": round(time.monotonic() - begin, 3), "size": size}


def loaded() -> Dict[str, Any]:
    """Return which CUDA libraries this process has loaded, as JSON; `failure` says why that cannot be told."""
    from envlock.probe.libraries.operation import of_pid

    try:
        return of_pid(os.getpid()).to_document()
    except EnvlockError as error:
        return {"failure": str(error)}


def main(argv: Sequence[str]) -> int:
    """Load the first visible GPU for `argv[0]` seconds and print what was done."""
    import torch

    from envlock.canary import platform

    platform.require_visible(torch, platform.CUDA)
    seen = torch.cuda.get_device_properties(0)
    found = {"uuid": platform.uuid_of(seen), **multiply(torch, "cuda:0", float(argv[0])), "libraries": loaded()}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0
