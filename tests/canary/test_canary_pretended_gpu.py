"""The whole way of a run on a GPU, on a torch that only pretends to have one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import made_reports
import pytest

from envlock.canary import report, request, strict, worker
from envlock.gpucheck import canaries
from envlock.run import reports

pytestmark = pytest.mark.torch

REQUEST = {"nonce": "0" * 32, "threads": 1, "backend": "cuda"}
SCHEMA = Path(__file__).parents[2] / "docs/schema/canary-report.schema.json"


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    """What a worker answers that was asked for CUDA, where every tensor quietly lands on the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Pretended(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            moved = tuple("cpu" if isinstance(item, str) and item == "cuda:0" else item for item in args)
            named = {key: "cpu" if key == "device" else item for key, item in (kwargs or {}).items()}
            return function(*moved, **named)

    seen = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, uuid="12345678-90ab")
    document = {"nonce": "0" * 32, "threads": torch.get_num_threads(), "backend": "cuda", "torch": {}}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("OMP_WAIT_POLICY", "PASSIVE"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")):
            patch.setenv(name, value)
        for variable in strict.THREADS:
            patch.delenv(variable, raising=False)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "get_device_properties", lambda _: seen)
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(torch.cuda, "max_memory_allocated", lambda: 4096)
        with Pretended():
            return worker.run(request.Request(document))


def test_every_step_of_a_run_on_a_gpu_runs(answer: dict[str, Any]) -> None:
    """No name is missing, nothing raises, the controls fail as they must, and the class is the GPU's."""
    assert answer["outcome"] == "ran", answer.get("failure")
    assert answer["platform"] == {"backend": "cuda", "gpu.arch": "sm_90", "gpu.sms": "132", "gpu.mig": "none"}
    assert answer["controls"] == {"wrong-integer": True, "weight-bit": True}
    assert [item for item in answer["outputs"] if item["value"].startswith(("unavailable", "wrong"))] == []
    assert answer["information"]["device.uuid"] == answer["information"]["gpu.0.uuid"] == "GPU-12345678-90ab"


def test_what_a_cpu_computed_in_its_place_is_unknown_and_never_a_match(answer: dict[str, Any]) -> None:
    """The device of every tensor is looked at, not the one that was asked for."""
    (problem,) = answer["problems"]
    result = canaries.judged("GPU 0", report.merge(request.Request(REQUEST), [answer]), "cuda")

    assert problem.startswith("cuda:0 was asked for, and ")
    assert "outputs were computed on cpu, first t1.k1.mm.float32.33x64x47" in problem
    assert answer["information"]["device.outputs"] == "0"
    assert (result.code, result.findings) == (3, (problem,))


def test_its_report_is_one_by_the_schema(answer: dict[str, Any]) -> None:
    """And reads back as a report of the CUDA backend."""
    merged = report.merge(request.Request(REQUEST), [answer])
    jsonschema.validate(merged, json.loads(SCHEMA.read_text()))
    read = reports.from_document(merged, "x")

    assert (read.backend, dict(read.platform)["gpu.arch"]) == ("cuda", "sm_90")
    assert {output.name for output in read.outputs if ".k5." in output.name and output.tier == "T2"} != set()
    assert read.suite == made_reports.report()["suite"]
