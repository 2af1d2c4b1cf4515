"""Settings that come and go: whether one was reset, and the command that sets it again.

Pure. What a setting falls back to and how it is set is the registry's (`Entry.default`,
`Entry.default_value`, `Entry.command`); here both are applied to one difference. Nothing
here runs a command.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from envlock.facts import Observed, value
from envlock.registry import Entry
from envlock.rules import Outcome, parse

GPU_BLANK = "{gpu}"
PENDING = "_pending"
"""What the key of a fact ends in that holds what a mode (`gpu.ecc`) will be after a reset."""

_RESET_GPU = f"nvidia-smi --gpu-reset -i {GPU_BLANK}"
PERSISTENCE = "gpu.persistence"

_BLANK = re.compile(r"\{([a-z0-9_.]+)(?::([A-Za-z]+))?\}")
# What a command may hold of a value: a lockfile can come from a stranger, and people paste
# commands. What begins with a hyphen would be an option, and another one than is meant.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MIG = re.compile(r"(([0-9]{1,2})g\.([0-9]{1,4})gb(?:[+-][a-z.]{1,8})?)(?:@([0-9]{1,2}))?")
_PLACE = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class Restoring:
    """What happened to a setting, in words; whether it was reset; how to set it again.

    `command` still holds `GPU_BLANK` where it names a GPU.
    """

    because: str = ""
    reset: bool = False
    command: str = ""


def restoring(
    key: str, locked: Mapping[str, Observed], seen: Mapping[str, Observed], registry: Mapping[str, Entry]
) -> Restoring:
    """Return what there is to say about `key`, whose observed value is not the locked one.

    `locked` and `seen` are all facts of the same host or GPU.
    """
    entry = registry.get(key)
    expected, observed = locked.get(key), seen.get(key)
    if entry is None or expected is None or observed is None:
        return Restoring()
    if not expected.has_value or not observed.has_value:
        return Restoring()  # there was, or there is, nothing to set
    command = _command(entry, expected, observed, locked) if _reachable(entry, expected, seen) else ""
    waiting = _waiting(entry, observed, seen, registry)
    if waiting:
        # The wanted value is on its way: to set it once more would do nothing.
        return Restoring(waiting, command=_RESET_GPU if seen[key + PENDING] == expected else command)
    if key.endswith(PENDING):
        waiting = _waited_for(entry, observed, seen, registry)
        return Restoring(waiting, command=command)
    default = _default(entry, locked, seen)
    if default is None or not _is_default(entry, default, expected, observed):
        return Restoring(command=command)
    return Restoring(_reset_words(entry, default, seen), reset=True, command=command)


def for_devices(command: str, devices: list[str]) -> str:
    """Return `command` for all `devices`; empty when one of them is no PCI bus id."""
    if GPU_BLANK not in command:
        return command
    if not all(_PLACE.fullmatch(device) for device in devices):
        return ""
    return command.replace(GPU_BLANK, ",".join(devices))


def in_words(entry: Entry, seen: Observed) -> str:
    """Return a setting's value as people say it: watts, on and off."""
    if isinstance(seen.value, bool):
        return "on" if seen.value else "off"
    if entry.unit == "mW" and isinstance(seen.value, int):
        return f"{_watts(seen.value)} W"
    if isinstance(seen.value, str):
        return f"`{seen.value}`"
    return f"{seen.text()} {entry.unit}".rstrip()


# ---- what happened -----------------------------------------------------------------------


def _waiting(entry: Entry, observed: Observed, seen: Mapping[str, Observed], registry: Mapping[str, Entry]) -> str:
    """Return in words that another value waits for a reset; empty when none does."""
    pending = seen.get(entry.key + PENDING)
    if entry.key + PENDING not in registry or pending is None or not pending.has_value or pending == observed:
        return ""
    return f"a change waits for a reset: {entry.label} will then be {in_words(entry, pending)}"


def _waited_for(entry: Entry, observed: Observed, seen: Mapping[str, Observed], registry: Mapping[str, Entry]) -> str:
    """Return the same words for the pending fact itself."""
    current = entry.key.removesuffix(PENDING)
    if current not in registry or current not in seen:
        return ""
    return _waiting(registry[current], seen[current], {entry.key: observed}, registry)


def _default(entry: Entry, locked: Mapping[str, Observed], seen: Mapping[str, Observed]) -> Observed | None:
    if entry.default_value is not None:
        return value(entry.default_value)
    for facts in (seen, locked):
        held = facts.get(entry.default)
        if held is not None and held.has_value:
            return held
    return None


def _is_default(entry: Entry, default: Observed, expected: Observed, observed: Observed) -> bool:
    judge = parse(entry.rule, entry.unit)
    back = judge.judge(default, observed).outcome is Outcome.SAME
    return back and judge.judge(default, expected).outcome is Outcome.DIFFERENT


def _reset_words(entry: Entry, default: Observed, seen: Mapping[str, Observed]) -> str:
    if default.value == ():
        return "instances are gone (they do not survive a reboot)"
    words = f"reset to default: the default is {in_words(entry, default)}"
    if not entry.volatile or entry.key == PERSISTENCE:
        return words
    persistence = seen.get(PERSISTENCE)
    if persistence is not None and persistence.value is False:
        return f"{words}; persistence is off, so limits fall back when the last user leaves"
    return f"{words}; such a setting is lost with a reboot or a driver update"


# ---- the command -------------------------------------------------------------------------


def _command(entry: Entry, expected: Observed, observed: Observed, locked: Mapping[str, Observed]) -> str:
    """Return the registry's command with the locked values in it; empty where one cannot be written."""
    if "{value:profiles}" in entry.command and observed.value != ():
        return ""  # the instances that are there would have to go first
    command = entry.command
    for blank in _BLANK.finditer(entry.command):
        if blank[0] == GPU_BLANK:
            continue
        written = _written(expected if blank[1] == "value" else locked.get(blank[1]), blank[2] or "")
        if not written:
            return ""
        command = command.replace(blank[0], written)
    return command


def _reachable(entry: Entry, expected: Observed, seen: Mapping[str, Observed]) -> bool:
    """Return whether this board takes the locked value: `KEY_min` and `KEY_max`, where it tells them, say which."""
    wanted = expected.value
    lowest, highest = (seen.get(entry.key + end) for end in ("_min", "_max"))
    if not isinstance(wanted, int):
        return True
    below = lowest is not None and isinstance(lowest.value, int) and wanted < lowest.value
    above = highest is not None and isinstance(highest.value, int) and wanted > highest.value
    return not below and not above


def _written(held: Observed | None, form: str) -> str:
    """Return a value as a command takes it; empty when it has no such form."""
    if held is None or not held.has_value:
        return ""
    if form == "bit":
        return str(int(held.value)) if isinstance(held.value, bool) else ""
    if form == "profiles":
        return _profiles(held.value) if isinstance(held.value, tuple) else ""
    if isinstance(held.value, (bool, tuple)):
        return ""
    if form == "W":
        return _watts(held.value) if isinstance(held.value, int) and held.value > 0 else ""
    text = str(held.value)
    if form == "upper":
        text = text.upper().replace(" ", "_")
    return text if _PLAIN.fullmatch(text) else ""


def _watts(milliwatts: int) -> str:
    whole, part = divmod(milliwatts, 1000)
    return f"{whole}.{part:03}".rstrip("0").rstrip(".")


def _profiles(instances: tuple[str, ...] | tuple[int, ...]) -> str:
    """Return MIG instances as `nvidia-smi mig -cgi` takes them: `PROFILE:START,…`.

    Empty when one is a part of a GPU instance (`1c.3g.40gb`): that takes more than one command.
    Where the placements are left to the driver the largest come first, as a small one can
    lie where a large one would have to begin.
    """
    found = [item for item in map(_MIG.fullmatch, map(str, instances)) if item is not None]
    if not found or len(found) != len(instances):
        return ""
    if not all(item[4] for item in found):
        found.sort(key=lambda item: (int(item[2]), int(item[3])), reverse=True)
    return ",".join(f"{item[1]}:{item[4]}" if item[4] else item[1] for item in found)
