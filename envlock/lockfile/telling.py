"""One entry of a lockfile in a few words, for a person who has to choose between two.

Pure.
"""

from envlock.digest import digest_of
from envlock.facts import Observed
from envlock.lockfile.flat import ABSENT, Key
from envlock.lockfile.values import (
    AptIndex,
    DebianBase,
    DebPackage,
    Golden,
    GpuGroup,
    Host,
    Image,
    ImageBase,
    LockedFile,
    PythonPackage,
    Rule,
)

_LONG = 60
_WORDS = {"env": "variable", "torch": "torch switch"}


def entry(key: Key) -> str:
    """Return the name of the entry at `key` of a flat lockfile."""
    if key[0] == "golden":
        pairs = list(zip(key[1::2], key[2::2], strict=True))
        return f"golden class {digest_of([list(pair) for pair in pairs]).short}"
    return " ".join((_WORDS.get(key[0], key[0]), *(part for part in key[1:] if part)))


def exactly(value: object) -> str:
    """Return `value` so that two that differ never look the same."""
    if isinstance(value, DebPackage | PythonPackage):
        return f"{value.version} ({value.file}, {value.sha256.short})"
    text = shortly(value)
    return f"{text} ({digest_of(repr(value)).short})" if text else ""


def shortly(value: object) -> str:
    """Return `value` in at most 60 letters; empty when it is absent."""
    text = _words(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _words(value: object) -> str:
    """Return one entry for a person; empty when it is absent."""
    if value is ABSENT:
        return ""
    if isinstance(value, DebPackage | PythonPackage):
        return value.version
    if isinstance(value, LockedFile):
        return f"{value.sha256.short} ({value.source})"
    if isinstance(value, Observed):
        return value.text() or "empty"
    if isinstance(value, Rule):
        until = f", waived until {value.until}" if value.until else ""
        return f"`{value.rule}` ({value.severity}{until})"
    if isinstance(value, AptIndex):
        return value.sha256.short
    if isinstance(value, Image):
        return value.config.short
    if isinstance(value, Golden):
        return f"{len(value.outputs)} outputs, {value.digest().short}"
    if isinstance(value, bool):
        return str(value).lower()
    return _words_of_whole(value)


def _words_of_whole(value: object) -> str:
    """Return in words what is one entry only because it could not be taken apart."""
    if isinstance(value, DebianBase):
        return f"Debian {value.suite}"
    if isinstance(value, ImageBase):
        return f"{value.repository}:{value.tag} ({value.digest.short})"
    if value is None:
        return "not observed"
    if isinstance(value, Host):
        return f"{len(value.facts)} facts, {_words_of_whole(value.gpus)}"
    if isinstance(value, GpuGroup):
        return f"{value.count} x {dict(value.facts)['gpu.name'].text() if 'gpu.name' in dict(value.facts) else 'GPU'}"
    if isinstance(value, tuple):
        return ", ".join(map(_words_of_whole, value)) or "no GPU"
    return str(value) or "empty"
