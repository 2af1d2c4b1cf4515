"""What one output of nvidia-smi holds before anything is made of it: cells by their place.

A place is a path of names in the output's own words, in lower case: `mig_mode/current_mig`
(XML), `mig mode/current` (text), `mig.mode.current` (CSV). What a place means is
`envlock.probe.smi.fields`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from envlock.facts import Observed

MOST_GPUS = 1024
UNENDED = "the last line has no end, so that more may have followed"


TWICE = "\x00"  # begins a cell that was printed twice, and differently


def joined(held: str | None, text: str) -> str:
    """Return what a place holds where `text` is printed at it, and `held` was before."""
    if held is None or held == text or held.startswith(TWICE):
        return text if held is None else held
    return "{}{} / {}".format(TWICE, held, text)


class Row:
    """One GPU as one output shows it.

    `address` is the PCI address in sysfs' form, `index` the driver's number, `uuid` the
    UUID; each is empty or None where the output does not tell it. `cells` holds the text
    of each place, `facts` what the output tells in another form than a cell. `instances`
    are the MIG instances by profile, "" for one whose profile is not told; None where the
    output does not list instances.
    """

    __slots__ = ("address", "cells", "facts", "index", "instances", "uuid")

    def __init__(self, address: str = "", index: Optional[int] = None, uuid: str = "") -> None:
        self.address = address
        self.index = index
        self.uuid = uuid
        self.cells: Dict[str, str] = {}
        self.facts: Dict[str, Observed] = {}
        self.instances: Optional[Tuple[str, ...]] = None

    def put(self, place: str, text: str) -> None:
        """Keep a cell; a place that is there twice with two texts is no value."""
        self.cells[place] = joined(self.cells.get(place), text)


class Sheet:
    """One output of nvidia-smi.

    `form` names it (`nvidia-smi -q -x`). `whole` says that a place it lacks is one that
    this nvidia-smi does not know; other forms show a choice. `attached` is how many GPUs it
    says there are; None where it does not. `counts` is whether it lists every GPU. `lost`
    are GPUs that it names only to say what is wrong with them, by address and words.
    `fault` is why it tells nothing; `doubt` why GPUs may be missing from it.
    """

    __slots__ = ("attached", "cells", "counts", "doubt", "fault", "form", "lost", "notes", "rows", "whole")

    def __init__(self, form: str, whole: bool = False, counts: bool = True) -> None:
        self.form = form
        self.whole = whole
        self.counts = counts
        self.cells: Dict[str, str] = {}
        self.rows: List[Row] = []
        self.attached: Optional[int] = None
        self.lost: List[Tuple[str, str]] = []
        self.notes: List[str] = []
        self.fault = ""
        self.doubt = ""
