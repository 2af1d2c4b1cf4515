"""`scripts/engine.sh`: what `make` evaluates, what a person reads; nothing is installed or started here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.daemon import FakeDaemon

SCRIPT = Path(__file__).resolve().parents[1] / "scripts/engine.sh"

pytestmark = pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("mmdebstrap") is None, reason="as root the script would install mmdebstrap"
)


def run(tmp_path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    places = {"ENVLOCK_ENGINE_RUN": f"{tmp_path}/run", "ENVLOCK_ENGINE_DATA": f"{tmp_path}/data"}
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ENVLOCK_PYTHON": sys.executable}
    return subprocess.run(
        [str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**base, **places, **environ},
    )


def test_an_engine_that_answers_needs_no_word_on_standard_output(tmp_path: Path) -> None:
    """What `make` evaluates is empty; one line says which engine it is."""
    with FakeDaemon() as daemon:
        done = run(tmp_path, DOCKER_HOST=daemon.url)

    assert (done.returncode, done.stdout) == (0, "")
    assert "engine: Docker 20.10.24, overlay2, by unix" in done.stderr


def test_an_engine_that_was_named_and_does_not_answer_is_never_replaced(tmp_path: Path) -> None:
    """Exit 3, with the reason, and nothing was started."""
    done = run(tmp_path, DOCKER_HOST=f"unix://{tmp_path}/none")

    assert (done.returncode, done.stdout) == (3, "")
    assert "no such socket" in done.stderr
    assert "hint: the engine was named by DOCKER_HOST or DOCKER_CONTEXT" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts an engine")
def test_the_engine_that_was_started_from_here_is_started_again_when_it_has_ended(tmp_path: Path) -> None:
    """A shell still names its socket by DOCKER_HOST; a process that is gone is no noise."""
    program = tmp_path / "bin/dockerd"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/docker.pid").write_text(str(ended.pid))

    done = run(
        tmp_path, DOCKER_HOST=f"unix://{tmp_path}/run/docker.sock", PATH=f"{program.parent}:{os.environ['PATH']}"
    )

    assert (done.returncode, done.stdout) == (3, "")
    assert "engine: starting dockerd" in done.stderr
    assert "No such file" not in done.stderr.partition("dockerd did not come up")[0]


def test_stopping_ends_nothing_that_was_not_started_here(tmp_path: Path) -> None:
    """A process file that names somebody else's process is not believed."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/docker.pid").write_text(str(os.getpid()))

    done = run(tmp_path, "stop")

    assert done.returncode == 0
    assert "nothing to stop" in done.stderr


def test_without_the_virtual_environment_it_says_what_to_run_first(tmp_path: Path) -> None:
    """The search is envlock's own, so envlock must be there."""
    done = run(tmp_path, ENVLOCK_PYTHON=f"{tmp_path}/none")

    assert done.returncode == 3
    assert "run `scripts/venv.sh` first" in done.stderr
