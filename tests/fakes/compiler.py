"""The C compiler of this host, for tests that make a library of their own.

Without one the test is skipped with the reason; ENVLOCK_REQUIRE_COMPILER=1 makes the lack
a failure.
"""

import os
import shutil

import pytest


def compiler() -> str:
    """Return the path of a C compiler."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        reason = "there is no C compiler to make a library with"
        if os.environ.get("ENVLOCK_REQUIRE_COMPILER"):
            pytest.fail(f"ENVLOCK_REQUIRE_COMPILER is set, and {reason}", pytrace=False)
        pytest.skip(reason)
    return found
