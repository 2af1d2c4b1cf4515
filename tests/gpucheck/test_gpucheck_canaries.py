"""Canary reports judged without a golden: known answers, repeatability, GPUs beside each other."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import made_reports
import pytest

from envlock.canary import strict, switches
from envlock.gpucheck import canaries

CUDA = {"backend": "cuda", "gpu.arch": "sm_90", "gpu.sms": "132", "gpu.mig": "none"}
INFORMATION = {
    "device": "cuda:0",
    "device.uuid": "GPU-a",
    "gpu.0.name": "H200",
    "gpu.0.uuid": "GPU-a",
    "gpu.1.uuid": "GPU-b",
}
NOT_THERE = {"name": "t1.k3.int_mm", "value": "unavailable: no"}
WRONG = {"name": "t1.k1.mm", "value": "wrong: 1 of 9"}


def report(**changed: Any) -> dict[str, Any]:
    return made_reports.report(platform=CUDA, information=INFORMATION, **changed)


def test_a_report_in_which_all_is_well_is_a_match() -> None:
    """Nothing is said, and the code is 0."""
    result = canaries.judged("GPU 0", report(), "cuda")

    assert (result.code, result.findings, result.uuid) == (0, (), "GPU-a")


@pytest.mark.parametrize(
    ("changed", "code", "finding"),
    [
        ({"differences": [{"name": "t3.x.1", "run": 2}] * 2}, 1, "is not repeatable: t3.x.1"),
        ({"changed-inputs": ["t3.w"]}, 1, "a weight in memory changed: t3.w"),
        ({"problems": ["t3.encoder: raised RuntimeError"]}, 3, "t3.encoder: raised RuntimeError"),
        ({"not-in-force": ["switch x"]}, 3, "switch x"),
        ({"controls": {"weight-bit": False}}, 3, "the control weight-bit must fail and did not"),
        ({"outputs": [NOT_THERE]}, 3, "could not be computed: t1.k3.int_mm (unavailable: no)"),
        ({"outputs": [WRONG]}, 1, "a known answer is wrong: t1.k1.mm wrong: 1 of 9"),
        ({"outcome": "failed", "failure": "died", "hint": "look"}, 3, "did not run: died (look)"),
    ],
)  # fmt: skip
def test_each_fault_has_its_words_and_code(changed: dict[str, Any], code: int, finding: str) -> None:
    """Definite differences are 1, everything that could not be told 3."""
    result = canaries.judged("GPU 0", report(**changed), "cuda")

    assert (result.code, result.findings) == (code, (finding,))


def test_a_convolution_that_rounds_on_a_gpu_is_no_fault() -> None:
    """Winograd may: there it is a signature."""
    outputs = [{"name": "t2.k5.conv.float32.8", "value": "wrong: 3 of 9"}]

    assert canaries.judged("GPU 0", report(outputs=outputs), "cuda").code == 0


def test_a_run_on_the_cpu_is_never_one_of_the_gpu() -> None:
    """Unknown, whatever its outputs are."""
    result = canaries.judged("GPU 0", made_reports.report(), "cuda")

    assert (result.code, result.findings) == (3, ("it ran on cpu, not on cuda",))


def test_gpus_of_one_class_must_give_the_same_bits() -> None:
    """The first output that differs is named; one of another class is not compared."""
    first = canaries.judged("GPU 0", report(), "cuda")
    other = made_reports.with_outputs(report(), t3__encoder__002__softmax=[0.5, 0.5])
    parted = canaries.beside(canaries.judged("GPU 1", other, "cuda"), first)
    smaller = canaries.judged("GPU 1", {**other, "platform": {**CUDA, "gpu.sms": "16"}}, "cuda")

    assert canaries.beside(canaries.judged("GPU 1", report(), "cuda"), first).code == 0
    assert parted.code == 1
    assert parted.findings == ("1 of 10 outputs are other bits than on GPU 0, first t3.encoder.002.softmax",)
    assert canaries.beside(smaller, first).findings == ("another platform class than GPU 0: not compared",)


def test_every_other_gpu_is_run_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process sees one GPU: what it gave cannot come from another."""
    seen = []

    def run(
        torch: Any, backend: str, runs: int, processes: int, deadline: float, extra: dict[str, str]
    ) -> dict[str, Any]:
        seen.append((deadline, extra))
        return report()

    monkeypatch.setattr(canaries, "run", run)
    first = canaries.judged("GPU 0", report(), "cuda")
    result = canaries.on_other_gpu(canaries.Torch("x", ("-I",)), first, 1, 30.0)

    assert seen == [(30.0, {"CUDA_VISIBLE_DEVICES": "GPU-b"})]
    assert (result.label, result.code) == ("GPU 1", 0)


@pytest.mark.parametrize(
    ("uuid", "own", "expected"),
    [
        ("GPU-b", {"CUDA_VISIBLE_DEVICES": "4,5"}, "GPU-b"),
        ("(this torch does not say)", {}, "1"),
        ("(this torch does not say)", {"CUDA_VISIBLE_DEVICES": "4, 5"}, "5"),
    ],
)
def test_a_gpu_whose_uuid_is_not_told_is_named_by_its_place(uuid: str, own: dict[str, str], expected: str) -> None:
    """Its place among those that this shell shows, not among all."""
    assert canaries.visible(1, uuid, own) == expected


def test_the_environment_is_the_profile_and_little_else() -> None:
    """A variable of this shell that decides bits does not get in."""
    own = {"PATH": "/bin", "MKL_CBWR": "COMPATIBLE", "PYTHONPATH": "/x", "CUDA_VISIBLE_DEVICES": "1"}
    found = canaries.environment(canaries.Torch("x", ("-I",)), {}, own)
    open_to = canaries.environment(canaries.Torch("x", ()), {"A": "1"}, own)

    assert found == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1", **strict.environment(2)}
    assert (found["CUBLAS_WORKSPACE_CONFIG"], found["NVIDIA_TF32_OVERRIDE"]) == (":4096:8", "0")
    assert open_to == {**found, "PYTHONPATH": "/x", "A": "1"}


def test_the_switches_of_the_profile_exist() -> None:
    """A name that torch does not have would fail every run of it."""
    for name, value in strict.TORCH.items():
        switches.check(name, value)


def test_a_torch_of_the_users_own_is_found_and_its_children_see_it(tmp_path: Path) -> None:
    """Isolated children would not: the flag goes, and only then."""
    (tmp_path / "torch.py").write_text("")
    program = (
        "from envlock.gpucheck import canaries as c; import json; t = c.find_torch();"
        "print(json.dumps([t, c.child(t, ['p', '-I', 'x'])]))"
    )
    bare = Path(sys.base_prefix) / "bin/python3"
    root = str(Path(canaries.__file__).parents[2])
    answers = [
        json.loads(subprocess.check_output([bare, "-c", program], env={"PYTHONPATH": f"{root}{extra}"}))
        for extra in (f":{tmp_path}", "")
    ]

    assert answers[0] == [[f"{tmp_path}/torch.py", []], ["p", "x"]]
    assert answers[1] == [["", ["-I"]], ["p", "-I", "x"]]


def test_libraries_of_cuda_are_told_from_the_rest() -> None:
    """Names, build ids and paths, as the process had loaded them."""
    listed = [
        {"name": name, "path": f"/{name}", "build-id": "1"} for name in ("libcublas.so.12", "libc.so.6", "libnccl.so.2")
    ]

    assert [item["name"] for item in canaries.nvidia_libraries({"libraries": listed})] == [
        "libcublas.so.12",
        "libnccl.so.2",
    ]
