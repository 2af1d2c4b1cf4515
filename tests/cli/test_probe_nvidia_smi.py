"""`envlock probe` with nvidia-smi: as a file, and as a program of the test's own."""

import json
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import jsonschema
import pytest
from fakes import nvml
from fakes.nvidia_smi import REFUSED, asked, replay
from program import Ended, envlock
from samples import GPU_FACTS, facts

from envlock import agent
from envlock.drift import Comparison, Verdict, compare_facts
from envlock.facts import Device, Facts, value
from envlock.lockfile import host_of
from envlock.policy import default_rules, locked_keys, policy_of
from envlock.registry import REGISTRY
from envlock.registry.documents import json_schema

DATA = Path(__file__).resolve().parents[1] / "data" / "nvidia-smi"
FILE = DATA / "two-a100.xml"
XML = FILE.read_text(encoding="utf-8")
UUID = "GPU-0dd00000-0000-4000-8000-000000000001"
DAY = date(2026, 1, 1)
SERIAL = "1500000000001"


def probe(*arguments: str | Path, stdin: bytes = b"") -> Ended:
    return envlock("probe", "--format", "json", *arguments, stdin=stdin)


def test_file_gives_a_document_of_its_gpus_and_no_more() -> None:
    """Nothing of this host is in it, it says what it is limited to, and the schema holds."""
    ended = probe("--nvidia-smi", FILE)
    document = ended.document

    assert (ended.code, ended.err) == (0, "")
    assert document["only"] == ["nvidia.", "gpu."]
    assert {key.partition(".")[0] for key in document["host"]} == {"nvidia"}
    assert [device["id"] for device in document["devices"]] == ["0000:01:00.0", "0000:41:00.0"]
    jsonschema.validate(document, json_schema())


def test_standard_input_is_a_file() -> None:
    """`-` reads the same text from standard input."""
    assert probe("--nvidia-smi", "-", stdin=FILE.read_bytes()).out == probe("--nvidia-smi", FILE).out


def test_agent_gives_the_same_document(tmp_path: Path) -> None:
    """The zip application reads the same file to the same document, from standard input too."""
    path = tmp_path / "agent.pyz"
    path.write_bytes(agent.build())
    for name, stdin in ((str(FILE), b""), ("-", FILE.read_bytes())):
        argv = [sys.executable, "-I", path, "probe", "--format", "json", "--nvidia-smi", name, "--no-identity"]
        ran = subprocess.run(argv, input=stdin, capture_output=True, check=True, timeout=60)
        assert json.loads(ran.stdout) == probe("--nvidia-smi", FILE, "--no-identity").document


@pytest.mark.parametrize(
    ("only", "host_keys", "devices"), [("gpu.vbios", 0, 2), ("nvidia.gpu", 1, 0), ("n", 8, 0), ("g", 0, 2)]
)
def test_only_chooses_among_what_the_file_tells(only: str, host_keys: int, devices: int) -> None:
    """A prefix of the facts of GPUs, or of those of the driver, gives just those."""
    document = probe("--nvidia-smi", FILE, "--only", only).document

    assert (len(document["host"]), len(document["devices"]), document["only"]) == (host_keys, devices, [only])


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (("--nvidia-smi", "-"), b"", "standard input: is empty"),
        (("--nvidia-smi", "-"), XML[:500].encode(), "standard input: is cut off: the document has no end"),
        (("--nvidia-smi", "-"), b"\x00\xff" * 99, "standard input: is no output of nvidia-smi"),
        (("--nvidia-smi", "/nowhere"), b"", "/nowhere: no such file"),
        (("--nvidia-smi", FILE, "--only", "cpu."), b"", "nvidia-smi tells no facts that start with 'cpu.'"),
        (("--nvidia-smi", FILE, "--cross-check"), b"", "envlock probe: --cross-check is about this host, --nvidia-smi"),
    ],
)
def test_input_that_cannot_be_used_is_exit_code_2(arguments: tuple[str, ...], stdin: bytes, words: str) -> None:
    """A message that names the input, an error document where JSON was asked for, and no traceback."""
    ended = probe(*arguments, stdin=stdin)

    assert ended.code == 2
    assert ended.err.startswith(f"error: {words}")
    assert ended.document["schema"] == "envlock.error/1"


def test_no_identity_leaves_no_name_of_a_part() -> None:
    """Neither the facts, nor what is said beside them, name a GPU; without the option they do."""
    noted = XML + f"\nWARNING: GPU {UUID} with the serial {SERIAL} is hot\n"
    plain = probe("--nvidia-smi", "-", stdin=noted.encode())
    ended = probe("--nvidia-smi", "-", "--no-identity", stdin=noted.encode())

    assert {UUID in plain.out, SERIAL in plain.out} == {True}
    assert {UUID in ended.out, SERIAL in ended.out} == {False}
    assert ended.document["notes"] == ["WARNING: GPU (left out) with the serial (left out) is hot"]
    assert "gpu.serial" not in ended.document["devices"][0]["facts"]
    jsonschema.validate(ended.document, json_schema())


def test_no_identity_holds_for_an_error_too() -> None:
    """What cannot be used is said without the names in it."""
    cut = f"index, uuid, serial, name\n0, {UUID}, {SERIAL}".encode()
    plain = probe("--nvidia-smi", "-", stdin=cut)
    ended = probe("--nvidia-smi", "-", "--no-identity", stdin=cut)

    assert UUID in plain.document["message"]
    assert ended.code == 2
    assert ended.document["message"] == "is cut off in its last line: (left out)"
    assert {UUID in ended.out + ended.err, SERIAL in ended.out + ended.err} == {False}


def test_text_says_how_many_gpus_are_not_listed() -> None:
    """A report of one GPU of four does not read as a host with one."""
    text = XML.replace("<attached_gpus>2<", "<attached_gpus>4<")

    first = envlock("probe", "--nvidia-smi", "-", stdin=text.encode()).out.split("\n\n")[0]
    assert first == "4 NVIDIA GPUs, of which are listed: 2 x NVIDIA A100-SXM4-80GB"


# ---- what becomes of such a document -----------------------------------------------------------


def verdict(locked: Facts, seen: Facts) -> Verdict:
    return compared(locked, seen).verdict


def compared(locked: Facts, seen: Facts) -> Comparison:
    held = host_of(locked.host, [gpu.facts for gpu in locked.gpus()])
    policy = policy_of(default_rules(held), "test", locked_keys(held), REGISTRY)
    return compare_facts(held, seen, policy, DAY)


def of(text: str) -> Facts:
    return Facts.from_document(probe("--nvidia-smi", "-", stdin=text.encode()).document, "f")


def test_report_of_some_gpus_never_matches() -> None:
    """One GPU of two attached: one too many for a lock with one, and no answer to a lock with two."""
    start, stop = XML.index('\t<gpu id="00000000:41'), XML.index("</nvidia_smi_log>")
    some = of(XML[:start] + XML[stop:])
    answered = {key: seen for key, seen in some.gpus()[0].facts.items() if seen.has_value}
    one = Facts({"nvidia.gpu_count": value(1)}, [Device("gpu", "0000:01:00.0", answered)])
    two = Facts({"nvidia.gpu_count": value(2)}, [*one.devices, Device("gpu", "0000:41:00.0", answered)])

    assert verdict(one, some) is Verdict.DRIFT
    assert verdict(two, some) is Verdict.UNKNOWN


def test_what_the_document_does_not_cover_is_unknown_and_not_drift() -> None:
    """A lock with facts of the CPU is not met by a document of GPUs, and not broken by it either."""
    seen = facts([GPU_FACTS])
    limited = Facts({"nvidia.gpu_count": value(1), "nvidia.driver": seen.host["nvidia.driver"]}, seen.devices,
                    only=("nvidia.", "gpu."))  # fmt: skip

    assert verdict(seen, limited) is Verdict.UNKNOWN
    assert {(drift.observed, drift.because, drift.fix) for drift in compared(seen, limited).drifts} == {
        ("(not observed)", "not part of this document, which holds only facts that start with nvidia. or gpu.", "")
    }


def test_layout_without_placement_is_neither_met_nor_broken() -> None:
    """nvidia-smi names MIG instances and not their places: the same ones are unknown, others are drift."""

    def layout(*items: str) -> Facts:
        return Facts({"nvidia.gpu_count": value(1)}, [Device("gpu", "a", {"gpu.mig_layout": value(items)})])

    placed = layout("1g.10gb@4", "3g.40gb@0")
    assert verdict(placed, layout("1g.10gb", "3g.40gb")) is Verdict.UNKNOWN
    assert verdict(placed, layout("1g.10gb", "2g.20gb")) is Verdict.DRIFT
    assert verdict(placed, layout("1g.10gb@5", "3g.40gb@0")) is Verdict.DRIFT
    assert verdict(placed, placed) is Verdict.MATCH


def test_documents_of_two_kinds_miss_no_gpu(tmp_path: Path) -> None:
    """Facts of a CPU beside facts of GPUs: whether GPUs are missing was not looked for."""
    paths = [tmp_path / "cpu.json", tmp_path / "gpu.json"]
    paths[0].write_text(envlock("probe", "--format", "json", "--only", "cpu.").out)
    paths[1].write_text(probe("--nvidia-smi", FILE, "--only", "gpu.").out)

    assert envlock("diff", *paths).code == envlock("diff", *reversed(paths)).code == 3


# ---- on a host ---------------------------------------------------------------------------------


def on_host(folder: Path, library: dict[str, str], *arguments: str, deadline: float = 20) -> Ended:
    """Probe with the program in `folder` first on PATH, and with a driver library of the test's choice."""
    env = {"PATH": f"{folder}:/usr/bin:/bin", "ENVLOCK_NVML_DEADLINE": str(deadline), **library}
    return envlock("probe", "--format", "json", "--only", "nvidia.", *arguments, env=env)


NO_LIBRARY = {"ENVLOCK_NVML_LIBRARY": "/nowhere/libnvidia-ml.so.1"}


def test_program_answers_where_the_library_does_not(tmp_path: Path) -> None:
    """The driver's facts come from nvidia-smi, and a note says why."""
    replay(tmp_path, {"-q -x": (XML, "", 0)})
    document = on_host(tmp_path, NO_LIBRARY).document

    assert document["host"]["nvidia.driver"]["value"] == "550.90.07"
    assert document["host"]["nvidia.driver"]["source"] == "nvidia-smi -q -x"
    assert document["notes"][0].startswith("nvidia-smi was asked, because NVML gave no answer: ")
    assert asked(tmp_path)[0] == "-q -x"


@pytest.mark.parametrize(
    ("out", "err", "status", "words"),
    [
        ("Unable to determine the device handle for GPU1: 0000:44:00.0: Unknown Error\n", "", 0, "0000:44:00.0"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "", 9, "(status 9)"),
        ("", "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", 12, "(status 12)"),
        ("", "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.\n", 15, "GPU is lost"),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 525.85\n", "", 18,
         "525.85"),
        ("Failed to initialize NVML: Unknown Error\n", "", 255, "(status 255)"),
        (*REFUSED, "is no output of nvidia-smi"),
    ],
)  # fmt: skip
def test_program_that_gives_no_answer_is_a_reason(tmp_path: Path, out: str, err: str, status: int, words: str) -> None:
    """Each public way to fail is a failed fact with nvidia-smi's words, and no traceback."""
    replay(tmp_path, {"-q -x": (out, err, status)})
    ended = on_host(tmp_path, NO_LIBRARY)

    assert (ended.code, ended.err) == (0, "")
    count = ended.document["host"]["nvidia.gpu_count"]
    assert count["outcome"] == "failed"
    assert words in count["detail"]


def test_program_that_never_ends_costs_its_deadline(tmp_path: Path) -> None:
    """One that ignores SIGTERM is left behind: the probe ends, and says how long it waited."""
    replay(tmp_path, {}, never_ends=True)
    began = time.monotonic()
    ended = on_host(tmp_path, NO_LIBRARY, deadline=0.5)

    assert time.monotonic() - began < 15
    detail = ended.document["host"]["nvidia.gpu_count"]["detail"]
    assert detail.endswith("`nvidia-smi -q -x` gave no answer within 0.5 s")


def test_cross_check_tells_where_the_two_disagree(tmp_path: Path) -> None:
    """With a driver library that answers, nvidia-smi is asked only when that is wished for."""
    replay(tmp_path, {"-q -x": (XML, "", 0)})

    silent = on_host(tmp_path, nvml.world("laptop"))
    assert (silent.document["host"]["nvidia.gpu_count"]["value"], asked(tmp_path)) == (1, [])
    notes = on_host(tmp_path, nvml.world("laptop"), "--cross-check").document["notes"]
    assert "driver: NVML nvmlSystemGetDriverVersion says 550.120; nvidia-smi -q -x says 550.90.07" in notes
