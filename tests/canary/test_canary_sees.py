"""The canary sees: each setting that changes bits ends in exit 1 and is named.

Against a golden recorded on this host, through the real command, with real libraries.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import samples

from envlock import lockfile, lockstore
from envlock.lockfile import Lockfile
from envlock.probe.libraries.elf import NO_BUILD_ID
from envlock.run import job
from envlock.run.findings import Finding, Kind

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCHEMA = Path(__file__).parents[2] / "docs/schema/canary-report.schema.json"
DETERMINISM = lockfile.Determinism(
    profile="strict",
    threads=2,
    env=(("MKL_NUM_THREADS", "2"), ("OMP_NUM_THREADS", "2")),
    torch=(("flush_denormal", False), ("mkldnn.deterministic", True)),
)


def say(_: str) -> None:
    """Nobody listens."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lockfile with the golden of this host, recorded by the command."""
    path = tmp_path_factory.mktemp("canary") / "host.lock.toml"
    base = samples.lock()
    assert base.host is not None
    lock = dataclasses.replace(base, determinism=DETERMINISM, goldens=(), host=dataclasses.replace(base.host, gpus=()))
    lockstore.write(path, lock)
    done = job.run(path, job.Wanted(on_host=True, record=True, runs=2, processes=2), say)
    assert (done.exit_code, done.recorded, done.refused) == (0, True, ()), done.judgement
    return path


def judged(path: Path, env: dict[str, str] | None = None, **wanted: Any) -> job.Done:
    """Return a run on this host with other variables, judged against the golden."""
    return job.run(path, job.Wanted(on_host=True, env=tuple((env or {}).items()), **wanted), say)


def first(done: job.Done, tier: str) -> Finding:
    """Return the first finding of a tier."""
    return next(finding for finding in done.judgement.findings if finding.tier == tier)


def settings(done: job.Done) -> set[str]:
    """Return the names of the settings that differ."""
    return {finding.name for finding in done.judgement.findings if finding.kind is Kind.SETTING}


def flags() -> set[str]:
    """Return what this host's CPUs can do."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return set(next(line for line in text.splitlines() if line.startswith(("flags", "Features"))).split(":")[1].split())


def has_mkl() -> bool:
    """Return whether torch computes with MKL on a CPU that MKL treats as Intel's."""
    import torch

    return bool(torch.backends.mkl.is_available()) and "GenuineIntel" in Path("/proc/cpuinfo").read_text(
        encoding="utf-8"
    )


def test_a_second_run_matches_and_its_document_fits_the_schema(recorded: Path) -> None:
    """Nothing changed: exit 0, every output the same, and the JSON is what the schema says."""
    done = judged(recorded)
    document = json.loads(json.dumps(done.to_document()))
    jsonschema.validate(document, json.loads(SCHEMA.read_text(encoding="utf-8")))

    assert done.exit_code == 0, done.judgement
    assert {tier.name: tier.differing + tier.unknown for tier in done.judgement.tiers} == {"T1": 0, "T2": 0, "T3": 0}
    assert document["judgement"]["golden"] == "known"


def test_recording_again_changes_nothing(recorded: Path) -> None:
    """The same bits give the same lockfile, byte for byte."""
    before = recorded.read_bytes()
    done = judged(recorded, record=True)

    assert (done.exit_code, done.recorded, recorded.read_bytes()) == (0, False, before)


@pytest.mark.skipif(not {"avx2", "avx512f"} & flags(), reason="this CPU has no vector kernels to turn off")
def test_aten_kernels_without_vectors_are_seen(recorded: Path) -> None:
    """ATEN_CPU_CAPABILITY=default: T2 and T3 differ, the variable and what it did are named."""
    done = judged(recorded, {"ATEN_CPU_CAPABILITY": "default"})

    assert done.exit_code == 1
    assert settings(done) == {"env.ATEN_CPU_CAPABILITY", "aten.cpu-capability"}
    assert first(done, "T2").name.startswith("t2.")
    assert first(done, "T3").operator == "layernorm"
    assert any("env.ATEN_CPU_CAPABILITY: (unset) → default" in cause for cause in first(done, "T3").causes)


def test_mkl_s_compatible_branch_is_seen(recorded: Path) -> None:
    """MKL_CBWR=COMPATIBLE: the FMA signature and the first matrix product differ."""
    if not has_mkl():
        pytest.skip("torch has no MKL here, or the CPU is not Intel's")
    done = judged(recorded, {"MKL_CBWR": "COMPATIBLE"})

    assert (done.exit_code, settings(done)) == (1, {"env.MKL_CBWR"})
    assert first(done, "T3").operator == "linear_q"
    moved = {finding.name for finding in done.judgement.findings if finding.tier == "T2"}
    assert "t2.s2.fma.mm.m64" in moved or "t2.s5.tree.mm.m1.512" in moved


@pytest.mark.skipif(not {"avx512_vnni", "avx_vnni"} & flags(), reason="this CPU has no VNNI")
def test_a_onednn_cap_that_breaks_int8_is_red_in_t1(recorded: Path) -> None:
    """ONEDNN_MAX_CPU_ISA=AVX2 on a VNNI host: wrong integers, with the variable named as the cause."""
    done = judged(recorded, {"ONEDNN_MAX_CPU_ISA": "AVX2"})
    red = first(done, "T1")

    assert (done.exit_code, settings(done)) == (1, {"env.ONEDNN_MAX_CPU_ISA"})
    assert (red.kind, red.name) == (Kind.BROKEN_HARDWARE, "t1.k3.int_mm.int8.48x64x56")
    assert red.causes == ("env.ONEDNN_MAX_CPU_ISA: (unset) → AVX2",)


def test_a_red_run_is_not_recorded(recorded: Path) -> None:
    """`--record` with a variable that the lockfile does not hold leaves the lockfile as it was."""
    before = recorded.read_bytes()
    done = judged(recorded, {"ATEN_CPU_CAPABILITY": "default"}, record=True)

    assert (done.recorded, recorded.read_bytes(), done.exit_code) == (False, before, 1)
    assert "env.ATEN_CPU_CAPABILITY is default, the lockfile holds (unset)" in done.refused


def test_another_thread_count_is_seen(recorded: Path) -> None:
    """One thread in place of two: the count is named, and kernels that split by threads differ."""
    done = judged(recorded, {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})

    assert done.exit_code == 1
    assert settings(done) == {"env.MKL_NUM_THREADS", "env.OMP_NUM_THREADS", "threads"}
    assert any(finding.name.startswith("t2.s9.threads.") for finding in done.judgement.findings)


@pytest.mark.parametrize(
    ("weight", "operator"),
    [
        ("t3.encoder.o.weight", "linear_o"),
        ("t3.convnet.int8.weight", "int_mm"),
        ("t3.encoder.half.q.weight", "linear_half_q"),
    ],
)
def test_one_flipped_weight_bit_is_seen(recorded: Path, weight: str, operator: str) -> None:
    """The operator that uses the weight is the first to differ; no signature moves."""
    done = judged(recorded, flip=(weight, 5))

    assert (done.exit_code, settings(done)) == (1, {"weight-bit-flip"})
    assert first(done, "T3").operator == operator
    assert not [finding for finding in done.judgement.findings if finding.tier in ("T1", "T2")]


def test_a_weight_that_does_not_exist_could_not_be_flipped(recorded: Path) -> None:
    """A flip that tests nothing is exit 3, with the weights that there are."""
    done = judged(recorded, flip=("t3.encoder.nothing", 5))

    assert done.exit_code == 3
    assert "no weight is called 't3.encoder.nothing'" in done.judgement.unknowns[0]


def golden_with(lock: Lockfile, **settings: str) -> Lockfile:
    """Return `lock` with other settings in its golden, as another build would have recorded."""
    golden = lock.goldens[0]
    changed = tuple((name, settings.get(name.replace(".", "_"), value)) for name, value in golden.settings)
    return lock.with_golden(dataclasses.replace(golden, settings=changed))


def test_another_torch_is_seen(recorded: Path, tmp_path: Path) -> None:
    """A golden of another torch: version and revision are named though these bits agree."""
    path = tmp_path / "other.lock.toml"
    lockstore.write(path, golden_with(lockstore.read(recorded), torch_version="2.12.0+cpu", torch_git="0" * 40))
    done = judged(path)

    assert (done.exit_code, settings(done)) == (1, {"torch.version", "torch.git"})


def test_another_build_of_a_library_is_seen(recorded: Path, tmp_path: Path) -> None:
    """A golden made with another libm: its build id is the finding."""
    path = tmp_path / "other.lock.toml"
    lock = lockstore.read(recorded)
    name = next(name for name, _ in lock.goldens[0].settings if name.startswith("library.libm"))
    lockstore.write(path, golden_with(lock, **{name.replace(".", "_"): "00" * 20}))
    done = judged(path)

    assert (done.exit_code, settings(done)) == (1, {name})
    assert NO_BUILD_ID not in dict(lock.goldens[0].settings)[name]


def test_two_reports_are_compared_by_the_command(recorded: Path, tmp_path: Path) -> None:
    """`compare` of a good and a bad report names the operator and how far it is off."""
    paths = []
    for name, flip in (("good", None), ("bad", ("t3.encoder.o.weight", 5))):
        paths.append(tmp_path / name)
        paths[-1].write_text(json.dumps(judged(recorded, flip=flip).to_document()))
    comparison = job.compare_files(*paths)

    assert (comparison.exit_code, comparison.first) == (1, ("t3.encoder.013.linear_o",))
    assert comparison.outputs[0].distance is not None
    assert comparison.outputs[0].distance.elements == 64
