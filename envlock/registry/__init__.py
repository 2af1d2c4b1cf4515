"""The registry of facts: what each one is, why it matters, and how it is judged by default.

Everything else that speaks of facts is made from it: the probe's completeness, the
text output, `docs/facts.md`, the JSON Schema, the default policy and the hints. It does
not read anything (`envlock.probe` does) and does not judge (`envlock.policy` does).

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Mapping

from envlock.registry import cpu, gpu, nvidia, system
from envlock.registry.entry import GPU, GROUPS, HOST, SCOPES, TYPES, Entry

REGISTRY: Mapping[str, Entry] = {
    entry.key: entry for entry in (*cpu.FACTS, *system.FACTS, *nvidia.FACTS, *gpu.DEVICE_FACTS)
}
"""All facts by key, in the order in which people read them."""


def fact(key: str) -> Entry:
    """Return the entry of the fact `key`; `KeyError` when no such fact is registered."""
    return REGISTRY[key]


def in_scope(scope: str, locked_only: bool = False) -> tuple[Entry, ...]:
    """Return the facts of one scope (`host` or `gpu`), in registry order."""
    return tuple(entry for entry in REGISTRY.values() if entry.scope == scope and (entry.locked or not locked_only))


__all__ = ["GPU", "GROUPS", "HOST", "REGISTRY", "SCOPES", "TYPES", "Entry", "fact", "in_scope"]
