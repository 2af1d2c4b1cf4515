"""Archives: what is written is read back, and what was altered is refused."""

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from worlds import Thing, in_pieces, saved_archive, tar_of

from envlock.digest import sha256
from envlock.errors import IntegrityError
from envlock.image import layout
from envlock.image.layout import OutputImage, OutputLayer, manifest_of

LAYERS = [tar_of(Thing("a", b"one")), tar_of(Thing("b", b"two" * 1000))]
NAME = "localhost/test/image:1"


def image() -> OutputImage:
    layers = tuple(
        OutputLayer(owner="system", diff_id=sha256(data), size=len(data), pieces=lambda data=data: iter((data,)))  # type: ignore[misc]
        for data in LAYERS
    )
    config = json.dumps({"rootfs": {"diff_ids": [layer.diff_id for layer in layers]}}).encode()
    return OutputImage(config=config, manifest=manifest_of(config, layers), layers=layers)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Config and layers come back with the digests they were given."""
    made = image()
    archive = b"".join(layout.hybrid(made, NAME))
    with layout.spooled(in_pieces(archive), tmp_path, "x") as spool:
        assert spool.config == sha256(made.config)
        assert [layer.digest for layer in spool.layers] == [sha256(data) for data in LAYERS]
        assert [os.pread(spool.descriptor, layer.size, layer.offset) for layer in spool.layers] == LAYERS
    assert list(tmp_path.iterdir()) == []


def test_the_archive_is_an_oci_layout_and_what_docker_before_25_loads() -> None:
    """index.json and manifest.json name the same blobs, each blob is named by its digest."""
    archive = b"".join(layout.hybrid(image(), NAME))
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        held = {member.name: opened.extractfile(member).read() for member in opened if member.isreg()}  # type: ignore[union-attr]
    for name, data in held.items():
        if name.startswith("blobs/sha256/"):
            assert sha256(data).hex == name.rpartition("/")[2]
    listed = json.loads(held["manifest.json"])[0]
    descriptor = json.loads(held["index.json"])["manifests"][0]
    manifest = json.loads(held[f"blobs/sha256/{descriptor['digest'][7:]}"])

    assert json.loads(held["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    assert listed["RepoTags"] == [NAME]
    assert descriptor["annotations"] == {
        "io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": "1",
    }  # fmt: skip
    assert listed["Config"] == f"blobs/sha256/{manifest['config']['digest'][7:]}"
    assert listed["Layers"] == [f"blobs/sha256/{layer['digest'][7:]}" for layer in manifest["layers"]]


def spool(archive: bytes, folder: Path) -> None:
    with layout.spooled(in_pieces(archive), folder, "x"):
        pass


def test_an_altered_layer_is_an_integrity_error(tmp_path: Path) -> None:
    """Its bytes are not what the config says, wherever the bit was flipped, and exit 4 says so."""
    altered = [LAYERS[0], tar_of(Thing("b", b"tw0" * 1000))]

    with pytest.raises(IntegrityError, match="layer 2 of 2 has digest") as caught:
        spool(saved_archive(altered, claimed=LAYERS), tmp_path)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda things: things[1:], "does not hold it"),
        (lambda things: [*things[:1], Thing("manifest.json", b"[]")], "does not name one image"),
        (lambda things: [*things[:1], Thing("manifest.json", b"[{},{}]")], "does not name one image"),
        (lambda things: [*things[:1], Thing("manifest.json", b"no JSON")], "is not JSON"),
        (lambda things: things[:1], "'manifest.json' and does not"),
        (lambda things: things[:2], "does not hold it"),
    ],
)
def test_an_archive_that_lacks_something_is_refused(change: object, words: str, tmp_path: Path) -> None:
    """Config, manifest or layer missing (moby#47065), or not what they should be."""
    config = json.dumps({"rootfs": {"diff_ids": [sha256(LAYERS[0])]}}).encode()
    listed = json.dumps([{"Config": "c.json", "Layers": ["l/layer.tar"]}]).encode()
    things = [Thing("c.json", config), Thing("manifest.json", listed), Thing("l/layer.tar", LAYERS[0])]
    spool(tar_of(*things), tmp_path)

    with pytest.raises(IntegrityError, match=words):
        spool(tar_of(*change(things)), tmp_path)  # type: ignore[operator]


def test_an_archive_cut_off_is_refused(tmp_path: Path) -> None:
    """At any place."""
    archive = saved_archive(LAYERS)
    for size in range(0, len(archive) - 10240, 1531):
        with pytest.raises(IntegrityError):
            spool(archive[:size], tmp_path)


def test_a_layer_saved_compressed_is_known_by_its_content(tmp_path: Path) -> None:
    """The diff id is that of the plain tar; the compressed bytes, which differ by library, count for nothing."""
    for level in (1, 9):
        packed = gzip.compress(LAYERS[0], level, mtime=0)
        with layout.spooled(in_pieces(saved_archive([packed], claimed=[LAYERS[0]])), tmp_path, "x") as found:
            assert found.layers[0].digest == sha256(LAYERS[0])
            assert os.pread(found.descriptor, found.layers[0].size, found.layers[0].offset) == LAYERS[0]


@pytest.mark.parametrize(
    "packed", [gzip.compress(LAYERS[0])[:-9], gzip.compress(LAYERS[0]) + b"more", b"\x1f\x8b" + bytes(99)]
)
def test_a_damaged_compressed_layer_is_refused(packed: bytes, tmp_path: Path) -> None:
    """Cut off, followed by something, or no gzip at all."""
    with pytest.raises(IntegrityError):
        spool(saved_archive([packed], claimed=[LAYERS[0]]), tmp_path)


def test_a_layer_stored_once_and_linked_is_found(tmp_path: Path) -> None:
    """Docker before 25 saves an equal layer as a symbolic link to the other one."""
    config = json.dumps({"rootfs": {"diff_ids": [sha256(LAYERS[0])] * 2}}).encode()
    listed = json.dumps([{"Config": "c.json", "Layers": ["x/layer.tar", "y/layer.tar"]}]).encode()
    things = (
        Thing("c.json", config), Thing("manifest.json", listed), Thing("x/layer.tar", LAYERS[0]),
        Thing("y/layer.tar", link="../x/layer.tar"),
    )  # fmt: skip
    with layout.spooled(in_pieces(tar_of(*things)), tmp_path, "x") as found:
        assert [layer.digest for layer in found.layers] == [sha256(LAYERS[0])] * 2
