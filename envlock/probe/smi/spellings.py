"""How nvidia-smi spells values and absences, and what they are in envlock's words.

Each function takes the text of one cell and returns a value, or raises `Absent` or
`ValueError`. An absence spelled out (`[N/A]`, `GPU is lost`) is told from a value before
any of them is asked.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Callable, Optional

from envlock.facts import (
    FAILED,
    HIDDEN,
    NO_PERMISSION,
    NOT_IN_DRIVER,
    NOT_SUPPORTED,
    Observed,
    Value,
    absent,
    value,
)
from envlock.probe.host import Absent
from envlock.probe.pci import normal_address
from envlock.probe.smi.sheet import TWICE

Convert = Callable[[str], Value]

LOST = "gpu is lost"
# A byte that is no UTF-8 is carried as a character of the private use area (`decoded`).
_RAW = 0xF700
_RAW_BYTES = re.compile("[{}-{}]+".format(chr(_RAW + 0x80), chr(_RAW + 0xFF)))
_LONGEST = 200

_ABSENCES = {
    "n/a": NOT_SUPPORTED,
    "not supported": NOT_SUPPORTED,
    "not found": NOT_SUPPORTED,
    "requested functionality has been deprecated": NOT_SUPPORTED,
    "function not found": NOT_IN_DRIVER,
    "insufficient permissions": NO_PERMISSION,
    "no permission": NO_PERMISSION,
    "unknown error": FAILED,
    "unknown": FAILED,
    "err!": FAILED,
}
_FAULTS = (LOST, "gpu requires reset", "gpu requires a reset", "failed to ")


def decoded(data: bytes) -> str:
    """Return the text of nvidia-smi's output: UTF-8, or UTF-16 with its byte order mark (a Windows shell).

    A byte that is neither becomes one character of the private use area; `observed`
    turns a cell that holds one into a failure with the bytes as hexadecimal digits.
    """
    for mark, name in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data[2:].decode(name, "replace").replace("\r\n", "\n")
    text = data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n")
    return re.sub("[\udc80-\udcff]", lambda found: chr(ord(found.group()) - 0xDC00 + _RAW), text)


def readable(text: str) -> str:
    """Return `text` for a person: short, and bytes that are not text as `\\xb5`."""
    shown = _RAW_BYTES.sub(lambda found: "".join("\\x{:02x}".format(ord(char) - _RAW) for char in found.group()), text)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + " …"


def bare(text: str) -> str:
    """Return the text of a cell without the blanks around it, and without brackets around the whole."""
    text = text.strip()
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def absence(text: str) -> Optional[str]:
    """Return the outcome that an absence spelled out stands for; None for any other text."""
    word = bare(text).lower()
    if word.startswith(_FAULTS):
        return FAILED
    return _ABSENCES.get(word)


def is_lost(text: str) -> bool:
    """Return whether a cell says that the GPU fell off the bus."""
    return bare(text).lower().startswith(LOST)


def observed(text: str, convert: Convert, source: str) -> Observed:
    """Return the fact in one cell."""
    broken = _RAW_BYTES.search(text)
    if broken:
        raw = "".join(
            "{:02x}".format(ord(char) - _RAW) if _RAW_BYTES.match(char) else char.encode("utf-8", "replace").hex()
            for char in text
        )
        return absent(FAILED, source, "not text; the bytes are {}".format(raw[:_LONGEST]))
    if text.startswith(TWICE):
        return absent(FAILED, source, "printed twice, and differently: `{}`".format(readable(text[1:])))
    outcome = absence(text)
    if outcome is None and bare(text).lower() == "none" and convert is not word:
        outcome = NOT_SUPPORTED
    if outcome is not None:
        return absent(outcome, source, "nvidia-smi prints `{}`".format(readable(bare(text))))
    try:
        return value(convert(bare(text)), source)
    except Absent as found:
        return absent(found.outcome, source, found.detail)
    except ValueError:
        if not bare(text):
            return absent(FAILED, source, "nvidia-smi prints nothing here")
        return absent(FAILED, source, "not understood: `{}`".format(readable(bare(text))))


# ---- one kind of cell each -------------------------------------------------------------------


def plain(text: str) -> str:
    """Return a text that is kept as printed."""
    if not text or len(text) > _LONGEST:
        raise ValueError(text)
    return text


def word(text: str) -> str:
    """Return one of a few words that nvidia-smi has for a state, in lower case."""
    return plain(text.replace("_", " ").lower())


def model(text: str) -> str:
    """Return the name of a model; the table cuts long ones."""
    if text.endswith("..."):
        raise Absent(FAILED, "cut off where it was printed: `{}`".format(readable(text)))
    return plain(text)


def version(text: str) -> str:
    """Return a version; drivers of 2026 put a notice in brackets behind it."""
    found = re.match(r"\d+(?:\.\d+)+(?=\s*(?:\[.*)?$)", text)
    if found is None:
        raise ValueError(text)
    return found.group()


def vbios(text: str) -> str:
    """Return the VBIOS version as printed (systems differ in its letter case)."""
    if not plain(text).strip("0."):
        raise Absent(HIDDEN, "a guest with a virtual GPU does not see it ({})".format(readable(text)))
    return text


def named(text: str) -> str:
    """Return a serial number or another name of one part; zeros, and nothing, name none."""
    digits = text[2:] if text.lower().startswith("0x") else text
    if not digits.replace("-", "").strip("0"):
        raise Absent(NOT_SUPPORTED, "nvidia-smi prints `{}`".format(text) if text else "nvidia-smi prints nothing here")
    return plain(text)


def lower_named(text: str) -> str:
    """Return `named` in lower case: numbers in hexadecimal digits."""
    return named(text).lower()


_SWITCHES = {"enabled": True, "on": True, "yes": True, "valid": True, "disabled": False, "off": False, "no": False}
_SWITCHES.update({"invalid": False, "mismatch": False})


def switch(text: str) -> bool:
    """Return whether it is on."""
    found = _SWITCHES.get(text.lower())
    if found is None:
        raise ValueError(text)
    return found


def gsp(text: str) -> bool:
    """Return whether GSP firmware runs: it is told by mode, or shown by its version."""
    return True if re.match(r"\d+\.\d+", text) else switch(text)


def number(text: str) -> int:
    """Return a whole number; `16x` is a width."""
    found = re.match(r"(\d{1,9})\s*x?$", text)
    if found is None:
        raise ValueError(text)
    return int(found.group(1))


def _measure(text: str, units: str) -> str:
    found = re.match(r"([\d.]+)\s*(?:{})?$".format(units), text)
    if found is None or not re.match(r"\d{1,9}(\.\d{1,6})?$", found.group(1)):
        raise ValueError(text)
    return found.group(1)


def milliwatts(text: str) -> int:
    """Return a power in mW; it is printed in W, with two decimals."""
    whole, _, part = _measure(text, "W").partition(".")
    return int(whole) * 1000 + int(part.ljust(3, "0")[:3])


def megahertz(text: str) -> int:
    return int(_measure(text, "MHz"))


def mebibytes(text: str) -> int:
    return int(_measure(text, "MiB|MB"))


def capability(text: str) -> str:
    if not re.match(r"\d{1,3}\.\d{1,3}$", text):
        raise ValueError(text)
    return text


def ids(text: str) -> str:
    """Return `vendor:device`; it is printed with the device in the upper half (`233010DE`)."""
    found = re.match(r"(?:0x)?([0-9a-f]{4})([0-9a-f]{4})$", text.lower())
    if found is None:
        raise ValueError(text)
    return "{}:{}".format(found.group(2), found.group(1))


def address(text: str) -> str:
    """Return a PCI address in sysfs' form; empty when it is none."""
    found = re.match(r"\s*(?:[0-9a-fA-F]{4,8}:)[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\s*$", text)
    return normal_address(text) if found else ""


def address_in(text: str) -> str:
    """Return the first PCI address in a line, in sysfs' form; empty when there is none."""
    found = re.search(r"\b(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b", text)
    if found is None:
        return ""
    place = found.group() if found.group().count(":") == 2 else "0000:" + found.group()
    return normal_address(place)
