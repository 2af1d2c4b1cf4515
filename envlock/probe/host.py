"""Where facts are read from: a tree of files, and the few things that are calls.

Readers get a `Host` and never open a file or start a program themselves, so that a
recorded tree of files is read by the same code as this machine. A plain `Host` is such
a recording: its calls answer that they were not recorded. This machine is
`envlock.probe.live`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
from typing import Callable, Mapping, NamedTuple, Sequence, TypeVar

from envlock.errors import ToolError
from envlock.facts import FAILED, NO_PERMISSION, NOT_SUPPORTED, Observed, Value, absent, value

Result = TypeVar("Result")


class Absent(Exception):
    """Raised by a reader: there is no value, and this is why (`outcome`, `detail`)."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class Printed(NamedTuple):
    """What a program printed, and the status it ended with."""

    status: int
    stdout: bytes
    stderr: bytes


class Host:
    """A tree of files below `root`. Paths are given as on the host, from `/`.

    Text is decoded as UTF-8; bytes that are not are kept as visible escapes, because a
    fact with a broken byte in it is still a fact.
    """

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self.root = os.fspath(root).rstrip("/")

    def read(self, path: str) -> str:
        """Return the text of the file at `path`; raises `OSError`."""
        with open(self.root + path, "rb") as stream:
            return stream.read().decode("utf-8", "backslashreplace")

    def names(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in the folder at `path`; raises `OSError`."""
        return tuple(sorted(os.listdir(self.root + path)))

    def exists(self, path: str) -> bool:
        """Tell whether there is something at `path`; a folder that may not be entered raises `OSError`."""
        try:
            os.lstat(self.root + path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def link(self, path: str) -> str:
        """Return what the symbolic link at `path` says; raises `OSError`."""
        return os.readlink(self.root + path)

    def machine(self) -> str:
        """Return the architecture as the kernel names it, such as `x86_64`."""
        raise _not_recorded()

    def libc(self) -> str:
        """Return the C library of this process, such as `glibc 2.36`."""
        raise _not_recorded()

    def python(self) -> tuple[str, str]:
        """Return the implementation and version of the Python that probes."""
        raise _not_recorded()

    def module_file(self, name: str) -> str | None:
        """Return the file that `import name` would load, without loading it."""
        raise _not_recorded()

    def variable(self, name: str) -> str | None:
        """Return an environment variable."""
        return None

    def program(self, name: str) -> str | None:
        """Return the path of the program `name`; None when it is not installed."""
        raise _not_recorded()

    def output(self, argv: Sequence[str]) -> Callable[[], str]:
        """Start a program; the function returned gives what it prints. Both raise `ToolError`."""
        raise _not_recorded()

    def ask(self, socket_path: str, request: bytes) -> Callable[[], bytes]:
        """Send `request` to a local socket; the function returned gives the answer. Both raise `OSError`."""
        raise _not_recorded()

    def begin_nvml(self, gpus: bool = True) -> None:
        """Have NVML asked from now on, where there is a sign of it: `nvml` then waits for the answer."""

    def nvml(self, gpus: bool = True) -> Mapping[str, object]:
        """Return what NVML says (`envlock.probe.nvml.child.ask`); raises `Absent`. Without `gpus` none is woken."""
        raise _not_recorded()

    def nvidia_smi(self, *arguments: str) -> Callable[[], Printed]:
        """Start nvidia-smi; the function returned gives what it prints, whatever its status. Both raise `Absent`."""
        raise _not_recorded()


def _not_recorded() -> Absent:
    return Absent(FAILED, "not part of this recorded host")


def observe(source: str, read: Callable[[], Value], missing: str = FAILED, why: str = "") -> Observed:
    """Return what `read` gives as an observed fact; what it raises becomes an absence in words.

    `missing` is the outcome of a file that is not there, `why` its detail: for `/proc`
    a failure, for a feature's own file `not-supported`.
    """
    try:
        return value(read(), source)
    except Absent as absence:
        return absent(absence.outcome, source, absence.detail)
    except PermissionError as error:
        return absent(NO_PERMISSION, source, _words(error))
    except (FileNotFoundError, NotADirectoryError) as error:
        return absent(missing, source, why or _words(error))
    except OSError as error:
        return absent(FAILED, source, _words(error))
    except ToolError as error:
        return absent(FAILED, source, error.message)
    except ValueError as error:
        return absent(FAILED, source, "not understood: {}".format(error))


def feature(host: Host, path: str, parse: Callable[[str], Value], folder: str, why: str) -> Observed:
    """Return the fact in the file at `path`, which kernels without the feature do not have.

    Only a missing file below a `folder` that is there says `not-supported` (because of
    `why`): where /sys or /proc is not mounted, nobody has looked.
    """

    def read() -> Value:
        try:
            return parse(host.read(path))
        except (FileNotFoundError, NotADirectoryError):
            raise lacking(host, folder, why) from None

    return observe(path, read)


def lacking(host: Host, folder: str, why: str) -> Absent:
    """Return the absence of a file below `folder`: `not-supported` when the folder is there, else a failure."""
    if host.exists(folder):
        return Absent(NOT_SUPPORTED, why)
    return Absent(FAILED, "there is no {} here to look into".format(folder))


def deferred(begin: Callable[[], Callable[[], Result]]) -> Callable[[], Result]:
    """Return what `begin` returns; what it raises is raised by the function returned instead."""
    try:
        return begin()
    except (Absent, OSError, ToolError) as error:
        fault = error

        def fail() -> Result:
            raise fault

        return fail


def _words(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
