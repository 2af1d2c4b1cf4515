"""The first moments of the child process that asks NVML: the driver wakes while Python reads the rest.

Imports nothing of envlock, and of the standard library only what the first call needs:
without persistence waking takes seconds, and everything else can be read meanwhile.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import gc
import os
import sys
import time

VARIABLE = "ENVLOCK_NVML_LIBRARY"
NAME = "libnvidia-ml.so.1"
QUIET = 3  # NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH: no GPU is woken, and none is needed
HOST_ONLY = "host-only"
ASKING = "envlock-nvml-asks "
_SLATE = "slate="
_SLATE_SIZE = 256
_HEADER = 20  # ELF identification, type and machine


class Unusable(Exception):
    """Raised when no NVML library can be used; `number` is NVML's code for it, or -1."""

    def __init__(self, words: str, number: int = -1) -> None:
        super().__init__(words)
        self.number = number


class Teller:
    """Says what is asked next, before it is asked: the call may never come back.

    Written over and over on the slate, a file without a name that the parent holds as well
    and reads when it is needed: a line to a pipe for each call would wake the parent a
    thousand times. Without a slate it is a line on standard output.
    """

    def __init__(self, arguments: list[str]) -> None:
        self._slate = next((int(item[len(_SLATE) :]) for item in arguments if item.startswith(_SLATE)), -1)
        self._place = ""

    def tell(self, asked: str) -> None:
        """Say the name of a function, or of the GPU that the next functions are asked about."""
        if self._slate < 0:
            write(ASKING + asked)
            return
        call = asked if asked.startswith("nvml") else ""
        if not call:
            self._place = asked
        told = "{0}{1}\n{0}{2}\n".format(ASKING, self._place, call).encode()
        os.pwrite(self._slate, told.ljust(_SLATE_SIZE), 0)


def make_slate() -> int:
    """Return the descriptor of a new slate; -1 where this system has none."""
    try:
        return os.memfd_create("envlock-nvml")
    except (AttributeError, OSError):
        return -1


def slate_argument(descriptor: int) -> str:
    """Return the argument that hands a slate to the child."""
    return _SLATE + str(descriptor)


def take_slate(descriptor: int) -> str:
    """Return the lines on a slate, and put it away."""
    if descriptor < 0:
        return ""
    try:
        return os.pread(descriptor, _SLATE_SIZE, 0).decode("utf-8", "backslashreplace")
    finally:
        os.close(descriptor)


def write(line: str) -> None:
    """Write one line to standard output, past all buffers."""
    data = "\n{}\n".format(line).encode()
    while data:
        data = data[os.write(1, data) :]


def begin(chosen: str, gpus: bool) -> None:
    """Start the library, `chosen` or the system's, in a thread; without `gpus` none is woken.

    Says nothing: what loads the library next, and then the binding's own start, which
    waits for this one, meet whatever is wrong again.
    """
    import _thread
    from ctypes import CDLL

    try:
        if chosen:
            check_chosen(chosen)
        start = CDLL(chosen or NAME).nvmlInitWithFlags
    except (Unusable, OSError, AttributeError):
        return
    if "/stubs/" not in (os.path.realpath(chosen) if chosen else mapped()):
        _thread.start_new_thread(start, (0 if gpus else QUIET,))
        time.sleep(0.0005)  # lets the thread have the interpreter's lock for its one call


def check_chosen(path: str) -> None:
    """Raise `Unusable`, in words, when the file that `VARIABLE` names cannot be loaded by this Python."""
    where = "{}={}: ".format(VARIABLE, path)
    if not os.path.isabs(path):
        raise Unusable(where + "not an absolute path")
    try:
        with open(path, "rb") as stream:
            header = stream.read(_HEADER)
    except OSError as error:
        raise Unusable(where + (error.strerror or str(error)).lower()) from None
    if not header:
        raise Unusable(where + "the file is empty")
    if not header.startswith(b"\x7fELF"):
        raise Unusable(where + "not a library (no ELF file)")
    with open("/proc/self/exe", "rb") as stream:
        own = stream.read(_HEADER)
    # Class, byte order and machine: the loader says of a foreign machine that there is no such file.
    if (header[4:6], header[18:20]) != (own[4:6], own[18:20]):
        raise Unusable(where + "built for another architecture than this Python")


def mapped() -> str:
    """Return the path of the NVML library in this process; empty when it cannot be told."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
            found = sorted({line.split(None, 5)[5].strip() for line in stream if "/libnvidia-ml.so" in line})
    except (OSError, IndexError):
        return ""
    return found[0] if found else ""


def _end_with_parent() -> None:
    """Have this process ended when whoever waits for its answer is gone: in a driver that hangs it would stay for ever.

    prctl(PR_SET_PDEATHSIG, SIGKILL), see man7.org/linux/man-pages/man2/pr_set_pdeathsig.2const.html.
    """
    from ctypes import CDLL

    try:
        CDLL(None).prctl(1, 9, 0, 0, 0)
    except (OSError, AttributeError):
        return  # not Linux: it ends when its output has no reader


def main() -> None:
    """Say that the library is asked to start, and start it; what the child process runs first."""
    gc.disable()  # the process ends before there is anything to collect
    _end_with_parent()
    arguments = sys.argv[1:]
    Teller(arguments).tell("nvmlInit")
    begin(os.environ.get(VARIABLE, ""), HOST_ONLY not in arguments)
