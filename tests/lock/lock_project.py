"""A project folder with a spec that locks from a site: see `lock_sites`."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import lock_sites

from envlock.facts import Facts, absent, value
from envlock.lock import indexes
from envlock.lock.content import Ports, Request
from envlock.lock.indexes import Indexes
from envlock.lockfile import Lockfile
from envlock.spec import Spec, read
from envlock.store import Store

TODAY = date(2026, 11, 30)

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

    def ports(self, probed: Facts | None = None) -> Ports:
        held = {"cpu.architecture": value("x86_64"), "cpu.microcode": absent("hidden")}

        def probe() -> Facts:
            return probed or Facts(held)

        def engine() -> object:
            raise AssertionError("no engine is needed for a bootstrap")

        return Ports(store=self.store, indexes=self.indexes, probe=probe, engine=engine, say=self.said.append)  # type: ignore[arg-type]

    def lock(
        self, *changes: tuple[str, str], previous: Lockfile | None = None, probed: Facts | None = None, **more: object
    ) -> Lockfile:
        from envlock.lock.operation import lock

        more.setdefault("today", TODAY)
        request = Request(spec=self.spec(*changes), where=self.spec_path, previous=previous, **more)  # type: ignore[arg-type]
        return lock(request, self.ports(probed))
