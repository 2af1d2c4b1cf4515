"""The C compiler of this host, for tests that make a library of their own.

Without one that compiles (Debian's gcc comes without the C library's headers) the test is
skipped with the reason; ENVLOCK_REQUIRE_COMPILER=1 makes the lack a failure.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_PROGRAM = b"#include <stdio.h>\nint main(void) { return 0; }\n"


def compiler() -> str:
    """Return the path of a C compiler."""
    found = _found()
    if found is None:
        reason = "there is no C compiler to make a library with"
        if os.environ.get("ENVLOCK_REQUIRE_COMPILER"):
            pytest.fail(f"ENVLOCK_REQUIRE_COMPILER is set, and {reason}", pytrace=False)
        pytest.skip(reason)
    return found


@functools.cache
def _found() -> str | None:
    paths = (shutil.which(name) for name in ("cc", "gcc", "clang"))
    return next((path for path in paths if path is not None and _compiles(path)), None)


def _compiles(path: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        argv = [path, "-x", "c", "-o", Path(folder) / "made", "-"]
        return subprocess.run(argv, input=_PROGRAM, capture_output=True, check=False, timeout=60).returncode == 0
