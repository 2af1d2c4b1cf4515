"""Reading what running processes have mapped, each file once.

A process in another mount namespace (a container) is read through /proc/PID/root, as it
sees its files. Files are looked at while the process still is: later they may be gone.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from envlock.facts import FAILED, NO_PERMISSION, NOT_SUPPORTED, Observed, absent, value
from envlock.probe.libraries import elf, owners
from envlock.probe.libraries.kinds import Kind, kind_of
from envlock.probe.libraries.maps import Mapped, executable
from envlock.probe.libraries.places import mount_points, place_of
from envlock.probe.libraries.values import Package

# Programs that let a daemon or another machine start what they are given: it is no child of theirs.
_HANDING_ON = frozenset(("docker", "nerdctl", "ctr", "crictl", "kubectl", "srun", "ssh", "systemd-run", "machinectl"))


class Seen(NamedTuple):
    """One mapped file as it was found.

    `ours`: it lies in this process's own mount namespace and a process of this user runs
    it, so that loading it here is loading what is run anyway.
    """

    kind: Kind
    path: str
    place: str
    deleted: bool
    ours: bool
    soname: str
    needed: Tuple[str, ...]
    build_id: Observed
    size: Observed
    package: Optional[Package]


class Taken(NamedTuple):
    """One program of one process: its command, the search path it was given, its files by `Key`."""

    pid: int
    program: str
    search: Tuple[str, ...]
    keys: "Set[Key]"


class Key(NamedTuple):
    """What makes two mapped files one: the mount namespace they are in, and the file there."""

    namespace: str
    path: str
    inode: int
    deleted: bool


class Reading:
    """All that was read so far: `files` by key, and the processes that mapped any of them.

    `handing` names the programs seen that let others run what they are given. `proc` is
    where procfs is mounted.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self.files: Dict[Key, Seen] = {}
        self.taken: Dict[Tuple[int, str], Taken] = {}
        self.handing: Set[str] = set()
        self._proc = proc
        self._own_namespace = ""
        self._own_namespace = self._namespace("self")
        self._mounts: Dict[str, FrozenSet[str]] = {}

    def take(self, pid: int, thread: int = 0) -> int:
        """Read what the process `pid` has mapped now; return how many files it executes from.

        `thread` is one of its threads to read it by, when its first one has ended. Raises
        `OSError`: gone, or not permitted.
        """
        folder = "{}/{}".format(self._proc, thread or pid)
        with open(folder + "/maps", "rb") as stream:
            mapped = executable(os.fsdecode(stream.read()))
        self.handing.update(_HANDING_ON.intersection(os.path.basename(item.path) for item in mapped))
        wanted = [(item, kind) for item in mapped for kind in [kind_of(os.path.basename(item.path))] if kind]
        if wanted:
            namespace = self._namespace(str(thread or pid))
            keys = [Key(namespace, item.path, item.inode, item.deleted) for item, _ in wanted]
            fresh = [(key, *pair) for key, pair in zip(keys, wanted) if key not in self.files]
            if fresh:
                self._look(folder, namespace, fresh)
            self._program(pid, folder).keys.update(keys)
        return len(mapped)

    def _look(self, folder: str, namespace: str, fresh: List[Tuple[Key, Mapped, Kind]]) -> None:
        """Look at files that were not seen before."""
        root = "" if namespace == self._own_namespace else folder + "/root"
        ours = not root and _same_user(folder)
        if namespace not in self._mounts:
            self._mounts[namespace] = _mount_points(folder)
        mounts = self._mounts[namespace]
        conda, site = (lambda prefix: owners.is_conda(root, prefix)), (lambda prefix: owners.is_site(root, prefix))
        places = {key: place_of(key.path, mounts, conda, site) for key, _, _ in fresh}
        owned = owners.owners(root, [(key.path, places[key]) for key, _, _ in fresh if not key.deleted])
        for key, mapped, kind in fresh:
            # Of a deleted file the kernel still has the bytes, for who may see them.
            file = "{}/map_files/{}".format(folder, mapped.span) if key.deleted else root + key.path
            found, build_id = _elf(file)
            self.files[key] = Seen(
                kind,
                key.path,
                places[key],
                key.deleted,
                ours,
                found.soname,
                found.needed,
                build_id,
                _size(file),
                None if key.deleted else owned.get(key.path),
            )

    def _program(self, pid: int, folder: str) -> Taken:
        """Return the entry of the program that `pid` runs now: by `exec` it becomes another one."""
        try:
            program = os.readlink(folder + "/exe")
        except OSError:
            # On its way out its name goes first: it is the program that it was.
            program = next((name for number, name in reversed(list(self.taken)) if number == pid), "")
        if (pid, program) not in self.taken:
            command = _fields(folder + "/cmdline")
            said = " ".join(command) or program or "(unknown)"
            self.taken[pid, program] = Taken(pid, said, _search_path(folder), set())
        return self.taken[pid, program]

    def _namespace(self, pid: str) -> str:
        """Return the mount namespace of a process; `OSError` when it has already left it, on its way out."""
        try:
            return os.readlink("{}/{}/ns/mnt".format(self._proc, pid))
        except OSError:
            if not self._own_namespace:
                return ""  # a kernel without namespaces: all processes see the same files
            raise


def _same_user(folder: str) -> bool:
    try:
        return os.stat(folder).st_uid == os.geteuid()
    except OSError:
        return False


def _mount_points(folder: str) -> FrozenSet[str]:
    with open(folder + "/mountinfo", "rb") as stream:
        return mount_points(os.fsdecode(stream.read()))


def _elf(path: str) -> Tuple[elf.Elf, Observed]:
    """Return what the file says, and its build id as an observed fact."""
    nothing, source = elf.Elf("", "", ()), "ELF note"
    try:
        with open(path, "rb") as stream:
            found = elf.read(stream)
    except PermissionError as error:
        return nothing, absent(NO_PERMISSION, source, (error.strerror or str(error)).lower())
    except OSError as error:
        return nothing, absent(FAILED, source, (error.strerror or str(error)).lower())
    except ValueError as error:
        return nothing, absent(FAILED, source, str(error))
    if found.build_id == elf.NO_BUILD_ID:
        return found, absent(NOT_SUPPORTED, source, "the file was linked without one")
    return found, value(found.build_id, source)


def _size(path: str) -> Observed:
    try:
        return value(os.stat(path).st_size, "stat")
    except OSError as error:
        outcome = NO_PERMISSION if isinstance(error, PermissionError) else FAILED
        return absent(outcome, "stat", (error.strerror or str(error)).lower())


def _fields(path: str) -> List[str]:
    """Return the texts in a file of procfs that are separated by null bytes."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(1 << 20)
    except OSError:
        return []
    return [item.decode("utf-8", "backslashreplace") for item in data.split(b"\x00") if item]


def _search_path(folder: str) -> Tuple[str, ...]:
    """Return the folders of LD_LIBRARY_PATH that the program was started with."""
    for item in _fields(folder + "/environ"):
        if item.startswith("LD_LIBRARY_PATH="):
            return tuple(part for part in item.partition("=")[2].replace(";", ":").split(":") if part.startswith("/"))
    return ()
