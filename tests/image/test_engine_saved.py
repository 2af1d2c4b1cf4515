"""What an engine saved is hashed, and believed in nothing."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable

import pytest
from engine_fixtures import archive_of, chunks, tar_of

from envlock.digest import sha256
from envlock.errors import IntegrityError
from envlock.image.saved import ChunkReader, read_saved

ONE, TWO = tar_of({"a": b"1"}), tar_of({"b": b"2"})
GOOD = archive_of([ONE, TWO], "test:1")


def members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {item.name: stream.read() for item in opened if (stream := opened.extractfile(item)) is not None}


def changed(change: Callable[[dict[str, bytes]], None]) -> bytes:
    found = members(GOOD)
    change(found)
    return tar_of(found)


def layer(number: int) -> str:
    return f"{hashlib.sha256((ONE, TWO)[number]).hexdigest()}/layer.tar"


def config_of(found: dict[str, bytes]) -> str:
    return str(json.loads(found["manifest.json"])[0]["Config"])


def test_the_digests_come_from_the_bytes() -> None:
    """Config and layers in the order of the config."""
    found = read_saved(chunks(GOOD, 777), "test:1")

    assert found.diff_ids == (sha256(ONE), sha256(TWO))
    assert found.config == sha256(members(GOOD)[config_of(members(GOOD))])
    assert found.platform.startswith("linux/")


def test_a_layer_that_is_saved_as_a_link_to_another_is_followed() -> None:
    """Docker saves a layer that comes twice as a symbolic link."""
    document = {"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [sha256(ONE), sha256(ONE)]}}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        link = tarfile.TarInfo("y/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../x/layer.tar"
        archive.addfile(link)
        manifest = [{"Config": "c.json", "Layers": ["x/layer.tar", "y/layer.tar"]}]
        for name, data in {
            "x/layer.tar": ONE,
            "c.json": json.dumps(document).encode(),
            "manifest.json": json.dumps(manifest).encode(),
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))

    assert read_saved(chunks(buffer.getvalue()), "x").diff_ids == (sha256(ONE), sha256(ONE))


def test_a_compressed_layer_is_known_by_its_content() -> None:
    """A containerd store saves the layers of what it built as gzip: the diff id is of what is inside."""

    def compress(found: dict[str, bytes]) -> None:
        found[layer(0)] = gzip.compress(ONE)

    assert read_saved(chunks(changed(compress), 100), "x").diff_ids == (sha256(ONE), sha256(TWO))


def cut_compressed(found: dict[str, bytes]) -> None:
    found[layer(0)] = gzip.compress(ONE)[:-9]


def followed_compressed(found: dict[str, bytes]) -> None:
    found[layer(0)] = gzip.compress(ONE) + b"more"


def broken_compressed(found: dict[str, bytes]) -> None:
    data = bytearray(gzip.compress(ONE))
    data[20] ^= 255
    found[layer(0)] = bytes(data)


def swap_layer(found: dict[str, bytes]) -> None:
    found[layer(1)] = tar_of({"b": b"3"})


def swap_order(found: dict[str, bytes]) -> None:
    found[layer(0)], found[layer(1)] = found[layer(1)], found[layer(0)]


def drop_layer(found: dict[str, bytes]) -> None:
    del found[layer(1)]


def drop_manifest(found: dict[str, bytes]) -> None:
    del found["manifest.json"]


def drop_config(found: dict[str, bytes]) -> None:
    del found[config_of(found)]


def no_layers(found: dict[str, bytes]) -> None:
    # moby#47065: a save whose manifest names no layers, with a good config
    manifest = json.loads(found["manifest.json"])
    manifest[0]["Layers"] = None
    found["manifest.json"] = json.dumps(manifest).encode()


def two_images(found: dict[str, bytes]) -> None:
    found["manifest.json"] = json.dumps(json.loads(found["manifest.json"]) * 2).encode()


def broken_manifest(found: dict[str, bytes]) -> None:
    found["manifest.json"] = b"[" * 100000


def empty_config(found: dict[str, bytes]) -> None:
    found[config_of(found)] = b"{}"


def strange_config(found: dict[str, bytes]) -> None:
    found[config_of(found)] = b'{"rootfs":{"diff_ids":["sha256:x"]}}'


def list_config(found: dict[str, bytes]) -> None:
    found[config_of(found)] = b"[]"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (swap_layer, "layer 2 of 2 has digest"),
        (swap_order, "layer 1 of 2 has digest"),
        (cut_compressed, "a saved layer is "),
        (followed_compressed, "a saved layer is followed by something"),
        (broken_compressed, "a saved layer is not gzip"),
        (drop_layer, "layer 2 of 2 has digest (missing)"),
        (drop_manifest, "holds no manifest.json"),
        (drop_config, "holds no config"),
        (no_layers, "holds 0 layers, its config names 2"),
        (two_images, "does not name one image"),
        (broken_manifest, "manifest.json in the saved archive is not JSON"),
        (empty_config, "holds 2 layers, its config names 0"),
        (strange_config, "the saved config names no layers"),
        (list_config, "is not a JSON object"),
    ],
)
def test_an_archive_that_is_not_in_order_is_refused(change: Callable[[dict[str, bytes]], None], says: str) -> None:
    """Altered, missing, swapped: exit 4, and which layer."""
    with pytest.raises(IntegrityError) as caught:
        read_saved(chunks(changed(change)), "test:1")

    assert says in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("length", [0, 100, 512, 3000, len(GOOD) // 2])
def test_an_archive_that_is_cut_off_is_refused(length: int) -> None:
    """At any place."""
    with pytest.raises(IntegrityError):
        read_saved(chunks(GOOD[:length]), "test:1")


def test_an_archive_with_two_entries_of_one_name_is_refused() -> None:
    """Two readers could take two different ones."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for data in (b"1", b"2"):
            entry = tarfile.TarInfo("manifest.json")
            entry.size = 1
            archive.addfile(entry, io.BytesIO(data))

    with pytest.raises(IntegrityError, match="holds two entries"):
        read_saved(chunks(buffer.getvalue()), "x")


def test_the_reader_over_chunks_gives_exactly_what_is_asked() -> None:
    """As much as there is, never more, whatever the chunks' sizes."""
    reader = ChunkReader(iter([b"ab", b"", b"cdefg", b"h"]))

    assert [reader.read(3), reader.read(1), reader.read(0), reader.read(), reader.read(1)] == [
        b"abc",
        b"d",
        b"",
        b"efgh",
        b"",
    ]
