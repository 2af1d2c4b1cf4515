"""A container's output taken in piece by piece: frames kept, noise forgotten, memory bounded."""

import itertools
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envlock.canary import frame
from envlock.errors import CouldNotTell, IntegrityError
from envlock.run.framed import Demultiplexer, Output, Tail

NONCE = "ab" * 16
NOISE = st.binary(max_size=100).filter(lambda data: b"envlock-frame" not in data)


def taken_in(pieces: list[bytes]) -> Output:
    output = Output()
    for piece in pieces:
        output.feed(piece)
    output.finish()
    return output


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


@given(
    payload=st.binary(max_size=300),
    before=NOISE,
    after=NOISE,
    places=st.lists(st.integers(0, 1000), max_size=20),
)
def test_a_frame_is_found_wherever_the_pieces_are_cut(
    payload: bytes, before: bytes, after: bytes, places: list[int]
) -> None:
    """Whatever noise is around it, and however the network cuts the stream."""
    data = before + b"\n" + frame.encode(NONCE, payload) + after

    output = taken_in(cut(data, places))

    assert output.count == 1
    assert output.length == len(data)
    assert frame.decode(NONCE, bytes(output.frames)).payload == payload


@given(data=st.lists(st.sampled_from([b"\n", b"envlock-frame 1 ", b"envlock", frame.encode(NONCE, b"x"), b"y"])))
def test_what_is_refused_whole_is_refused_in_pieces(data: list[bytes]) -> None:
    """Reducing a stream to its frames never turns a forgery into an answer, nor an answer into none."""

    def verdict(text: bytes) -> str:
        try:
            return frame.decode(NONCE, text).payload.decode()
        except (CouldNotTell, IntegrityError) as error:
            return type(error).__name__

    whole = b"".join(data)
    output = taken_in([bytes([byte]) for byte in whole])
    if output.count:
        assert verdict(bytes(output.frames)) == verdict(whole)
    else:
        assert verdict(whole) == "CouldNotTell"


def test_a_frame_at_the_very_start_is_found() -> None:
    """The start of the stream is the start of a line."""
    assert taken_in([frame.encode(NONCE, b"x")]).count == 1


def test_a_frame_inside_a_line_is_noise() -> None:
    """A library that prints the words in the middle of a line announces nothing."""
    output = taken_in([b"log: " + frame.encode(NONCE, b"x")])

    assert output.count == 0
    assert not output.frames


def test_a_second_frame_is_kept_so_that_it_is_refused() -> None:
    """The reader sees that there are two."""
    output = taken_in([frame.encode(NONCE, b"a"), b"noise\n", frame.encode(NONCE, b"b")])

    with pytest.raises(IntegrityError, match="more than one frame"):
        frame.decode(NONCE, bytes(output.frames))


@pytest.mark.parametrize(
    "header", [b"envlock-frame 1 ", b"envlock-frame 1 zz 1 00\n", b"envlock-frame 1 " + b"a" * 500]
)
def test_a_header_that_is_none_is_kept_for_the_reader(header: bytes) -> None:
    """Cut off or forged, it is not dropped in silence."""
    output = taken_in([b"noise\n", header])

    assert output.count == 1
    with pytest.raises((CouldNotTell, IntegrityError)):
        frame.decode(NONCE, bytes(output.frames))


def test_noise_costs_no_memory() -> None:
    """Fifty megabytes without a line feed, then as many frames as anybody likes to forge."""
    output = Output()
    tracemalloc.start()
    for _ in range(800):
        output.feed(b"\xf0" * (1 << 16))
    for _ in range(1000):
        output.feed(b"\n" + frame.encode(NONCE, b"z" * 10000))
    output.finish()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 2 << 20
    assert output.count == 1000


def test_the_tail_holds_the_last_lines_for_a_person() -> None:
    """Long lines are cut, control characters are not sent to a terminal."""
    tail = Tail()
    tail.feed(b"first\n" * 100000)
    tail.feed(b"\n\x1b[31mred\xff\n" + b"x" * 500 + b"\n")

    assert tail.length == 600000 + 11 + 501
    assert tail.lines(3) == ["first", "?[31mred\ufffd", "x" * 200]


@given(
    pieces=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=10),
    places=st.lists(st.integers(0, 1000), max_size=20),
)
def test_the_two_streams_are_taken_apart_wherever_they_are_cut(
    pieces: list[tuple[int, bytes]], places: list[int]
) -> None:
    """Headers may arrive in pieces, a piece may be empty."""
    found: dict[int, bytes] = {1: b"", 2: b""}

    def sink(stream: int) -> "object":
        def take(data: bytes) -> None:
            found[stream] += data

        return take

    streams = Demultiplexer(sink(1), sink(2))  # type: ignore[arg-type]
    for piece in cut(b"".join(struct.pack(">BxxxL", stream, len(data)) + data for stream, data in pieces), places):
        streams.feed(piece)

    for stream in (1, 2):
        assert found[stream] == b"".join(data for number, data in pieces if number == stream)


def test_a_stream_of_another_form_is_refused() -> None:
    """What an engine sends for a terminal is not taken apart into nonsense."""
    with pytest.raises(ValueError, match="unknown stream"):
        Demultiplexer(lambda data: None, lambda data: None).feed(b"plain text of a tty")
