"""The pages about spec and lockfile say what the program does."""

import re
from pathlib import Path

from envlock import spec
from envlock.lock.settings import determinism_of
from envlock.spec import Determinism

DOCS = Path(__file__).parent.parent / "docs"


def test_the_example_of_the_spec_page_is_a_spec() -> None:
    """What a reader copies works."""
    text = (DOCS / "spec.md").read_text()
    example = text.split("```toml\n")[1].split("```")[0]

    found = spec.parse(example.encode(), "docs/spec.md")

    assert found.name == "torch-cpu"
    assert found.files[0].path == "/opt/models/encoder.onnx"


def test_every_key_of_the_spec_is_on_its_page() -> None:
    """A key that nobody can find is no key."""
    source = Path(spec.__file__).read_text()
    keys = set(
        re.findall(
            r"""(?:string|matching|choice|integer|strings|_sorted_unique|_optional)\((?:\w+, )?"([a-z-]+)\"""", source
        )
    )
    page = (DOCS / "spec.md").read_text()

    assert {"name", "platform", "epoch", "debian", "packages", "torch-backend", "exclude-newer"} <= keys
    for key in keys - {"rule", "severity", "unknown", "reason", "profile"}:
        assert re.search(rf"`\w+\.{key}`", page), key


def test_the_default_epoch_is_told() -> None:
    """The constant on the page is the constant in the code."""
    assert str(spec.DEFAULT_EPOCH) in (DOCS / "spec.md").read_text()


def test_the_portable_settings_are_told() -> None:
    """The three caps on the page are those of the profile."""
    page = (DOCS / "spec.md").read_text()
    env = dict(determinism_of(Determinism(profile="portable", threads=1, env=(), torch=()), "x").env)

    for name in ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA"):
        assert f"`{name}={env[name]}`" in page
