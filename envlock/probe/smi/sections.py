"""Which outputs of nvidia-smi a text holds, one after another, and the lines around them.

What each is shows in its content: a file name says nothing, and a capture of a whole
machine holds many.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Callable, List, Tuple

from envlock.errors import UsageError
from envlock.probe.smi import columns, document, lists, query, table, topo
from envlock.probe.smi.sheet import MOST_GPUS, Sheet
from envlock.probe.smi.spellings import address_in, readable

_MOST_NOTES = 20
_LONGEST = 20000
_RULE = "#" * 80
# What a GPU that fell off the bus, or a driver that gives no answer, leaves in place of a document.
_LOST = re.compile(r"Unable to determine the device handle for GPU", re.IGNORECASE)
_NO_ANSWER = re.compile(
    r"Failed to initialize NVML|NVIDIA-SMI has failed|NVIDIA-SMI couldn't|couldn't find libnvidia-ml"
    r"|Failed to properly shut down NVML|Unable to initialize NVML",
    re.IGNORECASE,
)
_NONE = re.compile(r"No devices (?:were|was) found", re.IGNORECASE)
_LIBRARY = re.compile(r"NVML library version: \S+")
_WARNING = re.compile(r"(?i)(?:warning|error)\b")
_QUIET = re.compile(r"\s*(?:[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4}\s*)?$")  # a clock, or nothing


def split(text: str, where: object) -> List[Sheet]:
    """Return a sheet for each output in `text`; `UsageError` for one that is cut off or ill formed."""
    sheets, around = _documents(text, where)
    ended = around.endswith("\n") or not around
    # The longest line of any output is a header of CSV.
    lines = [line if len(line) <= _LONGEST else line[:_LONGEST] for line in around.split("\n")]
    found = [*sheets, *_Reader(lines, ended, where).sheets()]
    if any(len(sheet.rows) > MOST_GPUS or len(sheet.lost) > MOST_GPUS for sheet in found):
        raise UsageError("describes more GPUs than any host has: over {}".format(MOST_GPUS), where=where)
    return found


def _documents(text: str, where: object) -> Tuple[List[Sheet], str]:
    """Return the sheet of the XML document in `text`, and the text around it."""
    start = text.find(document.OPEN)
    if start < 0:
        if re.search(r"<\?xml|<!DOCTYPE", text):
            raise UsageError("is XML, but no output of `nvidia-smi -q -x`", where=where)
        return [], text
    stop = text.find(document.CLOSE, start)
    if stop < 0:
        raise UsageError(
            "is cut off: the document has no end",
            where=where,
            hint="take the output again, whole: `nvidia-smi -q -x > FILE`",
        )
    stop += len(document.CLOSE)
    if text.find(document.OPEN, stop) >= 0:
        raise UsageError("holds two documents", where=where, hint="give the output of one host, taken once")
    begin = text.rfind("<?xml", 0, start)
    begin = start if begin < 0 else begin
    return [document.read(text[begin:stop], where)], text[:begin] + text[stop:]


class _Reader:
    """Goes through lines and makes a sheet of each run that is one output."""

    def __init__(self, lines: List[str], ended: bool, where: object) -> None:
        self._lines = lines[:-1] if ended else lines
        self._ended = ended
        self._where = where
        self._at = 0
        self._rest = Sheet("nvidia-smi", counts=False)
        self._is_capture = False
        self._more = 0

    def sheets(self) -> List[Sheet]:
        found: List[Sheet] = []
        while self._at < len(self._lines):
            sheet = self._next()
            if sheet is not None:
                found.append(sheet)
        if self._more:
            self._rest.notes.append("and {} lines more".format(self._more))
        return [*found, self._rest]

    def _next(self) -> Sheet | None:
        line = self._lines[self._at]
        if query.START.match(line):
            lines = self._run(query.is_part)
            return query.read(lines, self._is_ended(), self._where)
        if table.START.match(line):
            return table.read(self._run(table.is_part))
        if lists.GPU.match(line):
            return lists.read_list(self._run(lists.is_list), self._is_ended())
        if topo.is_header(line):
            return topo.read(self._run(topo.is_part), self._is_ended())
        if lists.is_version(line):
            return lists.read_version(self._run(lists.is_version), self._is_ended())
        if lists.is_lspci(line):
            lines = self._run(lists.is_lspci)
            last = self._at == len(self._lines) and lists.is_whole(lines[-1])
            return lists.read_lspci(lines, self._is_ended() or last)
        sheet = self._list()
        if sheet is None:
            self._other(line)
        return sheet

    def _list(self) -> Sheet | None:
        """Return the sheet of a list with or without a header that begins here."""
        line = self._lines[self._at]
        # In a capture one word alone is an item of the list of fields, not a header.
        names = columns.columns(line) if "," in line or not self._is_capture else None
        if names is not None and ("," in line or self._followed()):
            run = self._run(_is_cell_line)[1:]
            lines = [below for below in run if not self._told(below)]
            if not columns.is_of_others(names):
                return columns.read(names, lines, self._is_ended(), self._where)
            return Sheet(columns.FORM, counts=False)
        if columns.is_headless(line):
            return columns.read_headless(self._run(columns.is_headless), self._is_ended())
        return None

    def _followed(self) -> bool:
        """Return whether the header of one column here has a list below it."""
        return self._at + 1 < len(self._lines) and bool(self._lines[self._at + 1].strip())

    def _run(self, belongs: Callable[[str], bool]) -> List[str]:
        """Return this line and those after it that belong to one output."""
        start = self._at
        self._at += 1
        while self._at < len(self._lines) and belongs(self._lines[self._at]):
            self._at += 1
        return self._lines[start : self._at]

    def _is_ended(self) -> bool:
        """Return whether the run before this line is whole: a last line without an end may be the start of its next."""
        return self._ended or self._at < len(self._lines) - 1

    def _other(self, line: str) -> None:
        """Take one line that is no part of an output."""
        self._at += 1
        if line == _RULE:
            # A capture of a machine: what it holds beside outputs is its own, and no message of nvidia-smi.
            self._is_capture = True
        elif not self._told(line) and not self._is_capture and not _QUIET.match(line) and not _is_decoration(line):
            self._note(readable(line.strip()))

    def _told(self, line: str) -> bool:
        """Take a line in which nvidia-smi tells of a fault or warns; return whether it is one."""
        if _LOST.search(line):
            self._rest.lost.append((address_in(line), line.strip()))
        elif _NO_ANSWER.search(line):
            self._rest.fault = self._rest.fault or line.strip()
        elif _LIBRARY.search(line):
            self._rest.fault = "; ".join(filter(None, (self._rest.fault, line.strip())))
        elif _NONE.search(line):
            self._rest.attached = 0
        elif _WARNING.match(line):
            self._note(readable(line.strip()))
        else:
            return False
        return True

    def _note(self, text: str) -> None:
        if len(self._rest.notes) < _MOST_NOTES:
            self._rest.notes.append(text)
        else:
            self._more += 1


def _is_cell_line(line: str) -> bool:
    """Return whether a line goes on with a list, or is something that nvidia-smi says in between."""
    return bool(line.strip()) and not line.startswith(("#", "|", "+", "<", "="))


def _is_decoration(line: str) -> bool:
    """Return whether a line belongs to an XML document's outside, or to the legend of the matrix."""
    return bool(re.match(r"\s*<!DOCTYPE|\s*(?:NIC )?Legend:|\s+\S+\s+= |\s+NIC\d+: |[|+]", line))
