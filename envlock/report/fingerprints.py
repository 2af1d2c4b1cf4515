"""A name for each item of a view that stays the same from run to run, and is no other item's."""

import hashlib
from collections import Counter
from collections.abc import Iterable

from envlock.report.view import Item, View


def fingerprints(view: View, items: Iterable[Item]) -> list[str]:
    """Return one fingerprint for each item, 64 hexadecimal digits.

    Over command, file, fact, device and what happened, never over the values or the
    line: a value that changes again is the same problem, still open. The second of two
    equal items counts as the second.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    found = []
    for item in items:
        place = (view.command, view.path, item.key, item.device, item.kind)
        seen[place] += 1
        text = "\0".join((*place, str(seen[place])))
        found.append(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
    return found
