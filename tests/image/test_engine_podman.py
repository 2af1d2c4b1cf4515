"""Podman as the engine: a service of our own over its Docker API, with storage of its own."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_fixtures import chunks, python_archive
from fakes import canary_agent

from envlock.digest import sha256
from envlock.errors import EngineError
from envlock.image.engine import Engine, connect
from envlock.image.saved import read_saved
from envlock.run.container import run_canary

NAME = "localhost/envlock-test-podman:1"


@pytest.fixture(scope="module")
def podman() -> Iterator[Engine]:
    """A Podman that answers; skipped with the reason where there is none."""
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.skip("needs root and Podman (Debian: `apt-get install podman`)")
    folder = Path("/var/tmp") / f"envlock-podman-{os.getpid()}"
    folder.mkdir()
    # runc: crun refuses machines that mount both kinds of cgroups.
    runtime = ["--runtime", "runc"] if shutil.which("runc") else []
    storage = ["--root", f"{folder}/root", "--runroot", f"{folder}/run", "--storage-driver", "vfs"]
    url = f"unix://{folder}/s"
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            ["podman", "--cgroup-manager", "cgroupfs", *runtime, *storage, "system", "service", "-t", "0", url],
            stdout=log,
            stderr=log,
        )
    try:
        yield wait_for(url, process, folder / "log")
    finally:
        process.terminate()
        process.wait(20)
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(str(folder)):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> Engine:
    for _ in range(100):
        with contextlib.suppress(EngineError):
            return connect({"DOCKER_HOST": url})
        if process.poll() is not None:
            break
        time.sleep(0.1)
    return pytest.skip(f"Podman's service did not start: {log.read_text()[-300:]}")


@pytest.mark.slow
def test_podman_loads_saves_runs_and_clears_up(podman: Engine) -> None:
    """The same calls, the same digests, the same confinement."""
    archive = python_archive(NAME)

    assert podman.info.name == "Podman Engine"
    podman.load(chunks(archive))
    given = read_saved(chunks(archive), NAME)
    kept = read_saved(podman.save(NAME), NAME)
    assert (kept.config, kept.diff_ids) == (given.config, given.diff_ids)
    assert podman.image_id(NAME) == kept.config
    assert sha256(podman.read_file(NAME, "/etc/passwd")).startswith("sha256:")

    try:
        report = run_canary(podman, NAME, None, {"mode": "answer"}, {"A": "b"}, 60.0, agent=canary_agent.packed())
    except EngineError as error:
        if "error setting rlimit" not in str(error):
            raise
        pytest.skip(f"Podman 4 raises limits that this machine does not allow: {error}")

    assert report["container"]["engine"] == "Podman Engine"
    assert report["container"]["image"] == kept.config
    assert report["container"]["confined"]["CapEff"] == "0000000000000000"
    assert report["env"]["A"] == "b"
    assert "container" not in report["env"]
    assert podman.containers("dev.envlock.owner") == ()
    assert podman.reap() == ()
    assert podman.remove_image(NAME)
