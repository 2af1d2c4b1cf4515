"""`make gpu-check` as a whole: a stand-in nvidia-smi, no GPU, old Pythons, places that cannot be written."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_reports
import pynvml
import pytest
import recordings
from canary import interpreters
from fakes.nvml import world

from envlock.gpucheck import canaries, clocks, main
from envlock.gpucheck.budget import Budget
from envlock.gpucheck.summary import libraries_step

ROOT = Path(__file__).resolve().parents[2]


def bare() -> Path:
    """Return an interpreter of this machine without torch."""
    return Path(sys.base_prefix) / "bin/python3"


def check(
    python: str | Path, out: Path, path: Path | None = None, root: Path = ROOT, **more: Any
) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": str(path) if path else "/nowhere", "OUT": str(out), "HOME": "/home/mallory", **more}
    return subprocess.run(
        [python, root / "scripts/gpu_check.py"],
        env=environment,
        capture_output=True,
        text=True,
        cwd=out.parent,
        check=False,
    )


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


@pytest.mark.parametrize("version", interpreters.VERSIONS)
def test_without_gpu_and_torch_every_python_says_so_and_ends_with_3(version: str, tmp_path: Path) -> None:
    """Nothing is needed but the interpreter; the folder tells the same."""
    python = interpreters.found().get(version)
    if python is None or python == sys.executable:
        pytest.skip(f"there is no bare Python {version} on this machine")
    ended = check(python, tmp_path / "out")

    assert (ended.returncode, summary(tmp_path / "out")["exit-code"]) == (3, 3), ended.stderr
    assert "no GPU is seen by NVML, nvidia-smi or on the PCI bus" in ended.stdout
    assert "\ncould not tell: nvidia-smi, GPUs, NVML and nvidia-smi, canary on GPU 0" in ended.stdout
    assert "torch is not installed in this Python (choose another with `make gpu-check PYTHON=…`)" in ended.stdout
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out/faults.txt").exists()


def test_what_nvidia_smi_says_is_recorded_read_and_scrubbed(tmp_path: Path) -> None:
    """Two GPUs are seen, no name is left in any file, and only reading commands were started."""
    program = recordings.program(tmp_path)
    ended = check(bare(), tmp_path / "out", program.parent)
    files = {path.name: path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    whole = "\n".join(files.values())

    assert ended.returncode == 3, ended.stderr
    assert json.loads(files["facts-nvidia-smi.json"])["host"]["nvidia.driver"]["value"] == "570.86.15"
    assert len(json.loads(files["facts-nvidia-smi.json"])["devices"]) == 2
    assert "NVIDIA H200, 0" in files["nvidia-smi-query-gpu.csv"]
    # There is no such device here: what the probe does not see of two GPUs is no match.
    assert "GPUs                      could not tell          2 seen, 2 of them not by `envlock probe`" in ended.stdout
    assert "- driver: 570.86.15" in files["REPORT.md"]
    assert "- 2 x NVIDIA H200" in files["REPORT.md"]
    named = [*recordings.SERIALS, *recordings.UUIDS, recordings.PDI, recordings.CLUSTER, "mallory", "/opt/secret"]
    assert [name for name in named if name in whole] == []
    asked = (tmp_path / "asked.txt").read_text().splitlines()
    assert {line for line in asked if not line.startswith("--query-gpu=")} == {
        "-q -x", "-q", "-L", "--version", "topo -m", "nvlink -s", "--help-query-gpu",
    }  # fmt: skip


@pytest.mark.torch
def test_a_torch_without_cuda_is_unknown_on_the_gpu_and_runs_on_the_cpu(tmp_path: Path) -> None:
    """The CPU's green outputs stand for the CPU alone."""
    ended = check(sys.executable, tmp_path / "out")
    steps = {step["name"]: step for step in summary(tmp_path / "out")["steps"]}

    assert ended.returncode == 3
    assert steps["canary on CPU"]["exit-code"] == 0
    assert steps["canary on GPU 0"]["exit-code"] == 3
    assert "sees no GPU" in steps["canary on GPU 0"]["line"]
    assert json.loads((tmp_path / "out/canary-gpu-0.json").read_text())["outcome"] == "failed"
    assert "There is none: the canary did not run on a GPU here" in (tmp_path / "out/REPORT.md").read_text()


def test_where_nvml_and_nvidia_smi_disagree_it_is_a_definite_difference(tmp_path: Path) -> None:
    """A real library answers for NVML, recorded text for nvidia-smi: both are named, by GPU and fact."""
    program = recordings.program(tmp_path)
    # A Python with the binding and without torch: no canary is computed for what is not about one.
    (tmp_path / "binding").mkdir()
    shutil.copy(str(pynvml.__file__), tmp_path / "binding")
    node = {**world("hgx-h100"), "PYTHONPATH": str(tmp_path / "binding")}
    ended = check(bare(), tmp_path / "out", program.parent, **node)
    (step,) = (step for step in summary(tmp_path / "out")["steps"] if step["name"] == "NVML and nvidia-smi")
    said = "\n".join(step["findings"])

    assert (ended.returncode, step["exit-code"]) == (1, 1), ended.stderr
    assert "GPU at 0000:1b:00.0: " in said
    assert "NVIDIA H200" in said
    assert "NVIDIA H100 80GB HBM3" in said
    assert "1650000000000" not in (tmp_path / "out/facts-nvml.json").read_text()


@pytest.mark.parametrize(
    ("document", "code", "line"),
    [
        ({}, 3, "nothing was computed on a GPU"),
        ({"failure": "no /proc"}, 3, "no /proc"),
        ({"libraries": [{}], "findings": []}, 0, "1 loaded, 0 findings"),
        ({"libraries": [{}], "findings": [{"severity": "warning", "what": "two"}]}, 0, "1 loaded, 1 findings"),
        ({"libraries": [{}], "findings": [{"severity": "error", "what": "mixed"}]}, 1, "1 loaded, 1 findings"),
        ({"libraries": [{}], "findings": [{"severity": "unknown", "what": "x"}]}, 3, "1 loaded, 1 findings"),
    ],
)
def test_the_libraries_of_the_load_are_judged_by_their_findings(document: Any, code: int, line: str) -> None:
    """What `envlock probe --pid` calls an error is a definite difference here too."""
    step = libraries_step(document)

    assert (step.code, step.line) == (code, line)


def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str = "", **smi: Any) -> tuple[int, Path]:
    """Run the check here with two GPUs that compute what a made report says."""
    monkeypatch.setenv("PATH", str(recordings.program(tmp_path, **smi).parent))
    information = {"device": "cuda:0", "device.uuid": recordings.UUIDS[0], "gpu.0.name": "NVIDIA H200"}
    information.update({f"gpu.{number}.uuid": uuid for number, uuid in enumerate(recordings.UUIDS)})
    cuda = {"backend": "cuda", "gpu.arch": "sm_90", "gpu.sms": "132", "gpu.mig": "none"}
    libraries = [{"name": "libcublas.so.12", "path": "/x/libcublas.so.12", "build-id": "abc"}]

    def run(torch: Any, backend: str, runs: int, processes: int, deadline: float, extra: Any = None) -> dict[str, Any]:
        request = {"backend": backend, "weight-bit-flip": None, "runs": runs, "processes": processes}
        found = made_reports.report(request=request, libraries=libraries, **{"differences-found": 0})
        return {**found, "platform": cuda, "information": information} if backend == "cuda" else found

    monkeypatch.setattr(canaries, "run", run)
    monkeypatch.setattr(clocks, "watch", lambda *_: clocks.Seen((), (), "", {}, "not tried"))
    given = {"OUT": str(tmp_path / "out"), "LIMIT": limit}
    code = main.main(given, lambda text: None, lambda text: None)
    return code, tmp_path / "out"


def test_a_gpu_that_answers_leaves_what_a_golden_is_recorded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report names the command, the class is in the file, and its UUID is a dummy."""
    _, folder = in_process(tmp_path, monkeypatch)
    text = (folder / "REPORT.md").read_text()
    steps = {step["name"]: step["exit-code"] for step in summary(folder)["steps"]}

    assert (steps["canary on GPU 0"], steps["canary on GPU 1"], steps["canary on CPU"]) == (0, 0, 0)
    assert "envlock canary record -l lockfiles/NAME.lock.toml canary-gpu-0.json" in text
    assert "| libcublas.so.12 | `abc` | /x/libcublas.so.12 |" in text
    assert 'profile = "strict"' in (folder / "determinism.toml").read_text()
    assert recordings.UUIDS[0][4:] not in text + (folder / "canary-gpu-0.json").read_text()


def test_a_lost_gpu_is_not_as_it_should_be(tmp_path: Path) -> None:
    """It is counted, and named as one that does not answer, with the driver's reason; the others are shown in W."""
    ended = check(sys.executable, tmp_path / "out", LIMIT="1", **world("lost"))
    (step,) = (step for step in summary(tmp_path / "out")["steps"] if step["name"] == "GPUs")
    text = (tmp_path / "out/REPORT.md").read_text()

    assert (ended.returncode, step["exit-code"], step["line"]) == (3, 3, "8 seen, 1 of them without an answer")
    assert "does not answer: " in step["findings"][0]
    assert "gpu is lost" in step["findings"][0]
    assert "power limit 700 W" in text


def test_whoever_ends_the_check_keeps_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings and facts are in the folder, scrubbed, before the canary begins; what is missing is said."""
    kept: dict[str, str] = {}

    def ended(*_: Any) -> Any:
        kept.update({path.name: path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()})
        raise KeyboardInterrupt

    monkeypatch.setattr(clocks, "LOAD_SECONDS", 0.1)
    monkeypatch.setattr(canaries, "find_torch", ended)
    monkeypatch.setenv("PATH", str(recordings.program(tmp_path).parent))
    with pytest.raises(KeyboardInterrupt):
        main.main({"OUT": str(tmp_path / "out")}, lambda text: None, lambda text: None)

    assert {"facts.json", "facts-nvidia-smi.json", "nvidia-smi-q-x.xml", "nvidia-smi-query-gpu.csv"} <= kept.keys()
    assert json.loads(kept["summary.json"])["exit-code"] == 3
    assert "# GPU check: could not tell" in kept["REPORT.md"]
    missing = "canary on GPU 0, clocks, canary on other GPUs, canary on CPU"
    assert f"was ended before its end; what is missing: {missing}" in kept["REPORT.md"]
    named = [*recordings.SERIALS, *recordings.UUIDS, recordings.PDI, recordings.CLUSTER]
    assert [name for name in named if name in "\n".join(kept.values())] == []
    assert [name for name in kept if name.endswith(".part")] == []


def test_when_its_time_is_up_it_ends_and_says_what_was_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left out is unknown, and named with how to give it more."""
    _, folder = in_process(tmp_path, monkeypatch, limit="4")
    steps = {step["name"]: step for step in summary(folder)["steps"]}

    assert steps["canary on GPU 0"]["exit-code"] == 0
    for name in ("clocks", "canary on GPU 1 and those after it", "canary on CPU"):
        assert steps[name]["exit-code"] == 3
        assert steps[name]["line"] == "not tried: 4 s were up (LIMIT= gives it more)"


@pytest.mark.parametrize("limit", ["0", "-1", "ten", "nan", "inf"])
def test_a_limit_that_is_none_is_refused(limit: str, tmp_path: Path) -> None:
    """Before anything is asked or written."""
    ended = check(bare(), tmp_path / "out", LIMIT=limit)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: LIMIT is a number of seconds above 0, not '{limit}'")
    assert not (tmp_path / "out").exists()


def test_the_time_is_shared_among_what_follows() -> None:
    """No step takes what the ones after it need, and each gets a second at least."""
    now = [100.0]
    budget = Budget(60.0, lambda: now[0])

    assert (budget.share(300), budget.share(300, 3), budget.share(10), budget.spent) == (60, 20, 10, False)
    now[0] += 58
    assert (budget.share(300), budget.share(300, 4), budget.spent) == (2, 1, True)


def test_one_step_that_breaks_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time on a machine with a GPU is dear: the fault is written down, its step unknown, the rest done."""

    def broken(**_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(main, "probe", broken)
    code, folder = in_process(tmp_path, monkeypatch)

    assert code == 3
    assert "RuntimeError: a fault of ours" in (folder / "faults.txt").read_text()
    assert {step["name"] for step in summary(folder)["steps"]} >= {"probe", "canary on GPU 0", "canary on CPU"}


def test_an_nvidia_smi_that_hangs_is_left_behind_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check goes on without it."""
    monkeypatch.setattr("envlock.gpucheck.commands.SmiProgram.__init__.__defaults__", (None, 1.0))
    code, folder = in_process(tmp_path, monkeypatch, hangs=("-q -x",))
    (step,) = (step for step in summary(folder)["steps"] if step["name"] == "nvidia-smi")

    assert code == 3
    assert "`nvidia-smi -q -x` gave no answer within 1 s, and was left behind" in step["findings"][0]


def test_a_folder_that_holds_something_is_not_touched(tmp_path: Path) -> None:
    """A new one is made in it, and a second one beside that."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("x")
    for _ in range(2):
        check(bare(), out)

    assert (out / "mine").read_text() == "x"
    assert (
        len([path for path in out.iterdir() if path.name.startswith("gpu-check-") and (path / "REPORT.md").exists()])
        == 2
    )


@pytest.fixture
def everyones() -> Iterator[Path]:
    """A folder that every user may enter: pytest keeps its own for one."""
    with tempfile.TemporaryDirectory(prefix="envlock-gpu-check-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_plain_user_and_a_checkout_that_is_read_only_and_without_history(everyones: Path) -> None:
    """Nothing is written but the folder; where that cannot be, it is said at once."""
    copy = everyones / "copy"
    shutil.copytree(ROOT / "envlock", copy / "envlock", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "scripts", copy / "scripts")
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(copy.rglob("*"))
    out = everyones / "out"
    out.mkdir()
    out.chmod(0o777)
    python = next((path for path in ("/usr/bin/python3",) if Path(path).exists()), None)
    if python is None:
        pytest.skip("no Python that a plain user may run")
    results = []
    for folder in (out, copy / "out"):
        results.append(
            subprocess.run(
                [python, copy / "scripts/gpu_check.py"],
                env={"PATH": "/nowhere", "OUT": str(folder)},
                capture_output=True,
                text=True,
                cwd="/",
                user=65534,
                check=False,
            )
        )

    assert [ended.returncode for ended in results] == [3, 3], results[0].stderr + results[1].stderr
    assert (out / "REPORT.md").exists(), results[0].stderr
    assert sorted(copy.rglob("*")) == before
    assert results[1].stderr == (
        f"error: {copy}/out: permission denied\n\nhint: choose another folder: `make gpu-check OUT=FOLDER`\n"
    )


def test_make_starts_that_program_and_nothing_else() -> None:
    """No virtual environment, no network: one command, under the Python that was named."""
    # These tests may be run by `make test`: what that make tells its children is none of this one's business.
    own = {
        key: text for key, text in os.environ.items() if not key.startswith("MAKE") and key not in ("MFLAGS", "PYTHON")
    }
    told = [
        subprocess.run(
            ["make", "-n", "gpu-check", *more], capture_output=True, text=True, cwd=ROOT, env=own, check=True
        ).stdout
        for more in ([], ["PYTHON=python3.9", "OUT=/x"])
    ]

    assert told == ["python3 scripts/gpu_check.py\n", "python3.9 scripts/gpu_check.py\n"]


def test_a_python_that_is_too_old_is_told_so() -> None:
    """Its syntax is one that any Python reads as far as the words."""
    path = str(ROOT / "scripts/gpu_check.py")
    program = f"import sys; sys.version_info = (3, 6, 1); import runpy; runpy.run_path({path!r}, run_name='__main__')"
    ended = subprocess.run([bare(), "-c", program], capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert ended.stderr.startswith("error: Python 3.8 or newer is needed, this is 3.6\n\nhint: choose another")
