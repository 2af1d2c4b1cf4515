"""Which image runs, and under which digest the report names it."""

from types import SimpleNamespace
from typing import cast

import pytest
from fakes.daemon import FakeDaemon

from envlock.digest import Digest
from envlock.errors import EngineError
from envlock.image.engine import connect
from envlock.lockfile import Lockfile
from envlock.run.container import _identity, _located

CONFIG = Digest.parse("sha256:" + "c" * 64)
MANIFEST = Digest.parse("sha256:" + "d" * 64)
LOCK = cast("Lockfile", SimpleNamespace(image=SimpleNamespace(config=CONFIG, manifest=MANIFEST)))


@pytest.mark.parametrize("known", [CONFIG, MANIFEST])
def test_the_locked_image_is_found_by_either_of_its_digests(known: Digest) -> None:
    """Most stores call an image by its config, a containerd store by its manifest."""
    with FakeDaemon() as daemon:
        daemon.on("GET", f"/images/{known}/json", lambda request: request.json({"Id": known}))
        engine = connect(daemon.environ)

        assert _located(engine, CONFIG, LOCK)[0] == known
        with pytest.raises(EngineError, match="the engine has no image"):
            _located(engine, "other:1", LOCK)


def test_the_report_names_the_locked_image_by_its_config_everywhere() -> None:
    """So that a golden recorded on one engine holds on another; Podman leaves the algorithm out."""
    assert _identity({"Image": CONFIG}, LOCK) == CONFIG
    assert _identity({"Image": MANIFEST}, LOCK) == CONFIG
    assert _identity({"Image": CONFIG.hex}, LOCK) == CONFIG
    assert _identity({"Image": "sha256:" + "e" * 64}, LOCK) == "sha256:" + "e" * 64
    assert _identity({"Image": MANIFEST}, None) == MANIFEST
