"""Every recorded output of the corpus gives the values that its index expects."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from envlock.errors import UsageError
from envlock.facts import FAILED, HIDDEN, NOT_IN_DRIVER, NOT_SUPPORTED, Observed
from envlock.probe import smi
from envlock.probe.pci import normal_address
from envlock.probe.smi import lists

CORPUS = os.environ.get("ENVLOCK_CORPUS", "")
FOLDER = Path(CORPUS) / "nvidia-smi"
EXPECTED: dict[str, Any] = (
    json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))["files"] if CORPUS else {"": {}}
)

pytestmark = pytest.mark.skipif(not CORPUS, reason="ENVLOCK_CORPUS is not set")

# A part of a document is refused; of an empty text nothing can be said, but by who knows what it should be.
REFUSED = {
    "gpud__nvidia-smi-query.535.183.01.out.0.invalid.txt": "is cut off: 1 of 8 GPUs are described",
    "odd/truncated.xml": "is cut off: the document has no end",
    "gpud__nvidia-smi.nvlink.status.a10.txt": "is empty",
}
# What an absence of the index is in the outcomes of envlock.
ABSENT = {"N/A": {NOT_SUPPORTED}, "Not Found": {NOT_SUPPORTED}, "absent": {NOT_IN_DRIVER, FAILED}}
GPU_KEYS = {"name": "gpu.name", "vbios": "gpu.vbios", "gsp": "gpu.gsp_version", "ecc": "gpu.ecc", "mig": "gpu.mig",
            "persistence": "gpu.persistence", "power_limit_w": "gpu.power_limit"}  # fmt: skip


def shown(key: str, seen: Observed) -> object:
    """Return an observation as the index writes it."""
    if not seen.has_value:
        return None
    if key == "power_limit_w":
        assert isinstance(seen.value, int)
        return seen.value / 1000
    return {True: "Enabled", False: "Disabled"}[seen.value] if isinstance(seen.value, bool) else seen.value


def check_gpu(expected: dict[str, Any], facts: dict[str, Observed]) -> None:
    """Hold one GPU against its entry: values, and for what is none the outcome."""
    for name, key in GPU_KEYS.items():
        if name not in expected:
            continue
        wanted, seen = expected[name], facts[key]
        if wanted == "00.00.00.00.00":
            assert (seen.outcome, wanted in seen.detail) == (HIDDEN, True)
        elif isinstance(wanted, str) and wanted.endswith("..."):
            assert (seen.outcome, wanted in seen.detail) == (FAILED, True)
        else:
            assert (name, shown(name, seen)) == (name, wanted)
        spelled = expected.get("not_values", {}).get(name, "")
        if spelled:
            assert seen.outcome in ABSENT[spelled.partition(" ")[0]], name
    layout = facts["gpu.mig_layout"]
    if expected.get("mig_devices"):
        count = len(layout.value) if isinstance(layout.value, tuple) else int(layout.detail.split()[0])
        assert count == expected["mig_devices"]
    elif expected.get("mig") == "Enabled":
        assert layout.value == ()
    else:
        assert not layout.has_value


def check_host(expected: dict[str, Any], host: dict[str, Observed]) -> None:
    for name, key in (("driver", "nvidia.driver"), ("cuda", "nvidia.cuda")):
        if name in expected:
            assert shown(name, host[key]) == expected[name]
            spelled = expected.get("not_values", {}).get(name, "")
            assert not spelled or host[key].outcome in ABSENT[spelled]
    if expected.get("gpus_attached") is not None:
        assert host["nvidia.gpu_count"].value == expected["gpus_attached"]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_recorded_output_gives_its_expected_values(name: str) -> None:
    """Each key of each entry of the index: host, first GPU, every GPU, and each absence with its outcome."""
    expected = EXPECTED[name]
    data = (FOLDER / name).read_bytes()
    if name in REFUSED:
        with pytest.raises(UsageError) as caught:
            smi.read(data, name)
        assert caught.value.message.startswith(REFUSED[name])
        assert lists.links(data.decode().split("\n")) == tuple(expected.get("links_per_gpu", ()))
        return
    answer = smi.read(data, name)
    check_host(expected, answer.host)
    assert answer.described == expected.get("gpus_listed", answer.described)
    described = [gpu.facts for gpu in answer.gpus[: answer.described]]
    if described:
        first = {**expected, "name": expected.get("first_name")} if "first_name" in expected else dict(expected)
        limits = first.get("power_limit_w")
        if isinstance(limits, list):
            assert [shown("power_limit_w", facts["gpu.power_limit"]) for facts in described] == limits
            del first["power_limit_w"]
        check_gpu(first, described[0])
    for entry, gpu in zip(expected.get("gpus", ()), answer.gpus, strict=False):
        assert gpu.ident == normal_address(entry["bus"])
        check_gpu(entry, gpu.facts)
    if expected.get("kind") == "lspci":
        functions = lists.functions(data.decode().split("\n"))
        assert (len(functions), answer.host["nvidia.pci_count"].value) == (
            expected["nvidia_functions"], expected["gpus_listed"],
        )  # fmt: skip
        assert functions[0]["name"] == expected["first_device"]
    if expected.get("kind") == "nvlink":
        assert lists.links(data.decode().split("\n")) == tuple(expected["links_per_gpu"])
    if "all_gpus_alike" in expected:
        assert expected["all_gpus_alike"] == (alike(described) == 1)


def alike(gpus: list[dict[str, Observed]]) -> int:
    """Return how many kinds of GPU there are by what the index looks at."""
    return len({tuple((key, facts[key]) for key in sorted(GPU_KEYS.values())) for facts in gpus})


def facts_of(name: str) -> tuple[dict[str, Observed], list[dict[str, Observed]], smi.Answer]:
    answer = smi.read((FOLDER / "odd" / name).read_bytes(), name)
    return answer.host, [gpu.facts for gpu in answer.gpus], answer


def test_each_spelling_of_absence_is_one_outcome() -> None:
    """Rows of one CSV: values, not supported, failed, deprecated; and no row is dropped."""
    _, gpus, _ = facts_of("na-spellings.csv")

    assert [gpu["gpu.power_limit"].outcome for gpu in gpus] == [
        "value", NOT_SUPPORTED, NOT_SUPPORTED, "value", NOT_SUPPORTED, "value",
    ]  # fmt: skip
    assert gpus[3]["gpu.power_limit_default"].outcome == FAILED
    assert gpus[5]["gpu.clock_sm_max"].outcome == FAILED
    assert gpus[4]["gpu.clock_sm_max"].outcome == NOT_SUPPORTED


def test_lost_gpu_is_counted_and_every_fact_of_it_failed() -> None:
    """A body that says "GPU is lost" fails whole, its name too; another GPU is unharmed."""
    host, gpus, _ = facts_of("lost-gpu-body.xml")

    assert host["nvidia.gpu_count"].value == 2
    assert {seen.outcome for seen in gpus[1].values()} == {FAILED}
    assert gpus[0]["gpu.vbios"].has_value


def test_lost_gpu_in_a_line_is_counted_and_named() -> None:
    """An index gap with a line about it: eight GPUs, seven described, the lost one at its address."""
    host, _, answer = facts_of("lost-gpu-index-gap.csv")

    assert host["nvidia.gpu_count"].value == 8
    assert (answer.described, answer.gpus[7].ident) == (7, "0000:04:00.0")
    assert {seen.outcome for seen in answer.gpus[7].facts.values()} == {FAILED}


@pytest.mark.parametrize("name", ["lost-gpu-message-stderr.txt", "init-unknown-error.txt", "init-version-mismatch.txt"])
def test_line_in_place_of_an_answer_is_a_failure(name: str) -> None:
    """A single line about a fault is no GPU count and no value."""
    host, _, answer = facts_of(name)

    assert {seen.outcome for seen in host.values()} == {FAILED}
    assert answer.described == 0


def test_both_versions_of_a_mismatch_are_kept() -> None:
    """The version of the library stands in the reason."""
    assert "NVML library version: 525.85" in facts_of("init-version-mismatch.txt")[2].fault


def test_no_devices_is_none() -> None:
    """A driver that says that there are no devices counts none."""
    assert facts_of("no-devices.txt")[0]["nvidia.gpu_count"].value == 0


def test_fewer_described_than_attached_says_both() -> None:
    """Eight attached and seven described is a count of eight."""
    count = facts_of("seven-of-eight.xml")[0]["nvidia.gpu_count"]

    assert (count.value, count.detail) == (8, "8 attached, 7 described")


def test_words_around_a_document_are_notes() -> None:
    """A warning before and one after are kept, in their order."""
    _, _, answer = facts_of("banner-before-and-after.xml")

    assert [note[:20] for note in answer.notes] == ["WARNING: persistence", "WARNING: infoROM is "]


def test_undecodable_name_keeps_its_bytes() -> None:
    """A name that is not text is a failure with its bytes, and the fields beside it are values."""
    host, gpus, _ = facts_of("non-utf8-name.csv")

    raw = (FOLDER / "odd" / "non-utf8-name.csv").read_bytes().split(b", ")[3]
    assert gpus[0]["gpu.name"].outcome == FAILED
    assert raw.hex() in gpus[0]["gpu.name"].detail
    assert host["nvidia.driver"].value == "555.85"


def test_pending_modes_differ_from_current_ones() -> None:
    """What waits for a reset is a fact of its own."""
    _, gpus, _ = facts_of("pending-ecc-mig.xml")

    assert gpus[0]["gpu.ecc"].value != gpus[0]["gpu.ecc_pending"].value
    assert gpus[0]["gpu.mig"].value != gpus[0]["gpu.mig_pending"].value


def test_one_differing_gpu_is_seen() -> None:
    """Among four GPUs one has another VBIOS and one another limit."""
    _, gpus, _ = facts_of("mixed-vbios-and-limit.xml")

    assert alike(gpus) > 1


def test_two_gpus_of_one_serial_stay_two() -> None:
    """A serial is no key."""
    _, gpus, _ = facts_of("two-gpus-one-serial.xml")

    assert len(gpus) == 4
    assert len({gpu["gpu.serial"].value for gpu in gpus}) == 2


def test_names_are_kept_whole() -> None:
    """Nine names that begin alike are nine names."""
    _, gpus, _ = facts_of("names-alike.csv")

    assert len({gpu["gpu.name"].value for gpu in gpus}) == 9


def test_matrix_gives_cpus_and_memory() -> None:
    """Underlined text in a pipe is read; a range of NUMA nodes is text; NVLink hides the path."""
    _, gpus, _ = facts_of("topo-numa-range.txt")

    assert [gpu["gpu.cpu_affinity"].value for gpu in gpus] == ["0-31,64-95", "32-63"]
    assert (gpus[0]["gpu.numa_node"].value, gpus[1]["gpu.numa_node"].outcome) == ("0-1", NOT_SUPPORTED)
    assert gpus[0]["gpu.topology"].outcome == FAILED


def test_serial_keeps_its_leading_zero() -> None:
    """A serial is text."""
    assert facts_of("query-old-367.txt")[1][0]["gpu.serial"].value == "0320000000042"


def test_cells_of_err_are_failures() -> None:
    """`ERR!` is not "not supported"."""
    _, gpus, _ = facts_of("err-cells-table.txt")

    assert gpus[1]["gpu.power_limit"].outcome == gpus[1]["gpu.mig"].outcome == FAILED


def test_lines_of_known_exit_codes_are_no_answers() -> None:
    """Each text that is known to come with an exit code other than 0 gives no GPU as a value."""
    rows = [line.split("\t") for line in (FOLDER / "odd" / "exit-codes.tsv").read_text().splitlines()[1:]]

    for code, _, text, meaning in rows:
        if meaning in ("unknown",) or code == "14":
            continue
        answer = smi.read(text.encode() + b"\n", "row")
        assert not answer.host["nvidia.gpu_count"].has_value
        assert answer.described == 0
