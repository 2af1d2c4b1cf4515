"""What is never part of an image's identity, and why.

Paths are bytes relative to the root, without a leading `/`. A folder whose *content* is
volatile stays; a volatile file goes. The reasons are shown by documentation and, later,
by `envlock explain`.
"""

import re

CONTENT_OF: tuple[tuple[bytes, str], ...] = (
    (b"dev", "made by the kernel and the engine at start"),
    (b"proc", "made by the kernel"),
    (b"sys", "made by the kernel"),
    (b"run", "state of a running system"),
    (b"tmp", "temporary files"),
    (b"var/tmp", "temporary files"),
    (b"var/log", "logs carry the time of the build"),
    (b"var/cache/apt", "apt's caches, written in hash order"),
    (b"var/cache/debconf", "debconf's cache, rebuilt when it is needed"),
    (b"var/cache/man", "index of manual pages, with times"),
    (b"var/lib/apt/lists", "package indexes of the day"),
    (b"root/.cache", "caches of pip, uv and others"),
)

PATTERNS: tuple[tuple[str, str], ...] = (
    (r"var/cache/ldconfig/aux-cache", "holds inode numbers and times"),
    (r"var/lib/dpkg/[^/]+-old", "dpkg's backup of its state before"),
    (r"var/lib/dpkg/(available|lock|lock-frontend|triggers/Lock)", "dpkg's scratch files"),
    (r"etc/(passwd|group|shadow|gshadow|subuid|subgid)-", "backups of the state before"),
    (r"etc/(\.pwd\.lock|hostname|hosts|resolv\.conf)", "come from the host or the engine"),
    (r"etc/machine-id|var/lib/dbus/machine-id", "one machine's identity"),
    (r"var/lib/systemd/(catalog/database|random-seed)", "made on the machine"),
    (r"\.dockerenv", "the engine's mark"),
    (r"(.*/)?__pycache__(/.*)?", "bytecode, with times or in an order of its own"),
    (r"root/\.(wget-hsts|bash_history|python_history)", "traces of who was there"),
)

_CONTENT = tuple(folder + b"/" for folder, _ in CONTENT_OF)
_PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern, _ in PATTERNS).encode(), re.DOTALL)


def is_volatile(name: bytes) -> bool:
    """Return whether the file `name` has no place in a canonical image."""
    return name.startswith(_CONTENT) or _PATTERN.fullmatch(name) is not None
