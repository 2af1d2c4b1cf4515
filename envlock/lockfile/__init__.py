"""The lockfile: its values, and their one text form.

Pure: text in, values out, and back. Reading and writing files is `envlock.lockstore`'s
work. The format is described in `docs/lockfile.md`; what goes into the inputs digest is
`inputs_document`. Merging (`envlock.lockfile.merging`, `envlock.lockfile.marking`) is loaded
by who merges.
"""

from envlock.lockfile.migrating import policy_profile
from envlock.lockfile.reading import parse, read_rules, read_switch
from envlock.lockfile.values import (
    LOCK_VERSION,
    MAX_GPUS,
    PLATFORMS,
    POLICY_PROFILES,
    RECIPE,
    AptIndex,
    DebianBase,
    DebPackage,
    Determinism,
    Environment,
    Golden,
    GpuGroup,
    Host,
    Image,
    ImageBase,
    Layer,
    LockedFile,
    Lockfile,
    PythonPackage,
    Rule,
    host_of,
    inputs_document,
)
from envlock.lockfile.writing import render, to_document

__all__ = [
    "LOCK_VERSION",
    "MAX_GPUS",
    "PLATFORMS",
    "POLICY_PROFILES",
    "RECIPE",
    "AptIndex",
    "DebPackage",
    "DebianBase",
    "Determinism",
    "Environment",
    "Golden",
    "GpuGroup",
    "Host",
    "Image",
    "ImageBase",
    "Layer",
    "LockedFile",
    "Lockfile",
    "PythonPackage",
    "Rule",
    "host_of",
    "inputs_document",
    "parse",
    "policy_profile",
    "read_rules",
    "read_switch",
    "render",
    "to_document",
]
