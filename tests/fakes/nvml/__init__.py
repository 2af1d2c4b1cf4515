"""NVML as a real shared object: `nvml.c` made by this host's compiler, playing a world from `worlds/`."""

import functools
import subprocess
import tempfile
from pathlib import Path

from fakes.compiler import compiler

HERE = Path(__file__).parent
SONAME = "libnvidia-ml.so.1"


def build(folder: Path, name: str = SONAME) -> Path:
    """Return the library, made in `folder` under `name`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{SONAME}")
    subprocess.run([compiler(), *flags, "-o", path, HERE / "nvml.c"], check=True, timeout=60)
    return path


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="envlock-nvml-")


@functools.cache
def library() -> Path:
    """Return the library, made once for all tests of this run."""
    return build(Path(_folder().name))


def world(name: str) -> dict[str, str]:
    """Return the variables with which envlock meets the node in `worlds/NAME.txt`."""
    return {"ENVLOCK_NVML_LIBRARY": str(library()), "ENVLOCK_FAKE_NVML": str(HERE / "worlds" / f"{name}.txt")}
