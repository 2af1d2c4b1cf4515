"""The peer of a cold build: the same base and the same wheels, installed by pip in the image."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.measure import BenchError
from envlock import lockstore
from envlock.store import Store, default_root

DOCKERFILE = """\
FROM scratch
ADD base.tar /
COPY wheels/ /wheels/
RUN PYTHONDONTWRITEBYTECODE=1 {python} /wheels/{pip}/pip install --quiet --no-compile --no-index \\
    --break-system-packages --root-user-action ignore --target /opt/site {wheels}
"""


def write_context(lock_path: Path, folder: Path) -> Path:
    """Write the peer's build context for the environment locked in `lock_path` and return it."""
    lock = lockstore.read(lock_path)
    store = Store(default_root())
    shutil.rmtree(folder, ignore_errors=True)
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    for wheel in lock.python:
        os.link(store.path(wheel.sha256, wheel.file), wheels / wheel.file)
    pip = fetch_pip(wheels)
    from envlock.image.bootstrap import base_tar

    os.link(base_tar(lock, store), folder / "base.tar")
    names = " ".join(f"/wheels/{wheel.file}" for wheel in lock.python)
    text = DOCKERFILE.format(python=lock.environment.interpreter, pip=pip, wheels=names)
    (folder / "Dockerfile").write_text(text)
    return folder


def fetch_pip(folder: Path) -> str:
    """Download pip's own wheel into `folder` and return its file name."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "pip"]
    if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise BenchError("pip's own wheel cannot be downloaded, so the peer cannot be built")
    return next(folder.glob("pip-*.whl")).name
