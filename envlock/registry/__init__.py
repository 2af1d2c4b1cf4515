"""The registry of facts: what each one is, why it matters, and how it is judged by default.

Everything else that speaks of facts is made from it: the probe's completeness, the
text output, `docs/facts.md`, the JSON Schema, the default policy and the hints. It does
not read anything (`envlock.probe` does) and does not judge (`envlock.policy` does).

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from envlock.registry import cpu, gpu, system
from envlock.registry.definition import GPU, GROUPS, HOST, SCOPES, TYPES, Definition

REGISTRY: tuple[Definition, ...] = (*cpu.FACTS, *system.FACTS, *gpu.HOST_FACTS, *gpu.DEVICE_FACTS)
"""All facts, in the order in which people read them."""

_BY_KEY = {definition.key: definition for definition in REGISTRY}


def fact(key: str) -> Definition:
    """Return the definition of the fact `key`; `KeyError` when no such fact is registered."""
    return _BY_KEY[key]


def is_registered(key: str) -> bool:
    """Tell whether `key` is a fact that this envlock knows."""
    return key in _BY_KEY


def in_scope(scope: str, locked_only: bool = False) -> tuple[Definition, ...]:
    """Return the facts of one scope (`host` or `gpu`), in registry order."""
    return tuple(
        definition for definition in REGISTRY if definition.scope == scope and (definition.locked or not locked_only)
    )


__all__ = [
    "GPU",
    "GROUPS",
    "HOST",
    "REGISTRY",
    "SCOPES",
    "TYPES",
    "Definition",
    "fact",
    "in_scope",
    "is_registered",
]
