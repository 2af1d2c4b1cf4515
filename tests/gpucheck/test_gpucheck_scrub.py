"""What names one machine leaves its recordings, and nothing else does."""

import os
import re
from pathlib import Path

import pytest
import recordings

from envlock.errors import EnvlockError
from envlock.gpucheck.scrub import Scrubber
from envlock.probe import smi
from envlock.registry import REGISTRY

KEY = b"k" * 32
TEXTS = [*recordings.answers().values()]
NAMES = [
    *recordings.SERIALS,
    *(uuid[4:] for uuid in recordings.UUIDS),
    recordings.PDI,
    recordings.CLUSTER,
    recordings.MIG[4:],
]


def scrubbed(texts: list[str]) -> tuple[Scrubber, list[str]]:
    scrubber = Scrubber(KEY)
    for text in texts:
        scrubber.learn(text)
    return scrubber, [scrubber.scrub(text) for text in texts]


def test_no_name_is_left_in_any_form_of_output() -> None:
    """XML, text, lists and CSV: the same names, all gone, and process names with them."""
    _, texts = scrubbed(TEXTS)
    whole = "\n".join(texts)

    assert [name for name in [*NAMES, "mallory", "/opt/secret"] if name in whole] == []


@pytest.mark.parametrize("command", ["-q -x", "-q", "-L", "nvlink -s", "--query-gpu=name,serial,uuid --format=csv"])
def test_each_form_alone_gives_its_names_away_and_loses_them(command: str) -> None:
    """Where a machine answers one command only, its names are learnt from that one."""
    text = recordings.answers()[command]
    _, (cleaned,) = scrubbed([text])
    held = [name for name in NAMES if name in text]

    assert held != []
    assert [name for name in held if name in cleaned] == []


def test_a_dummy_has_the_length_and_shape_of_what_it_stands_for() -> None:
    """Digits stay digits, hex stays hex, a leading zero stays, and everything around stays."""
    _, texts = scrubbed(TEXTS)
    document = texts[0]

    assert [len(text) for text in texts] == [len(text) for text in TEXTS]
    assert all(re.fullmatch(r"0[1-9]\d{11}", found) for found in re.findall(r"<serial>(.*?)<", document))
    assert all(re.fullmatch(r"0x[0-9a-f]{16}", found) for found in re.findall(r"<pdi>(.*?)<", document))
    assert all(
        re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", found)
        for found in re.findall(r"<uuid>(.*?)<", document)
    )
    assert "<clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid>" in document
    assert "<product_name>NVIDIA H200</product_name>" in document
    assert "<chassis_serial_number>N/A</chassis_serial_number>" in document
    assert " &amp; " in document


def test_the_same_original_gives_the_same_dummy_everywhere_and_two_give_two() -> None:
    """What was shared stays shared: a UUID in the list is the one in the XML."""
    _, texts = scrubbed(TEXTS)
    in_xml = re.findall(r"<uuid>(.*?)<", texts[0])
    listed = re.findall(r"GPU \d.*UUID: (GPU-[^)]*)", texts[2])

    assert in_xml == listed
    assert len(set(in_xml)) == 2


def test_another_run_gives_other_dummies() -> None:
    """Nobody can find an original by trying: the key is drawn for each run."""
    others = Scrubber(b"x" * 32)
    others.learn(TEXTS[0])

    assert others.scrub(TEXTS[0]) != scrubbed(TEXTS)[1][0]


def test_a_scrubbed_document_tells_the_same_facts() -> None:
    """A parser gets from it what it got before, names apart."""
    _, texts = scrubbed(TEXTS)
    before, after = (smi.read(text.encode(), "x") for text in (TEXTS[0], texts[0]))

    assert len(before.gpus) == len(after.gpus) == 2
    assert after.host == before.host
    for first, second in zip(before.gpus, after.gpus, strict=True):
        moved = {key for key in first.facts if first.facts[key] != second.facts[key]}
        assert moved == {key for key in moved if REGISTRY[key].unique}
        assert {"gpu.uuid", "gpu.serial"} <= moved


def test_what_torch_writes_without_its_prefix_is_found_too() -> None:
    """A canary report, a path below the user's home, a fact that only NVML told."""
    scrubber, _ = scrubbed(TEXTS)
    scrubber.learn_name("node-17.example")
    scrubber.learn_name("mallory")
    scrubber.learn_facts(
        [{"gpu.chassis_serial": {"outcome": "value", "value": "CH4551S77"}, "gpu.name": {"value": "A100"}}]
    )
    text = f"{recordings.UUIDS[0][4:]} /home/mallory/venv on node-17 CH4551S77 A100"
    found = scrubber.scrub(text)

    assert re.fullmatch(r"[0-9a-f-]{36} /home/[a-z]{7}/venv on [a-z]{4}-\d\d [A-Z]{2}\d{4}[A-Z]\d\d A100", found)
    assert not any(part in found for part in ("mallory", "node-17", "CH4551S77", recordings.UUIDS[0][4:]))


@pytest.mark.parametrize("name", ["gpu", "nvidia", "localhost", "root", ""])
def test_a_name_that_is_a_common_word_stays(name: str) -> None:
    """It would take half of the text with it, and names nobody."""
    scrubber = Scrubber(KEY)
    scrubber.learn_name(name)

    assert (len(scrubber), scrubber.scrub("nvidia gpu localhost root")) == (0, "nvidia gpu localhost root")


def test_a_part_of_a_longer_word_is_no_name() -> None:
    """A serial inside a longer number is that number's own digits."""
    scrubber = Scrubber(KEY)
    scrubber.learn("<serial>12345678</serial>")

    assert "9912345678" in scrubber.scrub("9912345678 12345678")


CORPUS = Path(os.environ.get("ENVLOCK_CORPUS", "")) / "nvidia-smi"


@pytest.mark.skipif("ENVLOCK_CORPUS" not in os.environ, reason="ENVLOCK_CORPUS names no corpus of recordings")
def test_every_recording_of_the_corpus_keeps_its_facts_and_loses_its_names() -> None:
    """Real outputs of drivers 418 to 610: parsed again after scrubbing, only what is unique has moved."""
    tried = 0
    for path in sorted(CORPUS.glob("*.*")):
        data = path.read_bytes()
        text = data.decode("utf-8", "surrogateescape")
        try:
            before = smi.read(data, path.name)
        except EnvlockError:
            continue
        _, (cleaned,) = scrubbed([text])
        after = smi.read(cleaned.encode("utf-8", "surrogateescape"), path.name)
        assert len(cleaned) == len(text), path.name
        assert [gpu.ident for gpu in after.gpus] == [gpu.ident for gpu in before.gpus], path.name
        for first, second in zip(before.gpus, after.gpus, strict=True):
            moved = {key for key in first.facts if first.facts[key] != second.facts[key]}
            assert {key for key in moved if not REGISTRY[key].unique} == set(), path.name
            assert first.facts["gpu.uuid"] != second.facts["gpu.uuid"] or not first.facts["gpu.uuid"].has_value, (
                path.name
            )
        tried += 1

    assert tried > 20
