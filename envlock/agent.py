"""Building the zip application that travels: what it holds, as reproducible bytes.

Entries are sorted, their times fixed, and nothing is compressed, so that the same
sources give the same bytes whatever zlib, clock and user build it.
"""

import io
import zipfile
from pathlib import Path

from envlock.errors import StorageError

MODULES = ("__init__", "errors", "digest", "facts", "process", "nvml_start", "agent_main")
PACKAGES = ("registry", "probe", "canary")

# Any Python that can open the zip can read this: too old a one is told so, in words.
MAIN = b"""import sys

if sys.version_info < (3, 8):
    sys.stderr.write("error: envlock's agent needs Python 3.8 or newer, this is %d.%d\\n" % sys.version_info[:2])
    sys.exit(2)

from envlock.agent_main import main

sys.exit(main())
"""

_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say


def contents(package: Path | None = None) -> dict[str, bytes]:
    """Return the files of the zip application by name, read from `package` (this envlock's own folder)."""
    folder = package or Path(__file__).parent
    paths = [folder / f"{name}.py" for name in MODULES]
    for name in PACKAGES:
        paths += (folder / name).rglob("*.py")
    try:
        found = {f"envlock/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths}
    except OSError as error:
        raise StorageError(
            (error.strerror or str(error)).lower(), where=error.filename, hint="install envlock again"
        ) from error
    return {"__main__.py": MAIN, **found}


def build(package: Path | None = None) -> bytes:
    """Return the zip application; the same sources give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(contents(package).items()):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()
