"""Following a program and all that it starts to their last moment, with ptrace(2).

The kernel stops each process where it ends, while all that it mapped is still there
(PTRACE_O_TRACEEXIT): a process that lives for a millisecond is seen as one that lives for
an hour. Nothing in the program's environment, files or arguments is changed, and between
those stops it runs at full speed. Two things differ: a program with the set-uid bit runs
without it, and a program cannot itself be a debugger of the processes it starts.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from envlock.probe.libraries.launching import launch, not_started

_CONT, _DETACH, _SEIZE, _INTERRUPT, _LISTEN = 7, 17, 0x4206, 0x4207, 0x4208
_FORK, _VFORK, _CLONE, _EXEC, _EXIT, _STOP = 1, 2, 3, 4, 6, 128
_OPTIONS = 1 << _FORK | 1 << _VFORK | 1 << _CLONE | 1 << _EXEC | 1 << _EXIT
_WALL = 0x40000000
_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

_POLL = 0.1  # seconds between looks at what runs: what was loaded and released again, or left by exec
_SHARE = 20  # a look may take a twentieth of the time
_GRACE = 5.0  # seconds between asking a program to end and ending it
_MOST = 0.5  # seconds of looks at ending threads before they, too, are held to their share

_AFTER = 2.0  # seconds for helpers of the program to end after it: multiprocessing's outlive it by a moment

Look = Callable[[int, int], int]
"""Called with a process, and the thread of it by which procfs still shows what it mapped.

Returns from how many files it executes: 0 is no process that can be read any more.
"""


class Followed:
    """How it went: wait `status` of the program (None: its time was up), processes seen, gaps in words."""

    def __init__(self, status: Optional[int], processes: int, gaps: Sequence[str]) -> None:
        self.status = status
        self.processes = processes
        self.gaps = tuple(gaps)


class NotPermitted(Exception):
    """The kernel or a security policy does not let this process follow another one."""


def follow(command: Sequence[str], look: Look, deadline: Optional[float]) -> Followed:
    """Run `command` to its end, or for `deadline` seconds, and call `look` with each process at its end.

    `look` may raise `OSError`. Raises `NotPermitted` before the program has begun,
    `ToolError` when it cannot be started.
    """
    before = signal.getsignal(signal.SIGCHLD)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an ignored signal would not wake anybody
        launched = launch(command)
        tracer = _Tracer(launched.pid, look)
        if tracer.request(_SEIZE, launched.pid, _OPTIONS):
            reason = os.strerror(ctypes.get_errno()).lower()
            os.kill(launched.pid, signal.SIGKILL)
            os.waitpid(launched.pid, 0)
            raise NotPermitted(reason)
        failure = launched.open()
        try:
            tracer.until_its_end(deadline)
        finally:
            tracer.let_go()
        if failure:
            raise not_started(command, failure)
        return Followed(tracer.status, len(tracer.processes), tracer.gaps)
    finally:
        signal.signal(signal.SIGCHLD, before if before is not None else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Tracer:
    """The program's processes and threads, and what their stops mean."""

    def __init__(self, root: int, look: Look) -> None:
        self.root = root
        self.status: Optional[int] = None
        self.processes: Set[int] = {root}
        self.gaps: List[str] = []
        self._look = look
        self._ended = False
        self._ending = False
        self._threads: Dict[int, int] = {root: root}  # thread to process
        self._final: Dict[int, bool] = {}  # process, to whether it was its first thread that ended
        self._begun = time.monotonic()
        self._spent = 0.0
        self._skipped: Set[int] = set()
        self._refused: Dict[int, str] = {}  # process, to why the last look at it failed
        libc = ctypes.CDLL(None, use_errno=True)
        self._ptrace = libc.ptrace
        self._ptrace.restype = ctypes.c_long
        self._ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

    def request(self, what: int, thread: int, data: int = 0) -> int:
        return int(self._ptrace(what, thread, None, data))

    def until_its_end(self, deadline: Optional[float]) -> None:
        """Serve stops until the program has ended."""
        until = None if deadline is None else time.monotonic() + deadline
        next_look = time.monotonic() + _POLL
        while not self._ended:
            self._serve()
            now = time.monotonic()
            if now >= next_look and not self._ended:
                self._look_at_all()
                next_look = time.monotonic() + max(_POLL, _SHARE * (time.monotonic() - now))
            if until is not None and now >= until and not self._ended:
                until = self._end()
            if not self._ended:
                signal.sigtimedwait({signal.SIGCHLD}, max(0.0, min(next_look, until or next_look) - time.monotonic()))

    def _end(self) -> Optional[float]:
        """Ask the program to end when its time is up; end everything when it did not."""
        if self._ending:
            for process in set(self._threads.values()):
                kill(process, signal.SIGKILL)
            return None
        self._ending = True
        self._look_at_all()
        kill(self.root, signal.SIGTERM)
        return time.monotonic() + _GRACE

    def _serve(self) -> None:
        """Handle every stop and every end that there is now."""
        while True:
            try:
                thread, status = os.waitpid(-1, os.WNOHANG | _WALL)
            except ChildProcessError:
                self._ended = True
                return
            if not thread:
                return
            if os.WIFSTOPPED(status):
                self._stopped(thread, status)
            else:
                self._gone(thread, status)

    def _stopped(self, thread: int, status: int) -> None:
        event, number = status >> 16, os.WSTOPSIG(status)
        process = self._threads.get(thread)
        if process is None:
            process = self._threads[thread] = _process_of(thread)
            self.processes.add(process)
        if event == _EXEC:
            if process in self._refused:
                self.gaps.append(
                    "process {} could not be read ({}) before it became another program".format(
                        process, self._refused.pop(process)
                    )
                )
            # Its other threads are gone without a word.
            self._threads = {key: held for key, held in self._threads.items() if held != process or key == thread}
        if event == _EXIT:
            self._at_exit(thread, process)
        if event == _STOP and number in _STOPPING:
            self.request(_LISTEN, thread)  # stopped by job control: it stays so until it is continued
        else:
            self.request(_CONT, thread, 0 if event else number)

    def _at_exit(self, thread: int, process: int) -> None:
        first = thread == process
        begun = time.monotonic()
        if not first and self._spent > _MOST + (begun - self._begun) / _SHARE:
            self._skipped.add(process)  # thousands of short threads: the end of the process is what counts
            return
        if self._take(process, thread):
            self._final[process] = first or self._final.get(process, False)
        self._spent += time.monotonic() - begun

    def _gone(self, thread: int, status: int) -> None:
        process = self._threads.pop(thread, thread)
        if thread != process:
            return
        first = self._final.pop(process, None)
        seen = first is not None and process not in self._skipped
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        # What is killed outright need not stop at its end; when its time was up it was looked at before.
        if not self._ending and (not seen if not killed else not first):
            how = "killed" if killed else "gone"
            why = " ({})".format(self._refused[process]) if process in self._refused else ""
            self.gaps.append(
                "process {} was {} before its libraries could be read a last time{}".format(process, how, why)
            )
        self._skipped.discard(process)
        self._refused.pop(process, None)
        if process == self.root:
            self._ended = True
            self.status = None if self._ending else status

    def _look_at_all(self) -> None:
        for process in sorted(set(self._threads.values())):
            self._take(process, process)

    def _take(self, process: int, thread: int) -> bool:
        """Look at a process, and return whether it could be read; at its end the last look is judged."""
        try:
            read = self._look(process, thread) > 0
        except OSError as error:
            self._refused[process] = (error.strerror or str(error)).lower()
            return False
        self._refused.pop(process, None)
        if read:
            self._skipped.discard(process)
        return read

    def let_go(self) -> None:
        """Leave to themselves the processes that outlive the program; end them when its time was up."""
        if self._ending:
            self._end_the_rest()
        elif self._ended:
            self._serve_for(_AFTER)
        else:
            kill(self.root, signal.SIGTERM)
        others = sorted(set(self._threads.values()))
        if others and self._ended:
            self._look_at_all()
            one = len(others) == 1
            self.gaps.append(
                "{} that it started still ran when it ended: what {} load{} later was not seen".format(
                    "a process" if one else "{} processes".format(len(others)), *(("it", "s") if one else ("they", ""))
                )
            )
        waiting = {thread for thread in self._threads if not self.request(_INTERRUPT, thread)}
        until = time.monotonic() + 1
        while waiting and time.monotonic() < until:
            thread, status = _next()
            if not thread:
                time.sleep(0.001)
                continue
            waiting.discard(thread)
            if os.WIFSTOPPED(status):
                self.request(_DETACH, thread, 0 if status >> 16 else os.WSTOPSIG(status))

    def _end_the_rest(self) -> None:
        for process in set(self._threads.values()):
            kill(process, signal.SIGKILL)
        self._serve_for(1.0)

    def _serve_for(self, seconds: float) -> None:
        """Serve until no process is left, or for so long."""
        until = time.monotonic() + seconds
        while self._threads and time.monotonic() < until:
            self._serve()
            time.sleep(0.001)


def _next() -> Tuple[int, int]:
    try:
        return os.waitpid(-1, os.WNOHANG | _WALL)
    except ChildProcessError:
        return 0, 0


def kill(process: int, number: int) -> None:
    """Send a signal to a process that may have gone."""
    try:
        os.kill(process, number)
    except OSError:
        pass


def _process_of(thread: int) -> int:
    """Return the process of a thread; its own number when the kernel does not say."""
    try:
        with open("/proc/{}/status".format(thread), "rb") as stream:
            for line in stream:
                if line.startswith(b"Tgid:"):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return thread
