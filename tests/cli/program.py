"""The real program in a child process: what it printed, and the code it ended with."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARGV = (sys.executable, "-m", "envlock")


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output, which must be one JSON document and nothing else."""
        return json.loads(self.out)


def environment(**changed: str) -> dict[str, str]:
    """Return an environment without anything that steers envlock or colours, with `changed` on top."""
    steering = ("ENVLOCK_", "DOCKER_", "CLICOLOR", "FORCE_COLOR", "NO_COLOR")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(steering) and name != "CI"}
    return {**kept, **changed}


def engine_environment() -> dict[str, str]:
    """Return the variables that name the engine of this test run, for a test that needs it."""
    return {name: text for name, text in os.environ.items() if name.startswith("DOCKER_")}


def envlock(
    *arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Ended:
    """Run `envlock` with `arguments` and return how it ended."""
    finished = subprocess.run(
        [*ARGV, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env={**environment(), **(env or {})},
        timeout=60,
        check=False,
    )
    return Ended(finished.returncode, finished.stdout.decode(), finished.stderr.decode())
