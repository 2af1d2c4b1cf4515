"""Tar headers in one form: ustar, and PAX only where ustar has no room.

The bytes depend on the arguments alone, never on a library's version: numeric owners, no
owner names, records sorted by key, one time for everything.
"""

from envlock.image.layertar import BLOCK_SIZE, CAPABILITY, DIRECTORY, OCTAL_LIMIT, Entry

END = bytes(2 * BLOCK_SIZE)
_OWNER_LIMIT = 8**7


def header(name: bytes, entry: Entry, mtime: int) -> bytes:
    """Return the header blocks of `entry` under `name`; a PAX header only where ustar has no room.

    Numeric owners, no owner names, PAX records sorted by key.
    """
    full = name + b"/" if entry.kind == DIRECTORY else name
    records: dict[bytes, bytes] = {}
    if len(full) > 100 or not full.isascii():
        records[b"path"] = full
    if len(entry.link) > 100 or not entry.link.isascii():
        records[b"linkpath"] = entry.link
    for key, value, limit in ((b"size", entry.size, OCTAL_LIMIT), (b"uid", entry.uid, _OWNER_LIMIT)):
        if value >= limit:
            records[key] = b"%d" % value
    if entry.gid >= _OWNER_LIMIT:
        records[b"gid"] = b"%d" % entry.gid
    if entry.capability:
        records[CAPABILITY] = entry.capability
    block = _ustar(full, entry, mtime)
    return _pax_header(records, mtime) + block if records else block


def _pax_header(records: dict[bytes, bytes], mtime: int) -> bytes:
    data = b"".join(_pax_record(key, records[key]) for key in sorted(records))
    holder = Entry(name=b"././@PaxHeader", kind=b"x", mode=0o644, uid=0, gid=0, size=len(data))
    return _ustar(holder.name, holder, mtime) + data + bytes(-len(data) % BLOCK_SIZE)


def _pax_record(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = len(body) + 1
    while len(b"%d" % length) + len(body) != length:
        length = len(b"%d" % length) + len(body)
    return b"%d" % length + body


def _ustar(name: bytes, entry: Entry, mtime: int) -> bytes:
    size = entry.size if entry.size < OCTAL_LIMIT else 0
    uid = entry.uid if entry.uid < _OWNER_LIMIT else 0
    gid = entry.gid if entry.gid < _OWNER_LIMIT else 0
    block = b"%-100b%07o\0%07o\0%07o\0%011o\0%011o\0        %b%b%b%b%07o\0%07o\0" % (
        name[:100].ljust(100, b"\0"),
        entry.mode & 0o7777,
        uid,
        gid,
        size,
        mtime,
        entry.kind,
        entry.link[:100].ljust(100, b"\0"),
        b"ustar\x0000",
        bytes(64),
        *entry.device,
    )
    block = block.ljust(BLOCK_SIZE, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padding(size: int) -> bytes:
    """Return the zero bytes that follow a content of `size` bytes."""
    return bytes(-size % BLOCK_SIZE)
