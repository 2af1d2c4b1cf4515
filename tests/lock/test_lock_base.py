"""An image as the base: its tag fixed by digest, its packages read from its own database."""

from dataclasses import dataclass, field

import pytest
import samples
from lock_project import TODAY, Site

from envlock.digest import Digest
from envlock.errors import CouldNotTell, EngineError, SpecError
from envlock.lock import base, operation
from envlock.lock.content import Ports, Request
from envlock.lockfile import ImageBase, Lockfile

STATUS = """\
Package: libc6
Status: install ok installed
Version: 2.36-9
Architecture: amd64

Package: base-files
Status: install ok installed
Version: 12
Architecture: amd64
Depends: libc6

Package: gone
Status: deinstall ok config-files
Version: 1
Architecture: amd64

Package: python3.11-minimal
Status: install ok installed
Version: 3.11.2-6+deb12u9
Architecture: amd64
"""
RELEASE = "ID=debian\nVERSION_CODENAME=bookworm\n"
UBUNTU = "ID=ubuntu\nVERSION_CODENAME=noble\n"
SMALL = "Package: x\nStatus: install ok installed\nVersion: 1\n"


@dataclass
class Found:
    digest: Digest
    config: Digest
    diff_ids: tuple[Digest, ...]


@dataclass
class Registry:
    """An engine over a registry in memory: tags move, digests do not."""

    tags: dict[str, str] = field(default_factory=lambda: {"hub:5000/team/python:3.11": "one"})
    files: dict[str, str] = field(
        default_factory=lambda: {"/var/lib/dpkg/status": STATUS, "/usr/lib/os-release": RELEASE}
    )
    asked: list[str] = field(default_factory=list)

    def resolve(self, reference: str, platform: str) -> Found:
        self.asked.append(reference)
        name = reference.partition("@")[2]
        known = {str(samples.sha(text)): text for text in ("one", "two")}
        text = known[name] if name else self.tags[reference]
        return Found(samples.sha(text), samples.sha(text + " config"), (samples.sha(text + " layer"),))

    def read_file(self, reference: str, path: str) -> bytes:
        if path not in self.files:
            raise EngineError("no such file in the image", where=path)
        return self.files[path].encode()


IMAGE = ('debian = "bookworm"', 'image = "hub:5000/team/python:3.11"')
PYTHON = ('version = "3.11"', 'version = "3.11"\ninterpreter = "/usr/local/bin/python3"')


def lock(
    site: Site,
    engine: Registry,
    *changes: tuple[str, str],
    previous: Lockfile | None = None,
    upgrade: bool = False,
    offline: bool = False,
) -> Lockfile:
    ports = site.ports()
    held = Ports(store=ports.store, indexes=ports.indexes, probe=ports.probe, engine=lambda: engine, say=ports.say)
    spec = site.spec(IMAGE, PYTHON, ('packages = ["python3.11", "tool"]', 'packages = ["tool"]'), *changes)
    request = Request(spec=spec, where=site.spec_path, today=TODAY, previous=previous, upgrade=upgrade, offline=offline)
    return operation.lock(request, held)


def test_the_tag_is_fixed_and_the_registry_is_not_named(site: Site) -> None:
    """Repository, tag, digest and content; any registry that serves the digest will do."""
    found = lock(site, Registry())

    assert found.base == ImageBase(
        repository="team/python",
        tag="3.11",
        digest=samples.sha("one"),
        config=samples.sha("one config"),
        diff_ids=(samples.sha("one layer"),),
    )


def test_only_what_the_image_lacks_is_added(site: Site) -> None:
    """apt resolves on top of the image's own packages."""
    assert [deb.name for deb in lock(site, Registry()).apt] == ["tool", "tool-data"]


def test_a_tag_that_moved_does_not_move_the_lock(site: Site) -> None:
    """A changed spec asks for the locked digest; only an upgrade follows the tag (simplex-chat#6651)."""
    engine = Registry()
    first = lock(site, engine)
    engine.tags["hub:5000/team/python:3.11"] = "two"

    kept = lock(site, engine, ("[python]", "[determinism]\nthreads = 3\n[python]"), previous=first)
    moved = lock(site, engine, previous=first, upgrade=True)

    assert kept.base == first.base
    assert engine.asked[1] == f"hub:5000/team/python@{samples.sha('one')}"
    assert isinstance(moved.base, ImageBase)
    assert moved.base.digest == samples.sha("two")
    assert moved.inputs() != first.inputs()


def test_offline_asks_no_registry(site: Site) -> None:
    """The locked digest is taken as it is; a tag that was never locked cannot be told."""
    engine = Registry()
    first = lock(site, engine)
    engine.asked.clear()

    found = lock(site, engine, ("[python]", "[determinism]\nthreads = 3\n[python]"), previous=first, offline=True)

    assert found.base == first.base
    assert engine.asked == []
    with pytest.raises(CouldNotTell, match=r"`base.image` is not locked"):
        lock(site, engine, (":3.11", ":3.11-slim"), previous=first, offline=True)


def test_another_tag_in_the_spec_is_resolved(site: Site) -> None:
    """A changed wish is not answered with the old digest."""
    engine = Registry()
    first = lock(site, engine)
    engine.tags["hub:5000/team/python:3.11-slim"] = "two"

    found = lock(site, engine, (":3.11", ":3.11-slim"), previous=first)

    assert isinstance(found.base, ImageBase)
    assert (found.base.tag, found.base.digest) == ("3.11-slim", samples.sha("two"))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "the image holds no Debian package database"),
        ({"/var/lib/dpkg/status": STATUS}, "the image holds no Debian package database"),
        ({"/var/lib/dpkg/status": STATUS, "/usr/lib/os-release": UBUNTU}, "image is not made from a Debian release"),
        ({"/var/lib/dpkg/status": SMALL, "/usr/lib/os-release": RELEASE}, "the target has no `libc6`"),
    ],
    ids=["nothing", "no release", "ubuntu", "no libc"],
)  # fmt: skip
def test_an_image_that_is_not_debian_s_is_refused(site: Site, files: dict[str, str], message: str) -> None:
    """Which wheels run there could not be told."""
    with pytest.raises(SpecError, match=message):
        lock(site, Registry(files=files), ('packages = ["tool"]', "packages = []"))


def test_an_engine_that_fails_is_not_taken_for_an_image_without_files(site: Site) -> None:
    """An engine that died says nothing about the image."""

    class Dead(Registry):
        def read_file(self, reference: str, path: str) -> bytes:
            raise EngineError("the engine does not answer")

    with pytest.raises(EngineError, match="the engine does not answer"):
        lock(site, Dead())


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("python:3.11", ("", "python", "3.11")),
        ("team/python:3.11", ("", "team/python", "3.11")),
        ("localhost/python:3.11", ("localhost", "python", "3.11")),
        ("h:5000/a/b:c", ("h:5000", "a/b", "c")),
        ("reg.example/a:b", ("reg.example", "a", "b")),
    ],
)
def test_a_reference_is_taken_apart_as_docker_does(reference: str, parts: tuple[str, str, str]) -> None:
    """A first part with a dot or a port, or `localhost`, is a registry."""
    assert base.parts_of(reference) == parts
