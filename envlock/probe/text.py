"""Facts as text for people: grouped, aligned, absences in words, 80 columns.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, List

from envlock.facts import Facts, Observed
from envlock.probe.text_rows import printable, section, wrap

__all__ = ["printable", "render"]

_TITLES = {
    "cpu": "CPU",
    "system": "System",
    "container": "Containers",
    "python": "Python (that ran this probe)",
    "nvidia": "NVIDIA",
    "gpu": "GPU",
}


def render(facts: Facts, width: int = 80) -> str:
    """Return the facts as text: one line that sums up, then one section for each kind of fact."""
    sections: List[str] = []
    summary = _summary(facts)
    if summary:
        sections.append("\n".join(wrap(summary, width)))
    by_kind: Dict[str, Dict[str, Observed]] = {}
    for key, seen in facts.host.items():
        by_kind.setdefault(key.partition(".")[0], {})[key] = seen
    for kind, found in by_kind.items():
        sections.append(section(_TITLES.get(kind, kind), found, width))
    if facts.gpus():
        from envlock.probe import text_gpu  # most hosts have none to show

        sections += text_gpu.sections(facts.gpus(), width)
    if facts.notes:
        lines = [["  " + line for line in wrap(printable(note), width - 2)] for note in facts.notes]
        sections.append("\n".join(["Notes", *(line for note in lines for line in note)]))
    return "\n\n".join(sections) + "\n"


def _summary(facts: Facts) -> str:
    parts = []
    for key in ("cpu.model_name", "cpu.isa_level", "cpu.threads", "system.distribution", "nvidia.gpu_count"):
        seen = facts.host.get(key)
        if seen is None:
            continue
        if key == "nvidia.gpu_count":
            parts.append(_gpu_words(facts, seen))
        elif seen.has_value:
            version = facts.host.get("system.distribution_version")
            text = printable(seen.text())
            if key == "cpu.threads":
                text += " threads"
            elif key == "system.distribution" and version is not None and version.has_value:
                text += " " + printable(version.text())
            parts.append(text)
    return ", ".join(parts)


def _gpu_words(facts: Facts, count: Observed) -> str:
    names: Dict[str, int] = {}
    for gpu in facts.gpus():
        seen = gpu.facts.get("gpu.name")
        name = printable(seen.text()) if seen is not None and seen.has_value else "GPU without a name"
        names[name] = names.get(name, 0) + 1
    listed = " + ".join("{} x {}".format(number, name) for name, number in names.items())
    if not count.has_value:
        return "NVIDIA GPUs: could not tell" + (" how many; listed: " + listed if listed else "")
    if count.value == 0:
        return "no NVIDIA GPU"
    if count.value == len(facts.gpus()):
        return listed
    noun = "NVIDIA GPU" if count.value == 1 else "NVIDIA GPUs"
    return "{} {}{}".format(count.value, noun, ", of which are listed: " + listed if listed else "")
