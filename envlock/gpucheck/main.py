"""The check itself, step by step; each one has its own deadline and none stops the others.

Standard library only but torch in the children, Python 3.8 and newer.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional

from envlock.canary import main as canary
from envlock.canary import platform
from envlock.errors import EXIT_MATCH, EXIT_UNKNOWN
from envlock.facts import Facts
from envlock.gpucheck import canaries, clocks, commands, folder, sources, summary
from envlock.gpucheck.scrub import Scrubber
from envlock.gpucheck.summary import Step
from envlock.probe import probe
from envlock.probe.live import LiveHost

Say = Callable[[str], None]

# Its own program: a path on sys.path may be a checkout that nobody may write to.
_LOAD = (
    "import sys; sys.path.insert(0, sys.argv[1]); from envlock.gpucheck.load import main; sys.exit(main(sys.argv[2:]))"
)


class Check:
    """One check of this machine. `wanted` is the folder for the results, None: a new one here."""

    def __init__(self, wanted: Optional[str], say: Say) -> None:
        self.say = say
        self.host = LiveHost()
        self.smi = commands.SmiProgram(self.host.program("nvidia-smi"))
        self.scrubber = Scrubber(secrets.token_bytes(32))
        name = time.strftime("gpu-check-%Y-%m-%d")
        self.folder = folder.opened(wanted or _free(name), name, self.scrubber)
        self.recordings: Dict[str, commands.Answer] = {}
        self.steps: List[Step] = []
        self.faults: List[str] = []
        self.torch = canaries.Torch("", ("-I",))
        self.facts = Facts({})
        self.told: List[sources.Source] = []
        self.results: List[canaries.Result] = []
        self.seen = clocks.Seen((), (), "", {}, "")

    def run(self) -> int:
        """Do all of it, write the folder, and return the exit code."""
        self.say("results go to {}".format(self.folder.path))
        self._names()
        for name, step in (
            ("nvidia-smi", self._record),
            ("probe", self._probe),
            ("canary", self._canaries),
            ("clocks", self._clocks),
        ):
            try:
                step()
            except Exception:  # hours of a rented machine must not be lost to one fault of ours: it is written down
                self.faults.append(traceback.format_exc())
                self._step(name, EXIT_UNKNOWN, "a fault of envlock: see faults.txt, and please report it")
        return self._write()

    def _names(self) -> None:
        self.scrubber.learn_name(socket.gethostname())
        home = os.path.basename(os.path.expanduser("~"))
        self.scrubber.learn_name(home)

    def _record(self) -> None:
        """Record every reading command; what is learnt from them is scrubbed everywhere."""
        if not self.smi.there:
            self._step("nvidia-smi", EXIT_UNKNOWN, "is not on PATH")
            return
        self.say("recording nvidia-smi")
        for read in commands.RECORDED:
            self.recordings[read.file] = self.smi.ask(read.argv)
        fields = commands.fields_in(_text(self.recordings[commands.FIELDS.file].stdout))
        if fields:
            self.recordings[commands.QUERY_FILE] = self.smi.ask(commands.query(fields))
        failed = [
            "`nvidia-smi {}` {}".format(" ".join(one.argv), one.failure)[:300] for one in self.smi.asked if one.failure
        ]
        done = len(self.smi.asked) - len(failed)
        code = EXIT_UNKNOWN if self.recordings[commands.XML.file].failure or self.smi.hangs else EXIT_MATCH
        self._step("nvidia-smi", code, "{} of {} commands answered".format(done, len(self.smi.asked)), failed)
        for answer in self.recordings.values():
            self.scrubber.learn(_text(answer.stdout))

    def _probe(self) -> None:
        """Probe as `envlock probe` does, then each source alone, and compare the two."""
        self.say("probing")
        self.facts = probe(host=self.host)
        answer = self.recordings.get(commands.XML.file)
        output, failure = (answer.stdout, answer.failure) if answer else (b"", "nvidia-smi is not on PATH")
        self.told = [sources.by_nvml(self.host), sources.by_smi(output, failure)]
        for facts in [self.facts, *(source.facts for source in self.told if source.facts is not None)]:
            self.scrubber.learn_facts(
                [facts.to_document()["host"], *(gpu["facts"] for gpu in facts.to_document()["devices"])]
            )
        count = sources.gpus_of(self.told) or len(self.facts.gpus())
        line = "{} seen".format(count) if count else "no GPU is seen by NVML, nvidia-smi or on the PCI bus"
        self._step("GPUs", EXIT_MATCH if count else EXIT_UNKNOWN, line, self.facts.notes)
        compared = sources.compare(*self.told)
        line = compared.failure or "{} facts agree, {} do not".format(compared.agreeing, len(compared.disagreements))
        self._step("NVML and nvidia-smi", compared.code, line, compared.disagreements)

    def _canaries(self) -> None:
        torch = self.torch = canaries.find_torch()
        if torch.origin and "-I" not in torch.flags:
            self.say("torch is the user's own or comes through PYTHONPATH: children are not isolated from those")
        self.say("running the canary on the GPU: 2 processes, 2 runs each")
        first = canaries.judged("GPU 0", canaries.run(torch, platform.CUDA, 2, 2), platform.CUDA)
        self.results.append(first)
        if first.report.get("outcome") == "ran":
            others = len(canaries.gpus_in(first.report)) - 1
            if others:
                self.say("running the canary on {} other GPUs, once each".format(others))
            self.results.extend(canaries.on_other_gpus(torch, first))
        self.say("running the canary on the CPU: 2 processes, 2 runs each")
        self.results.append(canaries.judged("CPU", canaries.run(torch, platform.CPU, 2, 2), platform.CPU))
        for result in self.results:
            self._step("canary on " + result.label, result.code, _described(result), result.findings)

    def _clocks(self) -> None:
        ran = bool(self.results) and self.results[0].report.get("outcome") == "ran"
        if not self.smi.there or self.smi.hangs:
            self.seen = clocks.Seen((), (), "", {}, self.smi.hangs or "nvidia-smi is not on PATH")
            self.steps.append(summary.libraries_step({}))
            return
        if ran:
            self.say("looking at the clocks under load: {:g} seconds".format(clocks.LOAD_SECONDS))
        argv = canary.command("worker")
        load = canaries.child(self.torch, [*argv[:3], _LOAD, argv[4], str(clocks.LOAD_SECONDS)])
        self.seen = clocks.watch(self.smi, load if ran else None, canaries.environment(self.torch, {}))
        self.steps.append(summary.libraries_step(self.seen.load.get("libraries", {})))

    def _write(self) -> int:
        out = self.folder
        for name, answer in self.recordings.items():
            if answer.stdout or answer.stderr:
                out.text("recordings/" + name, _text(answer.stdout) + _text(answer.stderr))
        out.json("facts.json", self.facts.to_document())
        for source in self.told:
            document = source.facts.to_document() if source.facts is not None else {"failure": source.failure}
            out.json("facts-{}.json".format(source.name.lower()), document)
        for result in self.results:
            out.json("canary-{}.json".format(result.label.lower().replace(" ", "-")), dict(result.report))
        out.json("clocks.json", clocks.document(self.seen))
        if self.seen.load.get("libraries"):
            out.json("libraries.json", self.seen.load["libraries"])
        out.text("determinism.toml", summary.determinism_text())
        if self.faults:
            out.text("faults.txt", "\n".join(self.faults))
        out.json("summary.json", self._document())
        out.text("REPORT.md", self._report())
        return summary.code_of(self.steps)

    def _document(self) -> Dict[str, Any]:
        return {
            "schema": "envlock.gpu-check/1",
            "exit-code": summary.code_of(self.steps),
            "steps": [
                {"name": step.name, "exit-code": step.code, "line": step.line, "findings": list(step.findings)}
                for step in self.steps
            ],
        }

    def _report(self) -> str:
        first = self.results[0] if self.results else None
        return summary.report(
            self.steps,
            self.facts,
            clocks.words(self.seen),
            canaries.nvidia_libraries(first.report) if first else [],
            list(dict.fromkeys(" ".join(answer.argv) for answer in self.smi.asked)),
            [*self.folder.files, "REPORT.md"],
            recordable=first is not None and first.code == EXIT_MATCH,
        )

    def _step(self, name: str, code: int, line: str, findings: Any = ()) -> None:
        self.steps.append(Step(name, code, line, tuple(findings)))


def _free(name: str) -> str:
    """Return a folder name here that is not taken."""
    path, number = name, 1
    while os.path.exists(path):
        number += 1
        path = "{}-{}".format(name, number)
    return path


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _described(result: canaries.Result) -> str:
    """Return one line on a canary: what ran where, or why nothing did."""
    document = result.report
    if document.get("outcome") != "ran":
        return result.findings[0]
    runs = document["request"]
    place = _place(document["information"])
    return "{} outputs, {} x {} runs, {} differences, on {}".format(
        len(document["outputs"]), runs["processes"], runs["runs"], document["differences-found"], place
    )


def _place(information: Mapping[str, Any]) -> str:
    if information.get("device") == platform.CPU:
        return str(information.get("cpu.model_name", "this CPU"))
    return "{} {}".format(information.get("gpu.0.name", "?"), information.get("device.uuid", ""))


def main(environment: Mapping[str, str], say: Say, tell: Say) -> int:
    """Run the check; `OUT` in `environment` names the folder. Return the exit code of `docs/exit-codes.md`.

    `say` gets what is being done, `tell` what came of it, a line each. Raises
    `StorageError` when the folder cannot be written.
    """
    check = Check(environment.get("OUT") or None, say)
    code = check.run()
    for line in summary.lines_of(check.steps):
        tell(line)
    tell(summary.verdict(check.steps))
    tell("read {} first; exit code {}".format(os.path.join(check.folder.path, "REPORT.md"), code))
    return code
