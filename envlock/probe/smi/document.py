"""The XML of `nvidia-smi -q -x`, drivers 340 to 610 and what comes after.

It has no stable schema: places are looked up by name, and names that no version known
here had are told in a note. Entities are refused, whatever they would expand to.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from envlock.errors import UsageError
from envlock.probe.smi import known
from envlock.probe.smi.fields import PLACES, REASON_PLACES, ROW_PLACES
from envlock.probe.smi.sheet import MOST_GPUS, Row, Sheet, joined
from envlock.probe.smi.spellings import address, readable

FORM = "nvidia-smi -q -x"
OPEN = "<nvidia_smi_log"
CLOSE = "</nvidia_smi_log>"
_DEEPEST = 24
_MOST_NAMES = 12
# Half the bytes and more, of no use here; some drivers wrote them ill formed, and a
# process may be called anything.
_CUT = ("supported_clocks", "processes", "accounted_processes")


def read(text: str, where: object) -> Sheet:
    """Return the sheet of one document, from its declaration to its closing tag.

    `UsageError` when it is not well formed, or holds what such a document never does.
    """
    tree = _Tree(where)
    tree.parse(_without(text, _CUT))
    sheet = Sheet(FORM, whole=True)
    unknown: Dict[str, None] = {}
    for name, cells, children in tree.tops:
        if name == "gpu":
            row = _row(cells, children)
            if row.address and any(other.address == row.address for other in sheet.rows[:MOST_GPUS]):
                raise UsageError("describes the GPU at {} twice".format(row.address), where=where)
            sheet.rows.append(row)
            unknown.update(dict.fromkeys(place for place in row.cells if not _is_known(place)))
        else:
            sheet.cells.setdefault(name, cells.get("", ""))
            if name not in known.HOST and name not in PLACES:
                unknown[name] = None
    sheet.attached = _count(sheet.cells.get("attached_gpus"))
    if sheet.attached is None and "attached_gpus" in sheet.cells:
        sheet.doubt = "the number of GPUs is not understood: `{}`".format(readable(sheet.cells["attached_gpus"]))
    if sheet.attached == len(sheet.rows):
        for index, row in enumerate(sheet.rows):
            row.index = index
    if unknown:
        sheet.notes.append(_unknown_note(text, list(unknown)))
    return sheet


def _row(cells: Dict[str, str], instances: int) -> Row:
    row = Row(address(cells.get("@id", "")) or address(cells.get("pci/pci_bus_id", "")))
    row.cells = {place: text for place, text in cells.items() if place not in ("", "@id")}
    row.uuid = row.cells.get("uuid", "")
    if instances:
        row.instances = ("",) * instances
    elif "mig_devices" in row.cells:
        row.instances = ()
    return row


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and re.match(r"\d{1,4}$", text) else None


def _is_known(place: str) -> bool:
    if place in PLACES or place in REASON_PLACES or place in ROW_PLACES or place in known.LEAVES:
        return True
    return place.startswith(known.GROUPS)


def _unknown_note(text: str, names: List[str]) -> str:
    dtd = re.search(r'<!DOCTYPE[^>]{0,80}?"([\w.]{1,60})"', text[:2000])
    shown = ", ".join(readable(name) for name in names[:_MOST_NAMES])
    more = ", and {} more".format(len(names) - _MOST_NAMES) if len(names) > _MOST_NAMES else ""
    return "{}{}: elements that this version of envlock does not read: {}{}".format(
        FORM, " ({})".format(dtd.group(1)) if dtd else "", shown, more
    )


def _without(text: str, names: Tuple[str, ...]) -> str:
    """Return `text` without the elements `names`, which it does not look into."""
    for name in names:
        kept, end = [], 0
        close = "</{}>".format(name)
        while True:
            start = text.find("<{}>".format(name), end)
            stop = text.find(close, start) if start >= 0 else -1
            if stop < 0:
                break
            kept.append(text[end:start])
            end = stop + len(close)
        text = "".join(kept) + text[end:]
    # Characters that XML forbids, from the name of something.
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)


class _Tree:
    """The elements below the root, each with its cells by path; a GPU with the number of its MIG instances."""

    def __init__(self, where: object) -> None:
        self._where = where
        self._path: List[str] = []
        self._text: List[str] = []
        self._leaf = False
        self._cells: Dict[str, str] = {}
        self._instances = 0
        self.tops: List[Tuple[str, Dict[str, str], int]] = []

    def parse(self, text: str) -> None:
        from xml.parsers import expat

        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        parser.EntityDeclHandler = self._refuse
        parser.StartDoctypeDeclHandler = self._doctype
        parser.SkippedEntityHandler = self._skipped
        try:
            parser.Parse(text, True)
        except expat.ExpatError as error:
            why = expat.ErrorString(error.code)
            raise UsageError(
                "is not well formed: {} (line {} of the document)".format(why, error.lineno),
                where=self._where,
                hint="is it cut off, or edited by hand?",
            ) from None

    def _doctype(self, name: str, system: str | None, public: str | None, internal: int) -> None:
        if internal:
            self._refuse()

    def _skipped(self, name: str, parameter: int) -> None:
        raise UsageError("is not well formed: undefined entity `{}`".format(readable(name)), where=self._where)

    def _refuse(self, *_: object) -> None:
        raise UsageError("holds declarations of its own, which no output of nvidia-smi does", where=self._where)

    def _start(self, name: str, attributes: Dict[str, str]) -> None:
        if len(self._path) >= _DEEPEST:
            raise UsageError("is nested more than {} deep".format(_DEEPEST), where=self._where)
        if not self._path and name != "nvidia_smi_log":
            raise UsageError("is no output of nvidia-smi: its root is `{}`".format(readable(name)), where=self._where)
        self._path.append(name.lower())
        if len(self._path) == 2:
            self._cells, self._instances = {}, 0
            if "id" in attributes:
                self._cells["@id"] = attributes["id"]
        if name == "mig_device":
            self._instances += 1
        self._leaf = True
        del self._text[:]

    def _end(self, name: str) -> None:
        place = "/".join(self._path[2:])
        if self._leaf and not place.startswith("mig_devices/"):
            self._cells[place] = joined(self._cells.get(place), "".join(self._text).strip())
        if len(self._path) == 2:
            self.tops.append((self._path[1], self._cells, self._instances))
        self._path.pop()
        self._leaf = False
        del self._text[:]
