"""Shared libraries made for one test by the C compiler of this host."""

import subprocess
from pathlib import Path

from fakes.compiler import compiler


def compiled(folder: Path, source: str, *flags: str, name: str = "libmade.so") -> Path:
    """Return a shared library of the C text `source` in `folder`; the test is skipped without a compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    text, path = folder / f"{name}.c", folder / name
    text.write_text(source)
    # A file of the same name may be mapped: the linker must make a new one.
    path.unlink(missing_ok=True)
    subprocess.run([compiler(), "-shared", "-fPIC", "-o", path, text, *flags], check=True, timeout=60)
    text.unlink()
    return path
