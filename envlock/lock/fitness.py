"""Whether a host is fit to be the golden one, as warnings for the person who locks it.

Pure. Nothing is refused here: some of it is normal on some machines, and only the person
who locks knows. What is not known stays unknown in the lockfile and in every check.
"""

from collections.abc import Callable, Mapping
from datetime import date

from envlock.drift import Kind, drift_of_facts, slowed_down, waiting_for_reset
from envlock.facts import UNANSWERED, Device, Facts, Observed
from envlock.lockfile import Host, Rule
from envlock.policy import GPU_COUNT, not_told, unanswered_keys

_AGAIN = "make it answer, then run `envlock lock --update-host`"

_AS_WRITTEN = "put the rule in the spec right, else every check says"

_Judge = Callable[[Observed], bool]
_SIGNS: tuple[tuple[str, _Judge, str], ...] = (
    ("gpu.inforom_valid", lambda seen: seen.value is False, "the InfoROM is damaged"),
    ("gpu.retired_pages_pending", lambda seen: seen.value is True, "memory pages wait to be retired"),
    (
        "gpu.remapped_rows",
        lambda seen: (
            isinstance(seen.value, tuple) and bool({"pending yes", "failed yes"} & {str(x) for x in seen.value})
        ),
        "memory rows wait to be remapped, or could not be",
    ),
    (
        "gpu.recovery_action",
        lambda seen: seen.has_value and seen.value != "none",
        "the driver asks for a recovery action",
    ),
)


def doubts(facts: Facts) -> tuple[str, ...]:
    """Return why a check against a golden made from `facts` may not say what it should."""
    return (*_uncounted(facts), *_lost(facts), *_unfit(facts))


def left_unknown(host: Host, rules: tuple[Rule, ...]) -> tuple[str, ...]:
    """Return a warning that names the facts which will be unknown in every check, this host's included."""
    missing = not_told(host, rules)
    if not missing:
        return ()
    return (
        f"not known of the golden host, and allowed by no rule: {', '.join(missing)}; every check will say unknown"
        ' until they are known, or a rule of the spec allows each by name (`unknown = "allow"`)',
    )


def left_open(host: Host, rules: tuple[Rule, ...], wanted: tuple[Rule, ...]) -> tuple[str, ...]:
    """Return a remark that names the errors which no check can find, because this host did not tell the fact.

    `rules` allow it by name; where a rule of the spec (`wanted`) does so, a person knows.
    """
    known = {rule.key for rule in wanted if rule.unknown == "allow"}
    missing = unanswered_keys(host) - known
    open_ones = [
        rule.key for rule in rules if rule.key in missing and rule.unknown == "allow" and rule.severity == "error"
    ]
    if not open_ones:
        return ()
    return (f"not known of this host, so no check can hold another one against it: {', '.join(open_ones)}",)


def outside_its_rules(host: Host, rules: tuple[Rule, ...], today: date) -> tuple[str, ...]:
    """Return a warning for each locked fact that the rules do not accept: this host itself would be no match.

    A range or a list in the spec can leave out the host that is locked by it.
    """
    places = enumerate(facts for group in host.gpus for facts in [dict(group.facts)] * group.count)
    itself = Facts(dict(host.facts), [Device("gpu", f"{index:04}", facts) for index, facts in places])
    # A version that has no order against the rule's is unknown, though the host answered.
    answered = {key for key, seen in host.facts if seen.has_value and key != GPU_COUNT}
    answered |= {key for group in host.gpus for key, seen in group.facts if seen.has_value}
    told: dict[str, None] = {}
    for drift in drift_of_facts(host, itself, rules, today):
        rule = f"the golden host and its own rule for `{drift.key}`: "
        if drift.kind is Kind.CHANGED:
            told[f"{rule}it has {drift.observed}, the rule wants {drift.expected}; {_AS_WRITTEN} drift"] = None
        elif drift.key in answered and drift.because:
            told[f"{rule}{drift.because}; {_AS_WRITTEN} unknown"] = None
    return tuple(told)


def _uncounted(facts: Facts) -> tuple[str, ...]:
    """Tell that there may be GPUs nobody could look at: a lockfile of such a host would allow them to be dead."""
    count = facts.host.get(GPU_COUNT)
    if count is None or count.outcome not in UNANSWERED:
        return ()
    why = count.detail or count.outcome.replace("-", " ")
    return (f"this host may have GPUs, and the driver did not say how many ({why}): {_AGAIN}",)


def _lost(facts: Facts) -> tuple[str, ...]:
    lines = []
    on_bus, count = facts.host.get("nvidia.pci_count"), facts.host.get(GPU_COUNT)
    if _more(on_bus, count):
        assert on_bus is not None
        assert count is not None
        lines.append(f"{on_bus.text()} GPUs are on the PCI bus, and the driver shows {count.text()}")
    listed = len(facts.gpus())
    if count is not None and isinstance(count.value, int) and count.value > listed:
        lines.append(f"{count.value} GPUs are there, and {listed} gave their facts: {_AGAIN}")
    mute = [gpu.ident for gpu in facts.gpus() if _mute(gpu.facts)]
    if mute:
        lines.append(f"the driver tells nothing about {', '.join(mute)}: {_AGAIN}")
    return tuple(lines)


def _more(one: Observed | None, other: Observed | None) -> bool:
    return bool(
        one and other and isinstance(one.value, int) and isinstance(other.value, int) and one.value > other.value
    )


def _mute(facts: Mapping[str, Observed]) -> bool:
    """Return whether a GPU tells neither what it is nor which firmware it has."""
    seen = [facts.get(key) for key in ("gpu.name", "gpu.uuid", "gpu.compute_capability")]
    return all(one is None or one.outcome in UNANSWERED for one in seen)


def _unfit(facts: Facts) -> tuple[str, ...]:
    lines = [f"{line} while this host was observed" for line in slowed_down(facts)]
    lines += waiting_for_reset(facts)
    for key, bad, words in _SIGNS:
        places = [gpu.ident for gpu in facts.gpus() if key in gpu.facts and bad(gpu.facts[key])]
        if places:
            lines.append(f"{words}: {', '.join(places)}")
    return tuple(f"{line}; a golden made now is not one to compare with" for line in lines)
