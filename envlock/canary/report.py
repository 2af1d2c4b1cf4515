"""The report: what all processes of one canary run saw, as one JSON document.

The first process gives outputs, settings and class; every other one is compared with it
here, because all of them ran on this host under the same settings. Judging against a
lockfile is `envlock.run.compare`'s work. Described in `docs/schema/canary-report.schema.json`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from envlock.canary import suite
from envlock.canary.request import Request

SCHEMA = "envlock.canary-report/1"

# Each not-repeatable output is named once per process; a run of thousands stays readable.
_MOST_DIFFERENCES = 1000


def failed(text: str, hint: Any = None, request: Any = None, torch: Any = None) -> Dict[str, Any]:
    """Return the report of a run that gave no outputs: the reason in words, the torch that ran if one did."""
    return {
        "schema": SCHEMA,
        "suite": suite.SUITE,
        "outcome": "failed",
        "failure": text,
        "hint": hint,
        "torch": torch,
        "request": None if request is None else shown(request),
    }


def shown(request: Request) -> Dict[str, Any]:
    """Return the request as the report shows it: without the nonce, which is of no use later."""
    document = request.to_document()
    del document["nonce"], document["schema"]
    return document


def merge(request: Request, workers: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return the one report of all `workers`, in the order in which they ran."""
    for number, worker in enumerate(workers, 1):
        if worker.get("outcome") != "ran":
            text = "process {} of {}: {}".format(number, request.processes, worker.get("failure", "gave no outputs"))
            return failed(text, worker.get("hint"), request, worker.get("torch"))
    first = workers[0]
    differences: List[Dict[str, Any]] = []
    for number, worker in enumerate(workers, 1):
        differences.extend({"process": number, **item} for item in worker["differences"])
        if number > 1:
            differences.extend(_between(first, worker, number))
    report = {
        "schema": SCHEMA,
        "suite": suite.SUITE,
        "outcome": "ran",
        "request": shown(request),
        "problems": _once(text for worker in workers for text in worker["problems"]),
        "not-in-force": _once(text for worker in workers for text in worker["not-in-force"]),
        "changed-inputs": _once(name for worker in workers for name in worker["changed-inputs"]),
        "controls": {name: all(worker["controls"][name] for worker in workers) for name in first["controls"]},
        "differences": differences[:_MOST_DIFFERENCES],
        "differences-found": len(differences),
        "milliseconds": [worker["milliseconds"] for worker in workers],
    }
    for key in ("inputs", "platform", "settings", "information", "libraries", "outputs"):
        report[key] = first[key]
    return report


def _between(first: Mapping[str, Any], worker: Mapping[str, Any], number: int) -> List[Dict[str, Any]]:
    """Return what a later process gave otherwise than the first one."""
    found: List[Dict[str, Any]] = []
    if worker["inputs"] != first["inputs"]:
        found.append({"process": number, "run": 1, "name": "inputs", "value": worker["inputs"]})
    for group in ("platform", "settings"):
        for name in sorted(set(first[group]) | set(worker[group])):
            if first[group].get(name) != worker[group].get(name):
                value = worker[group].get(name, "(missing)")
                found.append({"process": number, "run": 1, "name": "{} {}".format(group, name), "value": value})
    values = {item["name"]: item["value"] for item in worker["outputs"]}
    expected = {item["name"]: item["value"] for item in first["outputs"]}
    for name in list(expected) + [name for name in values if name not in expected]:
        if values.get(name) != expected.get(name):
            found.append({"process": number, "run": 1, "name": name, "value": values.get(name, "(missing)")})
    return found


def _once(texts: Any) -> List[str]:
    return list(dict.fromkeys(texts))
