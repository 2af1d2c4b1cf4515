"""The engine on real parts: what is asked of it, and what comes back."""

import pytest
from engine_fixtures import archive_of, chunks, tar_of

from envlock.errors import EngineError
from envlock.image.engine import Engine, temporary_tag
from envlock.image.saved import read_saved

pytestmark = pytest.mark.engine


def test_a_build_is_found_by_its_tag_and_saved_as_what_its_config_says(engine: Engine) -> None:
    """A context given as tar is built, and the saved archive hashes to the layers the config names."""
    tag = temporary_tag()
    log: list[str] = []
    try:
        ident = engine.build(chunks(tar_of({"Dockerfile": b"FROM scratch\nCOPY a /a\n", "a": b"1"})), tag, log.append)

        assert any("COPY a /a" in line for line in log)
        assert engine.image_id(tag) == ident
        assert len(read_saved(engine.save(tag), tag).diff_ids) == 1
        assert engine.read_file(tag, "/a") == b"1"
    finally:
        engine.remove_image(tag)
    assert engine.inspect_image(tag) is None


def test_a_failed_build_step_is_an_error_with_the_engines_words(engine: Engine) -> None:
    """The error is only a line in the stream of a request that answers 200, and is found there."""
    with pytest.raises(EngineError, match="the build failed") as caught:
        engine.build(chunks(tar_of({"Dockerfile": b"FROM scratch\nRUN missing\n"})), temporary_tag())

    assert caught.value.exit_code == 3


def test_the_bare_image_is_there(engine: Engine, python_image: str) -> None:
    """The fixture's image is loaded under its name, with the config that was given."""
    found = engine.inspect_image(python_image)

    assert found is not None
    assert "PATH=/opt/venv/bin" in found["Config"]["Env"]


def test_a_damaged_archive_is_refused_by_load(engine: Engine) -> None:
    """An archive that is no tar is an error, never a load of nothing."""
    with pytest.raises(EngineError, match="cannot load the image"):
        engine.load(chunks(b"no archive" * 1000))


def test_a_file_is_read_through_links_inside_the_image(engine: Engine) -> None:
    """What is missing, a folder, or larger than allowed is said in words."""
    name = "envlock-test-files:1"
    engine.load(chunks(archive_of([tar_of({"etc/one": b"abc"})], name, Cmd=["none"])))
    try:
        assert engine.read_file(name, "/etc/one") == b"abc"
        with pytest.raises(EngineError, match="no such file in the image"):
            engine.read_file(name, "/etc/two")
        with pytest.raises(EngineError, match="is no regular file"):
            engine.read_file(name, "/etc")
        with pytest.raises(EngineError, match="larger than 2 bytes"):
            engine.read_file(name, "/etc/one", limit=2)
    finally:
        engine.remove_image(name)
