"""`envlock.canary.generator`: the same bits under every interpreter, and rough ones."""

import array
import math
import subprocess
import sys
from pathlib import Path

import interpreters
import pytest

import envlock
from envlock.canary import generator, suite
from envlock.canary.inputs import Input, digest_of_all

INPUTS_DIGEST = "sha256:7cbfdae5834534aea93aaea73dddcf4201f49f508150b425335d3a36a776b949"
"""The digest over all inputs of this suite. A new one needs a new `suite.SUITE`."""

ROOT = str(Path(envlock.__file__).parent.parent)
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from envlock.canary import suite
from envlock.canary.inputs import digest_of_all
assert "torch" not in sys.modules
print(digest_of_all(suite.INPUTS))
"""


@pytest.mark.parametrize("version", interpreters.VERSIONS)
def test_all_inputs_have_one_digest_under_every_python(version: str) -> None:
    """Weights and inputs are the same bits under each interpreter, with no framework imported."""
    path = interpreters.found().get(version)
    if path is None:
        pytest.skip(f"there is no Python {version} on this machine")
    done = subprocess.run([path, "-I", "-c", PROGRAM, ROOT], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == INPUTS_DIGEST, done.stderr


@pytest.mark.parametrize(("dtype", "code"), [("float32", "I"), ("bfloat16", "H")])
@pytest.mark.parametrize("scale", [0, 3])
def test_the_fast_path_gives_what_plain_arithmetic_gives(dtype: str, code: str, scale: int) -> None:
    """Byte planes through a table are the same patterns as element-by-element arithmetic."""
    fast = array.array(code, bytes(generator.floats("a name", 4099, scale, dtype)))

    assert generator.reference_floats("a name", 4099, scale, dtype) == list(fast)


def test_floats_are_rough_signed_and_in_range() -> None:
    """Mantissas are full, both signs occur, and magnitudes stay in the promised range."""
    found = array.array("f", bytes(generator.floats("range", 20000, 1)))

    assert all(0.5 / 4**3 <= abs(value) < 2 / 4 for value in found)
    assert 0.45 < sum(value < 0 for value in found) / len(found) < 0.55
    assert 0.45 < sum(math.frexp(value)[0] * 2**24 % 2 for value in found) / len(found) < 0.55


@pytest.mark.parametrize("most", [1, 2, 15, 64, 127])
def test_integers_cover_their_range_and_no_more(most: int) -> None:
    """Signed bytes reach both ends of [-most, most] and never -128."""
    found = array.array("b", bytes(generator.integers("range", 60000, most)))

    assert (-most, most) == (min(found), max(found))


def test_a_range_that_no_byte_holds_is_refused() -> None:
    """128 does not fit a signed byte."""
    with pytest.raises(ValueError, match="at most 127"):
        generator.integers("range", 4, 128)


def test_another_name_is_another_stream() -> None:
    """The name alone decides the stream."""
    assert generator.stream("a", 64) != generator.stream("b", 64)
    assert generator.stream("a", 64) == generator.stream("a", 128)[:64]


def test_a_permutation_holds_every_place_once() -> None:
    """The unique keys of K6 really are unique, and are shuffled."""
    found = generator.permutation("keys", 1000)

    assert list(range(1000)) == sorted(found)
    assert found != sorted(found)


def test_the_digest_covers_names_shapes_and_bytes() -> None:
    """Two inputs of equal bytes and other shape, or of another name, have other digests."""
    one = digest_of_all([Input("a", (2, 8))])

    assert one != digest_of_all([Input("a", (4, 4))])
    assert one != digest_of_all([Input("b", (2, 8))])


def test_no_two_inputs_share_a_name() -> None:
    """A name is a seed: two inputs of one name would be the same numbers."""
    names = [item.name for item in suite.INPUTS]

    assert len(names) == len(set(names))


def test_a_big_endian_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte planes are laid for little-endian words; elsewhere the canary says so."""
    monkeypatch.setattr(sys, "byteorder", "big")

    with pytest.raises(RuntimeError, match="big-endian"):
        generator.require_little_endian()
