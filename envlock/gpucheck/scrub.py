"""Names of one machine taken out of recordings, so that they can be shown to others.

Serials, UUIDs, PDIs, fabric and cluster ids, the host's and the user's name and process
names become dummies of the same length and shape; the same original always gives the
same dummy within one scrubber, so what was shared stays shared. Zeros stay: an all-zero
serial is an answer of its own. Originals are learnt from every text first, then
replaced in every text, whatever its form.

Standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import csv
import hashlib
import re
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Pattern

from envlock.registry import REGISTRY

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_ANY_UUID = re.compile(r"(?:GPU|MIG)-(" + _UUID + ")")
_XML = re.compile(
    r"<(?:serial|uuid|pdi|chassis_serial_number|gpu_fabric_guid|clusterUuid|hostname)>([^<]*)</", re.IGNORECASE
)
_QUERY = re.compile(
    r"^[ \t]*(?:Serial Number|GPU UUID|MIG UUID|GPU PDI|Chassis Serial Number|GPU Fabric GUID|ClusterUUID|Hostname)"
    r"[ \t]*:[ \t]*(\S.*?)[ \t]*$",
    re.MULTILINE,
)
_COLUMNS = frozenset(
    (
        "serial", "gpu_serial", "uuid", "gpu_uuid", "pdi", "fabric.clusteruuid", "platform.chassis_serial_number",
        "platform.gpu_fabric_guid", "hostname",
    )
)  # fmt: skip
_PROCESS = (
    re.compile(r"(<process_name>)([^<]+)(</process_name>)"),
    re.compile(r"(^[ \t]+Name[ \t]+: )(\S.*?)([ \t]*$)", re.MULTILINE),
)

_WHOLE = r"(?<![0-9A-Za-z])(?:{})(?![0-9A-Za-z])"
# A short name, or one that is a word of every recording, would take half of the text with it.
_SHORTEST = 4
_COMMON = frozenset(("localhost", "nvidia", "python", "server", "docker", "ubuntu", "debian", "torch", "root", "user"))


class Scrubber:
    """Learns originals, then replaces them. `key` is random for each run: no dummy can be undone by trying."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._dummies: Dict[str, str] = {}
        self._pattern: Optional[Pattern[str]] = None

    def __len__(self) -> int:
        return len(self._dummies)

    def learn(self, text: str) -> None:
        """Take in what names this machine in the output of an nvidia-smi command."""
        for pattern in (_ANY_UUID, _XML, _QUERY):
            for found in pattern.findall(text):
                self._keep(found)
        for found in _cells(text):
            self._keep(found)

    def learn_facts(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Take in the values of those facts (`facts` of a host or GPU as JSON) that name one machine or part."""
        for document in documents:
            for key, held in document.items():
                if key in REGISTRY and REGISTRY[key].unique and isinstance(held, Mapping):
                    self._keep(str(held.get("value", "")))

    def learn_name(self, name: str) -> None:
        """Take in the name of a host or user, unless it is too common a word to be told from others."""
        for part in {name, name.split(".")[0]}:
            if len(part) >= _SHORTEST and part.lower() not in _COMMON:
                self._add(part)

    def scrub(self, text: str) -> str:
        """Return `text` with every original that was learnt replaced, and process names wherever they stand."""
        for pattern in _PROCESS:
            text = pattern.sub(self._process, text)
        if not self._dummies:
            return text
        if self._pattern is None:
            longest_first = sorted(self._dummies, key=lambda original: (-len(original), original))
            self._pattern = re.compile(_WHOLE.format("|".join(map(re.escape, longest_first))))
        return self._pattern.sub(lambda found: self._dummies[found.group()], text)

    def _process(self, found: Any) -> str:
        name = found.group(2)
        if not _is_absence(name):
            # An escaped letter of XML stays what it is, so that the document stays one.
            parts = re.split(r"(&#?\w+;)", name)
            name = "".join(part if index % 2 or not part else self._dummy(part) for index, part in enumerate(parts))
        return "".join((found.group(1), name, found.group(3)))

    def _keep(self, found: str) -> None:
        for prefix in ("GPU-", "MIG-"):
            found = found[len(prefix) :] if found.startswith(prefix) else found
        if len(found) >= _SHORTEST and not _is_absence(found) and re.search(r"\d", found):
            self._add(found)

    def _add(self, original: str) -> None:
        if original not in self._dummies:
            self._dummies[original] = self._dummy(original)
            self._pattern = None

    def _dummy(self, original: str) -> str:
        """Return what stands in for `original`: another text of its length and shape."""
        taken = set(self._dummies.values()) - {self._dummies.get(original)}
        for attempt in range(100):
            seed = self._key + b"\x00" + str(attempt).encode() + b"\x00" + original.encode("utf-8", "surrogatepass")
            made = _shaped(original, hashlib.shake_256(seed).digest(len(original)))
            if made != original and made not in taken:
                return made
        return re.sub(r"[0-9A-Za-z]", "0", original)


def _shaped(original: str, drawn: bytes) -> str:
    """Return `drawn` in the shape of `original`: hex stays hex, digits digits, cases cases, the rest itself."""
    start = 2 if original.startswith("0x") else 0
    rest = original[start:]
    is_hex = bool(re.fullmatch(r"[0-9a-f-]*[a-f][0-9a-f-]*", rest)) and bool(re.search(r"\d", rest))
    made = [original[:start]]
    leading = True
    for letter, byte in zip(rest, drawn):
        if letter == "0" and leading:
            made.append(letter)
            continue
        if not letter.isalnum() or not letter.isascii():
            made.append(letter)
            continue
        if is_hex or start:
            made.append("0123456789abcdef"[byte % 15 + 1 if leading else byte % 16])
        elif letter.isdigit():
            made.append("0123456789"[byte % 9 + 1 if leading else byte % 10])
        else:
            made.append(chr(ord("A" if letter.isupper() else "a") + byte % 26))
        leading = False
    return "".join(made)


def _is_absence(text: str) -> bool:
    """Return whether `text` says that there is no such thing: words in place of a value, or zeros."""
    bare = text.strip("[] ").lower()
    known = ("n/a", "not supported", "none", "unknown error", "not found", "", "insufficient permissions")
    return bare in known or not bare.replace("0x", "", 1).strip("0-.")


def _cells(text: str) -> Iterator[str]:
    """Yield the cells of the columns that name a machine or part, when `text` is CSV with a header."""
    lines = text.splitlines()
    header = [name.strip().lower() for name in lines[0].split(",")] if lines else []
    chosen = [index for index, name in enumerate(header) if name in _COLUMNS]
    if len(header) < 2 or not chosen:
        return
    for row in csv.reader(lines[1:], skipinitialspace=True):
        for index in chosen:
            if index < len(row):
                yield row[index].strip()
