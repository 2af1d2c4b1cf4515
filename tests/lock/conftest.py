"""A site to lock from, fresh for each test: see `lock_sites`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import lock_sites
import pytest
from lock_project import Site


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
