"""What `probe --pid` and `probe --exec` do: observe, ask for versions, judge.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from envlock.errors import CouldNotTell
from envlock.facts import FAILED, NOT_SUPPORTED, Observed, absent
from envlock.probe.libraries import findings, installed, owners
from envlock.probe.libraries.asking import Question, ask
from envlock.probe.libraries.reading import Key, Reading, Seen
from envlock.probe.libraries.values import STUB, WHEEL, Finding, Library, Loaded, Process, Ran

_SNAPSHOT = "what it had mapped at one moment, from /proc/PID/maps"
_FOLLOWED = "every process followed to its end (ptrace)"
_ENDED = "every process followed until its time was up (ptrace): what would be loaded later was not seen"
_WATCHED = "looked at again and again, from /proc/PID/maps"

_HANDED_ON = "lets another process start what it is given, which is not its child: what ran there was not seen"
_SHOWN = 80  # letters of a command that a finding repeats
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of the kernel's sched.h

Driver = Callable[[], Mapping[str, Observed]]
Asker = Callable[[Sequence[Question]], List[Observed]]


def of_pid(pid: int, driver: Optional[Driver] = None, proc: str = "/proc", asker: Asker = ask) -> Loaded:
    """Return what the process `pid` has loaded now.

    `driver` gives the host's `nvidia.…` facts (None: this host is probed). Raises
    `CouldNotTell`: no such process, no permission, a process that loads nothing.
    """
    reading = Reading(proc)
    try:
        executed = reading.take(pid)
    except (FileNotFoundError, ProcessLookupError):
        raise _unseen(pid) from None
    except PermissionError:
        raise _not_permitted(pid) from None
    except OSError as error:
        raise CouldNotTell((error.strerror or str(error)).lower(), where="{}/{}/maps".format(proc, pid)) from error
    if not executed:
        raise _without_memory(pid, proc)
    root = "" if all(seen.ours for seen in reading.files.values()) else "{}/{}/root".format(proc, pid)
    return _complete(reading, "process {}".format(pid), _SNAPSHOT, (), None, driver, root, asker)


def _unseen(pid: int) -> CouldNotTell:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return _not_permitted(pid)  # procfs may hide what belongs to others (hidepid)
    except (OSError, OverflowError):
        pass
    return CouldNotTell(
        "there is no process {}".format(pid),
        hint="is it in another PID namespace? look for it from the host, or run envlock inside the container",
    )


def _not_permitted(pid: int) -> CouldNotTell:
    return CouldNotTell(
        "process {} may not be looked at by this user".format(pid),
        hint="run envlock as the user of the process, or as root; a container needs the capability SYS_PTRACE",
    )


def _without_memory(pid: int, proc: str) -> CouldNotTell:
    flags = 0  # gone meanwhile: it has ended
    try:
        with open("{}/{}/stat".format(proc, pid), "rb") as stream:
            # proc(5): the name in parentheses may hold anything; `flags` is the seventh field after it.
            flags = int(stream.read().rpartition(b")")[2].split()[6])
    except (OSError, ValueError, IndexError):
        pass
    if not flags & _KERNEL_THREAD:
        return CouldNotTell("process {} has ended".format(pid), hint="its parent has not asked for its exit status yet")
    return CouldNotTell(
        "process {} is a kernel thread: it loads no libraries".format(pid),
        hint="give the number of a program's process",
    )


def of_command(
    command: Sequence[str],
    deadline: Optional[float] = None,
    trace: bool = True,
    driver: Optional[Driver] = None,
    asker: Asker = ask,
) -> Loaded:
    """Run `command` to its end, or for `deadline` seconds, and return what it and its children loaded.

    `trace`: follow it with ptrace; where that is not permitted, or not wanted, it is
    looked at again and again, and what that may have missed is a gap. Raises `ToolError`
    when it cannot be started.
    """
    from envlock.probe.libraries.tracing import NotPermitted, follow
    from envlock.probe.libraries.watching import watch

    reading = Reading()
    method, why = _FOLLOWED, "following was not wanted"
    try:
        went = follow(command, reading.take, deadline) if trace else None
    except NotPermitted as error:
        went, why = None, "it may not be followed here ({})".format(error)
    if went is None:
        method = _WATCHED
        went = watch(command, reading.take, deadline, why)
    status = None if went.status is None else _exit_code(went.status)
    if status is None and method == _FOLLOWED:
        method = _ENDED
    words = tuple(_clean(word) for word in command)
    ran = Ran(words, status, went.processes)
    gaps = [*went.gaps, *("`{}` {}".format(name, _HANDED_ON) for name in sorted(reading.handing))]
    return _complete(reading, " ".join(words), method, gaps, ran, driver, "", asker)


def _exit_code(status: int) -> int:
    """Return the exit code of a wait status; minus the signal's number when one ended it."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _complete(
    reading: Reading,
    subject: str,
    method: str,
    gaps: Sequence[str],
    ran: Optional[Ran],
    driver: Optional[Driver],
    root: str,
    asker: Asker,
) -> Loaded:
    keys = sorted(reading.files)
    versions = _versions(reading, keys, asker)
    libraries = tuple(_library(reading.files[key], versions[key]) for key in keys)
    place = {key: index for index, key in enumerate(keys)}
    taken = sorted(reading.taken.values(), key=lambda item: (item.pid, item.program))
    processes = tuple(Process(item.pid, item.program, tuple(sorted(place[key] for key in item.keys))) for item in taken)
    facts = dict((driver or _this_host)()) if libraries else {}
    found: Dict[Finding, None] = {}
    for process in processes:
        where = "process {} ({})".format(process.pid, _short(process.program))
        held = [libraries[index] for index in process.libraries]
        found.update(dict.fromkeys(findings.of_process(held, where, facts)))
    folders = [folder for item in taken for folder in item.search] + [os.path.dirname(item.path) for item in libraries]
    found.update(dict.fromkeys(_beside(libraries, root)))
    empty = [_clean(path) for path in installed.empty(root, folders)]
    found.update(dict.fromkeys(findings.of_search_path(empty)))
    on_disk = installed.toolkits(root) + (installed.variables(os.environ) if ran else [])
    return Loaded(
        subject, method, libraries, processes, tuple(found), tuple(gaps), ran,
        tuple(sorted(facts.items())), tuple(on_disk),
    )  # fmt: skip


def _short(program: str) -> str:
    """Return the start of a command: all of it stands with its process."""
    line = program.split("\n")[0]
    return program if len(program) <= _SHOWN and line == program else line[:_SHOWN] + "…"


def _beside(libraries: Sequence[Library], root: str) -> List[Finding]:
    sites: Dict[str, List[Library]] = {}
    for item in libraries:
        if item.place == WHEEL:
            before, word, _ = item.path.partition("-packages/")
            sites.setdefault(before + word.rstrip("/"), []).append(item)
    return [
        finding
        for site, held in sorted(sites.items())
        for finding in findings.of_installed(owners.wheels_in(root, site), held, site)
    ]


def _library(seen: Seen, version: Observed) -> Library:
    name = seen.soname or os.path.basename(seen.path)
    return Library(
        name, seen.kind.stem, seen.kind.title, _clean(seen.path), seen.place, seen.deleted, version,
        seen.package, seen.build_id, seen.size,
    )  # fmt: skip


def _clean(text: str) -> str:
    """Return a name that the file system gave with bytes that are no UTF-8 as visible escapes."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def _versions(reading: Reading, keys: Sequence[Key], asker: Asker) -> Dict[Key, Observed]:
    """Return the version that each file tells, or why it was not asked."""
    found: Dict[Key, Observed] = {}
    questions: Dict[Key, Question] = {}
    by_name = {
        name: seen
        for key in keys
        for seen in [reading.files[key]]
        if not seen.deleted
        for name in (os.path.basename(seen.path), seen.soname)
    }
    for key in keys:
        seen = reading.files[key]
        why = _not_asked(seen)
        if why is not None:
            found[key] = why
        else:
            questions[key] = Question(seen.path, seen.kind.calls, _before(seen, by_name))
    found.update(zip(questions, asker(tuple(questions.values()))))
    return found


def _not_asked(seen: Seen) -> Optional[Observed]:
    if not seen.kind.calls:
        return absent(NOT_SUPPORTED, detail="this library has no call that tells its version")
    if seen.deleted:
        return absent(FAILED, detail="not asked: its file is gone")
    if seen.place == STUB:
        return absent(FAILED, detail="not asked: it is the stub for the linker")
    if not seen.ours:
        return absent(FAILED, detail="not asked: to load a library of another user or container is to run its code")
    return None


def _before(seen: Seen, by_name: Mapping[str, Seen]) -> Tuple[str, ...]:
    """Return the mapped files that `seen` needs, what they need themselves first."""
    ordered: Dict[str, None] = {}

    def add(item: Seen, above: Tuple[str, ...]) -> None:
        for name in item.needed:
            other = by_name.get(name)
            if other is not None and other.ours and other.path not in (*above, *ordered):
                add(other, (*above, item.path))
                ordered[other.path] = None

    add(seen, (seen.path,))
    return tuple(path for path in ordered if path != seen.path)


def _this_host() -> Mapping[str, Observed]:
    from envlock.probe import probe

    facts = probe(only="nvidia.").host
    kept = ("nvidia.cuda", "nvidia.driver", "nvidia.kernel_driver")
    return {key: seen for key, seen in facts.items() if key in kept}


def shortcoming(loaded: Loaded) -> Optional[CouldNotTell]:
    """Return the error that stands beside the result when it may not be all: exit code 3, never 0."""
    if loaded.ran is not None and loaded.ran.status not in (None, 0):
        status = loaded.ran.status
        how = "was ended by signal {}".format(-status) if status < 0 else "failed with status {}".format(status)
        return CouldNotTell(
            "`{}` {}: what it loaded until then is not all that it loads when it works".format(loaded.subject, how),
            hint="its own messages are above, on standard error",
        )
    if loaded.gaps:
        return CouldNotTell(
            "libraries may have been missed: {}".format("; ".join(loaded.gaps)),
            hint="allow ptrace (`kernel.yama.ptrace_scope` below 2; in a container the capability SYS_PTRACE)"
            if loaded.method == _WATCHED
            else "let the program wait for the processes that it starts, and run envlock where they run",
        )
    return None
