"""How an image that an engine holds is compared with the locked one."""

from envlock.digest import sha256
from envlock.image.proof import differences
from envlock.lockfile import Image, Layer

ONE, TWO, CONFIG = sha256(b"one"), sha256(b"two"), sha256(b"config")
LOCKED = Image(
    config=CONFIG,
    manifest=sha256(b"manifest"),
    layers=(Layer(owner="system", diff_id=ONE, size=1), Layer(owner="python", diff_id=TWO, size=1)),
)


def test_the_locked_image_has_no_difference() -> None:
    """The same config over the same layers, in their order."""
    assert differences(LOCKED, CONFIG, (ONE, TWO)) == ()


def test_layers_that_the_lockfile_does_not_hold_are_seen_under_an_equal_config() -> None:
    """A lockfile whose layers were edited does not describe the image, whatever its config says."""
    found = differences(LOCKED, CONFIG, (TWO, ONE))

    assert [item.what for item in found] == ["layer 1 (system)", "layer 2 (python)"]


def test_a_layer_too_many_is_a_difference() -> None:
    """One more layer than was locked has no owner to name."""
    assert [item.what for item in differences(LOCKED, CONFIG, (ONE, TWO, CONFIG))] == ["layer 3"]


def test_another_config_is_named_first() -> None:
    """Another config over the same layers: other variables, another user, another command."""
    assert [item.what for item in differences(LOCKED, ONE, (ONE, TWO))] == ["config"]
