"""Remarks about the state in which GPUs were looked at. They judge nothing.

Pure. Clocks that were locked by hand (`nvidia-smi -lgc`) cannot be read back from any
driver, so nothing here claims that they are, or that they are not.
"""

from collections.abc import Mapping

from envlock.facts import Device, Facts, Observed

# As `gpu.event_reasons` spells them; each is the hardware's own doing.
SLOWDOWNS = ("hw slowdown", "hw thermal slowdown", "hw power brake slowdown")
CLOCKS_SETTING = "applications clocks setting"

_APPLICATION_CLOCKS = ("gpu.clock_graphics_application", "gpu.clock_memory_application")


def notes(facts: Facts) -> tuple[str, ...]:
    """Return what a person should know before believing a comparison with these facts."""
    return (*slowed_down(facts), *_held_clocks(facts))


def slowed_down(facts: Facts) -> tuple[str, ...]:
    """Return one line per kind of slowdown by the hardware that was in force."""
    found: dict[str, list[str]] = {}
    for gpu in facts.gpus():
        for reason in _reasons(gpu.facts):
            if reason in SLOWDOWNS:
                found.setdefault(reason, []).append(gpu.ident)
    return tuple(f"{reason} was in force on {', '.join(places)}" for reason, places in found.items())


def waiting_for_reset(facts: Facts) -> tuple[str, ...]:
    """Return one line per mode (ECC, MIG) for which another value waits for a reset."""
    lines = []
    for key, label in (("gpu.ecc", "ECC"), ("gpu.mig", "MIG")):
        places = [gpu.ident for gpu in facts.gpus() if _waits(gpu.facts, key)]
        if places:
            lines.append(f"a change of {label} waits for a reset of {', '.join(places)}")
    return tuple(lines)


def _waits(facts: Mapping[str, Observed], key: str) -> bool:
    current, pending = facts.get(key), facts.get(key + "_pending")
    return bool(current and pending and current.has_value and pending.has_value and current != pending)


def _held_clocks(facts: Facts) -> tuple[str, ...]:
    """Tell that a setting holds clocks down, where it is not one that can be read."""
    places = [gpu.ident for gpu in facts.gpus() if _held_by_unknown(gpu)]
    if not places:
        return ()
    return (
        f"a setting holds the clocks of {', '.join(places)} down: it may be locked clocks"
        " (`nvidia-smi -lgc`), which no driver tells",
    )


def _held_by_unknown(gpu: Device) -> bool:
    if CLOCKS_SETTING not in _reasons(gpu.facts):
        return False
    for key in _APPLICATION_CLOCKS:
        chosen, default = gpu.facts.get(key), gpu.facts.get(key + "_default")
        if chosen and default and chosen.has_value and default.has_value and chosen != default:
            return False  # application clocks that were set explain it
    return True


def _reasons(facts: Mapping[str, Observed]) -> tuple[str, ...]:
    seen = facts.get("gpu.event_reasons")
    return tuple(str(reason) for reason in seen.value) if seen and isinstance(seen.value, tuple) else ()
