"""`check` on a node with eight GPUs, against the time that NVML's own calls take.

The driver is the tests' library in C. It takes as long as real ones are said to, and
sums up the time that is spent in it; the rest of the wall time is ours. What its delays
stand for:

- waking a GPU without persistence: one second each, the lower end of the 1 to 3 s that
  NVIDIA's "Driver Persistence" names (docs.nvidia.com);
- opening one that is awake: 90 ms each. A collector in Rust takes 94 to 99 ms from fork
  to exit for one H200 (Dstack-TEE/dstack#1178), nearly all of it in NVML;
- one question: 0.36 ms. 2743 of them a second were counted on a K40m (wookayin/gpustat#76).
"""

import os
import shutil
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

from bench import locks
from bench.measure import BenchError, Row, Run, median, shell

FAKE = locks.ROOT / "tests" / "fakes" / "nvml"
WORLDS = {"off": ("attach=1000000", "delay=360"), "on": ("attach=90000", "delay=360"), "none": ()}
PERSISTENCE = {"off": "persistence off", "on": "persistence on", "none": "a driver that answers at once"}
REACH = 0.2


def row(persistence: str, folder: Path, count: int = 5) -> Row:
    """Return the share of `check`'s wall time that is not spent in NVML, with persistence `on` or `off`."""
    lock, environment = prepare(persistence, folder)
    command = f"{sys.executable} -m envlock check -l {lock}"
    runs = [_once(command, environment, folder / "spent") for _ in range(count + 1)][1:]
    share = statistics.median((ours.seconds - inside.seconds) / ours.seconds for ours, inside in runs)
    return Row(
        name=f"`check`, 8 GPUs, {PERSISTENCE[persistence]}: share above NVML's own calls",
        against="the time inside NVML",
        reach=f"< {REACH:.0%}", ratio=share, ours=median([ours for ours, _ in runs]),
        theirs=median([inside for _, inside in runs]),
        command=f"ENVLOCK_NVML_LIBRARY=LIBRARY {command}".replace(str(folder), "FOLDER"), peer="", met=share < REACH,
    )  # fmt: skip


def prepare(persistence: str, folder: Path) -> tuple[Path, dict[str, str]]:
    """Return a lockfile of the node, and the variables with which envlock meets it."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BenchError("there is no C compiler to make the driver library with")
    folder.mkdir(parents=True, exist_ok=True)
    library, world = folder / "libnvidia-ml.so.1", folder / f"{persistence}.txt"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{library.name}", "-o", library, FAKE / "nvml.c"], check=True
    )
    node = (FAKE / "worlds" / "hgx-h100.txt").read_text()
    world.write_text(node)
    environment = {"ENVLOCK_NVML_LIBRARY": str(library), "ENVLOCK_FAKE_NVML": str(world)}
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        lock = locks.of_this_host(folder / "node.lock.toml")
    finally:
        # The rows after this one are about this machine again.
        os.environ.clear()
        os.environ.update(before)
    # Only now: nobody needs to wait while the lockfile is made.
    world.write_text("\n".join((*WORLDS[persistence], node)))
    return lock, environment


def _once(command: str, environment: dict[str, str], spent: Path) -> tuple[Run, Run]:
    """Return one run of `command`: as a whole, and what of it was spent inside the library."""
    spent.unlink(missing_ok=True)
    begin = time.perf_counter()
    process = subprocess.Popen(
        shell(command), env={**os.environ, **environment, "ENVLOCK_FAKE_NVML_TIME": str(spent)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise BenchError(f"`{command}` ended with {process.returncode}: {said.decode(errors='replace')[-400:]}")
    nanoseconds, _ = struct.unpack("<QQ", spent.read_bytes())
    return Run(seconds=seconds, peak=usage.ru_maxrss / 1024), Run(seconds=nanoseconds / 1e9, peak=0)
