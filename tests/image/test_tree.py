"""Layers applied one on another, and a tree written as a layer."""

import os
from pathlib import Path

import pytest
from worlds import Thing, tar_of

from envlock.errors import IntegrityError
from envlock.image import tree
from envlock.image.layertar import DIRECTORY, REGULAR, RangeSource


class Layers:
    """Layers in one file, applied in order."""

    def __init__(self, folder: Path, *layers: bytes) -> None:
        path = folder / f"spool-{len(list(folder.iterdir()))}"
        path.write_bytes(b"".join(layers))
        self.descriptor = os.open(path, os.O_RDONLY)
        self.tree: tree.Tree = {}
        offset = 0
        for layer in layers:
            tree.apply_layer(self.tree, RangeSource(self.descriptor, offset, len(layer), "a layer"), "a layer")
            offset += len(layer)

    def content(self, name: bytes) -> bytes:
        return b"".join(tree.content(self.descriptor, self.tree[name]))

    def names(self) -> list[str]:
        return sorted(name.decode() for name in self.tree)


LOWER = tar_of(
    Thing("a", None, 0o755), Thing("a/one", b"1"), Thing("a/two", b"2"), Thing("a/sub", None, 0o755),
    Thing("a/sub/deep", b"d"), Thing("ab", b"neighbour"),
)  # fmt: skip


def test_a_whiteout_hides_a_file_and_a_folder_with_all_that_is_in_it(tmp_path: Path) -> None:
    """Only what has that very name goes, not its neighbours."""
    found = Layers(tmp_path, LOWER, tar_of(Thing("a/.wh.one"), Thing("a/.wh.sub")))

    assert found.names() == ["a", "a/two", "ab"]


def test_an_opaque_folder_keeps_what_its_own_layer_brings(tmp_path: Path) -> None:
    """Lower content goes, the layer's own stays, in whichever order the entries come."""
    found = Layers(
        tmp_path,
        LOWER,
        tar_of(Thing("a", None, 0o700), Thing("a/new", b"n"), Thing("a/.wh..wh..opq"), Thing("a/two", b"3")),
    )

    assert found.names() == ["a", "a/new", "a/two", "ab"]
    assert found.content(b"a/two") == b"3"
    assert found.tree[b"a"].mode == 0o700


def test_a_file_in_place_of_a_folder_takes_all_of_it(tmp_path: Path) -> None:
    """And a folder in place of a file is a folder."""
    found = Layers(tmp_path, LOWER, tar_of(Thing("a", b"file")), tar_of(Thing("ab", None, 0o755), Thing("ab/c", b"c")))

    assert found.names() == ["a", "ab", "ab/c"]
    assert found.tree[b"a"].kind == REGULAR


def test_a_hard_link_shares_its_file_over_layers(tmp_path: Path) -> None:
    """Two names, one entry, also when the target lies in a lower layer."""
    found = Layers(tmp_path, LOWER, tar_of(Thing("link", link="a/one", hard=True)))

    assert found.tree[b"link"] is found.tree[b"a/one"]


def test_a_missing_folder_is_made_with_the_usual_mode(tmp_path: Path) -> None:
    """Engines do so without saying it in the layer."""
    found = Layers(tmp_path, tar_of(Thing("x/y/z", b"")))

    assert found.names() == ["x", "x/y", "x/y/z"]
    assert (found.tree[b"x"].kind, found.tree[b"x"].mode) == (DIRECTORY, 0o755)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (tar_of(Thing("lib", link="/etc"), Thing("lib/passwd", b"x")), "leads through"),
        (tar_of(Thing("link", link="nowhere", hard=True)), "hard link to nothing"),
        (tar_of(Thing("d", None), Thing("link", link="d", hard=True)), "hard link to nothing"),
        (tar_of(Thing("f", b"", 0o755), Thing("link", mode=0o644, link="f", hard=True)), "two modes or owners"),
        (tar_of(Thing("f", b"", uid=1), Thing("link", link="f", hard=True)), "two modes or owners"),
    ],
)
def test_a_layer_that_leads_elsewhere_is_refused(layer: bytes, words: str, tmp_path: Path) -> None:
    """No path goes through a link, and no hard link to what is not there."""
    with pytest.raises(IntegrityError, match=words):
        Layers(tmp_path, layer)


def test_a_written_layer_is_sorted_dated_and_links_to_the_first_name(tmp_path: Path) -> None:
    """Whatever name was the file and whatever the link: the first in order holds the content."""
    one = Layers(
        tmp_path, tar_of(Thing("z", b"data", mtime=5), Thing("b", link="z", hard=True), Thing("a-b"), Thing("a", None))
    )
    other = Layers(
        tmp_path, tar_of(Thing("a", None), Thing("b", b"data"), Thing("a-b"), Thing("z", link="b", hard=True))
    )

    written = b"".join(tree.pieces(one.descriptor, one.tree, 77))
    assert written == b"".join(tree.pieces(other.descriptor, other.tree, 77))
    again = Layers(tmp_path, written)
    assert again.names() == ["a", "a-b", "b", "z"]
    assert again.tree[b"z"] is again.tree[b"b"]
    assert again.content(b"z") == b"data"


def test_files_are_compared_by_all_but_time_and_links(tmp_path: Path) -> None:
    """Mode, owner and content count; a flipped byte of a large file is seen."""
    large = bytes(3 << 20)
    things = [Thing("a", large), Thing("b", large, mtime=9), Thing("c", large[:-1] + b"x"), Thing("d", large, 0o600)]
    found = Layers(tmp_path, tar_of(*things, Thing("e", large, uid=1)))

    same = [tree.same(found.descriptor, found.tree[b"a"], found.tree[name]) for name in (b"a", b"b", b"c", b"d", b"e")]
    assert same == [True, True, False, False, False]


def test_a_whiteout_is_an_empty_file_beside_the_hidden_one() -> None:
    """As the OCI image specification names it, in the root too."""
    assert tree.whiteout(b"a/b")[0] == b"a/.wh.b"
    path, entry = tree.whiteout(b"b")
    assert (path, entry.kind, entry.size) == (b".wh.b", REGULAR, 0)
