"""S5: in which order a sum is added, told from outside.

FPRev (Xie and others, arXiv 2411.00442): ones are summed with a huge +M at place i and
-M at place j. Ones that meet M before -M does are swallowed, so the result counts the
ones outside the smallest subtree that holds both i and j. All such counts are the shape
of the summation tree: the cause of another T3 hash, found with no model at all.

Travels to nodes: standard library only, Python 3.8 and newer; torch is handed in.
"""

from __future__ import annotations

import math
from typing import Any, Callable, List, Tuple

from envlock.canary.tensors import Output
from envlock.digest import sha256

HUGE = 2.0**127
NOT_FINITE = -1

Summer = Callable[[Any], Any]


def pairs(count: int) -> List[Tuple[int, int]]:
    """Return every pair of places, i before j."""
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def star(count: int) -> List[Tuple[int, int]]:
    """Return the first place with some others, and some with the last: long sums in few steps.

    The first 40 neighbours show vector lanes and unrolling, the rest blocks and splits.
    """
    near = min(40, count)
    far = list(range(near, count, 16)) + [count - 1]
    others = sorted({*range(1, near), *far} - {0})
    return [(0, j) for j in others] + [(count - 1 - j, count - 1) for j in others if j < count - 1]


def subtree_sizes(torch: Any, device: str, summer: Summer, count: int, chosen: List[Tuple[int, int]]) -> List[int]:
    """Return, for each pair, how many of the `count` terms lie in its smallest common subtree.

    `summer` gets one float32 vector and returns its sum as a tensor of one element. A sum
    that is not finite tells no size (`NOT_FINITE`): transforms such as Winograd's scale
    the huge terms before they meet.
    """
    values = torch.ones(count, dtype=torch.float32, device=device)
    sums = []
    for i, j in chosen:
        values[i], values[j] = HUGE, -HUGE
        sums.append(summer(values).reshape(1))
        values[i], values[j] = 1.0, 1.0
    totals = torch.cat(sums).to(torch.float64).tolist()
    return [count - int(total) if math.isfinite(total) else NOT_FINITE for total in totals]


def describe(sizes: List[int], count: int) -> str:
    """Return the tree of all pairs in a word where it has one: `sequential`, `pairwise`, else its start."""
    every = pairs(count)
    if sizes == [j + 1 for _, j in every]:
        return "sequential"
    if sizes == [1 << (i ^ j).bit_length() for i, j in every]:
        return "pairwise"
    return "with the first term: " + " ".join(str(size) for size in sizes[: min(count - 1, 24)])


def output(torch: Any, device: str, name: str, summer: Summer, count: int, whole: bool) -> Output:
    """Return the tree of `summer` over `count` terms as one digest, with a few words on it."""
    chosen = pairs(count) if whole else star(count)
    sizes = subtree_sizes(torch, device, summer, count, chosen)
    text = " ".join(str(size) for size in sizes)
    detail = describe(sizes, count) if whole else "with the first term: " + " ".join(str(size) for size in sizes[:24])
    return Output(name, sha256(text.encode("ascii")), detail)


def run(torch: Any, device: str) -> List[Output]:
    """Return the summation trees of the reductions that models stand on."""
    outputs = []
    for count in (40, 512):
        for label, summer in _summers(torch, device, count):
            # All pairs only where a step is a few instructions: a threaded kernel waits for
            # its threads at each one, which takes a time slice each on a busy host.
            whole = count == 40 and label not in ("mm.m64", "conv")
            outputs.append(output(torch, device, "t2.s5.tree.{}.{}".format(label, count), summer, count, whole))
    return outputs


def _summers(torch: Any, device: str, count: int) -> List[Tuple[str, Summer]]:
    ones = torch.ones(count, dtype=torch.float32, device=device)
    column = torch.ones(count, 16, dtype=torch.float32, device=device)
    square = torch.ones(16, count, 3, 3, dtype=torch.float32, device=device)
    # One row among 64 is looked at: the kernel is the one for 64 rows.
    rows = torch.ones(64, count, dtype=torch.float32, device=device)
    image = torch.ones(1, count, 3, 3, dtype=torch.float32, device=device)
    # Only the middle tap of the kernel is one, so that the sum runs over channels.
    square.zero_()
    square[:, :, 1, 1] = 1.0

    def matrix(values: Any) -> Any:
        rows[0] = values
        return (rows @ column)[0, 0]

    def conv(values: Any) -> Any:
        image[0, :, 1, 1] = values
        return torch.nn.functional.conv2d(image, square)[0, 0]

    return [
        ("sum", lambda values: values.sum()),
        ("dot", lambda values: torch.dot(values, ones)),
        ("mm.m1", lambda values: (values.reshape(1, -1) @ column)[0, 0]),
        ("mm.m64", matrix),
        ("conv", conv),
    ]
