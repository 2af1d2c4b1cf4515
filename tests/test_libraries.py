"""`envlock.libraries`: loaded libraries against a lockfile, against each other, and read back from a document."""

import dataclasses
import json
from typing import Any

import pytest
import samples

from envlock import libraries
from envlock.difference import Change
from envlock.drift import Comparison, Kind, Verdict
from envlock.errors import UsageError
from envlock.facts import FAILED, absent, value
from envlock.lockfile import ImageBase, Lockfile, PythonPackage
from envlock.probe.libraries.values import Finding, Library, Loaded, Package, Process, Ran

NVIDIA = ("nvidia-cuda-runtime", "13.0.96")


def lock(*packages: tuple[str, str]) -> Lockfile:
    held = tuple(
        PythonPackage(name=name, version=version, index="default", file="f", size=1, sha256=samples.sha(name))
        for name, version in packages
    )
    return dataclasses.replace(samples.lock(), python=held)


def library(name: str = "libcudart.so.13", **changed: Any) -> Library:
    given: dict[str, Any] = {
        "name": name,
        "kind": name.partition(".")[0],
        "title": "a library",
        "path": f"/v/site-packages/nvidia/cu13/lib/{name}",
        "place": "wheel",
        "deleted": False,
        "version": value("13.0", "call"),
        "package": Package("wheel", *NVIDIA, size=7),
        "build_id": value("0123456789abcdef"),
        "size": value(7),
    }
    return Library(**{**given, **changed})


def loaded(*items: Library, **changed: Any) -> Loaded:
    processes = (Process(7, "p", tuple(range(len(items)))),) if items else ()
    return dataclasses.replace(Loaded("p", "m", items, processes), **changed)


def test_a_loaded_package_of_the_locked_version_is_the_same() -> None:
    """Name and version are those that are locked, however the package spells its name."""
    spelled = library(package=Package("wheel", "NVIDIA_cuda.runtime", "13.0.96"))

    for item in (library(), spelled):
        found = libraries.compare(lock(NVIDIA), loaded(item))
        assert found == Comparison(checked=1, same=(("library.libcudart.so.13", ""),))


def test_another_version_is_drift_by_package() -> None:
    """Two libraries of one package are one drift."""
    found = libraries.compare(lock(("nvidia-cuda-runtime", "13.0.48")), loaded(library(), library("libnvrtc.so.13")))

    assert [(item.key, item.expected, item.observed, item.kind) for item in found.drifts] == [
        ("library.nvidia-cuda-runtime", "13.0.48", "13.0.96", Kind.CHANGED)
    ]


def test_what_is_not_locked_is_extra() -> None:
    """A wheel that is not locked, and a file that no package owns, did not come from this environment."""
    stray = library("libcudnn_ops.so.9", path="/usr/lib/libcudnn_ops.so.9", place="system", package=None)
    found = libraries.compare(lock(("numpy", "1")), loaded(library(), stray))

    assert [(item.key, item.observed, item.kind) for item in found.drifts] == [
        ("library.nvidia-cuda-runtime", "13.0.96", Kind.EXTRA),
        ("library.libcudnn_ops.so.9", "/usr/lib/libcudnn_ops.so.9 (system)", Kind.EXTRA),
    ]
    assert found.verdict is Verdict.DRIFT


def test_a_debian_package_is_held_against_the_locked_one() -> None:
    """A library of a locked Debian package is one of ours."""
    item = library("libc.so.6", place="system", package=Package("debian", "libc6", "2.36-9"))

    assert libraries.compare(lock(), loaded(item)).verdict is Verdict.MATCH


def test_under_a_base_image_a_system_library_cannot_be_told() -> None:
    """It may be the base's, whose digest is locked and whose files are not listed: said, and no verdict."""
    base = ImageBase(
        repository="cuda", tag="13", digest=samples.sha("i"), config=samples.sha("c"), diff_ids=(samples.sha("d"),)
    )
    item = library("libcublas.so.13", path="/usr/local/cuda/lib64/libcublas.so.13", place="toolkit", package=None)
    (drift,) = libraries.compare(dataclasses.replace(lock(), base=base), loaded(item)).drifts

    assert (drift.kind, drift.severity) == (Kind.UNANSWERED, "warning")


def test_the_drivers_libraries_are_the_hosts() -> None:
    """libcuda is in no lockfile: the driver is judged as a fact."""
    items = [library("libcuda.so.1", place=place, package=None) for place in ("driver", "mounted-driver")]

    assert libraries.compare(lock(NVIDIA), loaded(*items)) == Comparison()


def test_nothing_loaded_is_no_match_where_something_is_locked() -> None:
    """A process that has not imported its framework proves nothing; without CUDA in the lockfile it is as locked."""
    assert libraries.compare(lock(NVIDIA), loaded()).verdict is Verdict.UNKNOWN
    assert libraries.compare(lock(("numpy", "1")), loaded()).verdict is Verdict.MATCH


@pytest.mark.parametrize(
    ("severity", "verdict"),
    [
        ("error", Verdict.DRIFT),
        ("unknown", Verdict.UNKNOWN),
        ("warning", Verdict.MATCH),
        ("information", Verdict.MATCH),
    ],
)
def test_findings_become_drifts(severity: str, verdict: Verdict) -> None:
    """An error is drift, a warning is shown, information is a note."""
    finding = Finding("mixed-cudnn", severity, "cuDNN is mixed", "process 7 (p)", (), "why", "fix")
    found = libraries.compare(lock(NVIDIA), loaded(library(), findings=(finding,)))

    assert found.verdict is verdict
    assert found.notes == (("cuDNN is mixed",) if severity == "information" else ())
    assert [item.key for item in found.drifts] == [] if severity == "information" else ["library.mixed-cudnn"]


@pytest.mark.parametrize("changed", [{"gaps": ("some",)}, {"ran": Ran(("p",), 1, 1)}, {"ran": Ran(("p",), -9, 1)}])
def test_what_may_have_been_missed_is_unknown(changed: dict[str, Any]) -> None:
    """A gap, or a program that failed, never ends as a match."""
    assert libraries.compare(lock(NVIDIA), loaded(library(), **changed)).verdict is Verdict.UNKNOWN


def test_a_deadline_is_what_was_asked_for() -> None:
    """A server that was ended at its deadline is judged by what it had loaded, and that this is not all is said."""
    found = libraries.compare(lock(NVIDIA), loaded(library(), ran=Ran(("p",), None, 1)))

    assert found.verdict is Verdict.MATCH
    assert found.notes == ("the program was ended at its deadline: what it would load later was not looked at",)


# ---- two documents -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "change"),
    [
        ([library(path="/elsewhere/libcudart.so.13", size=value(8))], None),
        ([library(package=Package("wheel", "nvidia-cuda-runtime", "13.0.97"))], Change.CHANGED),
        ([library(build_id=value("ffff"))], Change.OTHER_FILE),
        ([library(place="system")], Change.OTHER_FILE),
        ([library(), library(place="system")], Change.CHANGED),
        ([library(build_id=absent(FAILED))], Change.OTHER_FILE),
        ([], Change.REMOVED),
    ],
)
def test_what_moved_between_two_observations(after: list[Library], change: Change | None) -> None:
    """Version, package, build id and place count; where the folder lies does not."""
    found = libraries.diff(loaded(library()), loaded(*after)).found

    assert [item.change for item in found] == ([change] if change else [])


def test_equal_but_unknown_is_unknown() -> None:
    """Two libraries of which neither build id is known are not called the same."""
    item = library(build_id=absent(FAILED))

    assert libraries.diff(loaded(item), loaded(item)).verdict is Verdict.UNKNOWN


def test_a_gap_on_either_side_is_unknown() -> None:
    """What was not seen may differ."""
    found = libraries.diff(loaded(library(), gaps=("g",)), loaded(library()))

    assert (found.verdict, found.found[0].key) == (Verdict.UNKNOWN, "first side")


@pytest.mark.parametrize(
    ("ran", "verdict"),
    [
        (Ran(("p",), 0, 1), Verdict.MATCH),
        (Ran(("p",), None, 1), Verdict.MATCH),
        (Ran(("p",), 1, 1), Verdict.UNKNOWN),
        (Ran(("p",), -9, 1), Verdict.UNKNOWN),
    ],
)
def test_two_programs_that_failed_alike_are_not_the_same(ran: Ran, verdict: Verdict) -> None:
    """A document of a program that failed says nothing of what it loads when it works."""
    whole = loaded(library(), ran=ran)
    back = libraries.from_document(json.loads(json.dumps(whole.to_document())), "f")

    assert libraries.diff(back, back).verdict is verdict


def test_a_document_is_read_back() -> None:
    """What is compared is in the document as it was."""
    whole = loaded(library(), library("libnccl.so.2", package=None, build_id=absent(FAILED)), gaps=("g",))
    document = json.loads(json.dumps(whole.to_document()))
    back = libraries.from_document(document, "f")

    assert back.gaps == ("g",)
    assert [libraries._text(item) for item in back.libraries] == [libraries._text(item) for item in whole.libraries]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "envlock.libraries/2"}, "f: unexpected schema 'envlock.libraries/2'"),
        ({"libraries": {}}, "f: unexpected type (expected array), at `libraries`"),
        ({"ran": {"status": "0"}}, "f: unexpected type (expected integer or null), at `ran.status`"),
        ({"ran": []}, "f: unexpected type (expected integer or null), at `ran.status`"),
        ({"gaps": [1]}, "f: unexpected type (expected array of strings), at `gaps`"),
        ({"libraries": [1]}, "f: unexpected type (expected object), at `libraries[0]`"),
        ({"name": 1}, "f: unexpected type (expected string), at `libraries[0].name`"),
        ({"place": "moon"}, "f: unknown place 'moon', at `libraries[0].place`"),
        ({"package": {"name": "x"}}, "f: not a package, at `libraries[0].package`"),
        ({"build-id": None}, "f: unexpected type (expected object), at `libraries[0].build-id`"),
    ],
)
def test_a_broken_document_is_refused(change: dict[str, Any], message: str) -> None:
    """The key that is wrong is named."""
    document = loaded(library()).to_document()
    target = document if change.keys() <= document.keys() else document["libraries"][0]
    target.update(change)

    with pytest.raises(UsageError) as raised:
        libraries.from_document(document, "f")
    assert str(raised.value).startswith(message)
