"""`envlock.cudacompat`: the locked CUDA runtime and the driver of the host."""

import dataclasses
import json
from datetime import date
from pathlib import Path

import pytest
import samples
from click.testing import CliRunner

from envlock import lockstore
from envlock.checks import check
from envlock.cli.main import cli
from envlock.cudacompat import compare, runtimes
from envlock.drift import Comparison, Kind, Verdict
from envlock.facts import FAILED, Facts, Observed, absent, value
from envlock.lockfile import DebPackage, ImageBase, Lockfile, PythonPackage, Rule
from envlock.policy import policy_of

TODAY = date(2026, 11, 30)


def wheel(name: str, version: str) -> PythonPackage:
    return PythonPackage(
        name=name, version=version, index="default", file=f"{name}.whl", size=1, sha256=samples.sha(name)
    )


def locked(*packages: tuple[str, str], rules: tuple[Rule, ...] = (), gpus: int = 1) -> Lockfile:
    host = samples.host([samples.gpu_facts()] * gpus)
    lock = samples.lock(host, rules)
    return dataclasses.replace(lock, python=tuple(wheel(*package) for package in packages))


def observed(gpus: int = 1, **nvidia: str | Observed) -> Facts:
    told = {f"nvidia.{key}": value(seen) if isinstance(seen, str) else seen for key, seen in nvidia.items()}
    return samples.facts([samples.gpu_facts()] * gpus, {"nvidia.driver": absent(FAILED), **told})


def compared(lock: Lockfile, facts: Facts) -> Comparison:
    return compare(lock, facts, policy_of(lock.policy, "lock", ()), TODAY)


CUDA13 = ("nvidia-cuda-runtime", "13.0.96")
CUDA12 = ("nvidia-cuda-runtime-cu12", "12.9.79")


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ([CUDA13, ("torch", "2.14.1"), ("nvidia-cudnn-cu13", "9.24.0.43")], ["CUDA 13.0"]),
        ([CUDA12, ("torch", "2.8.0+cu128")], ["CUDA 12.9"]),
        ([("torch", "2.6.0+cu124"), ("nvidia-cudnn-cu12", "9.1")], ["CUDA 12.4"]),
        ([("torch", "2.0.1+cu118")], ["CUDA 11.8"]),
        ([("jaxlib", "0.4.20+cuda12.cudnn89")], ["CUDA 12"]),
        ([("cupy-cuda12x", "13.3.0")], ["CUDA 12"]),
        ([("jax-cuda12-plugin", "0.5.0")], ["CUDA 12"]),
        ([("cuda-toolkit", "13.0.3.0")], ["CUDA 13.0"]),
        ([CUDA12, CUDA13], ["CUDA 12.9", "CUDA 13.0"]),
        ([("torch", "2.13.0+cpu"), ("numpy", "2.4.6"), ("nvidia-ml-py", "13.615.71")], []),
        ([("torch", "2.13.0"), ("cucumber", "1.0"), ("nvidia-cufft", "12.0.0.61")], []),
    ],
)
def test_the_locked_runtimes(packages: list[tuple[str, str]], expected: list[str]) -> None:
    """The package that says most about each major is taken; what says nothing about CUDA is none."""
    assert [found.text() for found in runtimes(wheel(*package) for package in packages)] == expected


def test_a_driver_of_a_lower_major_is_drift() -> None:
    """A CUDA 13 runtime on a CUDA 12 driver: an error with what to install."""
    (drift,) = compared(locked(CUDA13), observed(cuda="12.2", driver="535.161.08")).drifts

    assert (drift.key, drift.kind, drift.severity) == ("cuda.runtime", Kind.CHANGED, "error")
    assert drift.expected == "a driver for CUDA 13.0 (nvidia-cuda-runtime 13.0.96)"
    assert drift.observed == "CUDA 12.2 (driver 535.161.08)"
    assert drift.fix == "install driver 580.65.06 or newer, or lock packages built for CUDA 12"


def test_a_lower_minor_is_a_warning() -> None:
    """Minor version compatibility: it runs, and its limits are told; the verdict stays a match."""
    found = compared(locked(CUDA12), observed(cuda="12.2", driver="535.161.08"))

    assert [(drift.severity, drift.kind) for drift in found.drifts] == [("warning", Kind.CHANGED)]
    assert found.drifts[0].because.startswith("minor version compatibility: ")
    assert found.verdict is Verdict.MATCH


@pytest.mark.parametrize("cuda", ["12.9", "13.0"])
def test_a_driver_that_is_new_enough_is_judged_the_same(cuda: str) -> None:
    """It was looked at, and it fits."""
    assert compared(locked(CUDA12), observed(cuda=cuda)) == Comparison(checked=1, same=(("cuda.runtime", ""),))


@pytest.mark.parametrize(
    ("driver", "verdict"),
    [("535.161.08", Verdict.DRIFT), ("580.65.06", Verdict.MATCH), ("Not Found", Verdict.UNKNOWN)],
)
def test_without_a_level_the_drivers_branch_decides(driver: str, verdict: Verdict) -> None:
    """The branch tells the major; a driver that tells nothing is unknown."""
    assert compared(locked(CUDA13), observed(driver=driver)).verdict is verdict


def test_the_kernel_module_tells_the_branch_too() -> None:
    """On a node without a binding for NVML the module's version is known."""
    found = compared(locked(CUDA13), observed(kernel_driver="535.161.08", cuda=absent(FAILED)))

    assert found.drifts[0].observed == "CUDA 12.2 (driver 535.161.08)"


def test_without_a_level_a_lower_minor_is_still_a_warning() -> None:
    """The branch tells the minor release too: 535 came with CUDA 12.2; an unknown branch tells its major alone."""
    (drift,) = compared(locked(CUDA12), observed(driver="535.161.08")).drifts

    assert (drift.severity, drift.observed) == ("warning", "CUDA 12.2 (driver 535.161.08)")
    assert compared(locked(CUDA13), observed(driver="418.40.04")).verdict is Verdict.DRIFT
    assert compared(locked(CUDA13), observed(driver="999.10")).verdict is Verdict.MATCH


def test_a_level_that_could_not_be_told_is_unknown() -> None:
    """A GPU is there or was locked, and its driver says nothing: never a match."""
    for facts in (observed(), observed(gpus=0)):
        found = compared(locked(CUDA13), facts)

        assert found.verdict is Verdict.UNKNOWN
        assert found.drifts[0].because == "neither the driver's CUDA level nor its version could be told"


def test_nothing_is_said_where_there_is_nothing_to_run() -> None:
    """No runtime locked, no facts about NVIDIA, or no GPU on either side: no word and no count."""
    assert compared(locked(("numpy", "1")), observed(cuda="11.0")) == Comparison()
    assert compared(locked(CUDA13), Facts({"system.kernel": value("6")})) == Comparison()
    assert compared(locked(CUDA13, gpus=0), observed(gpus=0)) == Comparison()


def test_a_compat_package_in_the_lockfile_stands_in() -> None:
    """With forward compatibility locked, an older driver is a warning; in a base image it cannot be told."""
    lock = locked(CUDA13)
    deb = DebPackage(
        name="cuda-compat-13-0", version="580", architecture="amd64", file="c.deb", size=1, sha256=samples.sha("c")
    )
    old = observed(cuda="12.2", driver="535.161.08")
    image = ImageBase(
        repository="cuda", tag="13", digest=samples.sha("i"), config=samples.sha("c"), diff_ids=(samples.sha("d"),)
    )

    assert compared(dataclasses.replace(lock, apt=(deb,)), old).verdict is Verdict.MATCH
    assert compared(dataclasses.replace(lock, base=image), old).verdict is Verdict.UNKNOWN


def test_a_rule_by_name_decides() -> None:
    """`cuda.runtime` can be ignored, made a warning, allowed where unknown, or waived, like a fact."""
    old, silent = observed(cuda="12.2"), observed()

    def rule(**changed: str) -> Lockfile:
        return locked(CUDA13, rules=(Rule(**{"key": "cuda.runtime", "rule": "exact", **changed}),))

    assert compared(rule(rule="ignore"), old) == Comparison(ignored=1)
    assert compared(rule(severity="warning"), old).verdict is Verdict.MATCH
    assert len(compared(rule(unknown="allow", reason="r"), silent).allowed) == 1
    assert compared(rule(unknown="allow", reason="r"), old).verdict is Verdict.DRIFT
    waived = compared(rule(until="2026-12-31", reason="r"), old)
    assert [(drift.because, drift.until) for drift in waived.waived] == [("r", "2026-12-31")]
    assert waived.verdict is Verdict.MATCH


@pytest.mark.parametrize(
    ("packages", "facts", "state"),
    [
        ([CUDA13], observed(cuda="12.2"), "the difference is still there"),
        ([CUDA13], observed(cuda="13.0"), "no longer needed, remove it"),
        ([CUDA13], observed(), "whether it is still needed could not be told"),
        ([CUDA13], Facts({}), "whether it is still needed could not be told"),
        ([("numpy", "2.4.6")], observed(cuda="12.2"), "no longer needed, remove it"),
    ],
)
def test_a_waiver_that_has_ended_says_whether_the_driver_is_still_too_old(
    packages: list[tuple[str, str]], facts: Facts, state: str, tmp_path: Path
) -> None:
    """Once, by who judges it, though no fact of the host has this name."""
    rule = Rule(key="cuda.runtime", rule="exact", reason="r", until="2026-01-01")
    lock = locked(*packages, rules=(rule,))
    (tmp_path / "facts.json").write_text(json.dumps(facts.to_document()))
    found, _ = check(lock, policy_of(lock.policy, "lock", ()), tmp_path / "facts.json", None, TODAY)

    (expired,) = [drift for drift in found.drifts if drift.kind is Kind.EXPIRED]
    assert (expired.key, expired.because) == ("cuda.runtime", f"r: {state}")


def test_check_tells_it(tmp_path: Path) -> None:
    """`envlock check` names it beside the facts, with exit code 1."""
    lock = locked(CUDA13)
    lockstore.write(tmp_path / "a.lock.toml", lock)
    facts = observed(cuda="12.2", driver="535.161.08")
    (tmp_path / "facts.json").write_text(json.dumps(facts.to_document()))
    arguments = ["check", "-l", str(tmp_path / "a.lock.toml"), "--facts", str(tmp_path / "facts.json")]
    ended = CliRunner().invoke(cli, [*arguments, "--format", "json"], standalone_mode=False)
    drifts = {drift["key"]: drift for drift in json.loads(ended.stdout)["drifts"]}

    assert ended.return_value == 1
    assert drifts["cuda.runtime"]["observed"] == "CUDA 12.2 (driver 535.161.08)"
