"""The module `pynvml` with a driver library in pure Python behind it."""

from collections.abc import Mapping
from typing import Any

import nvml_fake
import pynvml

from envlock.facts import Observed, observed_from
from envlock.probe.nvml import collecting


class Module:
    """`pynvml` as it is, with its library and nothing left of an earlier one."""

    def __init__(self, library: nvml_fake.Library) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        pynvml.nvmlLib = self._library
        return getattr(pynvml, name)


class Fake(nvml_fake.Library):
    """A library, and the module that asks it."""

    @property
    def module(self) -> Module:
        pynvml._nvmlGetFunctionPointer_cache.clear()
        return Module(self)


def library(gpus: Mapping[int, Mapping[str, Any]], **system: Any) -> Fake:
    return Fake({**nvml_fake.SYSTEM, **system}, gpus)


def collect(gpus: Mapping[int, Mapping[str, Any]], **system: Any) -> dict[str, Any]:
    return collecting.collect(library(gpus, **system).module)


def seen(document: Mapping[str, Any], key: str, index: int = 0) -> Observed:
    return observed_from(document["gpus"][index]["facts"][key], "test", key)
