"""Small canary reports as documents, for everything that judges them without running anything."""

import copy
import struct
from typing import Any

from envlock.canary.report import SCHEMA
from envlock.digest import sha256

PLATFORM = {"backend": "cpu", "machine": "x86_64", "cpu.vendor": "GenuineIntel", "cpu.flags": "avx2 avx512f fma"}


def sha(text: str) -> str:
    """Return a digest that stands for `text`."""
    return str(sha256(text.encode()))


def tensor(name: str, values: list[float], dtype: str = "float32") -> dict[str, Any]:
    """Return a T3 output of float32 `values`, all of them sampled."""
    data = b"".join(struct.pack("<f", value) for value in values)
    return {
        "name": name,
        "value": str(sha256(data)),
        "dtype": dtype,
        "shape": [len(values)],
        "sample": {"stride": 1, "hex": data.hex()},
    }


def report(**changed: Any) -> dict[str, Any]:
    """Return a report in which all is well, under the settings of `lock_for`; keys may be changed."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "suite": "torch/1",
        "outcome": "ran",
        "inputs": sha("inputs"),
        "request": {"backend": "cpu", "weight-bit-flip": None},
        "platform": dict(PLATFORM),
        "settings": {
            "threads": "2",
            "torch.version": "2.13.0+cpu",
            "aten.cpu-capability": "AVX512",
            "env.MKL_CBWR": "AVX512",
            "switch.use_deterministic_algorithms": "true",
        },
        "information": {"cpu.model_name": "a processor"},
        "outputs": [
            {"name": "t1.k1.mm", "value": "ok"},
            {"name": "t1.k3.int_mm", "value": "ok"},
            {"name": "t2.s1.mantissa.mm", "value": "23"},
            {"name": "t2.s5.tree.sum", "value": sha("tree"), "detail": "pairwise"},
            tensor("t3.encoder.001.linear_q", [1.0, 2.0, 3.0]),
            tensor("t3.encoder.001.linear_q/solo", [4.0, 5.0]),
            tensor("t3.encoder.002.softmax", [0.25, 0.75]),
            tensor("t3.encoder.002.softmax/solo", [0.5, 0.5]),
            tensor("t3.convnet.001.conv", [7.0]),
            tensor("t3.convnet.001.conv/solo", [8.0]),
        ],
        "differences": [],
        "problems": [],
        "not-in-force": [],
        "changed-inputs": [],
        "controls": {"wrong-integer": True, "weight-bit": True},
    }
    return {**document, **changed}


def with_outputs(document: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return a copy of `document` in which outputs have other values; `__` stands for `.` in a name.

    A text replaces the value; a list of floats replaces the tensor; None removes the output.
    """
    found = copy.deepcopy(document)
    for key, value in values.items():
        name = key.replace("__", ".").replace("_solo", "/solo")
        place = next(index for index, output in enumerate(found["outputs"]) if output["name"] == name)
        if value is None:
            del found["outputs"][place]
        elif isinstance(value, str):
            found["outputs"][place]["value"] = value
        else:
            found["outputs"][place] = tensor(name, value)
    return found


def with_settings(document: dict[str, Any], **values: str) -> dict[str, Any]:
    """Return a copy of `document` with other settings; `__` stands for `.` in a name."""
    settings = {**document["settings"], **{key.replace("__", "."): value for key, value in values.items()}}
    return {**copy.deepcopy(document), "settings": settings}
