"""The other Python interpreters of this machine, for what must run under all of them."""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


@cache
def found() -> dict[str, str]:
    """Return the path of each interpreter by its version: from PATH, and beside this one's installation."""
    places = {version: shutil.which(f"python{version}") for version in VERSIONS}
    beside = [str(path) for path in sorted(Path(sys.base_prefix).parent.glob("*/bin/python3"))]
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for path in [*filter(None, places.values()), *beside]:
        answer = subprocess.run(
            [path, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode == 0 and answer.stdout.strip() in VERSIONS:
            found.setdefault(answer.stdout.strip(), path)
    return found
