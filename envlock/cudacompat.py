"""Can the host's driver run the CUDA runtime that is locked? As a drift, before anything is started.

Pure. The rules of compatibility are `envlock.probe.libraries.levels`; what a process
really loads is judged where it is looked at (`envlock check --exec`, `--pid`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date

from envlock import waivers
from envlock.drift import Comparison, Drift, Kind, ended_waiver
from envlock.facts import Facts
from envlock.lockfile import ImageBase, Lockfile, PythonPackage, Rule
from envlock.policy import CUDA_RUNTIME, Policy
from envlock.probe.libraries import levels
from envlock.rules import Outcome

_EXACT = re.compile(r"nvidia-cuda-runtime(-cu\d{2})?|cuda-toolkit")
_LOCAL = re.compile(r"\+.*?\bcu(?:da)?(\d{2})\.?(\d)?")
_SUFFIX = re.compile(r".+[-_](?:cu|cuda)(\d{2})x?(?:[-_].+)?")
_OLDEST = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""The oldest driver of each CUDA major, from the table of `levels`."""

_WHY = "the driver decides which CUDA runtime starts at all, and compiles its kernels"


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """A CUDA runtime that the lockfile holds: `minor` is None where no package says more than the major."""

    major: int
    minor: int | None
    package: str

    def text(self) -> str:
        return f"CUDA {self.major}" if self.minor is None else f"CUDA {self.major}.{self.minor}"


def runtimes(packages: Iterable[PythonPackage]) -> tuple[Runtime, ...]:
    """Return the locked CUDA runtimes, one for each major, from the package that says most.

    The runtime's own wheel is exact; a framework's local version (`2.6.0+cu124`) says
    what it was built for; a name such as `nvidia-cudnn-cu12` says only the major.
    """
    best: dict[int, tuple[int, Runtime]] = {}
    for package in packages:
        found = _of_package(package)
        if found is not None and found[0] > best.get(found[1].major, (0, None))[0]:
            best[found[1].major] = found
    return tuple(best[major][1] for major in sorted(best))


def _of_package(package: PythonPackage) -> tuple[int, Runtime] | None:
    """Return a runtime and how sure it is, the surest highest."""
    said = f"{package.name} {package.version}"
    level = levels.level_of(package.version)
    if _EXACT.fullmatch(package.name) and level is not None:
        return 3, Runtime(major=level[0], minor=level[1], package=said)
    local = _LOCAL.search(package.version)
    if local is not None:
        minor = int(local[2]) if local[2] else None
        return 2 if local[2] else 1, Runtime(major=int(local[1]), minor=minor, package=said)
    suffix = _SUFFIX.fullmatch(package.name)
    return (1, Runtime(major=int(suffix[1]), minor=None, package=said)) if suffix is not None else None


def compare(lock: Lockfile, observed: Facts, policy: Policy, today: date) -> Comparison:
    """Return whether the observed driver runs every locked CUDA runtime.

    Nothing is said of a lockfile without one, of facts that hold nothing about NVIDIA, and
    of a host without a GPU that was locked on one without. Where the driver's level could
    not be told, that is `unanswered`. A waiver of `cuda.runtime` that has ended is an
    error of its own.
    """
    rule = policy.rule_for(CUDA_RUNTIME)
    found, came_to = _compared(lock, observed, policy, rule, today)
    if rule.key == CUDA_RUNTIME and waivers.expired(rule, today):
        found = found.and_also(Comparison(drifts=(ended_waiver(rule, came_to),)))
    return found


def _compared(
    lock: Lockfile, observed: Facts, policy: Policy, rule: Rule, today: date
) -> tuple[Comparison, frozenset[Outcome]]:
    """Return the comparison under `rule`, and what the rule said."""
    locked = runtimes(lock.python)
    if not locked:
        return Comparison(), frozenset()
    if not _concerned(lock, observed):
        return Comparison(), frozenset((Outcome.UNKNOWN,))
    if rule.rule == "ignore":
        return Comparison(ignored=1), frozenset()
    drifts = [drift for runtime in locked for drift in [_judged(lock, runtime, observed)] if drift is not None]
    if not drifts:
        return Comparison(checked=1, same=((CUDA_RUNTIME, ""),)), frozenset((Outcome.SAME,))
    found = Comparison(checked=1)
    for drift in drifts:
        # A rule by its name decides how bad it is; without one, that follows from what is wrong.
        judged = replace(drift, severity=rule.severity) if rule in policy.rules else drift
        if drift.kind is Kind.UNANSWERED and rule.unknown == "allow":
            also = Comparison(allowed=(replace(judged, because=rule.reason or drift.because),))
        elif drift.kind is not Kind.UNANSWERED and waivers.holds(rule, today):
            also = Comparison(waived=(replace(judged, because=rule.reason, until=rule.until),))
        else:
            also = Comparison(drifts=(judged,))
        found = found.and_also(also)
    unknown = {Kind.UNANSWERED: Outcome.UNKNOWN}
    return found, frozenset(unknown.get(drift.kind, Outcome.DIFFERENT) for drift in drifts)


def _concerned(lock: Lockfile, observed: Facts) -> bool:
    """Return whether there is, or should be, a GPU for the locked runtime."""
    nvidia = {key: seen for key, seen in observed.host.items() if key.startswith("nvidia.")}
    if not nvidia:
        return False
    if lock.host is not None and lock.host.gpus:
        return True
    counts = (nvidia.get("nvidia.gpu_count"), nvidia.get("nvidia.pci_count"))
    some = any(seen is not None and isinstance(seen.value, int) and seen.value > 0 for seen in counts)
    driver = nvidia.get("nvidia.driver")
    return some or bool(observed.gpus()) or (driver is not None and driver.has_value)


def _judged(lock: Lockfile, runtime: Runtime, observed: Facts) -> Drift | None:
    expected = f"a driver for {runtime.text()} ({runtime.package})"
    driver = _driver(observed)
    level = levels.level_of(_value(observed, "nvidia.cuda")) or levels.level_of_driver(driver)
    major = level[0] if level is not None else levels.major_of_driver(driver)
    fix = f"install driver {_OLDEST.get(runtime.major, f'for CUDA {runtime.major}')} or newer, or lock packages"
    fix += f" built for CUDA {major}" if major is not None else " built for the driver's CUDA"
    if major is None:
        return Drift(
            key=CUDA_RUNTIME, expected=expected, observed="(not known)", kind=Kind.UNANSWERED, why=_WHY,
            because="neither the driver's CUDA level nor its version could be told",
            fix="see why `envlock probe --only nvidia.` has no `nvidia.cuda`",
        )  # fmt: skip
    seen = f"CUDA {major}" if level is None else f"CUDA {level[0]}.{level[1]}"
    seen += f" (driver {driver})" if driver else ""
    if major < runtime.major:
        kind, severity, because = _too_old(lock, runtime)
        return Drift(
            key=CUDA_RUNTIME, expected=expected, observed=seen, kind=kind, severity=severity, because=because,
            why=_WHY, fix=fix,
        )  # fmt: skip
    wanted = (runtime.major, runtime.minor or 0)
    if level is not None and levels.judged(level, wanted) == levels.MINOR:
        return Drift(
            key=CUDA_RUNTIME, expected=expected, observed=seen, kind=Kind.CHANGED, severity="warning",
            because=levels.MINOR_WORDS, why=_WHY, fix=fix,
        )  # fmt: skip
    return None


def _too_old(lock: Lockfile, runtime: Runtime) -> tuple[Kind, str, str]:
    """Return kind, severity and reason of a driver of a lower major: a compat package may help it."""
    if any(deb.name.startswith(f"cuda-compat-{runtime.major}-") for deb in lock.apt):
        return Kind.CHANGED, "warning", "the locked cuda-compat package stands in for it, on data-centre GPUs only"
    if isinstance(lock.base, ImageBase):
        return Kind.UNANSWERED, "error", "a cuda-compat package in the base image may stand in for it, or there is none"
    return Kind.CHANGED, "error", f"a runtime of CUDA {runtime.major} does not start on it"


def _value(observed: Facts, key: str) -> str:
    seen = observed.host.get(key)
    return seen.text() if seen is not None and seen.has_value else ""


def _driver(observed: Facts) -> str:
    return _value(observed, "nvidia.driver") or _value(observed, "nvidia.kernel_driver")
