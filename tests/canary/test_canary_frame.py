"""`envlock.canary.frame`: one result among noise, and nothing else, is taken for the answer."""

import pytest

from envlock.canary import frame
from envlock.errors import CouldNotTell, IntegrityError, UsageError

NONCE = "00112233445566778899aabbccddeeff"
OTHER = "ffeeddccbbaa99887766554433221100"
PAYLOAD = b'{"outcome": "ran"}'


def test_a_frame_gives_back_its_payload_and_the_noise_around_it() -> None:
    """What others printed before and after the frame is kept apart from the payload."""
    found = frame.decode(NONCE, b"warning: x\n" + frame.encode(NONCE, PAYLOAD) + b"bye\n")

    assert (found.payload, found.noise) == (PAYLOAD, b"warning: x\nbye")


def test_a_payload_may_hold_text_that_looks_like_a_frame() -> None:
    """The length, not the text, says where a payload ends."""
    payload = b"x\n" + frame.encode(NONCE, b"inner")

    assert payload == frame.decode(NONCE, frame.encode(NONCE, payload)).payload


def test_no_frame_at_all_could_not_tell_and_quotes_the_last_line() -> None:
    """A writer that died before its frame is no answer."""
    with pytest.raises(CouldNotTell, match="no result was returned") as caught:
        frame.decode(NONCE, b"Traceback\nImportError: no torch\n")

    assert caught.value.hint == "it said: ImportError: no torch"


@pytest.mark.parametrize("kept", [5, 40, 130, 150, -5, -1])
def test_a_frame_that_is_cut_off_could_not_tell(kept: int) -> None:
    """A frame that ends early, wherever it is cut, is no answer and no forgery."""
    with pytest.raises(CouldNotTell):
        frame.decode(NONCE, frame.encode(NONCE, PAYLOAD)[:kept])


def test_another_nonce_is_refused() -> None:
    """A frame for another run is not the answer to this one."""
    with pytest.raises(IntegrityError, match="another nonce"):
        frame.decode(NONCE, frame.encode(OTHER, PAYLOAD))


def test_altered_bytes_are_refused() -> None:
    """One changed byte of the payload does not have the announced hash."""
    with pytest.raises(IntegrityError, match="do not have the hash"):
        frame.decode(NONCE, frame.encode(NONCE, PAYLOAD).replace(b"ran", b"RAN"))


def test_a_second_frame_is_refused() -> None:
    """Two answers are one too many, though both be valid."""
    with pytest.raises(IntegrityError, match="more than one frame"):
        frame.decode(NONCE, frame.encode(NONCE, PAYLOAD) * 2)


def test_a_wrong_end_is_refused() -> None:
    """A frame ends with the nonce it began with."""
    data = frame.encode(NONCE, PAYLOAD).replace(b"envlock-end 00", b"envlock-end 11")

    with pytest.raises(IntegrityError, match="does not end where it says"):
        frame.decode(NONCE, data)


def test_a_header_that_is_none_is_refused() -> None:
    """A line that starts like a header and is not one was made by somebody else."""
    with pytest.raises(IntegrityError, match="a header that is not one"):
        frame.decode(NONCE, b"envlock-frame 1 hello\n")


def test_an_absurd_length_is_refused_before_anything_is_reserved() -> None:
    """The announced length is bounded."""
    with pytest.raises(IntegrityError, match="announces 9999999999 bytes"):
        frame.decode(NONCE, f"envlock-frame 1 {NONCE} 9999999999 {'0' * 64}\n".encode())


def test_a_frame_in_the_middle_of_a_line_is_noise() -> None:
    """Only the start of a line announces a frame: a log that quotes one does not."""
    with pytest.raises(CouldNotTell, match="no result"):
        frame.decode(NONCE, b"said: " + frame.encode(NONCE, PAYLOAD))


@pytest.mark.parametrize("nonce", ["", "short", "G" * 32, "a" * 65, "00112233445566778899aabbccddee f"])
def test_a_nonce_is_hex_of_enough_length(nonce: str) -> None:
    """A nonce that could be guessed, or could break the header, is refused."""
    with pytest.raises(UsageError, match="not a nonce"):
        frame.encode(nonce, PAYLOAD)
