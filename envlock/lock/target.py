"""The target: which wheels run there, and what its environment markers say.

Derived from what is locked (platform, Python, glibc), never from this host: a lockfile
for arm64 made on x86-64 is the same as one made on arm64.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.tags import Tag

MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}

# Before PEP 600 the levels had names of their own (PEP 513, 571, 599).
_LEGACY = {(2, 5): "manylinux1", (2, 12): "manylinux2010", (2, 17): "manylinux2014"}
_OLDEST = {"x86_64": 5, "aarch64": 17}
# The levels that `uv pip compile --python-platform` knows.
_UV_LEVELS = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A CPython on a glibc system. `python` is the full version, such as `3.11.2`."""

    platform: str
    python: str
    glibc: tuple[int, int]

    @property
    def machine(self) -> str:
        return MACHINES[self.platform]

    @property
    def series(self) -> tuple[int, int]:
        """The Python's major and minor version."""
        major, minor = self.python.split(".")[:2]
        return int(major), int(minor)

    def uv_platform(self) -> str:
        """Return the nearest platform that uv knows and that this target can run."""
        levels = [level for level in _UV_LEVELS if (2, level) <= self.glibc] or [17]
        return f"{self.machine}-manylinux_2_{levels[-1]}"

    def platform_tags(self) -> Iterator[str]:
        """Yield the platform tags this target can run, best first (PEP 600), in the order of `packaging.tags`."""
        yield f"linux_{self.machine}"
        for level in range(self.glibc[1], _OLDEST[self.machine] - 1, -1):
            yield f"manylinux_2_{level}_{self.machine}"
            if legacy := _LEGACY.get((2, level)):
                yield f"{legacy}_{self.machine}"

    def tags(self) -> list["Tag"]:
        """Return the tags of the wheels that run on this target, best first."""
        from packaging import tags

        platforms = list(self.platform_tags())
        interpreter = "cp{}{}".format(*self.series)
        return [
            *tags.cpython_tags(self.series, abis=[interpreter], platforms=platforms),
            *tags.compatible_tags(self.series, interpreter=interpreter, platforms=platforms),
        ]

    def markers(self) -> dict[str, str]:
        """Return the marker environment of this target (PEP 508)."""
        return {
            "implementation_name": "cpython",
            "implementation_version": self.python,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": self.python,
            "python_version": "{}.{}".format(*self.series),
            "sys_platform": "linux",
        }
