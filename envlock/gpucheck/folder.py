"""The folder that a GPU check leaves: everything in it is scrubbed on its way in.

Standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import json
import os
from typing import Any, List

from envlock.errors import StorageError
from envlock.gpucheck.scrub import Scrubber


class Folder:
    """A folder that did not exist or was empty; `files` are the names written, in order, each once."""

    def __init__(self, path: str, scrubber: Scrubber) -> None:
        self.path = path
        self.files: List[str] = []
        self._scrubber = scrubber

    def text(self, name: str, text: str) -> None:
        """Write `text` to `name`, scrubbed, in place of what it held; `StorageError` when that cannot be done."""
        path = os.path.join(self.path, name)
        part = path + ".part"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(part, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                stream.write(self._scrubber.scrub(text))
            os.replace(part, path)  # whoever ends the check leaves whole files
        except OSError as error:
            raise _refused(error, path) from error
        if name not in self.files:
            self.files.append(name)

    def json(self, name: str, document: Any) -> None:
        """Write `document` to `name` as JSON, scrubbed."""
        self.text(name, json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def opened(wanted: str, name: str, scrubber: Scrubber) -> Folder:
    """Make the folder: `wanted` itself where it is new or empty, `name` in it where it holds something.

    Made first of all, so that nobody waits for minutes to hear that it cannot be written.
    """
    path = wanted
    try:
        if os.path.isdir(wanted) and os.listdir(wanted):
            path = os.path.join(wanted, name)
            number = 1
            while os.path.exists(path):
                number += 1
                path = os.path.join(wanted, "{}-{}".format(name, number))
        os.makedirs(path, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "permission denied")
    except OSError as error:
        raise _refused(error, path) from error
    return Folder(path, scrubber)


def _refused(error: OSError, path: str) -> StorageError:
    why = (error.strerror or str(error)).lower()
    return StorageError(why, where=path, hint="choose another folder: `make gpu-check OUT=FOLDER`")
