"""What /proc/cpuinfo says, and what must not be taken from it."""

import os
from pathlib import Path

import pytest
from recorded_host import RecordedHost, cpuinfo

from envlock.facts import FAILED, HIDDEN, NOT_SUPPORTED, VALUE, Observed, absent, value
from envlock.probe import cpu

GRACE = "BogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve sve2 i8mm bf16 crc32\nCPU implementer\t: 0x41\n" \
    "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n"  # fmt: skip

V1 = "fpu cx8 cmov mmx fxsr sse sse2 syscall lm"
V2 = V1 + " pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm"
V3 = V2 + " fma movbe xsave avx f16c bmi1 avx2 bmi2 abm"
V4 = V3 + " avx512f avx512dq avx512cd avx512bw avx512vl"


def facts(text: str) -> dict[str, Observed]:
    return cpu.facts_of(cpu.parse(text))


@pytest.mark.parametrize(
    ("flags", "level"),
    [(V4, "x86-64-v4"), (V4.replace(" avx512cd", ""), "x86-64-v3"), (V3, "x86-64-v3"),
     (V3.replace(" abm", "") + " avx512f", "x86-64-v2"), (V2, "x86-64-v2"), (V1, "x86-64-v1"), ("sse2", "")],
)  # fmt: skip
def test_isa_level_is_the_last_reached_in_full(flags: str, level: str) -> None:
    """A level counts when every flag of it and of those below is there."""
    assert level == cpu.isa_level(flags.split())


def test_kernel_flags_are_those_that_choose_kernels() -> None:
    """AVX-512, AMX and VNNI count; encryption, protection and speculation do not."""
    line = "fpu smep sme sev avx2 fma avx512_vnni avx_vnni amx_bf16 amx_int8 ssse3 rtm ibrs"

    assert cpu.kernel_flags(line.split()) == ("amx_bf16", "amx_int8", "avx2", "avx512_vnni", "avx_vnni", "fma", "ssse3")


def test_kernel_flags_of_arm() -> None:
    """On Arm, SVE, SME, bf16 and i8mm count; cryptography does not."""
    line = "fp asimd aes sha2 sve sve2 svei8mm sme bf16 i8mm atomics"

    assert cpu.kernel_flags(line.split()) == ("asimd", "bf16", "fp", "i8mm", "sme", "sve", "sve2", "svei8mm")


def test_bare_metal_gives_every_value() -> None:
    """A CPU without a hypervisor shows its identity and its microcode."""
    found = facts(cpuinfo(4, flags=V4))

    assert {key: seen.value for key, seen in found.items() if seen.has_value} == {
        "cpu.vendor": "GenuineIntel",
        "cpu.model_name": "Some CPU",
        "cpu.family": 6,
        "cpu.model": 143,
        "cpu.stepping": 8,
        "cpu.isa_level": "x86-64-v4",
        "cpu.flags": ("avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl", "f16c", "fma",
                      "sse4_1", "sse4_2", "ssse3"),
        "cpu.microcode": "0x2b000603",
        "cpu.uniform": True,
        "cpu.threads": 4,
    }  # fmt: skip
    assert found["cpu.arm_part"].outcome == NOT_SUPPORTED


@pytest.mark.parametrize("shown", ["0x1", "0xffffffff", "0x6000626", None])
def test_microcode_of_a_guest_is_hidden(shown: str | None) -> None:
    """The hypervisor flag decides, however plausible the value is."""
    seen = facts(cpuinfo(2, flags=V3 + " hypervisor", microcode=shown))["cpu.microcode"]

    assert seen == absent(HIDDEN)
    assert shown is None or shown in seen.detail


def test_mixed_microcode_lists_all() -> None:
    """One CPU with other microcode is not averaged away: both values, and who holds which."""
    found = facts(cpuinfo(4, {2: {"microcode": "0x2b0005c0"}}))

    assert found["cpu.microcode"] == value(("0x2b0005c0", "0x2b000603"))
    assert found["cpu.microcode"].detail == "not all agree: 0x2b0005c0 on CPU 2; 0x2b000603 on CPU 0-1,3"
    assert found["cpu.uniform"] == value(False)
    assert found["cpu.uniform"].detail == "CPUs differ in: microcode"


def test_microcode_line_that_is_missing_is_failed() -> None:
    """On bare metal a missing line is a failure: absent, not zero."""
    assert facts(cpuinfo(2, microcode=None))["cpu.microcode"].outcome == FAILED


def test_microcode_line_that_one_cpu_lacks_is_failed() -> None:
    """A value that not every CPU shows is not the host's value."""
    seen = facts(cpuinfo(3, {1: {"microcode": ""}}))["cpu.microcode"]

    assert (seen.outcome, seen.detail) == (FAILED, "no line `microcode` for CPUs 1")


def test_clock_does_not_make_cpus_differ() -> None:
    """The current clock differs on every host and is not compared."""
    assert facts(cpuinfo(2, {0: {"cpu MHz": "2300"}, 1: {"cpu MHz": "2301"}}))["cpu.uniform"] == value(True)


def test_flags_are_those_that_all_cpus_have() -> None:
    """A flag that one CPU lacks cannot be used by a thread that may run there."""
    found = facts(cpuinfo(2, {1: {"flags": V2}}, flags=V3))

    assert found["cpu.isa_level"] == value("x86-64-v2")
    assert "avx2" not in (found["cpu.flags"].value or ())  # type: ignore[operator]
    assert found["cpu.uniform"] == value(False)


def test_order_of_flags_does_not_make_cpus_differ() -> None:
    """Flags are a set."""
    assert facts(cpuinfo(2, {1: {"flags": "sse2 sse fpu avx2"}}))["cpu.uniform"] == value(True)


def test_arm_is_named_by_its_part() -> None:
    """An Arm core prints no model; implementer, part, variant and revision are its identity."""
    found = facts(f"processor\t: 0\n{GRACE}\nprocessor\t: 1\n{GRACE}\n")

    assert found["cpu.arm_part"] == value("0x41/0xd4f/0x0/0")
    assert found["cpu.flags"] == value(("asimd", "bf16", "fp", "i8mm", "sve", "sve2"))
    assert {found[f"cpu.{key}"].outcome for key in ("vendor", "family", "model", "stepping", "microcode")} == {
        NOT_SUPPORTED
    }
    assert found["cpu.isa_level"].outcome == NOT_SUPPORTED


def test_two_kinds_of_arm_core_are_both_listed() -> None:
    """A host with two kinds of core has no single part, and its cores do not agree."""
    found = facts(f"processor\t: 0\n{GRACE}\nprocessor\t: 1\n{GRACE.replace('0xd4f', '0xd40')}\n")

    assert found["cpu.arm_part"] == value(("0x41/0xd40/0x0/0", "0x41/0xd4f/0x0/0"))
    assert found["cpu.uniform"] == value(False)


def test_power_has_a_name_and_no_x86_model() -> None:
    """POWER's line `model` at the end names the machine, not the CPU's model number."""
    found = facts("processor\t: 0\ncpu\t: POWER8E (raw)\nrevision\t: 2.1\n\ntimebase\t: 1\nmodel\t: 8247-22L\n")

    assert found["cpu.model_name"] == value("POWER8E (raw)")
    assert found["cpu.model"].outcome == NOT_SUPPORTED
    assert found["cpu.flags"].outcome == NOT_SUPPORTED


def test_riscv_keeps_its_isa() -> None:
    """A RISC-V core's extensions are its flags."""
    assert facts("processor\t: 0\nhart\t: 2\nisa\t: rv64imafdc_zicsr\n")["cpu.flags"] == value(("rv64imafdc", "zicsr"))


def test_lines_said_once_count_for_every_processor() -> None:
    """Older Arm kernels print the common lines once, after the processors."""
    found = facts(f"Processor\t: ARMv8\nprocessor\t: 0\n\nprocessor\t: 1\n\n{GRACE}\nHardware\t: Board\n")

    assert found["cpu.threads"] == value(2)
    assert found["cpu.arm_part"] == value("0x41/0xd4f/0x0/0")


@pytest.mark.parametrize("text", ["", "garbage\n", "processor\t: x\n"])
def test_text_without_processors_is_failed(tmp_path: Path, text: str) -> None:
    """A file that lists no processor fails every fact that comes from it, and none raises."""
    found = cpu.read(RecordedHost(tmp_path, {"/proc/cpuinfo": text}))

    assert {seen.outcome for key, seen in found.items() if key != "cpu.architecture"} == {FAILED}


def test_file_that_is_missing_is_failed(tmp_path: Path) -> None:
    """Without /proc nothing is known of the CPU, and nothing is "not supported"."""
    found = cpu.read(RecordedHost(tmp_path, {}))

    assert {seen.outcome for key, seen in found.items() if key != "cpu.architecture"} == {FAILED}
    assert found["cpu.vendor"].detail == "no such file or directory"


def test_text_of_another_cpu_on_x86_is_failed(tmp_path: Path) -> None:
    """On an x86 kernel a text without an x86 CPU hides what there is: nothing is "not supported"."""
    found = cpu.read(RecordedHost(tmp_path, {"/proc/cpuinfo": "processor\t: 0\n\nprocessor\t: 1\n"}))

    assert NOT_SUPPORTED not in {seen.outcome for seen in found.values()}
    assert found["cpu.threads"] == value(2)


def test_number_that_is_none_is_failed() -> None:
    """A family that is not a number is not understood."""
    assert facts(cpuinfo(1, cpu_family="six"))["cpu.family"].outcome == FAILED


CORPUS = os.environ.get("ENVLOCK_CORPUS", "")


@pytest.mark.skipif(not CORPUS, reason="ENVLOCK_CORPUS is not set")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("amd-ryzen-guest", {"cpu.vendor": "AuthenticAMD", "cpu.family": 23, "cpu.model": 8, "cpu.stepping": 2,
                             "cpu.microcode": HIDDEN}),
        ("amd-ryzen-16", {"cpu.threads": 16, "cpu.microcode": "0x800820d", "cpu.isa_level": "x86-64-v3"}),
        ("intel-pentium", {"cpu.vendor": "GenuineIntel", "cpu.family": 6, "cpu.model": 42, "cpu.stepping": 7,
                           "cpu.microcode": "0x29", "cpu.threads": 2}),
        ("intel-i7", {"cpu.microcode": "0x616"}),
        ("intel-no-microcode-line", {"cpu.microcode": HIDDEN}),
        ("intel-guest-masked-1", {"cpu.microcode": HIDDEN}),
        ("amd-guest-masked-f", {"cpu.microcode": HIDDEN}),
        ("intel-mixed-microcode", {"cpu.microcode": ("0x2b0005c0", "0x2b000603"), "cpu.uniform": False}),
        ("arm-thunderx", {"cpu.arm_part": "0x43/0x0a1/0x1/0", "cpu.threads": 6, "cpu.microcode": NOT_SUPPORTED}),
        ("arm-grace", {"cpu.arm_part": "0x41/0xd4f/0x0/0", "cpu.threads": 4}),
        ("arm-mixed-parts", {"cpu.arm_part": ("0x41/0xd40/0x1/1", "0x41/0xd4f/0x0/0"), "cpu.uniform": False}),
        ("arm-odroid", {"cpu.arm_part": "0x41/0xd03/0x0/4"}),
        ("riscv64", {"cpu.flags": ("rv64imafdc",), "cpu.model_name": "sifive,u74-mc"}),
        ("ppc64le-power8", {"cpu.model_name": "POWER8E (raw), altivec supported", "cpu.model": NOT_SUPPORTED}),
    ],
)  # fmt: skip
def test_recorded_hosts_read_as_expected(name: str, expected: dict[str, object]) -> None:
    """Each recorded /proc/cpuinfo gives the values that its index expects."""
    found = facts((Path(CORPUS) / "hosts" / "cpuinfo" / f"{name}.txt").read_text(encoding="utf-8"))

    assert {
        key: found[key].value if found[key].outcome == VALUE else found[key].outcome for key in expected
    } == expected


@pytest.mark.skipif(not CORPUS, reason="ENVLOCK_CORPUS is not set")
def test_switched_off_instructions_show() -> None:
    """The same CPU with AVX-512 and AMX switched off differs in its flags, and in nothing that names it."""
    folder = Path(CORPUS) / "hosts" / "cpuinfo"
    on, off = (facts((folder / f"{name}.txt").read_text()) for name in ("intel-xeon", "intel-avx512-off"))

    assert on["cpu.flags"] != off["cpu.flags"]
    assert on["cpu.model"] == off["cpu.model"]
    assert on["cpu.microcode"] == off["cpu.microcode"]
