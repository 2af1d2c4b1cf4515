"""Fixtures for all tests, and the rule for what may be missing.

Without a container engine the tests marked `engine` are skipped with the reason, without
torch those marked `torch`. ENVLOCK_REQUIRE_ENGINE=1 and ENVLOCK_REQUIRE_TORCH=1 make the
lack a failure: a job that says it tests on an engine must not pass because it had none.
"""

import importlib.util
import os
import secrets
from collections.abc import Iterator
from functools import cache

import engine_fixtures
import hypothesis
import pytest

from envlock.errors import EngineError
from envlock.image.engine import Engine, connect

# A busy machine is no fault of the code: no deadline for one example, and the same examples every time.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.load_profile("house")


@cache
def found_engine() -> Engine | str:
    """Return the engine that answers, or why there is none."""
    try:
        return connect(os.environ)
    except EngineError as error:
        return f"{error}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what cannot run here, with the reason; fail it where it was required."""
    if item.get_closest_marker("engine") is not None:
        found = found_engine()
        if isinstance(found, str):
            _missing(found, "ENVLOCK_REQUIRE_ENGINE")
    if item.get_closest_marker("torch") is not None and importlib.util.find_spec("torch") is None:
        _missing("torch is not installed", "ENVLOCK_REQUIRE_TORCH")


def _missing(reason: str, variable: str) -> None:
    if os.environ.get(variable):
        pytest.fail(f"{variable} is set, and {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine() -> Engine:
    """A real container engine (mark the test `engine`)."""
    found = found_engine()
    assert isinstance(found, Engine), found
    return found


@pytest.fixture(scope="session")
def python_image(engine: Engine) -> Iterator[str]:
    """The name of an image with a bare interpreter at /opt/venv/bin/python, removed after the session."""
    name = f"envlock-test-python:{secrets.token_hex(6)}"
    engine.load(engine_fixtures.chunks(engine_fixtures.python_archive(name)))
    yield name
    engine.remove_image(name)
