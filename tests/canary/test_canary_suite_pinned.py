"""A change of what the suite computes must come with another suite name."""

from pathlib import Path

from envlock.canary import suite
from envlock.digest import sha256

FOLDER = Path(suite.__file__).parent
DECIDE = (
    "answers",
    "convnet",
    "encoder",
    "exact",
    "generator",
    "inputs",
    "known",
    "signatures",
    "suite",
    "tensors",
    "trace",
    "trees",
)

PINNED = "torch/1 fddb24b50e0e"
"""Digest of the code that decides outputs. Renew it only after having thought: can any output be another one
than before? Then raise `suite.SUITE` first, so that old goldens are unknown, never drift."""


def code_of(module: str) -> str:
    """Return the module's lines without blank lines and lines that are comments only."""
    lines = (line.rstrip() for line in (FOLDER / f"{module}.py").read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def test_the_suite_is_named_anew_when_its_code_changes() -> None:
    """The code that decides the outputs is the code that this suite name was given to."""
    found = sha256("\0".join(f"{name}\0{code_of(name)}" for name in DECIDE).encode()).short

    assert f"{suite.SUITE} {found}" == PINNED, "does any output change? then raise suite.SUITE; then pin the digest"


def test_every_module_is_pinned_or_known_not_to_decide() -> None:
    """Every module that the suite imports to compute is among the pinned ones."""
    others = {path.stem for path in FOLDER.glob("*.py")} - set(DECIDE)

    assert others == {
        "__init__", "__main__", "frame", "knobs", "libraries", "main", "platform",
        "report", "request", "settings", "strict", "switches", "worker",
    }, "a new module: does it decide outputs? then pin it"  # fmt: skip
