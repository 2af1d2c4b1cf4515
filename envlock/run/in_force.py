"""Settings: what the lockfile asked for against what was in force. Pure.

A setting that differs is a finding of its own, also when all bits agree: it is the
cause that a person looks for when they do not.
"""

from collections.abc import Sequence

from envlock.canary import knobs
from envlock.canary.knobs import UNSET
from envlock.lockfile import Determinism, Image, Lockfile
from envlock.run.findings import Finding, Kind
from envlock.run.reports import Report


def setting(name: str, expected: str, found: str, message: str) -> Finding:
    return Finding(tier="settings", name=name, kind=Kind.SETTING, message=message, expected=expected, found=found)


def asked(report: Report, lock: Lockfile) -> list[Finding]:
    """Return a finding for each thing that the lockfile holds and that was not in force."""
    return [*_image_of_its_own(report, lock.image), *_not_in_force(report, lock.determinism)]


def _image_of_its_own(report: Report, image: Image | None) -> list[Finding]:
    """Return the finding that the canary ran in another image than the locked one (a run on the host is in none)."""
    if image is None or report.image is None or report.image in (image.config, image.manifest):
        return []
    return [setting("image", image.config, report.image, "is not the image that the lockfile holds")]


def _not_in_force(report: Report, asked: Determinism) -> list[Finding]:
    in_force = dict(report.settings)
    wanted = {f"env.{name}": text for name, text in asked.env if knobs.is_knob(name)}
    wanted["threads"] = str(asked.threads)
    for name, value in asked.torch:
        wanted[f"switch.{name}"] = str(value).lower() if isinstance(value, bool) else str(value)
    extra = {name: UNSET for name in in_force if name.startswith("env.") and name not in wanted}
    found = [
        setting(name, expected, in_force.get(name, UNSET), "is not what the lockfile holds")
        for name, expected in sorted({**wanted, **extra}.items())
        if in_force.get(name, UNSET) != expected
    ]
    reported = {finding.name for finding in found}
    for text in report.not_in_force:
        if not any(name.removeprefix("switch.") in text for name in reported if name.startswith("switch.")):
            found.append(setting("switch", "", text, "did not stay in force"))
    return found


def setting_differences(
    expected: Sequence[tuple[str, str]], found: Sequence[tuple[str, str]]
) -> list[tuple[str, str, str]]:
    """Return name, expected and found value of each setting that differs, by name, libraries last.

    A version or a variable explains more than the build ids that follow from it.
    """
    before, after = dict(expected), dict(found)
    return [
        (name, before.get(name, UNSET), after.get(name, UNSET))
        for name in sorted(set(before) | set(after), key=lambda name: (name.startswith("library."), name))
        if before.get(name, UNSET) != after.get(name, UNSET)
    ]
