"""The values: one library as it was loaded, one process, a finding, and all of it as one document.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from envlock.facts import Observed

SCHEMA = "envlock.libraries/1"

# Where a library came from, by what its path and its mount say.
WHEEL = "wheel"  # below site-packages or dist-packages
CONDA = "conda"  # in a conda environment
TOOLKIT = "toolkit"  # an installed CUDA toolkit
DRIVER = "driver"  # the driver's own library, where its installer puts it
MOUNTED_DRIVER = "mounted-driver"  # the same, bind-mounted into a container
COMPAT = "compat"  # the toolkit's forward compatibility package
STUB = "stub"  # for the linker only: it does nothing
SYSTEM = "system"  # a package of the distribution, or a copy in its folders
OTHER = "other"
PLACES = (WHEEL, CONDA, TOOLKIT, DRIVER, MOUNTED_DRIVER, COMPAT, STUB, SYSTEM, OTHER)

ERROR, WARNING, INFORMATION, UNKNOWN = "error", "warning", "information", "unknown"
SEVERITIES = (ERROR, UNKNOWN, WARNING, INFORMATION)

OWNERS = ("wheel", "conda", "debian")


@dataclass(frozen=True)
class Package:
    """The package that says it owns a file. `size` is what the package recorded, in bytes; None: it did not."""

    manager: str
    name: str
    version: str
    size: Optional[int] = None


@dataclass(frozen=True)
class Library:
    """One file that a process executed from.

    `name` is the library's own name (soname, or else the file's), `kind` its file name up
    to `.so`. `path` is as the process saw it, in its own root. `version` is the library's
    own answer; `package` is None where no package says that it owns the file. `size` is
    in bytes. `deleted`: the file was gone or replaced while it was in use.
    """

    name: str
    kind: str
    title: str
    path: str
    place: str
    deleted: bool
    version: Observed
    package: Optional[Package]
    build_id: Observed
    size: Observed

    def told_version(self) -> str:
        """Return the most exact version that is known: the package's, else the library's own; `` if none."""
        if self.package is not None:
            return self.package.version
        return self.version.text() if self.version.has_value else ""


@dataclass(frozen=True)
class Process:
    """One process and the libraries it loaded, as positions in the document's list. `program` is its command."""

    pid: int
    program: str
    libraries: Tuple[int, ...]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or worth knowing, in words.

    `code` names its kind for programs, `where` the process or place, `paths` the files.
    """

    code: str
    severity: str
    what: str
    where: str = ""
    paths: Tuple[str, ...] = ()
    why: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Ran:
    """How a program ended that was run to be observed: `status` is None when its time was up first."""

    command: Tuple[str, ...]
    status: Optional[int]
    processes: int


@dataclass(frozen=True)
class Loaded:
    """All that was found. `gaps` say in words what may have been missed: none means that nothing was.

    `driver` holds the facts `nvidia.…` that findings rest on; `installed` what lies on
    disk and was not necessarily loaded, as name and value.
    """

    subject: str
    method: str
    libraries: Tuple[Library, ...]
    processes: Tuple[Process, ...]
    findings: Tuple[Finding, ...] = ()
    gaps: Tuple[str, ...] = ()
    ran: Optional[Ran] = None
    driver: Tuple[Tuple[str, Observed], ...] = ()
    installed: Tuple[Tuple[str, str], ...] = ()

    @property
    def complete(self) -> bool:
        return not self.gaps

    def of(self, process: Process) -> Tuple[Library, ...]:
        """Return the libraries of one process."""
        return tuple(self.libraries[index] for index in process.libraries)

    def to_document(self) -> Dict[str, Any]:
        """Return the JSON document (`docs/schema/libraries.schema.json`)."""
        return {
            "schema": SCHEMA,
            "subject": self.subject,
            "method": self.method,
            "complete": self.complete,
            "gaps": list(self.gaps),
            "ran": None if self.ran is None else _ran(self.ran),
            "driver": {key: seen.to_document() for key, seen in self.driver},
            "libraries": [_library(item) for item in self.libraries],
            "processes": [_process(item) for item in self.processes],
            "findings": [_finding(item) for item in self.findings],
            "installed": [{"what": what, "version": version} for what, version in self.installed],
        }


def _ran(ran: Ran) -> Dict[str, Any]:
    return {"command": list(ran.command), "status": ran.status, "processes": ran.processes}


def _process(process: Process) -> Dict[str, Any]:
    return {"pid": process.pid, "program": process.program, "libraries": list(process.libraries)}


def _library(item: Library) -> Dict[str, Any]:
    owner = item.package
    return {
        "name": item.name,
        "kind": item.kind,
        "title": item.title,
        "path": item.path,
        "place": item.place,
        "deleted": item.deleted,
        "version": item.version.to_document(),
        "package": None
        if owner is None
        else {"manager": owner.manager, "name": owner.name, "version": owner.version, "size": owner.size},
        "build-id": item.build_id.to_document(),
        "size": item.size.to_document(),
    }


def _finding(item: Finding) -> Dict[str, Any]:
    return {
        "code": item.code,
        "severity": item.severity,
        "what": item.what,
        "where": item.where,
        "paths": list(item.paths),
        "why": item.why,
        "fix": item.fix,
    }
