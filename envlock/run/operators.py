"""Where two runs of a model part: the first operator, and whose fault it is.

Every T3 operator has two digests: in the chain of the model, and alone on inputs of the
generator. Where both differ, the operator's own kernel is another one. Where only the
chain differs, its input already did, or operators were fused differently.
"""

from collections.abc import Mapping, Sequence

from envlock.run.findings import Finding, Kind
from envlock.run.reports import SOLO, model_of, operator_of


def first_partings(
    differing: Sequence[tuple[str, str]],
    expected: Mapping[str, str],
    canonical: Mapping[str, str],
    causes: tuple[str, ...],
) -> list[Finding]:
    """Return one finding for each model in `differing` (name and value, in order of computation).

    `expected` holds the golden values; `canonical` digests with all NaNs made equal.
    """
    values = dict(differing)
    models = dict.fromkeys(model_of(name) for name in values)
    return [_parting(model, values, expected, canonical, causes) for model in models]


def _parting(
    model: str,
    values: Mapping[str, str],
    expected: Mapping[str, str],
    canonical: Mapping[str, str],
    causes: tuple[str, ...],
) -> Finding:
    names = [name for name in values if model_of(name) == model]
    chain = [name for name in names if not name.endswith(SOLO)]
    alone = [name.removesuffix(SOLO) for name in names if name.endswith(SOLO)]
    first = chain[0] if chain else alone[0]
    own = tuple(name for name in alone if name != first)
    chained = f"{len(chain)} of its outputs differ"
    if not chain:
        message = "the model's outputs are the same, but alone this operator's kernel gives other bits"
    elif first in alone:
        message = f"outputs part here: alone, too, this operator's kernel or weights give other bits ({chained})"
    else:
        message = (
            f"outputs part here, though alone this operator gives the same bits: fusion, or data it meets ({chained})"
        )
    if canonical.get(first) and canonical[first] == expected.get(first):
        message += "; only the bits of its NaNs differ"
    return Finding(
        tier="T3",
        name=first,
        kind=Kind.OTHER_KERNEL,
        operator=operator_of(first),
        message=message,
        expected=expected.get(first, "(missing)"),
        found=values.get(first, values.get(first + SOLO, "")),
        causes=causes,
        also=own,
    )
