"""`python -m bench [NAME …]`: measure and print the table, in Markdown.

Each row makes what it needs (`bench.locks`); where an engine or torch is missing, it says so instead.
"""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import locks
from bench.measure import BenchError, Row, against, within

SCRATCH = Path(tempfile.gettempdir()) / "envlock-bench"
PYTHON = sys.executable
ENVLOCK = f"{PYTHON} -m envlock"


def bare_start() -> str:
    """Return the peer of every start-up row: a Python that does nothing."""
    return f"{PYTHON} -c pass"


def help_row() -> Row:
    return against("`envlock --help`", f"{ENVLOCK} --help", "`python3 -c pass`", bare_start(), 8, count=15)


def check_row() -> Row:
    lock = locks.of_this_host(SCRATCH / "host.lock.toml")
    return against("`check`", f"{ENVLOCK} check -l {lock}", "`python3 -c pass`", bare_start(), 15, count=15)


def gpus_row(persistence: str) -> Row:
    from bench import nvml

    return nvml.row(persistence, SCRATCH / "nvml")


def probe_row() -> Row:
    return against(
        "`probe`", f"{ENVLOCK} probe --format json", "`torch.utils.collect_env`",
        f"{PYTHON} -m torch.utils.collect_env", 1 / 20, count=3,
    )  # fmt: skip


def lock_check_row() -> Row:
    SCRATCH.mkdir(exist_ok=True)
    spec, lock = write_big_lock(SCRATCH)
    read = f"{PYTHON} -c \"import tomllib; tomllib.load(open('{lock}', 'rb'))\""
    return against(
        "`lock --check`, 500 packages", f"{ENVLOCK} lock --check -f {spec} -l {lock}", "tomllib", read, 3, count=9
    )


def write_big_lock(folder: Path) -> tuple[Path, Path]:
    """Write a spec and its lockfile of 500 wheels; the packages do not exist, the format does."""
    from envlock import lockfile, lockstore
    from envlock.digest import sha256
    from envlock.spec import read

    spec = folder / "envlock.toml"
    spec.write_text(locks.SPEC.read_text())
    lock = lockstore.read(locks.COMMITTED)
    wheels = [
        lockfile.PythonPackage(
            name=f"package-{n}", version=f"1.{n}", index="default", file=f"package_{n}-1.{n}-py3-none-any.whl",
            size=1000 + n, sha256=sha256(str(n).encode()),
        )
        for n in range(500)
    ]  # fmt: skip
    import dataclasses

    environment = dataclasses.replace(lock.environment, spec=read(spec).digest())
    big = dataclasses.replace(
        lock, environment=environment, python=tuple(sorted(wheels, key=lambda w: w.name)), image=None, goldens=()
    )
    path = folder / "big.lock.toml"
    path.write_text(lockfile.render(big))
    return spec, path


def canonical_row() -> Row:
    lock = locks.built()
    image = image_reference(lock)
    out = SCRATCH / "canonical.tar"
    out.parent.mkdir(exist_ok=True)
    return against(
        "canonical image", f"{PYTHON} -m bench.canonical {image} {lock} {out}", "`docker save IMAGE | sha256sum`",
        f"docker save {image} | sha256sum", 2, count=3,
    )  # fmt: skip


def build_row() -> Row:
    lock = locks.built()
    context = pip_context(lock)
    tag = "envlock-bench-pip:latest"
    # An engine that holds the layers already would load nothing: both begin without them.
    forget = f"docker rmi -f {image_reference(lock)} {tag} >/dev/null 2>&1 || true"
    return against(
        "cold `build`, warm store", f"{ENVLOCK} build --force -l {lock}", "`docker build` + pip, from disk",
        f"docker build -q --no-cache --network none -t {tag} {context}", 1, count=1, reset=forget,
    )  # fmt: skip


def noop_build_row() -> Row:
    return within("`build`, nothing changed", f"{ENVLOCK} build -l {locks.built()}", 0.5)


def canary_tiers_row() -> Row:
    return within("canary T1+T2, one process", f"{PYTHON} -m bench.canary t1 t2", 5, count=3)


def canary_row() -> Row:
    return within("canary, container included", f"{ENVLOCK} canary run -l {locks.built()}", 20, count=3)


ROWS: dict[str, Callable[[], Row]] = {
    "help": help_row,
    "check": check_row,
    "gpus-off": lambda: gpus_row("off"),
    "gpus-on": lambda: gpus_row("on"),
    "probe": probe_row,
    "lock-check": lock_check_row,
    "noop-build": noop_build_row,
    "canonical": canonical_row,
    "build": build_row,
    "canary-tiers": canary_tiers_row,
    "canary": canary_row,
}


def image_reference(lock: Path) -> str:
    """Return the name under which the engine holds the locked image of this host."""
    from envlock.image.operation import full_name
    from envlock.lockstore import read

    return full_name(read(lock))


def pip_context(lock: Path) -> Path:
    """Write the peer's context: the same base and wheels, installed by pip in the image."""
    from bench.pip_peer import write_context

    return write_context(lock, SCRATCH / "pip")


def machine() -> str:
    """Return the machine in words, as the table's caption."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    docker = shutil.which("docker") or "no docker client"
    python = platform.python_version()
    return f"{os.cpu_count()} × {model}, Linux {platform.release()}, Python {python}, {Path(docker).name}"


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        print(f"error: no such row: {', '.join(unknown)}\n\nhint: rows: {', '.join(ROWS)}", file=sys.stderr)
        return 2
    print(f"{machine()}\n")
    print("| what | against | ratio | reach | ours | theirs | peak | met |\n|--|--|--|--|--|--|--|--|")
    commands: list[str] = []
    for name in names or list(ROWS):
        try:
            row = ROWS[name]()
        except BenchError as error:
            print(f"| {name} | not measured: {error} | | | | | | no |", flush=True)
            continue
        theirs = f"{row.theirs.seconds:.3f} s" if row.theirs else ""
        print(
            f"| {row.name} | {row.against} | {row.ratio:.3f} | {row.reach} | {row.ours.seconds:.3f} s | {theirs} "
            f"| {row.ours.peak:.0f} MiB | {'yes' if row.met else 'no'} |",
            flush=True,
        )
        commands += [f"- {row.name}: `{row.command}`" + (f" against `{row.peer}`" if row.peer else "")]
    print("\nCommands:\n\n" + "\n".join(commands).replace(f"{locks.ROOT}/", "").replace(PYTHON, "python3"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
