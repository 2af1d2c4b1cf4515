"""Which CUDA runtime a driver can run: NVIDIA's rules of compatibility, as a pure function.

A driver runs every runtime of its own CUDA level and below. Since CUDA 11 it also runs
later minor releases of the same major ("minor version compatibility"), without what needs
a newer driver: PTX cannot be compiled by it. Another major needs a newer driver, or the
forward compatibility package on data-centre GPUs. From "CUDA Compatibility",
https://docs.nvidia.com/deploy/cuda-compatibility/

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Optional, Tuple

Level = Tuple[int, int]

FITS, MINOR, TOO_OLD = "fits", "minor", "too-old"

MINOR_WORDS = (
    "minor version compatibility: it runs, but this driver cannot compile PTX of that release, and features that"
    " need a newer driver fail"
)

# The oldest driver branch of each CUDA major (the table "Minor Version Compatibility").
_BRANCHES = ((580, 13), (525, 12), (450, 11))

# The CUDA release that each driver branch came with (CUDA Toolkit Release Notes, the table
# "CUDA Toolkit and Corresponding Driver Versions").
_LEVELS = {
    384: (9, 0), 390: (9, 1), 396: (9, 2), 410: (10, 0), 418: (10, 1), 440: (10, 2), 450: (11, 0), 455: (11, 1),
    460: (11, 2), 465: (11, 3), 470: (11, 4), 495: (11, 5), 510: (11, 6), 515: (11, 7), 520: (11, 8), 525: (12, 0),
    530: (12, 1), 535: (12, 2), 545: (12, 3), 550: (12, 4), 555: (12, 5), 560: (12, 6), 565: (12, 7), 570: (12, 8),
    575: (12, 9), 580: (13, 0), 590: (13, 1),
}  # fmt: skip


def level_of(text: str) -> Optional[Level]:
    """Return major and minor of a CUDA version such as `12.9` or `12.9.79`; None when it has none."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})(?:\D|$)", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def level_of_driver(version: str) -> Optional[Level]:
    """Return the CUDA level of a driver such as `570.148.08`, by its branch; None for a branch that is not known."""
    return _LEVELS.get(_branch(version))


def major_of_driver(version: str) -> Optional[int]:
    """Return the newest CUDA major that a driver such as `570.148.08` runs, by its branch; None if not known."""
    level = level_of_driver(version)
    if level is not None:
        return level[0]
    return next((major for branch, major in _BRANCHES if _branch(version) >= branch), None)


def _branch(version: str) -> int:
    match = re.match(r"(\d{3,4})\.", version)
    return int(match.group(1)) if match is not None else 0


def judged(driver: Level, runtime: Level) -> str:
    """Return how a driver of one CUDA level stands to a runtime: `fits`, `minor` or `too-old`."""
    if driver >= runtime:
        return FITS
    return MINOR if driver[0] == runtime[0] and driver[0] >= 11 else TOO_OLD
