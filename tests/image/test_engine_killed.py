"""A real dockerd of our own, killed while it works: in words, in time, and the next one goes on."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_fixtures import archive_of, chunks, python_layer, tar_of

from envlock.errors import EngineError
from envlock.image.engine import Engine, connect, temporary_tag

pytestmark = [pytest.mark.engine, pytest.mark.slow]


class Daemon:
    """A dockerd with folders of its own in `folder`, and no network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/s"
        self.process: subprocess.Popen[bytes] | None = None
        self.worked = False

    def start(self) -> Engine:
        folder = self.folder
        arguments = ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"]
        quiet = ["--iptables=false", "--ip6tables=false", "--bridge=none"]
        (folder / "s").unlink(missing_ok=True)
        (folder / "pid").unlink(missing_ok=True)
        # A machine whose process 1 reaps nobody keeps the dead containerd's number in use.
        (folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)
        with open(folder / "log", "ab") as log:
            self.process = subprocess.Popen(["dockerd", "-H", self.url, *arguments, *quiet], stdout=log, stderr=log)
        for _ in range(150):
            with contextlib.suppress(EngineError):
                engine = connect({"DOCKER_HOST": self.url})
                self.worked = True
                return engine
            if self.process.poll() is not None:
                break
            time.sleep(0.2)
        said = f"dockerd did not start: {(folder / 'log').read_text()[-300:]}"
        if self.worked:
            pytest.fail(said)
        pytest.skip(said)

    def kill(self) -> None:
        """Kill dockerd and the containerd that it started, as a power cut would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)  # first: it would start containerd again
        self.process.wait()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.folder / "exec/containerd/containerd.pid").read_text()), signal.SIGKILL)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            if self.process.poll() is None:
                self.kill()


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("starting a dockerd of our own needs root and dockerd")
    folder = Path("/var/tmp") / f"envlock-killed-{os.getpid()}"  # not on tmpfs: overlay2 needs a real disk
    folder.mkdir()
    own = Daemon(folder)
    try:
        yield own
    finally:
        own.stop()
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(str(folder)):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def fails(call: Callable[[Callable[[], None]], object], kill: Callable[[], None]) -> str:
    """Return the error of `call`, which calls what it is given when `kill` is due; it comes within 2 s of that."""
    killed = 0.0

    def strike() -> None:
        nonlocal killed
        if not killed:
            kill()
            killed = time.monotonic()

    with pytest.raises(EngineError) as caught:
        call(strike)
    assert killed
    assert time.monotonic() - killed < 2.0
    assert caught.value.exit_code == 3
    return str(caught.value)


def test_a_dockerd_killed_in_a_build_a_save_and_a_load_is_an_error_and_the_next_one_works(daemon: Daemon) -> None:
    """Each time: exit 3 within 2 s, and the daemon that comes back builds, loads and clears up."""
    name = "envlock-test-killed:1"
    engine = daemon.start()
    steps = "".join(f'RUN ["/opt/venv/bin/python", "-c", "import time; time.sleep({at})"]\n' for at in (0, 30))
    context = tar_of({"Dockerfile": f"FROM {name}\n{steps}".encode()})
    engine.load(chunks(archive_of([python_layer(), tar_of({"tmp/x": b""})], name)))

    def build(strike: Callable[[], None]) -> None:
        # The log's second step begins: the daemon is at work in a container.
        engine.build(chunks(context), temporary_tag(), lambda line: strike() if "Step 3/3" in line else None)

    assert "the build failed: " in fails(build, daemon.kill)

    engine = daemon.start()

    def save(strike: Callable[[], None]) -> None:
        for _ in engine.save(name):
            strike()

    assert "cannot save image" in fails(save, daemon.kill)

    engine = daemon.start()
    parts = list(chunks(archive_of([python_layer(), tar_of({"tmp/y": os.urandom(8 << 20)})], "envlock-test-killed:2")))

    def load(strike: Callable[[], None]) -> None:
        def sent() -> Iterator[bytes]:
            for number, part in enumerate(parts):
                if number == len(parts) // 2:
                    strike()
                yield part

        engine.load(sent())

    assert "cannot load the image" in fails(load, daemon.kill)

    engine = daemon.start()
    engine.load(iter(parts))
    assert engine.inspect_image("envlock-test-killed:2") is not None
