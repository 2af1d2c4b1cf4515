"""Pairing two lists so that they differ in as little as can be.

Pure. GPUs have no name that holds across nodes, so the locked ones and the observed ones
are paired by what they are: of all pairings, one whose costs add up to the least.
"""

from collections.abc import Callable

EXACT_LIMIT = 64
"""Above this many on either side the pairing is greedy: every difference it reports is
one, but another pairing may have fewer. A node has at most 16 GPUs."""


def pair(left: int, right: int, cost: Callable[[int, int], int]) -> tuple[tuple[int, int], ...]:
    """Return index pairs `(left, right)`, sorted, as many as the shorter list is long."""
    if not left or not right:
        return ()
    if left > right:
        return tuple(sorted((a, b) for b, a in pair(right, left, lambda b, a: cost(a, b))))
    if right > EXACT_LIMIT:
        return _greedy(left, right, cost)
    return _least([[cost(row, column) for column in range(right)] for row in range(left)])


def _greedy(left: int, right: int, cost: Callable[[int, int], int]) -> tuple[tuple[int, int], ...]:
    free = list(range(right))
    pairs = []
    for row in range(left):
        best, best_cost = 0, cost(row, free[0])
        for index, column in enumerate(free):
            if best_cost == 0:
                break
            found = cost(row, column)
            if found < best_cost:
                best, best_cost = index, found
        pairs.append((row, free.pop(best)))
    return tuple(pairs)


def _least(costs: list[list[int]]) -> tuple[tuple[int, int], ...]:
    """Return the assignment of least total cost (the Hungarian method, shortest augmenting paths).

    Kuhn 1955 in the form of Jonker and Volgenant 1987: rows are added one by one, each
    by the cheapest path of reassignments under the potentials `u` and `v`. Index 0 of
    `u`, `v`, `owner` stands for "no column yet".
    """
    rows, columns = len(costs), len(costs[0])
    u = [0] * (rows + 1)
    v = [0] * (columns + 1)
    owner = [0] * (columns + 1)
    for row in range(1, rows + 1):
        owner[0] = row
        way = _cheapest_path(costs, u, v, owner)
        column = way[0]
        while column:
            before = way[column]
            owner[column] = owner[before]
            column = before
    return tuple(sorted((owner[column] - 1, column - 1) for column in range(1, columns + 1) if owner[column]))


def _cheapest_path(costs: list[list[int]], u: list[int], v: list[int], owner: list[int]) -> list[int]:
    """Return for each column the one before it on the cheapest path; item 0 is the path's free end."""
    columns = len(costs[0])
    infinite = 1 << 62
    least = [infinite] * (columns + 1)
    way = [0] * (columns + 1)
    seen = [False] * (columns + 1)
    column = 0
    while owner[column]:
        seen[column] = True
        row, step, following = owner[column], infinite, 0
        for other in range(1, columns + 1):
            if seen[other]:
                continue
            reduced = costs[row - 1][other - 1] - u[row] - v[other]
            if reduced < least[other]:
                least[other], way[other] = reduced, column
            if least[other] < step:
                step, following = least[other], other
        for other in range(columns + 1):
            if seen[other]:
                u[owner[other]] += step
                v[other] -= step
            else:
                least[other] -= step
        column = following
    way[0] = column
    return way
