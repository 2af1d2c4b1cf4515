"""NVML asked in a child process: answers, crashes, deadlines."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from envlock.facts import FAILED
from envlock.probe.host import Absent
from envlock.probe.nvml.child import MARK, ask, package_root, parse

HERE = Path(__file__).parent

FAKE = f"""
import sys
sys.path[:0] = [{str(HERE)!r}, {package_root()!r}]
import pynvml, nvml_fake
pynvml.nvmlLib = nvml_fake.Library(nvml_fake.SYSTEM, {{0: nvml_fake.gpu()}})
"""


def child(body: str) -> tuple[str, ...]:
    return (sys.executable, "-c", FAKE + body)


def test_answer_of_the_child_is_the_document() -> None:
    """A child with a working driver gives its document, whatever its library prints around it."""
    document = ask(
        pynvml_file(), 20, child("print('WARNING: a stub library'); from envlock.probe.nvml.child import main; main()")
    )

    assert document["host"]["nvidia.driver"]["value"] == "535.161.08"  # type: ignore[index]


def test_real_child_on_a_host_without_driver_says_so() -> None:
    """The real child process asks the real binding; without a driver library that is NVML's code 12 or 9."""
    document = ask(pynvml_file(), 20)

    assert "gpus" in document or document["code"] in (9, 12)


def test_driver_that_hangs_is_given_up() -> None:
    """A driver that never answers, in a child that ignores being asked to end, costs the deadline and no more."""
    body = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "nvml_fake.Library.__getattr__ = lambda self, name: (lambda *_: time.sleep(60))\n"
        "from envlock.probe.nvml.child import main; main()"
    )
    began = time.monotonic()

    with pytest.raises(Absent) as caught:
        ask(pynvml_file(), 1, child(body))

    assert time.monotonic() - began < 10
    assert caught.value.outcome == FAILED
    assert caught.value.detail == "NVML was asked in a child process (nvmlInit): it gave no answer within 1 s"


def hanging(function: str, how: str) -> tuple[str, ...]:
    """Return a child whose second GPU runs `how` in `function`."""
    return child(
        "import os, signal, time\n"
        f"def broken(arguments): {how}\n"
        f"gpus = {{0: nvml_fake.gpu(), 1: nvml_fake.gpu({function}=broken)}}\n"
        "pynvml.nvmlLib = nvml_fake.Library(nvml_fake.SYSTEM, gpus)\n"
        "from envlock.probe.nvml.child import main; main()"
    )


@pytest.mark.parametrize(
    ("how", "why"),
    [("time.sleep(60)", "it gave no answer within 2 s"),
     ("os.kill(os.getpid(), signal.SIGSEGV)", "its process left no answer (killed by signal 11)")],
)  # fmt: skip
def test_call_that_does_not_come_back_is_named(how: str, why: str) -> None:
    """Of a driver that hangs or crashes in one call, the call is named and the answers before it are kept."""
    document: Any = ask(pynvml_file(), 2, hanging("nvmlDeviceGetVbiosVersion", how))
    told = f"NVML was asked in a child process (nvmlDeviceGetVbiosVersion of GPU 1): {why}"

    assert document["notes"] == [told]
    assert document["gpus"][0]["facts"]["gpu.vbios"]["value"] == "96.00.A5.00.01"
    assert {document["gpus"][1]["facts"][key]["detail"] for key in ("gpu.vbios", "gpu.name", "gpu.p2p")} == {told}


def test_call_is_named_where_there_is_no_file_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system without memfd_create the child says what it asks in lines."""
    monkeypatch.setattr("envlock.probe.nvml.child.make_slate", lambda: -1)

    document: Any = ask(pynvml_file(), 2, hanging("nvmlDeviceGetVbiosVersion", "time.sleep(60)"))

    assert "(nvmlDeviceGetVbiosVersion of GPU 1)" in document["unfinished"]


def test_nothing_stays_open_behind_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the child ends, or if it cannot be started, no descriptor is left behind."""
    before = sorted(os.listdir("/proc/self/fd"))
    for command in (child("raise SystemExit(3)"), child("import time; time.sleep(60)"), ("/nowhere/python",)):
        with pytest.raises(Absent):
            ask(pynvml_file(), 0.5, command)

    assert sorted(os.listdir("/proc/self/fd")) == before


def test_host_alone_opens_no_gpu() -> None:
    """A child asked for the host alone does not come near a GPU that would hang."""
    document = ask(pynvml_file(), 5, hanging("nvmlDeviceGetName", "time.sleep(60)"), gpus=False)

    assert (document["count"], document["gpus"]) == (2, [])


def test_driver_that_crashes_is_failed() -> None:
    """A library that kills its process leaves a reason, not a list of no GPUs."""
    with pytest.raises(Absent, match="killed by signal 11") as caught:
        ask(pynvml_file(), 20, child("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))

    assert caught.value.outcome == FAILED


def test_python_without_binding_is_failed() -> None:
    """Without `pynvml` the driver was not asked: a failure, never "not supported"."""
    with pytest.raises(Absent, match="no NVML binding") as caught:
        ask(None, 20)

    assert caught.value.outcome == FAILED


def test_binding_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    """A broken `pynvml` is an error in the document, with Python's own words."""
    (tmp_path / "pynvml.py").write_text("raise RuntimeError('broken')\n")
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {package_root()!r}];"
        "from envlock.probe.nvml.child import main; main()"
    )

    document = ask(str(tmp_path / "pynvml.py"), 20, (sys.executable, "-c", program))

    assert document["error"] == "pynvml cannot be imported: broken"


def test_binding_that_was_found_is_the_one_that_asks(tmp_path: Path) -> None:
    """The child uses the `pynvml` that was found, though its Python has another; nothing else comes from there."""
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml" / "__init__.py").write_text("from pynvml.inner import WORDS\nraise RuntimeError(WORDS)\n")
    (tmp_path / "pynvml" / "inner.py").write_text("import json\nWORDS = json.dumps('the one that was found')\n")
    (tmp_path / "json.py").write_text("raise RuntimeError('a module of that folder')\n")

    document = ask(str(tmp_path / "pynvml" / "__init__.py"), 20)

    assert document["error"] == 'pynvml cannot be imported: "the one that was found"'


@pytest.mark.parametrize("text", ["", "no mark", MARK + '{"host": {', MARK + "[]", MARK + '{"end": true}'])
def test_output_without_a_document_is_failed(text: str) -> None:
    """Output that is cut off, or is no document, is no answer."""
    with pytest.raises(Absent, match="its words"):
        parse(text, "its words")


def pynvml_file() -> str:
    import pynvml

    return str(pynvml.__file__)
