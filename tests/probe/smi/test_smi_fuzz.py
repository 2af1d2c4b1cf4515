"""Whatever becomes of nvidia-smi's output on its way, reading it ends in an answer or in an error in words."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envlock.errors import EnvlockError
from envlock.facts import Facts
from envlock.probe import recorded_smi

DATA = Path(__file__).resolve().parents[2] / "data" / "nvidia-smi"
CORPUS = Path(os.environ.get("ENVLOCK_CORPUS", "")) / "nvidia-smi"
SOURCES = [
    path
    for folder in (DATA, *((CORPUS, CORPUS / "odd") if os.environ.get("ENVLOCK_CORPUS") else ()))
    for path in sorted(folder.glob("*"))
    if path.suffix in (".xml", ".txt", ".csv", ".tsv") and path.stat().st_size < 60000
]


def answered(data: bytes) -> None:
    """Read `data`; an answer must also be a document that can be read back."""
    said = ""
    try:
        found = recorded_smi(data, "input")
    except EnvlockError as error:
        said = str(error)
    if said:
        assert said.startswith("input: ")
    else:
        assert Facts.from_document(found.to_document(), "input").digest() == found.digest()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_output_never_raises(path: Path, data: st.DataObject) -> None:
    """Cut, flipped, spliced and doubled: each recorded output, in any state."""
    text = path.read_bytes()
    at = data.draw(st.integers(0, len(text)))
    other = data.draw(st.integers(0, len(text)))
    noise = data.draw(st.binary(max_size=12))
    damaged = data.draw(st.sampled_from([text[:at], text[at:], text[:at] + noise + text[at:], text[at:] + text[:at],
                                         text[: min(at, other)] + text[max(at, other) :],
                                         text[:at] + noise + text[at + len(noise) :]]))  # fmt: skip
    answered(damaged)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(st.binary(max_size=300), st.text(alphabet="<>&;/|+-=#:,[]() \n\tGPUgpu019xnvidia_smlogNA.", max_size=300))
)
def test_noise_never_raises(noise: bytes | str) -> None:
    """Bytes of any kind, and texts made of the marks that outputs are told apart by."""
    answered(noise.encode("utf-8", "replace") if isinstance(noise, str) else noise)
