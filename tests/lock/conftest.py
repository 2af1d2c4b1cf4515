"""A site to lock from, fresh for each test: see `lock_sites`."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lock_sites
import pytest

from envlock.lock import indexes
from envlock.lock.content import Ports, Request
from envlock.lock.indexes import Indexes
from envlock.lockfile import Lockfile
from envlock.spec import Spec, read
from envlock.store import Store

SPEC = """\
[environment]
name = "small"
[base]
debian = "bookworm"
[apt]
packages = ["python3.11", "tool"]
[python]
version = "3.11"
requirements = ["app"]
"""


@dataclass
class Site:
    """The site, and a project folder with a spec that locks from it."""

    archive: lock_sites.Archive
    index: lock_sites.Index
    server: lock_sites.Server
    folder: Path
    environment: dict[str, str]
    said: list[str]

    @property
    def spec_path(self) -> Path:
        return self.folder / "envlock.toml"

    @property
    def store(self) -> Store:
        return Store(Path(self.environment["ENVLOCK_STORE"]))

    @property
    def indexes(self) -> Indexes:
        return indexes.of_host(self.environment)

    def spec(self, *changes: tuple[str, str]) -> Spec:
        """Write the spec, changed, and read it."""
        text = SPEC
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.spec_path.write_text(text)
        return read(self.spec_path)

    def ports(self) -> Ports:
        from envlock.facts import Facts, absent, value

        def probe() -> Facts:
            return Facts({"cpu.architecture": value("x86_64"), "cpu.microcode": absent("hidden")})

        def engine() -> object:
            raise AssertionError("no engine is needed for a bootstrap")

        return Ports(store=self.store, indexes=self.indexes, probe=probe, engine=engine, say=self.said.append)  # type: ignore[arg-type]

    def lock(self, *changes: tuple[str, str], previous: Lockfile | None = None, **more: object) -> Lockfile:
        from envlock.lock.operation import lock

        request = Request(spec=self.spec(*changes), where=self.spec_path, previous=previous, **more)  # type: ignore[arg-type]
        return lock(request, self.ports())


@pytest.fixture(scope="session")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lock_sites.Archive]:
    """The key of the archive: made once, because making keys takes time."""
    for program in ("apt-get", "dpkg-deb", "gpg"):
        if shutil.which(program) is None:
            pytest.skip(f"`{program}` is not installed")
    keys = tmp_path_factory.mktemp("keys")
    archive = lock_sites.Archive(keys / "none", keys)
    archive.make_key()
    yield archive
    archive.close()


@pytest.fixture
def site(tmp_path: Path, signing: lock_sites.Archive, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site with a small archive and index; the environment of this process points apt at it."""
    root = tmp_path / "site"
    archive = lock_sites.Archive(root, signing.keys)
    archive.deb("base-files", "12", Essential="yes", Depends="libc6")
    archive.deb("dash", "0.5", Essential="yes")
    archive.deb("libc6", "2.36-9")
    archive.deb("usr-is-merged", "37", architecture="all")
    archive.deb("python3.11", "3.11.2-6", Depends="libc6 (>= 2.36)", Recommends="unwanted")
    archive.deb("unwanted", "1")
    archive.deb("tool", "1.0-1", Depends="tool-data (= 1.0-1)")
    archive.deb("tool-data", "1.0-1", architecture="all")
    archive.publish()
    index = lock_sites.Index(root)
    index.wheel("app", "1.0", requires=("lib>=1", "win-only; sys_platform == 'win32'"))
    index.wheel("lib", "1.0")
    index.wheel("lib", "1.1")
    folder = tmp_path / "project"
    folder.mkdir()
    with lock_sites.served(root) as server:
        conf = lock_sites.apt_configuration(tmp_path / "apt", server.address, signing.keys / "archive.gpg")
        environment = dict(lock_sites.site_environment(conf, f"{server.address}/simple", tmp_path / "cache"))
        monkeypatch.setenv("APT_CONFIG", str(conf))
        yield Site(archive, index, server, folder, environment, [])
