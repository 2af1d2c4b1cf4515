"""The lockfiles that rows need, made here: none is taken from what an earlier day left behind."""

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path

from bench.measure import BenchError
from envlock import lockfile, lockstore
from envlock.facts import UNANSWERED, Observed
from envlock.probe import probe
from envlock.registry import REGISTRY

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "examples" / "torch-cpu" / "envlock.toml"
COMMITTED = ROOT / "lockfiles" / "torch-cpu.lock.toml"
LOCAL = ROOT / "lockfiles" / "local" / "torch-cpu.lock.toml"


def of_this_host(path: Path) -> Path:
    """Write to `path` the committed lockfile with this host, as it is seen now, in place of its own."""
    found = probe()

    def kept(facts: dict[str, Observed]) -> dict[str, Observed]:
        # What this machine cannot answer (it has no kernel module) is no part of the host.
        return {key: seen for key, seen in facts.items() if REGISTRY[key].locked and seen.outcome not in UNANSWERED}

    host = lockfile.host_of(kept(found.host), [kept(gpu.facts) for gpu in found.gpus()])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lockfile.render(dataclasses.replace(lockstore.read(COMMITTED), host=host)))
    return path


@functools.cache
def built() -> Path:
    """Return the lockfile of this host whose image the engine holds and whose golden is recorded; as `make golden`."""
    seed = [] if LOCAL.exists() else ["--seed", str(COMMITTED)]
    _envlock("lock", "-f", str(SPEC), "-l", str(LOCAL), *seed)
    _envlock("build", "-l", str(LOCAL))
    if not lockstore.read(LOCAL).goldens:
        _envlock("canary", "run", "-l", str(LOCAL), "--record")
    return LOCAL


def _envlock(*arguments: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "envlock", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        said = next((line for line in ran.stderr.splitlines() if line.startswith("error:")), "").partition(";")[0]
        raise BenchError(f"`envlock {arguments[0]}`, which it needs, ended with {ran.returncode} ({said})")
