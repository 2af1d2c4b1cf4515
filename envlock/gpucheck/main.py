"""The check itself, step by step; each one has its own deadline and none stops the others.

After each of them the whole folder is written: whoever ends the check keeps what was found.

Standard library only but torch in the children, Python 3.8 and newer.
"""

from __future__ import annotations

import os
import pwd
import secrets
import socket
import time
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from envlock.canary import main as canary
from envlock.canary import platform
from envlock.errors import EXIT_MATCH, EXIT_UNKNOWN
from envlock.facts import Facts
from envlock.gpucheck import canaries, clocks, commands, folder, sources, summary
from envlock.gpucheck.budget import Budget, wanted
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
    """One check of this machine. `out` is the folder for the results, None: a new one here."""

    def __init__(self, out: Optional[str], say: Say, budget: Budget) -> None:
        self.say = say
        self.budget = budget
        self.host = LiveHost()
        self.smi = commands.SmiProgram(self.host.program("nvidia-smi"), budget)
        self.scrubber = Scrubber(secrets.token_bytes(32))
        name = time.strftime("gpu-check-%Y-%m-%d")
        self.folder = folder.opened(out or _free(name), name, self.scrubber)
        self.recordings: Dict[str, commands.Answer] = {}
        self.steps: List[Step] = []
        self.faults: List[str] = []
        self.torch = canaries.Torch("", ("-I",))
        self.facts = Facts({})
        self.told: List[sources.Source] = []
        self.results: List[canaries.Result] = []
        self.seen = clocks.Seen((), (), "", {}, "not looked at")
        self.pending: List[str] = []

    def run(self) -> int:
        """Do all of it, write the folder after each step, and return the exit code."""
        self.say("results go to {}, within {:g} s".format(self.folder.path, self.budget.seconds))
        self._names()
        steps: List[Tuple[str, Callable[[], None]]] = [
            ("nvidia-smi", self._record),
            ("probe", self._probe),
            ("canary on GPU 0", self._canary),
            ("clocks", self._clocks),
            ("canary on other GPUs", self._others),
            ("canary on CPU", self._cpu),
        ]
        for number, (name, step) in enumerate(steps):
            self.pending = [name for name, _ in steps[number:]]
            self._write()
            try:
                step()
            except Exception:  # hours of a rented machine must not be lost to one fault of ours: it is written down
                self.faults.append(traceback.format_exc())
                self._step(name, EXIT_UNKNOWN, "a fault of envlock: see faults.txt, and please report it")
        self.pending = []
        return self._write()

    def _names(self) -> None:
        self.scrubber.learn_name(socket.gethostname())
        self.scrubber.learn_name(os.path.basename(os.path.expanduser("~")))
        for variable in ("USER", "LOGNAME", "SUDO_USER"):
            self.scrubber.learn_name(os.environ.get(variable, ""))
        try:
            self.scrubber.learn_name(pwd.getpwuid(os.getuid()).pw_name)
        except KeyError:
            pass  # a container may run as a number without a name

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
        mute = summary.mute(self.facts)
        line += ", {} of them without an answer".format(len(mute)) if mute else ""
        missed = count - len(self.facts.gpus())
        line += ", {} of them not by `envlock probe`".format(missed) if missed > 0 else ""
        code = EXIT_MATCH if count and not mute and missed <= 0 else EXIT_UNKNOWN
        self._step("GPUs", code, line, [*mute, *self.facts.notes])
        compared = sources.compare(*self.told)
        line = compared.failure or "{} facts agree, {} do not".format(compared.agreeing, len(compared.disagreements))
        self._step("NVML and nvidia-smi", compared.code, line, compared.disagreements)

    def _canary(self) -> None:
        """Run the canary on the first GPU."""
        torch = self.torch = canaries.find_torch()
        if torch.origin and "-I" not in torch.flags:
            self.say("torch is the user's own or comes through PYTHONPATH: children are not isolated from those")
        self.say("running the canary on the GPU: 2 processes, 2 runs each")
        # Half of the time at most: a GPU that hangs must leave some for the CPU.
        document = canaries.run(torch, platform.CUDA, 2, 2, self.budget.share(canaries.DEADLINE, 2))
        self._result(canaries.judged("GPU 0", document, platform.CUDA))

    def _others(self) -> None:
        """Run it once on every other GPU, each alone, where the first could be used."""
        if not self._ran():
            return
        first = self.results[0]
        others = range(1, len(canaries.gpus_in(first.report)))
        if others:
            self.say("running the canary on {} other GPUs, once each".format(len(others)))
        for number in others:
            if self.budget.spent:
                self._not_tried("canary on GPU {} and those after it".format(number))
                return
            left = len(others) - number + 2  # and the CPU after them
            seconds = self.budget.share(canaries.DEADLINE, left)
            self._result(canaries.on_other_gpu(self.torch, first, number, seconds))
            self._write()

    def _cpu(self) -> None:
        """Run it on the CPU, which needs no GPU and is the other class of this machine."""
        if self.budget.spent:
            self._not_tried("canary on CPU")
            return
        self.say("running the canary on the CPU: 2 processes, 2 runs each")
        document = canaries.run(self.torch, platform.CPU, 2, 2, self.budget.share(canaries.DEADLINE, 2))
        self._result(canaries.judged("CPU", document, platform.CPU))

    def _ran(self) -> bool:
        """Whether the canary ran on the first GPU."""
        return bool(self.results) and self.results[0].report.get("outcome") == "ran"

    def _result(self, result: canaries.Result) -> None:
        self.results.append(result)
        self._step("canary on " + result.label, result.code, _described(result), result.findings)

    def _not_tried(self, name: str) -> None:
        line = "not tried: {:g} s were up (LIMIT= gives it more)".format(self.budget.seconds)
        self._step(name, EXIT_UNKNOWN, line)

    def _clocks(self) -> None:
        ran = self._ran()
        if self.budget.spent:
            self._not_tried("clocks")
            return
        if not self.smi.there or self.smi.hangs:
            self.seen = clocks.Seen((), (), "", {}, self.smi.hangs or "nvidia-smi is not on PATH")
            self.steps.append(summary.libraries_step({}))
            return
        if ran:
            self.say("looking at the clocks under load: {:g} seconds".format(clocks.LOAD_SECONDS))
        argv = canary.command("worker")
        load = canaries.child(self.torch, [*argv[:3], _LOAD, argv[4], str(clocks.LOAD_SECONDS)])
        seconds = self.budget.share(clocks.MOST)
        self.seen = clocks.watch(self.smi, load if ran else None, canaries.environment(self.torch, {}), seconds)
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
        return summary.code_of(self._so_far())

    def _so_far(self) -> List[Step]:
        """Return the steps that were done, and that the check did not come to its end when it did not."""
        if not self.pending:
            return self.steps
        line = "was ended before its end; what is missing: " + ", ".join(self.pending)
        return [*self.steps, Step("the check", EXIT_UNKNOWN, line)]

    def _document(self) -> Dict[str, Any]:
        return {
            "schema": "envlock.gpu-check/1",
            "exit-code": summary.code_of(self._so_far()),
            "steps": [
                {"name": step.name, "exit-code": step.code, "line": step.line, "findings": list(step.findings)}
                for step in self._so_far()
            ],
        }

    def _report(self) -> str:
        first = self.results[0] if self.results else None
        told = [self.facts, *(source.facts for source in self.told if source.facts is not None)]
        return summary.report(
            self._so_far(),
            max(told, key=lambda facts: len(facts.gpus())),  # of equals the first: all sources together
            clocks.words(self.seen),
            canaries.nvidia_libraries(first.report) if first else [],
            list(dict.fromkeys(" ".join(answer.argv) for answer in self.smi.asked)),
            list(dict.fromkeys([*self.folder.files, "REPORT.md"])),
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
    """Run the check and return the exit code of `docs/exit-codes.md`.

    `OUT` in `environment` names the folder, `LIMIT` the seconds that it may take. `say`
    gets what is being done, `tell` what came of it, a line each. Raises `StorageError`
    when the folder cannot be written.
    """
    check = Check(environment.get("OUT") or None, say, Budget(wanted(environment)))
    code = check.run()
    for line in summary.lines_of(check.steps):
        tell(line)
    tell(summary.verdict(check.steps))
    tell("read {} first; exit code {}".format(os.path.join(check.folder.path, "REPORT.md"), code))
    return code
