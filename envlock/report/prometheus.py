"""A view as Prometheus text, for the textfile collector of node_exporter.

Written with `-o FILE`, which replaces the file whole. No clock is in it: the collector
tells how old a file is by `node_textfile_mtime_seconds`. Values are no labels: each new
one would be a new series. Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections import Counter

from envlock.drift import Verdict
from envlock.report.view import View

_Sample = tuple[dict[str, str], int]


def render(view: View) -> str:
    """Return the metrics; a failure is the verdict `unknown` with its exit code."""
    name = f"envlock_{view.command}"
    lock = {"lockfile": view.path}
    verdicts = [({**lock, "verdict": verdict.value}, int(verdict.value == view.verdict)) for verdict in Verdict]
    kinds = Counter((item.key, item.device, item.kind, item.level.value) for item in (*view.items, *view.excused))
    drifts = [
        ({**lock, "key": key, "device": device, "kind": kind, "level": level}, number)
        for (key, device, kind, level), number in sorted(kinds.items())
    ]
    lines = [
        *_family(f"{name}_verdict", "The verdict: 1 for the one that holds.", verdicts),
        *_family(
            f"{name}_exit_code",
            "The exit code: 0 match, 1 drift, 2 unusable, 3 unknown, 4 integrity.",
            [(lock, view.exit_code)],
        ),
        *_family(
            f"{name}_facts",
            "How many facts came to what.",
            [({**lock, "state": word}, number) for word, number in view.counts],
        ),
        *_family("envlock_drift", "What is not simply the same, and at which level.", drifts),
    ]
    return "\n".join(lines) + "\n"


def _family(name: str, about: str, samples: list[_Sample]) -> list[str]:
    if not samples:
        return []
    lines = [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
    for labels, number in samples:
        held = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{held}}} {number}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
