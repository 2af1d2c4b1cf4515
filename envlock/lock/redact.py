"""What a tool said, without what must not be told: addresses of indexes and mirrors, credentials."""

import re

_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]*)://[^\s'\"`<>/]*")
_FOLDER = re.compile(r"\bfile://[^\s'\"`<>]*/")


def redact(text: str) -> str:
    """Return `text` with the authority of every address (user, password, host, port) left out."""
    return _ADDRESS.sub(r"\1://…", _FOLDER.sub("file://…/", text))
