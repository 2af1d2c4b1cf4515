"""`envlock.probe.libraries.text` and the document: what people and programs read."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from envlock.facts import FAILED, NOT_SUPPORTED, absent, value
from envlock.probe.libraries import driver_findings, findings
from envlock.probe.libraries.kinds import KINDS
from envlock.probe.libraries.text import render
from envlock.probe.libraries.values import PLACES, Finding, Library, Loaded, Package, Process, Ran

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/schema/libraries.schema.json").read_text())


def library(name: str, **changed: Any) -> Library:
    given: dict[str, Any] = {
        "name": name,
        "kind": name.partition(".")[0],
        "title": "a library",
        "path": f"/v/site-packages/nvidia/lib/{name}",
        "place": "wheel",
        "deleted": False,
        "version": value("12.9", "call"),
        "package": Package("wheel", "nvidia-x-cu12", "12.9.79", 7),
        "build_id": value("0123456789abcdef"),
        "size": value(7),
    }
    return Library(**{**given, **changed})


LOADED = Loaded(
    "python train.py",
    "every process followed to its end (ptrace)",
    (
        library("libcudart.so.12"),
        library(
            "libnccl.so.2",
            path="/usr/lib/libnccl.so.2",
            place="system",
            deleted=True,
            version=absent(FAILED, detail="not asked: its file is gone"),
            package=None,
            build_id=absent(FAILED, detail="no such file or directory"),
            size=absent(FAILED),
        ),
        library("libtorch_cuda.so", version=absent(NOT_SUPPORTED, detail="it has no call")),
    ),
    (Process(7, "python train.py", (0, 1)), Process(8, "python train.py", (0, 1)), Process(9, "python \x1b[31m", (2,))),
    (
        Finding(
            "deleted", "error", "it runs what is gone", "process 7 (python)", ("/usr/lib/libnccl.so.2",), "so", "do"
        ),
    ),
    ("something was not seen",),
    Ran(("python", "train.py"), 1, 5),
    (("nvidia.cuda", absent(FAILED)), ("nvidia.driver", value("570.148.08"))),
    (("variable CUDA_VERSION", "12.4.1"),),
)

TEXT = """\
python train.py: 3 CUDA libraries in 3 of 5 processes, ended with status 1; found: 1 error
  every process followed to its end (ptrace)
  may be incomplete: something was not seen

  error        it runs what is gone
               where: process 7 (python)
               why: so
               fix: do

processes 7 8
  $ python train.py
  wheel  /v/site-packages/nvidia/lib
    libcudart.so.12        12.9      nvidia-x-cu12 12.9.79         0123456789ab
  system  /usr/lib
    libnccl.so.2           -         (no package says it is its)   (no such file or directory)  deleted
      version: not asked: its file is gone

process 9
  $ python \\x1b[31m
  wheel  /v/site-packages/nvidia/lib
    libtorch_cuda.so       -         nvidia-x-cu12 12.9.79         0123456789ab

on disk or said by the image, and not necessarily loaded:
  variable CUDA_VERSION: 12.4.1
"""


def test_text_for_people() -> None:
    """What is wrong comes first; equal processes are one; nothing of a program's name reaches the terminal raw."""
    assert render(LOADED) == TEXT


@pytest.mark.parametrize(
    ("loaded", "first"),
    [
        (Loaded("process 7", "m", (), ()), "process 7: no CUDA library; no finding"),
        (
            Loaded("a", "m", (), (), ran=Ran(("a",), None, 1)),
            "a: no CUDA library in 1 process, ended at its deadline; no finding",
        ),
    ],
)
def test_the_line_that_sums_up(loaded: Loaded, first: str) -> None:
    """Nothing loaded is said in words."""
    assert render(loaded).splitlines()[0] == first


def test_the_document_is_valid() -> None:
    """Every part of it is in the schema, and an incomplete list says so."""
    document = LOADED.to_document()
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(document, SCHEMA)

    assert document["complete"] is False
    assert json.loads(json.dumps(document)) == document


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "envlock.libraries/2"},
        {"complete": "no"},
        {"findings": [{"code": "no-such-finding"}]},
        {"processes": [{"pid": 0, "program": "", "libraries": [0]}]},
        {"ran": {"command": []}},
        {"extra": 1},
    ],
)
def test_the_schema_refuses_a_wrong_document(change: dict[str, Any]) -> None:
    """A wrong value, an unknown finding, an unknown key: each is refused."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**LOADED.to_document(), **change}, SCHEMA)


def test_schema_and_code_name_the_same_things() -> None:
    """Places and findings are listed in the schema as in the code: none more, none less."""
    import re

    source = Path(findings.__file__).read_text() + Path(driver_findings.__file__).read_text()
    codes = set(re.findall(r'Finding\(\s*"([a-z-]+)",', source)) - {"mixed-"}
    codes |= {"mixed-" + family for family in findings._FAMILIES}

    assert set(SCHEMA["properties"]["findings"]["items"]["properties"]["code"]["enum"]) == codes
    assert set(SCHEMA["$defs"]["library"]["properties"]["place"]["enum"]) == set(PLACES)
    assert {kind.family for kind in KINDS} >= set(findings._FAMILIES)
