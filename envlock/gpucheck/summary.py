"""REPORT.md: what a person reads first.

Standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Tuple

from envlock.canary import strict
from envlock.errors import EXIT_DRIFT, EXIT_MATCH, EXIT_UNKNOWN, worst_exit_code
from envlock.facts import Facts
from envlock.probe.text_rows import words

WORDS = {EXIT_MATCH: "as it should be", EXIT_DRIFT: "a definite difference", EXIT_UNKNOWN: "could not tell"}


class Step(NamedTuple):
    """One thing that was looked at: its code, one line on it, and what was found."""

    name: str
    code: int
    line: str
    findings: Tuple[str, ...] = ()


def code_of(steps: Iterable[Step]) -> int:
    """Return the worst of the codes of `steps`."""
    return worst_exit_code(step.code for step in steps)


def verdict(steps: Iterable[Step]) -> str:
    """Return all of it in one line: the worst of the steps, and which of them made it so."""
    held = list(steps)
    code = code_of(held)
    names = ", ".join(step.name for step in held if step.code == code)
    return WORDS.get(code, "unknown") + (": " + names if code != EXIT_MATCH else "")


def lines_of(steps: Iterable[Step]) -> List[str]:
    """Return the steps as lines for a terminal: name, verdict, and the line."""
    return ["{:<26}{:<24}{}".format(step.name, WORDS.get(step.code, "unknown"), step.line) for step in steps]


def machine(facts: Facts) -> List[str]:
    """Return what machine it is, a line each: driver, CUDA level, and the GPUs counted by model."""
    said = []
    for key, label in (("nvidia.driver", "driver"), ("nvidia.cuda", "CUDA level"), ("nvidia.kernel_module", "module")):
        held = facts.host.get(key)
        if held is not None:
            said.append("{}: {}".format(label, words(key, held)))
    counted: Dict[Tuple[str, ...], int] = {}
    for gpu in facts.gpus():
        keys = ("gpu.name", "gpu.vbios", "gpu.power_limit", "gpu.mig")
        shown = tuple(words(key, gpu.facts[key]) if key in gpu.facts else "?" for key in keys)
        counted[shown] = counted.get(shown, 0) + 1
    for (name, vbios, power, mig), count in sorted(counted.items()):
        said.append("{} x {} (VBIOS {}, power limit {}, MIG {})".format(count, name, vbios, power, mig))
    return said or ["no GPU was seen"]


def mute(facts: Facts) -> List[str]:
    """Return a sentence for each GPU that does not even tell its name: lost, not permitted, or it hangs."""
    found = []
    for gpu in facts.gpus():
        name = gpu.facts.get("gpu.name")
        if name is None or not name.has_value:
            why = "" if name is None else ": {}".format(name.detail or name.text())
            found.append("GPU {} does not answer{}".format(gpu.ident, why))
    return found


def determinism_text() -> str:
    """Return the part of a spec that puts in force what the canaries ran under."""
    from envlock.gpucheck.canaries import THREADS

    return (
        "# What the canaries of this check ran under. Put it into the spec of the environment whose golden\n"
        '# is to be recorded from them.\n[determinism]\nprofile = "strict"\nthreads = {}\n'.format(THREADS)
    )


def report(
    steps: List[Step],
    facts: Facts,
    clocks: List[str],
    libraries: List[Mapping[str, Any]],
    asked: List[str],
    files: List[str],
    recordable: bool,
) -> str:
    """Return REPORT.md."""
    code = code_of(steps)
    parts = ["# GPU check: {}".format(verdict(steps)), ""]
    parts += [
        "Exit code {} (0 all well, 1 a definite difference, 3 could not tell). No setting was changed.".format(code),
        "",
    ]
    parts += ["- {}".format(line) for line in machine(facts)]
    parts += ["", "| what | how it stands | |", "|--|--|--|"]
    parts += ["| {} | {} | {} |".format(step.name, WORDS.get(step.code, "unknown"), _cell(step.line)) for step in steps]
    for step in steps:
        if step.findings:
            parts += ["", "## {}".format(step.name), "", *("- {}".format(text) for text in step.findings[:200])]
            if len(step.findings) > 200:
                parts.append("- and {} more".format(len(step.findings) - 200))
    parts += ["", "## Clocks", "", *("- {}".format(text) for text in clocks)]
    parts += ["", "## CUDA libraries that torch had loaded", "", *_libraries(libraries)]
    parts += ["", "## Recording a golden from this", "", *_golden(recordable)]
    parts += ["", "## What was asked of nvidia-smi", "", "Reading commands only:", ""]
    parts += ["- `nvidia-smi {}`".format(text if len(text) < 160 else text[:150] + "…") for text in asked] or ["- none"]
    parts += [
        "",
        "## Files",
        "",
        "Names of this machine are replaced by dummies of the same shape: serials, UUIDs, PDIs,",
    ]
    parts += [
        "fabric and cluster ids, host and user name, process names. Look through them before you show them to others.",
        "",
    ]
    parts += ["- `{}`".format(name) for name in files]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _libraries(libraries: List[Mapping[str, Any]]) -> List[str]:
    if not libraries:
        return ["None: torch ran on no GPU."]
    rows = ["| library | build id | path |", "|--|--|--|"]
    rows += ["| {name} | `{build-id}` | {path} |".format(**item) for item in libraries]
    return [*rows, "", "Versions, packages and where each comes from: `libraries.json`."]


def libraries_step(document: Mapping[str, Any]) -> Step:
    """Return how the CUDA libraries of the load stand: `document` is `envlock probe --pid`'s, or empty."""
    if "findings" not in document:
        return Step("CUDA libraries", EXIT_UNKNOWN, str(document.get("failure", "nothing was computed on a GPU")))
    found = document["findings"]
    severities = {item["severity"] for item in found}
    code = EXIT_DRIFT if "error" in severities else EXIT_UNKNOWN if "unknown" in severities else EXIT_MATCH
    said = ["{severity}: {what}".format(**item) for item in found]
    return Step(
        "CUDA libraries", code, "{} loaded, {} findings".format(len(document["libraries"]), len(found)), tuple(said)
    )


def _golden(recordable: bool) -> List[str]:
    if not recordable:
        return ["There is none: the canary did not run on a GPU here without a finding."]
    return [
        "`canary-gpu-0.json` holds all outputs of the canary on this GPU under the profile `strict` "
        "({} switches). With a lockfile whose spec has the lines of `determinism.toml`:".format(len(strict.TORCH)),
        "",
        "```",
        "envlock canary record -l lockfiles/NAME.lock.toml canary-gpu-0.json",
        "```",
        "",
        "on any machine that has envlock; or, on this one, with envlock installed beside torch:",
        "",
        "```",
        "envlock canary run --host --backend cuda --record -l lockfiles/NAME.lock.toml",
        "```",
        "",
        "Either writes one `[[golden]]` for this platform class and refuses what is red or not repeatable. "
        "The first reports the UUID of this GPU as a dummy; no golden holds one.",
    ]
