"""What several tests of the image need and is dear to make."""

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def essential(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """The essential packages of this host's Debian, downloaded by its apt."""
    for tool in ("apt-get", "dpkg-deb", "mmdebstrap"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = tmp_path_factory.mktemp("debs")
    (folder / "partial").mkdir()
    options = ["-o", "Dir::State::status=/dev/null", "-o", f"Dir::Cache::archives={folder}", "-o", "Debug::NoLocking=1"]
    argv = ["apt-get", *options, "-o", "APT::Sandbox::User=root", "-y", "--no-install-recommends", "--download-only"]
    done = subprocess.run([*argv, "install", "?essential", "mawk"], capture_output=True, check=False)
    found = tuple(sorted(folder.glob("*.deb")))
    if done.returncode != 0 or not found:
        pytest.skip(f"apt cannot download the essential packages: {done.stderr.decode()[-200:]}")
    return found
