"""The main job on this host, end to end: lock, build, canary, check, and a summary.

Works on a lockfile of this host's own (`lockfiles/local/`, ignored by Git), seeded with
the pins of the committed golden lockfile, and says how the two stand to each other. The
committed file is never written, and this host being another one is never a failure.
Run by `make golden`, inside the project's virtual environment.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from envlock import drift, lockdiff, lockstore
from envlock.difference import Change, Difference
from envlock.errors import EnvlockError, worst_exit_code
from envlock.lockfile import Lockfile
from envlock.run import compare

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "examples/torch-cpu/envlock.toml"
COMMITTED = ROOT / "lockfiles/torch-cpu.lock.toml"
LOCAL = ROOT / "lockfiles/local/torch-cpu.lock.toml"
OUT = ROOT / ".golden"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command that was run: its exit code, its document, and how long it took."""

    name: str
    code: int
    document: dict[str, Any]
    seconds: float


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run(name: str, *arguments: str | Path, answer: Path | None = None) -> Step:
    """Run one envlock command; its progress goes to the terminal, its document to `answer`."""
    given = [name, *(relative(a) if isinstance(a, Path) else a for a in arguments)]
    argv = [sys.executable, "-m", "envlock", *given]
    shown = " ".join(["envlock", *given])
    print(f"\n$ {shown}", file=sys.stderr, flush=True)
    begin = time.monotonic()
    if answer is not None:
        answer.unlink(missing_ok=True)
    code = subprocess.run(argv, stdout=subprocess.DEVNULL if answer else None, check=False, cwd=ROOT).returncode
    document = json.loads(answer.read_text()) if answer is not None and answer.exists() else {}
    return Step(name=shown.split(" -")[0], code=code, document=document, seconds=time.monotonic() - begin)


def locked(step: Step) -> Step:
    """Return `step`, or leave with its exit code: nothing after it could tell anything."""
    if step.code != 0:
        print(f"\ngolden: `{step.name}` ended with exit code {step.code}; stopped here", file=sys.stderr)
        sys.exit(step.code)
    return step


def job() -> tuple[Lockfile, list[Step]]:
    """Run the four commands and return this host's lockfile and what they answered."""
    OUT.mkdir(exist_ok=True)
    seed: list[str | Path] = ["--seed", COMMITTED] if COMMITTED.exists() and not LOCAL.exists() else []
    steps = [locked(run("lock", "-f", SPEC, "-l", LOCAL, *seed))]
    built = run("build", "-l", LOCAL, "--format", "json", "-o", OUT / "build.json", answer=OUT / "build.json")
    steps.append(locked(built))
    known = lockstore.read(LOCAL).goldens
    record = [] if known else ["--record"]
    report = OUT / "canary.json"
    steps.append(run("canary", "run", "-l", LOCAL, *record, "--format", "json", "-o", report, answer=report))
    answer = OUT / "check.json"
    steps.append(run("check", "-l", LOCAL, "--format", "json", "-o", answer, answer=answer))
    return lockstore.read(LOCAL), steps


def moved(ours: Lockfile, theirs: Lockfile) -> str:
    """Return in one line which packages differ between two lockfiles."""
    found = lockdiff.diff_lockfiles(theirs, ours).found
    changes = [told(difference) for difference in found if difference.section in ("python", "apt")]
    if not changes:
        return "the same packages"
    more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
    return f"{len(changes)} packages moved: {', '.join(changes[:5])}{more}"


def told(difference: Difference) -> str:
    """Return one package's difference in a few words."""
    words = {
        Change.REMOVED: "gone",
        Change.ADDED: f"{difference.after} new",
        Change.CHANGED: f"{difference.before} -> {difference.after}",
        Change.OTHER_FILE: "another file of the same version",
    }
    return f"{difference.key} {words[difference.change]}"


def against_committed(lock: Lockfile, report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return how this host's environment stands to the committed one, a line each."""
    if not COMMITTED.exists():
        return [("nothing", "this clone holds no committed lockfile")]
    committed = lockstore.read(COMMITTED)
    if lock.image is None or committed.image is None:
        image = "could not tell: one of the two holds no image"
    elif (lock.image.config, lock.image.layers) == (committed.image.config, committed.image.layers):
        image = "EQUAL: this host built the very same image, byte for byte"
    else:
        image = f"differs ({moved(lock, committed)})"
    lines = [("image digest", image), ("host facts", host_line(committed))]
    judgement = compare.judge(report, committed) if report else None
    lines.append(("golden outputs", golden_line(judgement)))
    return lines


def host_line(committed: Lockfile) -> str:
    from envlock.probe import probe

    if committed.host is None:
        return "the committed lockfile holds none"
    drifts = drift.drift_of_facts(committed.host, probe(), committed.policy, datetime.now(UTC).date())
    differing = [found for found in drifts if found.verdict is drift.Verdict.DRIFT]
    if not drifts:
        return "the same in every locked fact"
    differ = "1 fact differs" if len(differing) == 1 else f"{len(differing)} facts differ"
    names = sorted({found.key for found in drifts})
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return f"another machine: {differ}, {len(drifts) - len(differing)} not known ({shown})"


def golden_line(judgement: Any) -> str:
    if judgement is None:
        return "no report"
    if judgement.golden_known is False:
        return "new class: no host like this one has recorded a golden there"
    return f"known class: {judgement.verdict.value}"


def summary(lock: Lockfile, steps: list[Step]) -> int:
    """Print what a person reads in five seconds, and return the worst exit code."""
    by_name = {step.name: step for step in steps}
    canary, check = by_name["envlock canary run"], by_name["envlock check"]
    judged = canary.document.get("judgement", {})
    tiers = "  ".join(
        f"{tier} {counts['passed']}/{counts['total']}" for tier, counts in judged.get("tiers", {}).items()
    )
    rows = [
        ("inputs digest", str(lock.inputs())),
        ("image digest", str(lock.image.config) if lock.image else "none"),
        ("canary", f"{judged.get('verdict', 'unknown')}   {tiers}"),
        ("host drift", check.document.get("verdict", "unknown")),
        ("", ""),
        (f"against {relative(COMMITTED)}", ""),
        *((f"  {name}", text) for name, text in against_committed(lock, canary.document)),
        ("", ""),
        ("lockfile", relative(LOCAL)),
        ("reports", f"{relative(OUT)}/"),
        *([("engine", f"export DOCKER_HOST={named}")] if (named := os.environ.get("DOCKER_HOST")) else []),
        ("took", "  ".join(f"{step.name.split()[1]} {step.seconds:.1f} s" for step in steps)),
    ]
    print("\n" + "─" * 78)
    for name, text in rows:
        print(f"  {name:<18}{text}".rstrip() if text else f"  {name}".rstrip())
    print("─" * 78)
    code = worst_exit_code(step.code for step in steps)
    if code == 0:
        print("  next: an environment of your own: `.venv/bin/envlock init` (README.md, A tour), or `make test`")
    else:
        print(f"  exit code {code}: see above (docs/exit-codes.md says what it means)")
    return code


def main() -> int:
    os.environ.setdefault("COLUMNS", "100")
    try:
        lock, steps = job()
        return summary(lock, steps)
    except EnvlockError as error:
        print(f"error: {error}" + (f"\n\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
