"""NVML as a real shared object in another process: the whole program on nodes of several kinds."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fakes.nvml
import pytest
from fakes.nvml import build, world
from program import Ended, envlock
from samples import lock

from envlock import agent, lockfile
from envlock.facts import FAILED, NO_PERMISSION, NOT_IN_DRIVER, NOT_SUPPORTED, Device, Facts
from envlock.registry import GPU, REGISTRY, in_scope


def probe(name: str, *arguments: str, **changed: str) -> Facts:
    """Return the facts of the node `name`, as the real program prints them."""
    ended = envlock("probe", "--format", "json", *arguments, env={**world(name), **changed})
    assert (ended.code, ended.err) == (0, "")
    return Facts.from_document(ended.document, name)


def locked(found: Facts, path: Path) -> Path:
    """Write a lockfile of this node and return its path."""

    def kept(facts: Mapping[str, Any]) -> dict[str, Any]:
        return {key: seen for key, seen in facts.items() if REGISTRY[key].locked}

    held = lock(lockfile.host_of(kept(found.host), [kept(gpu.facts) for gpu in found.gpus()]))
    path.write_text(lockfile.render(held))
    return path


def altered(name: str, path: Path, *lines: str) -> dict[str, str]:
    """Return the variables of the node `name` with `lines` that come before its own."""
    own = Path(world(name)["ENVLOCK_FAKE_NVML"]).read_text()
    path.write_text("\n".join(lines) + "\n" + own)
    return {**world(name), "ENVLOCK_FAKE_NVML": str(path)}


def at(found: Facts, index: int) -> Device:
    return next(gpu for gpu in found.gpus() if gpu.facts["gpu.index"].value == index)


def test_link_that_is_down_is_drift(tmp_path: Path) -> None:
    """One NVLink of 144: collectives choose their channels by the links, so sums may differ."""
    whole = locked(probe("hgx-h100"), tmp_path / "a.lock.toml")
    ended = envlock(
        "check", "-l", whole, env=altered("hgx-h100", tmp_path / "a.txt", "3.nvmlDeviceGetNvLinkState=17*1,0")
    )

    assert ended.code == 1
    assert "gpu.nvlink on 0000:61:00.0: 18 x version 4 to switch → 1 x inactive 17 x version 4 to switch" in ended.out


def test_rack_tray_is_complete_and_matches_itself(tmp_path: Path) -> None:
    """A GB200 tray: shared serials, the module's power limit, retired clocks, its place in the rack, its own memory.

    The place differs from tray to tray and is not compared; joined peers and memory nodes are.
    """
    found = probe("gb200")
    facts = [gpu.facts for gpu in found.gpus()]

    assert [each["gpu.serial"].value for each in facts] == ["1650000000200"] * 2 + ["1650000000201"] * 2
    assert [each["gpu.memory_node"].value for each in facts] == [2, 10, 18, 26]
    assert {each["gpu.fabric_cluster"].value for each in facts} == {"6cdfe887-0048-4d43-3ac2-c8ee6ba213a8"}
    assert {key: facts[0][key].value for key in (
        "gpu.power_limit", "gpu.power_limit_module", "gpu.c2c", "gpu.addressing_mode", "gpu.chassis_serial", "gpu.slot",
        "gpu.tray", "gpu.tray_node", "gpu.peer_type", "gpu.nvlink", "gpu.fabric",
    )} == {
        "gpu.power_limit": 1200000, "gpu.power_limit_module": 2500000, "gpu.c2c": True, "gpu.addressing_mode": "ats",
        "gpu.chassis_serial": "1650000000300", "gpu.slot": 14, "gpu.tray": 4, "gpu.tray_node": 1,
        "gpu.peer_type": "switch connected", "gpu.nvlink": ("18 x version 5 to switch",), "gpu.fabric": "completed",
    }  # fmt: skip
    assert facts[0]["gpu.clock_graphics_application"].outcome == NOT_SUPPORTED

    whole = locked(found, tmp_path / "a.lock.toml")
    place = [f"{index}.nvmlDeviceGetPlatformInfo=1650000000399,3,7,1,1,{index + 1}" for index in range(4)]
    assert envlock("check", "-l", whole, env=altered("gb200", tmp_path / "other.txt", *place)).code == 0
    unlike = altered("gb200", tmp_path / "unlike.txt", "1.nvmlDeviceGetNumaNodeId=!3")
    assert "gpu.memory_node on 0009:01:00.0: 10 → (not supported)" in envlock("check", "-l", whole, env=unlike).out


def test_hgx_node_is_complete() -> None:
    """Eight GPUs by place, each with every registered fact; nothing failed."""
    found = probe("hgx-h100")

    assert found.host["nvidia.gpu_count"].value == 8
    assert [gpu.ident[:7] for gpu in found.gpus()] == [
        "0000:1b", "0000:43", "0000:52", "0000:61", "0000:9d", "0000:c3", "0000:d1", "0000:df",
    ]  # fmt: skip
    for gpu in found.gpus():
        assert set(gpu.facts) == {entry.key for entry in in_scope(GPU)}
        assert [key for key, seen in gpu.facts.items() if seen.outcome in (FAILED, NOT_IN_DRIVER)] == []
    assert at(found, 0).facts["gpu.nvlink"].value == ("18 x version 4 to switch",)
    assert at(found, 0).facts["gpu.topology"].value == ("3 x node", "4 x system")
    assert {gpu.facts["gpu.cpu_affinity"].value for gpu in found.gpus()} == {"0-55,112-167", "56-111,168-223"}


def test_sixteen_gpus_are_sixteen() -> None:
    """No list ends at eight."""
    found = probe("sixteen", "--only", "gpu.")

    assert len({gpu.facts["gpu.uuid"].value for gpu in found.gpus()}) == 16
    assert {gpu.facts["gpu.p2p"].value for gpu in found.gpus()} == {("15 x ok",)}


def test_mig_node_tells_its_layout() -> None:
    """Profiles with their places, holes passed over; a GPU with the mode on and no instance is not the same."""
    found = probe("mig")

    assert at(found, 0).facts["gpu.mig_layout"].value == ("1g.10gb+me@0", "1g.10gb@1", "3g.40gb@4")
    assert at(found, 1).facts["gpu.mig_layout"].value == ()


def test_laptop_tells_the_limit_in_force() -> None:
    """What a laptop does not support is not supported, what its driver does not know is not in the driver."""
    facts = probe("laptop").gpus()[0].facts

    assert (facts["gpu.power_limit"].outcome, facts["gpu.power_limit_enforced"].value) == (NOT_SUPPORTED, 80000)
    assert {facts[key].outcome for key in ("gpu.ecc", "gpu.serial", "gpu.mig_layout", "gpu.nvlink")} == {NOT_SUPPORTED}
    assert {facts[key].outcome for key in ("gpu.pdi", "gpu.recovery_action")} == {NOT_IN_DRIVER}


def test_node_with_a_lost_gpu_still_counts_it(tmp_path: Path) -> None:
    """A lost GPU is one of eight, whose facts have failed; `check` ends with "could not tell", not with a match."""
    whole = locked(probe("hgx-h100"), tmp_path / "whole.lock.toml")
    found = probe("lost")
    lost = at(found, 5).facts

    assert found.host["nvidia.gpu_count"].value == 8
    assert (lost["gpu.vbios"].outcome, lost["gpu.vbios"].detail) == (FAILED, "gpu is lost (NVML code 15)")
    assert at(found, 4).facts["gpu.vbios"].value == "96.00.A5.00.01"
    ended = envlock("check", "-l", whole, env=world("lost"))
    assert ended.code in (1, 3)
    assert "gpu is lost" in ended.out


def test_gpu_that_asks_for_a_reset_says_so() -> None:
    """Of a sick GPU only the recovery action differs from its neighbours, and it is shown."""
    found = probe("sick")

    assert [at(found, index).facts["gpu.recovery_action"].value for index in (2, 3)] == ["none", "reset"]


def test_gpus_that_may_not_be_opened_are_listed(tmp_path: Path) -> None:
    """In a container that was given two GPUs of eight, six say "no permission"; none is missing."""
    found = probe("permission")
    outcomes = [at(found, index).facts["gpu.name"].outcome for index in range(8)]

    assert outcomes == ["value", "value", *[NO_PERMISSION] * 6]
    assert envlock("check", "-l", locked(probe("hgx-h100"), tmp_path / "a.lock.toml"), env=world("permission")).code


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mismatch", "the driver's library and the loaded kernel module are different versions (NVML code 18)"),
        ("not-loaded", "driver not loaded (NVML code 9)"),
        ("unknown-error", "unknown error (NVML code 999)"),
    ],
)
def test_driver_that_does_not_start_is_never_no_gpu(name: str, words: str, tmp_path: Path) -> None:
    """A driver that does not start leaves the count open, says why, and makes `check` end with 3."""
    found = probe(name)
    whole = locked(probe("hgx-h100"), tmp_path / "whole.lock.toml")

    assert found.host["nvidia.gpu_count"].outcome == FAILED
    assert words in found.host["nvidia.gpu_count"].detail
    assert envlock("check", "-l", whole, env=world(name)).code == 3


def test_library_of_another_version_than_the_module_names_itself(tmp_path: Path) -> None:
    """After an upgrade without a reboot the version in the library's own file name is told."""
    path = build(tmp_path, "libnvidia-ml.so.535.161.08")
    detail = probe("mismatch", ENVLOCK_NVML_LIBRARY=str(path)).host["nvidia.gpu_count"].detail

    assert "(NVML code 18); the library is version 535.161.08" in detail


def test_driver_that_hangs_at_its_start_costs_the_deadline() -> None:
    """A start that never returns is given up, its call is named, and other facts are all there."""
    began = time.monotonic()
    found = probe("hang-at-start", ENVLOCK_NVML_DEADLINE="1")

    assert time.monotonic() - began < 15
    assert "(nvmlInit): it gave no answer within 1 s" in found.host["nvidia.driver"].detail
    assert found.host["cpu.threads"].has_value


def test_driver_that_hangs_in_one_call_keeps_the_others() -> None:
    """Of a call that never returns, everything answered before it is kept, and the call is named."""
    found = probe("hang-in-call", ENVLOCK_NVML_DEADLINE="2")
    told = "nvmlDeviceGetInforomConfigurationChecksum of GPU 6"

    assert at(found, 5).facts["gpu.vbios"].value == "96.00.A5.00.01"
    assert (at(found, 6).ident, told in at(found, 6).facts["gpu.vbios"].detail) == ("0000:d1:00.0", True)
    assert told in at(found, 7).facts["gpu.name"].detail
    assert any(told in note for note in found.notes)


def test_library_that_crashes_keeps_the_answers_before() -> None:
    """A crash in the library ends its own process and not the probe."""
    found = probe("crash-in-call")

    assert at(found, 0).facts["gpu.name"].has_value
    assert "killed by signal 11" in at(found, 1).facts["gpu.name"].detail


def test_host_facts_alone_wake_no_gpu(tmp_path: Path) -> None:
    """`--only nvidia.` neither wakes GPUs that sleep nor asks one that would never answer."""
    asleep = altered("hgx-h100", tmp_path / "asleep.txt", "attach=60000000", "nvmlDeviceGetName=!hang", "0.handle=!15")
    ended = envlock("probe", "--only", "nvidia.", "--format", "json", env={**asleep, "ENVLOCK_NVML_DEADLINE": "5"})

    assert ended.document["host"]["nvidia.driver"]["value"] == "580.105.08"
    assert ended.document["host"]["nvidia.gpu_count"]["value"] == 8


def test_node_whose_gpus_sleep_is_waited_for(tmp_path: Path) -> None:
    """Sixteen GPUs that take a quarter of a second each to wake are within the deadline of a minute."""
    asleep = altered("sixteen", tmp_path / "asleep.txt", "attach=250000")
    ended = envlock("probe", "--only", "nvidia.driver", "--format", "json", env=asleep)
    found = envlock("probe", "--only", "gpu.", "--format", "json", env=asleep)

    assert ended.code == 0
    assert len(found.document["devices"]) == 16


def test_driver_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`probe` and `check` begin to ask the driver before they read anything else, and do not ask again later."""
    import pynvml

    from envlock.probe.nvml import child as nvml_child

    def calls(name: str) -> int:
        return int.from_bytes((tmp_path / name).read_bytes()[8:], sys.byteorder)

    for name, text in {**world("hgx-h100"), "ENVLOCK_FAKE_NVML_TIME": str(tmp_path / "one")}.items():
        monkeypatch.setenv(name, text)
    nvml_child.ask(str(pynvml.__file__), 30)
    whole = locked(probe("hgx-h100", ENVLOCK_FAKE_NVML_TIME=str(tmp_path / "probe")), tmp_path / "whole.lock.toml")
    envlock("check", "-l", whole, env={**world("hgx-h100"), "ENVLOCK_FAKE_NVML_TIME": str(tmp_path / "check")})

    assert calls("one") == calls("probe") == calls("check") > 500


def test_order_of_numbers_is_not_what_a_gpu_is(tmp_path: Path) -> None:
    """The same GPUs under other numbers, as after a reboot, are the node that was locked."""
    own = Path(world("hgx-h100")["ENVLOCK_FAKE_NVML"]).read_text().splitlines()
    turned = [f"{(int(line[0]) + 1) % 4}{line[1:]}" if line[:2] in ("0.", "1.", "2.", "3.") else line for line in own]
    (tmp_path / "turned.txt").write_text("\n".join(turned) + "\n")
    whole = locked(probe("hgx-h100"), tmp_path / "whole.lock.toml")

    assert (
        envlock("check", "-l", whole, env={**world("hgx-h100"), "ENVLOCK_FAKE_NVML": str(tmp_path / "turned.txt")}).code
        == 0
    )


def test_limit_that_was_changed_is_drift(tmp_path: Path) -> None:
    """One GPU of eight with a lower power limit is a definite difference, named by its place."""
    whole = locked(probe("hgx-h100"), tmp_path / "whole.lock.toml")
    changed = altered("hgx-h100", tmp_path / "changed.txt", "4.nvmlDeviceGetPowerManagementLimit=600000")
    ended = envlock("check", "-l", whole, env=changed)

    assert envlock("check", "-l", whole, env=world("hgx-h100")).code == 0
    assert "gpu.power_limit" in ended.out
    assert "600" in ended.out
    assert "0000:9d:00.0" in ended.out


# ---- which library ----------------------------------------------------------------------------


def chosen(path: str) -> str:
    """Return what is said of the library `path` when ENVLOCK_NVML_LIBRARY names it."""
    env = {**world("hgx-h100"), "ENVLOCK_NVML_LIBRARY": path}
    ended: Ended = envlock("probe", "--only", "nvidia.", "--format", "json", env=env)
    driver = ended.document["host"]["nvidia.gpu_count"]
    assert (ended.code, driver["outcome"]) == (0, FAILED)
    return str(driver["detail"])


def test_library_that_is_not_there_is_named_with_its_variable(tmp_path: Path) -> None:
    """A relative path and a missing file are failures that name the variable."""
    assert "ENVLOCK_NVML_LIBRARY=lib.so: not an absolute path" in chosen("lib.so")
    assert f"ENVLOCK_NVML_LIBRARY={tmp_path}/no.so: no such file or directory" in chosen(f"{tmp_path}/no.so")


def test_library_that_is_none_is_named_with_its_variable(tmp_path: Path) -> None:
    """A file of no bytes, a text, a folder and a library of another machine say what they are."""
    for name, content in (("empty", b""), ("text", b"hello"), ("foreign", foreign())):
        (tmp_path / name).write_bytes(content)

    assert "ENVLOCK_NVML_LIBRARY={}: the file is empty".format(tmp_path / "empty") in chosen(str(tmp_path / "empty"))
    assert "not a library (no ELF file)" in chosen(str(tmp_path / "text"))
    assert "is a directory" in chosen(str(tmp_path))
    assert "built for another architecture than this Python" in chosen(str(tmp_path / "foreign"))


def foreign() -> bytes:
    """Return this test's library with the machine of its header changed to one that no host here is (S/390)."""
    data = bytearray(fakes.nvml.library().read_bytes())
    data[18:20] = (22).to_bytes(2, sys.byteorder)
    return bytes(data)


def test_library_that_does_not_load_says_why(tmp_path: Path) -> None:
    """A library that was cut off in the middle is a failure in the loader's words."""
    (tmp_path / "cut.so").write_bytes(fakes.nvml.library().read_bytes()[:500])

    assert "ENVLOCK_NVML_LIBRARY={}: cannot be loaded: ".format(tmp_path / "cut.so") in chosen(str(tmp_path / "cut.so"))


def test_stub_is_refused(tmp_path: Path) -> None:
    """The library that CUDA ships to be linked with answers nothing, and is not asked."""
    path = build(tmp_path / "stubs")

    assert "is the stub that programs are linked with" in chosen(str(path))


def found_by_loader(folder: Path, **changed: str) -> Any:
    """Return the facts with `folder` first on the loader's path, and a sign that there is a GPU to ask for."""
    # The sign is the variable itself, set to what the loader would find.
    environment = {**world("hgx-h100"), "LD_LIBRARY_PATH": str(folder), **changed}
    program = (
        "import json, os, pynvml\n"
        "os.environ.pop('ENVLOCK_NVML_LIBRARY')\n"
        "from envlock.probe.nvml.child import ask\n"
        "print(json.dumps(dict(ask(pynvml.__file__, 30, gpus=False))))"
    )
    ran = subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True,
                         text=True, check=True, timeout=60)  # fmt: skip
    return json.loads(ran.stdout)


def test_loader_finds_the_driver_and_its_path_is_told(tmp_path: Path) -> None:
    """Without the variable the loader chooses; the file it came to is told, with the version in its name."""
    build(tmp_path, "libnvidia-ml.so.580.105.08")
    (tmp_path / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.105.08")
    document = found_by_loader(tmp_path)

    assert (document["library"], document["library_version"]) == (
        str(tmp_path / "libnvidia-ml.so.580.105.08"),
        "580.105.08",
    )


def test_empty_library_on_the_loaders_path_is_no_missing_one(tmp_path: Path) -> None:
    """A file of no bytes where the driver's library should be is said as that, not as "not found"."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")

    assert "cannot be loaded" in found_by_loader(tmp_path)["error"]
    assert "file too short" in found_by_loader(tmp_path)["error"]


def test_stub_on_the_loaders_path_is_refused(tmp_path: Path) -> None:
    """A stub that comes first on the loader's path is refused as one that was chosen is."""
    build(tmp_path / "stubs")

    assert "is the stub" in found_by_loader(tmp_path / "stubs")["error"]


def test_text_that_the_library_prints_is_not_in_the_result(tmp_path: Path) -> None:
    """A library that writes to standard output does not break the document."""
    said = altered("hgx-h100", tmp_path / "said.txt", "print=WARNING: You should always run with libnvidia-ml.so.1")
    ended = envlock("probe", "--only", "nvidia.", "--format", "json", env=said)

    assert ended.document["host"]["nvidia.gpu_count"]["value"] == 8


# ---- the zip application ----------------------------------------------------------------------


def interpreters() -> list[str]:
    """Return this Python, and the oldest supported one when it is here."""
    named = [shutil.which("python3.8") or ""]
    named += [str(path) for path in sorted((Path.home() / ".pyenv" / "versions").glob("3.8.*/bin/python3"))]
    works = [
        name
        for name in named
        if name and subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0
    ]
    return [sys.executable, *works[:1]]


def run_agent(program: str, folder: Path, *arguments: str, path: Path | None = None, **changed: str) -> Any:
    application = folder / "envlock-agent.pyz"
    application.write_bytes(agent.build())
    isolated = () if path else ("-I",)
    ran = subprocess.run(
        [program, *isolated, str(application), *arguments, "--format", "json"],
        env={"PATH": os.environ["PATH"], **world("hgx-h100"), **({"PYTHONPATH": str(path)} if path else {}), **changed},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


@pytest.mark.parametrize("program", interpreters())
def test_agent_with_a_binding_asks_nvml(program: str, tmp_path: Path) -> None:
    """The zip application asks NVML where its Python has the binding; variables reach its child."""
    import pynvml

    (tmp_path / "site").mkdir()
    shutil.copy(str(pynvml.__file__), tmp_path / "site" / "pynvml.py")
    document = run_agent(program, tmp_path, "probe", path=tmp_path / "site")

    assert document["host"]["nvidia.gpu_count"]["value"] == 8
    ours = probe("hgx-h100").to_document()["devices"]
    assert document["devices"] == ours


def test_agent_without_a_binding_never_says_no_gpu(tmp_path: Path) -> None:
    """On a bare Python the driver was not asked by NVML: the facts say so, and the count is not zero."""
    old = interpreters()[-1]
    ran = subprocess.run([old, "-I", "-c", "import pynvml"], capture_output=True, check=False)
    if ran.returncode == 0:
        pytest.skip("the Python at hand has an NVML binding")
    document = run_agent(old, tmp_path, "probe")

    assert document["host"]["nvidia.gpu_count"]["outcome"] == FAILED
    assert "no NVML binding" in document["host"]["nvidia.gpu_count"]["detail"]


def test_deadline_that_is_no_number_is_said() -> None:
    """A deadline that is not a number of seconds is a failure that names the variable."""
    detail = probe("hgx-h100", ENVLOCK_NVML_DEADLINE="soon").host["nvidia.gpu_count"].detail

    assert "ENVLOCK_NVML_DEADLINE=soon: not a number of seconds" in detail
