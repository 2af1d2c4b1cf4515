"""Digests and canonical JSON."""

import hashlib
import io
from pathlib import Path

import pytest

from envlock.digest import Digest, canonical_json, digest_of, sha256, sha256_file, sha256_stream, verify
from envlock.errors import IntegrityError

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_digest_is_its_text() -> None:
    """A digest prints, sorts and serialises as `sha256:` and its digits."""
    assert sha256(b"") == f"sha256:{EMPTY}"
    assert sha256(b"").hex == EMPTY
    assert sha256(b"").short == EMPTY[:12]
    assert Digest.from_hex(EMPTY) == sha256(b"")


@pytest.mark.parametrize(
    "text", ["", EMPTY, f"sha256:{EMPTY[:-1]}", f"sha256:{EMPTY.upper()}", f"md5:{EMPTY}", f"sha256:{EMPTY}\n", None, 3]
)
def test_text_that_is_no_digest_is_refused(text: object) -> None:
    """Another algorithm, length or case, a trailing newline, or no text at all is no digest."""
    with pytest.raises(ValueError, match="not a digest"):
        Digest.parse(text)


def test_stream_is_hashed_in_pieces() -> None:
    """A stream gives the digest of all its bytes and their number."""
    data = b"x" * 3_000_000

    assert sha256_stream(io.BytesIO(data)) == (sha256(data), len(data))


def test_stream_is_hashed_as_far_as_asked() -> None:
    """With a size no byte more is read, and a shorter stream says so by its length."""
    stream = io.BytesIO(b"abcdef")

    assert sha256_stream(stream, 3) == (sha256(b"abc"), 3)
    assert stream.read() == b"def"
    assert sha256_stream(io.BytesIO(b"ab"), 3) == (sha256(b"ab"), 2)


def test_file_is_hashed(tmp_path: Path) -> None:
    """A file gives the digest that any other tool gives."""
    (tmp_path / "f").write_bytes(b"abc")

    assert sha256_file(tmp_path / "f") == ("sha256:" + hashlib.sha256(b"abc").hexdigest(), 3)


def test_canonical_json_has_one_form() -> None:
    """Keys are sorted, blanks left out, letters kept as they are."""
    assert canonical_json({"b": [1, None, True], "a": {"é": "x\n"}}) == '{"a":{"é":"x\\n"},"b":[1,null,true]}'.encode()
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of((1, 2)) == digest_of([1, 2])


@pytest.mark.parametrize("wrong", [1.0, {"a": [float("nan")]}, {1: "a"}, {"a": {None: 1}}, b"x", {"a": {1, 2}}])
def test_what_has_no_canonical_form_is_refused(wrong: object) -> None:
    """Floats, keys that are not text, and types that JSON lacks are refused, however deep."""
    with pytest.raises(TypeError):
        canonical_json(wrong)


def test_verify_returns_what_it_proved() -> None:
    """Bytes with the expected digest are handed on; others are an integrity error with both digests."""
    assert verify(b"abc", sha256(b"abc"), "f") == b"abc"
    with pytest.raises(IntegrityError) as caught:
        verify(b"abd", sha256(b"abc"), "f")

    assert str(caught.value) == f"f: has digest {sha256(b'abd')}, expected {sha256(b'abc')}"
    assert caught.value.exit_code == 4
