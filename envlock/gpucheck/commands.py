"""Every nvidia-smi command that the GPU check may start: reading ones, in one table.

nvidia-smi also sets things (`-pl`, `-pm`, `-ac`, `-lgc`, `-mig`, `-e`, `-c`, `-r`, …).
None of those is here, and what is not here is not started: `SmiProgram.ask` refuses it.

Standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from envlock import process
from envlock.errors import ToolError
from envlock.gpucheck.budget import Budget
from envlock.process import Overdue

DEADLINE = 90.0
"""Seconds for one command: without persistence the first one wakes every GPU."""


class Read(NamedTuple):
    """One command whose output is kept: the file it goes to, and its arguments."""

    file: str
    argv: Tuple[str, ...]


XML = Read("nvidia-smi-q-x.xml", ("-q", "-x"))
FIELDS = Read("nvidia-smi-help-query-gpu.txt", ("--help-query-gpu",))
RECORDED = (
    XML,
    Read("nvidia-smi-version.txt", ("--version",)),
    Read("nvidia-smi-L.txt", ("-L",)),
    Read("nvidia-smi-q.txt", ("-q",)),
    Read("nvidia-smi-topo-m.txt", ("topo", "-m")),
    Read("nvidia-smi-nvlink-s.txt", ("nvlink", "-s")),
    FIELDS,
)
QUERY_FILE = "nvidia-smi-query-gpu.csv"

# From driver 535 on they are called event reasons; before, throttle reasons.
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
SAMPLED = (
    "index", "uuid", "pstate", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "enforced.power.limit",
    "utilization.gpu", "temperature.gpu",
)  # fmt: skip

_QUERY = re.compile(r"--query-gpu=[a-zA-Z0-9_.]+(,[a-zA-Z0-9_.]+)*")
_FORMATS = ("--format=csv", "--format=csv,noheader,nounits")


def reads_only(argv: Sequence[str]) -> bool:
    """Return whether these arguments of nvidia-smi are ones that only read."""
    if tuple(argv) in {read.argv for read in RECORDED}:
        return True
    return len(argv) == 2 and bool(_QUERY.fullmatch(argv[0])) and argv[1] in _FORMATS


def query(fields: Sequence[str], bare: bool = False) -> Tuple[str, str]:
    """Return the arguments that print `fields` of every GPU; `bare` without header and units."""
    return "--query-gpu=" + ",".join(fields), _FORMATS[1] if bare else _FORMATS[0]


def fields_in(help_text: str) -> List[str]:
    """Return the fields that `--help-query-gpu` names: each at the start of a line, in quotes, its first name."""
    return re.findall(r'^"([a-zA-Z0-9_.]+)"', help_text, re.MULTILINE)


class Answer(NamedTuple):
    """What one command gave. `failure` is in words, and empty when it ran to its end with status 0."""

    argv: Tuple[str, ...]
    stdout: bytes
    stderr: bytes
    failure: str


class SmiProgram:
    """nvidia-smi at `path`, within `budget`. After one command that never answered nothing more is asked of it."""

    def __init__(self, path: Optional[str], budget: Optional[Budget] = None, deadline: float = DEADLINE) -> None:
        self._path = path
        self._deadline = deadline
        self._budget = budget or Budget(float("inf"))
        self.asked: List[Answer] = []
        self.hangs = ""

    @property
    def there(self) -> bool:
        """Whether there is such a program at all."""
        return self._path is not None

    def ask(self, argv: Sequence[str]) -> Answer:
        """Run nvidia-smi with `argv` and return what it gave; `ValueError` for arguments that are no reading ones."""
        if not reads_only(argv):
            raise ValueError("nvidia-smi is never started with {!r} here".format(list(argv)))
        answer = self._answer(tuple(argv))
        self.asked.append(answer)
        return answer

    def _answer(self, argv: Tuple[str, ...]) -> Answer:
        if self._path is None:
            return Answer(argv, b"", b"", "nvidia-smi is not on PATH")
        if self.hangs:
            return Answer(argv, b"", b"", "not asked: " + self.hangs)
        seconds = self._budget.share(self._deadline)
        try:
            ended = process.run([self._path, *argv], seconds)
        except Overdue:
            # It may sit in the driver where no signal reaches it; a second one would sit there too.
            shown = " ".join(("nvidia-smi", *argv))
            self.hangs = "`{}` gave no answer within {:g} s, and was left behind".format(shown, seconds)
            return Answer(argv, b"", b"", self.hangs)
        except ToolError as error:
            return Answer(argv, b"", b"", error.message)
        said = (ended.stderr.strip() or ended.stdout.strip()).decode("utf-8", "replace").splitlines()
        failure = "" if ended.status == 0 else "ended with status {}: {}".format(ended.status, said[-1] if said else "")
        return Answer(argv, ended.stdout, ended.stderr, failure)
