"""GPUs of two hosts: as a multiset, paired so that as few facts as can be differ."""

from collections.abc import Mapping

from envlock.drift.bench import Bench
from envlock.drift.values import Drift, Kind
from envlock.facts import UNANSWERED, Device, Facts, Observed, value
from envlock.lockfile import MAX_GPUS, GpuGroup, Host
from envlock.pairing import pair
from envlock.policy import GPU_COUNT
from envlock.rules import Outcome


def compare_gpus(bench: Bench, host: Host, observed: Facts) -> bool:
    """Compare the GPUs; return whether their number is told by that: by one missing, too many, or not looked at."""
    gpus = observed.gpus()
    total = sum(group.count for group in host.gpus)
    locked_count = dict(host.facts).get(GPU_COUNT, value(total))
    # What was counted when it was locked may be more than what gave its facts then: the
    # number of GPUs fits only where it fits both, else the others were never known.
    count_fits = all(
        bench.judged(GPU_COUNT, locked, value(len(gpus))).outcome is Outcome.SAME
        for locked in (locked_count, value(total))
    )
    # A group never gives more GPUs than there are to pair. Where the rule allows more GPUs
    # than were locked (`>=4`), the others are held against the groups all the same.
    room = len(gpus) if count_fits and len(gpus) > total else 0
    slots = [index for index, group in enumerate(host.gpus) for _ in range(room or min(group.count, len(gpus)))]
    pairs = _pairs(bench, host.gpus, slots, gpus)
    for index, gpu in enumerate(gpus):
        if index in pairs:
            bench.facts(dict(host.gpus[pairs[index]].facts), gpu.facts, gpu.ident)
    for index, group in enumerate(host.gpus):
        if sum(1 for paired in pairs.values() if paired == index) < group.count:
            bench.not_judged(key for key, _ in group.facts)
    if not gpus:
        _not_looked_at(bench, host, observed)
    seen = observed.host.get(GPU_COUNT)
    told = False
    if not count_fits:
        extra = _extra(bench, [gpu for index, gpu in enumerate(gpus) if index not in pairs], locked_count, total)
        told = _missing(bench, host.gpus, pairs, seen, len(gpus)) or extra
    told = told or _unseen(bench, observed)
    whole = _unsure(locked_count, total) is None and _unsure(seen, len(gpus)) is None
    return told and (whole or not _another_count(bench, locked_count, seen))


def _another_count(bench: Bench, locked_count: Observed, seen: Observed | None) -> bool:
    """Return whether the count itself is known to differ, where not every GPU that was counted gave its facts.

    Which GPUs are missing or too many cannot be told then; that it is not the locked number can.
    """
    return seen is not None and bench.judged(GPU_COUNT, locked_count, seen).outcome is Outcome.DIFFERENT


def _unseen(bench: Bench, observed: Facts) -> bool:
    """Keep that more GPUs are there than gave their facts: what those are, nobody knows, now as when locked."""
    listed = len(observed.gpus())
    count = observed.host.get(GPU_COUNT)
    if count is None or not isinstance(count.value, int) or count.value <= listed:
        return False
    return bench.keep(
        Drift(
            key=GPU_COUNT,
            kind=Kind.UNANSWERED,
            expected="facts of every GPU",
            observed=f"{listed} of {count.value} answered",
            because=_unsure(count, listed) or "",
        )
    )


def _extra(bench: Bench, gpus: list[Device], locked_count: Observed, total: int) -> bool:
    unsure = _unsure(locked_count, total)
    kind = Kind.EXTRA if unsure is None else Kind.UNANSWERED
    counted = False
    for gpu in gpus:
        drift = Drift(
            key=GPU_COUNT, device=gpu.ident, kind=kind, expected="(no such GPU)", observed=_name_of(gpu.facts),
            because=f"when it was locked: {unsure}" if unsure else "",
        )  # fmt: skip
        counted = bench.keep(drift) or counted
    return counted


def _missing(
    bench: Bench, groups: tuple[GpuGroup, ...], pairs: dict[int, int], seen: Observed | None, listed: int
) -> bool:
    unsure = _unsure(seen, listed)
    kind = Kind.MISSING if unsure is None else Kind.UNANSWERED
    # Groups of one name are told as one: `4 x H100 → 1 of them` twice would read as once.
    named: dict[str, tuple[int, int]] = {}
    for index, group in enumerate(groups):
        name = _name_of(dict(group.facts))
        locked, left = named.get(name, (0, 0))
        named[name] = (locked + group.count, left + sum(1 for paired in pairs.values() if paired == index))
    counted = False
    for name, (locked, left) in named.items():
        if left < locked:
            drift = Drift(
                key=GPU_COUNT, kind=kind, expected=f"{locked} x {name}", observed=f"{left} of them",
                because=unsure or "",
            )  # fmt: skip
            counted = bench.keep(drift) or counted
    return counted


def _not_looked_at(bench: Bench, host: Host, observed: Facts) -> None:
    """Where the count is ignored and nobody could look, what was locked of the GPUs is still unknown."""
    if bench.ignores(GPU_COUNT) and _unsure(observed.host.get(GPU_COUNT), 0) is not None:
        for group in host.gpus:
            bench.facts(dict(group.facts), {}, "")


def _pairs(bench: Bench, groups: tuple[GpuGroup, ...], slots: list[int], gpus: tuple[Device, ...]) -> dict[int, int]:
    """Return for each paired GPU (by its index) the index of its group."""
    costs = _costs(bench, groups, gpus)
    # Of equal pairings the one that keeps the order: two documents of one node are then
    # compared place by place. It never outweighs a difference.
    one_difference = 4 * MAX_GPUS

    def cost(slot: int, gpu: int) -> int:
        return costs[slots[slot]][gpu] * one_difference + (slot != gpu)

    return {gpu: slots[slot] for slot, gpu in pair(len(slots), len(gpus), cost)}


def _costs(bench: Bench, groups: tuple[GpuGroup, ...], gpus: tuple[Device, ...]) -> list[list[int]]:
    """Return what pairing each group with each GPU costs.

    Most facts are equal on most GPUs: each distinct pair of values is judged once.
    """
    if len(groups) == 1 and len(gpus) <= groups[0].count:
        return [[0] * len(gpus)]  # there is nothing to choose
    numbers: dict[Observed | None, int] = {None: 0}
    numbered = [{key: numbers.setdefault(seen, len(numbers)) for key, seen in gpu.facts.items()} for gpu in gpus]
    weights: dict[tuple[str, int, int], int] = {}
    rows = []
    for group in groups:
        locked = [(key, numbers.setdefault(expected, len(numbers)), expected) for key, expected in group.facts]
        known: dict[tuple[int, ...], int] = {}
        row = []
        for gpu, its in zip(gpus, numbered, strict=True):
            place = tuple([its.get(key, 0) for key, _, _ in locked])
            if place not in known:
                total = 0
                for (key, number, expected), other in zip(locked, place, strict=True):
                    weight = weights.get((key, number, other))
                    if weight is None:
                        weight = weights[key, number, other] = bench.weight(key, expected, gpu.facts.get(key))
                    total += weight
                known[place] = total
            row.append(known[place])
        rows.append(row)
    return rows


def _unsure(seen: Observed | None, listed: int) -> str | None:
    """Return why it cannot be told how many GPUs there are; `None` when it can.

    A driver that gives no answer shows no GPU: that is not the same as no GPU.
    """
    if seen is None:
        return "how many GPUs there are was not observed"
    if seen.outcome in UNANSWERED:
        return seen.detail or seen.outcome.replace("-", " ")
    if seen.has_value and seen.value != listed:
        return f"{seen.text()} are there, {listed} answered"
    return None


def _name_of(facts: Mapping[str, Observed]) -> str:
    return facts["gpu.name"].text() if "gpu.name" in facts else "GPU"
