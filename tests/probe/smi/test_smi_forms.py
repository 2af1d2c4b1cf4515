"""Each form of nvidia-smi's output, by small texts of our own."""

from pathlib import Path

import pytest

from envlock.errors import UsageError
from envlock.facts import FAILED, HIDDEN, NO_PERMISSION, NOT_IN_DRIVER, NOT_SUPPORTED, Observed
from envlock.probe import smi
from envlock.registry import GPU, REGISTRY, in_scope

DATA = Path(__file__).resolve().parents[2] / "data" / "nvidia-smi"
XML = (DATA / "two-a100.xml").read_text(encoding="utf-8")
TEXT = (DATA / "one-a10.txt").read_text(encoding="utf-8")
LIST = (
    "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-0dd00000-0000-4000-8000-000000000001)\n"
    "  MIG 3g.40gb     Device  0: (UUID: MIG-0dd00000-0000-4000-8000-000000000011)\n"
    "  MIG 1g.10gb     Device  1: (UUID: MIG-0dd00000-0000-4000-8000-000000000012)\n"
    "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-0dd00000-0000-4000-8000-000000000002)\n"
)


def read(text: str | bytes) -> smi.Answer:
    return smi.read(text.encode() if isinstance(text, str) else text, "input")


def gpu(text: str | bytes, index: int = 0) -> dict[str, Observed]:
    return read(text).gpus[index].facts


def values(facts: dict[str, Observed]) -> dict[str, object]:
    return {key: seen.value for key, seen in facts.items() if seen.has_value}


def test_document_gives_every_value_in_envlocks_words() -> None:
    """Power in mW, ids as vendor:device, states in lower case; the requested limit is the limit."""
    answer = read(XML)

    assert [item.ident for item in answer.gpus] == ["0000:01:00.0", "0000:41:00.0"]
    assert values(answer.host) == {"nvidia.gpu_count": 2, "nvidia.driver": "550.90.07", "nvidia.cuda": "12.4"}
    assert values(answer.gpus[0].facts) == {
        "gpu.name": "NVIDIA A100-SXM4-80GB",
        "gpu.brand": "nvidia",
        "gpu.architecture": "ampere",
        "gpu.memory": 81920,
        "gpu.pci_id": "10de:20b2",
        "gpu.subsystem_id": "10de:147f",
        "gpu.vbios": "92.00.45.00.03",
        "gpu.gsp": True,
        "gpu.gsp_version": "550.90.07",
        "gpu.ecc": True,
        "gpu.ecc_pending": False,
        "gpu.mig": True,
        "gpu.mig_pending": True,
        "gpu.persistence": True,
        "gpu.compute_mode": "exclusive process",
        "gpu.addressing_mode": "none",
        "gpu.power_limit": 350500,
        "gpu.power_limit_default": 400000,
        "gpu.power_limit_enforced": 300000,
        "gpu.clock_graphics_max": 1410,
        "gpu.event_reasons": ("gpu idle", "sw power cap"),
        "gpu.pcie_generation_max": 4,
        "gpu.pcie_width_max": 16,
        "gpu.pcie_width": 8,
        "gpu.pcie_generation": 4,
        "gpu.fabric": "completed",
        "gpu.remapped_rows": ("correctable 0", "uncorrectable 1", "pending no", "failed no"),
        "gpu.uuid": "GPU-0dd00000-0000-4000-8000-000000000001",
        "gpu.serial": "1500000000001",
        "gpu.index": 0,
        "gpu.minor": 0,
    }


def test_every_registered_fact_is_there() -> None:
    """Each GPU has each fact, and the host each fact about NVIDIA."""
    answer = read(XML)

    assert {tuple(item.facts) for item in answer.gpus} == {tuple(entry.key for entry in in_scope(GPU))}
    assert set(answer.host) == {key for key in REGISTRY if key.startswith("nvidia.")}


def test_element_that_is_missing_is_not_one_that_says_n_a() -> None:
    """Absent is "not in this driver", printed as N/A is "not supported"; a locked clock is never told."""
    facts = gpu(XML, 1)

    assert facts["gpu.ecc"].outcome == NOT_IN_DRIVER
    assert facts["gpu.ecc"].detail == "`nvidia-smi -q -x` of this driver prints no such field"
    assert facts["gpu.gsp_version"].outcome == NOT_SUPPORTED
    assert facts["gpu.clock_locked"].outcome == HIDDEN


def test_instances_are_named_by_the_list_alone() -> None:
    """The document counts MIG instances; with `-L` behind it their profiles are known. Off is "not supported"."""
    alone, both = gpu(XML)["gpu.mig_layout"], gpu(XML + LIST)["gpu.mig_layout"]

    assert (alone.outcome, alone.detail[:11]) == (FAILED, "2 instances")
    assert both.value == ("1g.10gb", "3g.40gb")
    assert gpu(XML, 1)["gpu.mig_layout"].outcome == NOT_SUPPORTED


def test_mig_without_instances_is_an_empty_layout() -> None:
    """The mode alone, without an instance, is a layout: none."""
    start, stop = XML.index("<mig_device>"), XML.index("</mig_devices>")

    assert gpu(XML[:start] + "None" + XML[stop:])["gpu.mig_layout"].value == ()


def test_unknown_version_gives_what_it_can_and_says_what_it_could_not() -> None:
    """Elements that nobody knows are named in a note; what is known is read."""
    text = XML.replace("_v12", "_v99").replace("<pci>", "<quantum_mode>On</quantum_mode><pci>")

    answer = read(text)

    assert answer.gpus[0].facts["gpu.vbios"].has_value
    assert answer.notes == (
        "nvidia-smi -q -x (nvsmi_device_v99.dtd): elements that this version of envlock does not read: quantum_mode",
    )


def test_text_gives_the_same_words() -> None:
    """The notice in brackets is cut, KMD is the driver, and the limit is found one level deeper."""
    answer = read(TEXT)
    facts = answer.gpus[0].facts

    assert values(answer.host) == {
        "nvidia.gpu_count": 1, "nvidia.driver": "610.11.02", "nvidia.kernel_driver": "610.11.02", "nvidia.cuda": "13.3",
    }  # fmt: skip
    assert (facts["gpu.power_limit"].value, facts["gpu.power_limit_enforced"].value) == (140000, 150000)
    assert facts["gpu.event_reasons"].value == ("hw slowdown", "hw thermal slowdown")
    assert (facts["gpu.serial"].value, facts["gpu.addressing_mode"].value) == ("0320000000042", "hmm")


@pytest.mark.parametrize("text", [XML, TEXT])
def test_no_cut_changes_a_value(text: str) -> None:
    """Wherever a report is cut off, it is refused, or what is left of it says the same."""
    whole = {(item.ident, key): seen for item in read(text).gpus for key, seen in item.facts.items()}
    refused = 0
    for length in range(1, len(text) - 1, 7):
        try:
            answer = read(text[:length])
        except UsageError:
            refused += 1
            continue
        for item in answer.gpus:
            for key, seen in item.facts.items():
                assert not seen.has_value or seen == whole[item.ident, key], length
    assert refused > len(text) // 14


@pytest.mark.parametrize(
    ("printed", "outcome"),
    [("N/A", NOT_SUPPORTED), ("[N/A]", NOT_SUPPORTED), ("[Not Supported]", NOT_SUPPORTED), ("None", NOT_SUPPORTED),
     ("Requested functionality has been deprecated", NOT_SUPPORTED), ("Unknown Error", FAILED), ("ERR!", FAILED),
     ("[Unknown Error]", FAILED), ("[GPU requires reset]", FAILED), ("", FAILED), ("garbage", FAILED),
     ("Insufficient Permissions", NO_PERMISSION), ("9" * 400 + " W", FAILED)],
)  # fmt: skip
def test_each_spelling_of_absence(printed: str, outcome: str) -> None:
    """What stands in place of a power limit has one outcome, and never a value."""
    assert gpu(f"name, power.limit [W]\nNVIDIA A10, {printed}\n")["gpu.power_limit"].outcome == outcome


@pytest.mark.parametrize(
    "text", ["name, index, power.limit [W]\nA, 0, 150.00\n", "name,index,power.limit\nA,0,150 W\n"]
)
def test_units_may_stand_in_header_or_cell(text: str) -> None:
    """`nounits`, and a list without blanks, read the same."""
    assert gpu(text)["gpu.power_limit"].value == 150000


def test_row_of_another_length_is_a_gpu_that_failed() -> None:
    """No line is dropped: one that does not fit the header is a GPU without a value."""
    answer = read("index, name, vbios_version\n0, NVIDIA A10, 94\n1, NVIDIA A10\n")

    assert answer.host["nvidia.gpu_count"].value == 2
    assert {seen.has_value for seen in answer.gpus[1].facts.values()} == {False}


def test_index_gap_leaves_the_count_open() -> None:
    """A list without its second GPU may be one that lost it."""
    count = read("index, name\n0, NVIDIA A10\n2, NVIDIA A10\n").host["nvidia.gpu_count"]

    assert (count.outcome, count.detail) == (FAILED, "2 listed, but none with the index 1")


def test_lost_gpu_is_found_among_the_lines() -> None:
    """A line about a lost GPU between two others is a GPU that failed, and is a note."""
    lost = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system\n"
    answer = read(f"pci.bus_id, name\n00000000:01:00.0, NVIDIA A10\n{lost}00000000:03:00.0, NVIDIA A10\n")

    assert [item.ident for item in answer.gpus] == ["0000:01:00.0", "0000:03:00.0", "0000:02:00.0"]
    assert (answer.host["nvidia.gpu_count"].value, answer.described) == (3, 2)
    assert answer.notes == (lost.strip(),)


def test_outputs_that_disagree_are_told() -> None:
    """Two outputs of one input that say two things are a note; the fuller one counts."""
    answer = read(XML + "pci.bus_id, vbios_version\n00000000:01:00.0, 92.00.45.00.99\n")

    assert answer.gpus[0].facts["gpu.vbios"].value == "92.00.45.00.03"
    assert answer.notes == (
        "GPU at 0000:01:00.0: VBIOS: nvidia-smi --query-gpu says 92.00.45.00.99; nvidia-smi -q -x says 92.00.45.00.03",
    )


def test_letter_case_of_a_vbios_is_no_disagreement() -> None:
    """Systems print one VBIOS in two letter cases."""
    assert read(TEXT + "\npci.bus_id, vbios_version\n00000000:07:00.0, 94.02.5c.00.04\n").notes == ()


def test_windows_shell_writes_utf_16() -> None:
    """A redirect in a Windows shell writes UTF-16 with a byte order mark and other line ends."""
    assert gpu(XML.replace("\n", "\r\n").encode("utf-16"))["gpu.power_limit"].value == 350500


def test_process_name_of_wrong_bytes_harms_nothing() -> None:
    """A byte that is not UTF-8 in the name of a process leaves every fact as it is."""
    data = XML.encode().replace(b"<fb_memory", b"<processes><name>\xb5 & <b</name></processes><fb_memory", 1)

    assert values(gpu(data)) == values(gpu(XML))


def test_ill_formed_clocks_are_cut_out() -> None:
    """Mismatched tags in the list of clocks, which some driver wrote, are not looked at."""
    bad = "<supported_clocks><value><supported_mem_clock></supported_clocks></gpu>"

    assert values(gpu(XML.replace("</gpu>", bad, 1))) == values(gpu(XML))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("hello\n", "is no output of nvidia-smi"),
        ('{"schema": "envlock.facts/1"}', "is no output of nvidia-smi"),
        ("<html><body/></html>", "is no output of nvidia-smi"),
        ('<?xml version="1.0" ?><html/>', "is XML, but no output of `nvidia-smi -q -x`"),
        (XML + XML, "holds two documents"),
        (XML[:-20], "is cut off: the document has no end"),
        (XML.replace("00000000:41", "00000000:01"), "describes the GPU at 0000:01:00.0 twice"),
        (XML.replace("</uuid>", "</uid>", 1), "is not well formed: mismatched tag (line 29 of the document)"),
        (
            XML.replace('"nvsmi_device_v12.dtd">', '"d" [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'),
            "holds declarations of its own, which no output of nvidia-smi does",
        ),
        (XML.replace("550.90.07", "&x;", 1), "is not well formed: undefined entity `x`"),
        ("<nvidia_smi_log>" + "<a>" * 99 + "</nvidia_smi_log>", "is nested more than 24 deep"),
        (
            "<nvidia_smi_log>" + "<gpu></gpu>" * 2000 + "</nvidia_smi_log>",
            "describes more GPUs than any host has: over 1024",
        ),
        ("name, index\nNVIDIA A10", "is cut off in its last line: `NVIDIA A10`"),
    ],
)
def test_input_that_cannot_be_used_is_refused_in_words(text: str, message: str) -> None:
    """Each is an error that names the input, and none a part that passes for the whole."""
    with pytest.raises(UsageError) as caught:
        read(text)

    assert str(caught.value) == f"input: {message}"


def test_place_that_is_printed_twice_is_no_value() -> None:
    """Two texts for one thing are not one of them; the same text twice is."""
    twice = XML.replace("<minor_number>0<", "<minor_number>7</minor_number><minor_number>0<")

    assert gpu(twice)["gpu.minor"].detail == "printed twice, and differently: `7 / 0`"
    assert gpu(twice.replace(">7<", ">0<"))["gpu.minor"].value == 0


def test_input_that_is_too_large_is_refused() -> None:
    """A limit in words, before anything is looked at."""
    with pytest.raises(UsageError, match="is larger than 16777216 bytes"):
        read(b" " * (smi.MAX_BYTES + 1))


def test_links_are_counted_and_never_guessed() -> None:
    """Speeds do not say which version a link has; links that are all down, or that no GPU has, are an answer."""
    head = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0dd00000-0000-4000-8000-000000000001)\n"
    up = gpu(head + "\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n")["gpu.nvlink"]

    assert (up.outcome, up.detail[:16]) == (FAILED, "2 x 26.562 GB/s;")
    assert gpu(head + "\t Link 0: <inactive>\n\t Link 1: <inactive>\n")["gpu.nvlink"].value == ("2 x inactive",)
    assert gpu(head + "Device does not have or support Nvlink\n")["gpu.nvlink"].outcome == NOT_SUPPORTED


def test_paths_are_counted_without_places() -> None:
    """The matrix gives each GPU the paths to the others by their kind."""
    answer = read("\t\x1b[4mGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
                  "GPU0\t X \tPIX\tSYS\t0-3\t0\nGPU1\tPIX\t X \tSYS\t0-3\t0\n"
                  "GPU2\tSYS\tSYS\t X \t4-7\t1\n")  # fmt: skip

    assert [item.facts["gpu.topology"].value for item in answer.gpus] == [
        ("1 x single-switch", "1 x system"), ("1 x single-switch", "1 x system"), ("2 x system",),
    ]  # fmt: skip
    assert answer.host["nvidia.gpu_count"].outcome == FAILED


def test_document_with_declarations_of_its_own_is_refused() -> None:
    """Even a declaration that expands to nothing is none of nvidia-smi's."""
    with pytest.raises(UsageError, match="holds declarations of its own"):
        read(XML.replace('"nvsmi_device_v12.dtd">', '"d" [<!ELEMENT gpu ANY>]>'))


@pytest.mark.parametrize(
    ("attached", "value", "detail"),
    [("4", 4, "4 attached, 2 described"), ("1", None, "1 attached, but 2 described"),
     ("many", None, "2 listed; the number of GPUs is not understood: `many`")],
)  # fmt: skip
def test_count_is_of_those_attached(attached: str, value: int | None, detail: str) -> None:
    """What is described is not what there is; a number that cannot be is none."""
    count = read(XML.replace("<attached_gpus>2<", f"<attached_gpus>{attached}<")).host["nvidia.gpu_count"]

    assert (count.value, count.detail) == (value, detail)


def test_gpu_that_is_lost_fails_whole() -> None:
    """One cell that says so fails every fact of this GPU, its name too; its neighbour is unharmed."""
    answer = read(XML.replace("<vbios_version>92.00.45.00.03", "<vbios_version>GPU is lost", 1))

    assert {(seen.outcome, seen.detail) for seen in answer.gpus[0].facts.values()} == {
        (FAILED, "nvidia-smi prints `GPU is lost`")
    }
    assert answer.gpus[1].facts["gpu.vbios"].has_value
    assert answer.host["nvidia.gpu_count"].value == 2


def test_table_counts_only_when_it_ends() -> None:
    """The table says little: a cut name is no name, and without its list of processes GPUs may be missing."""
    table = (
        "| NVIDIA-SMI 550.90.07    Driver Version: 550.90.07    CUDA Version: 12.4 |\n"
        "| GPU  Name       Persistence-M | Bus-Id   Disp.A | Volatile Uncorr. ECC |\n"
        "|===============================+=================+======================|\n"
        "|   0  NVIDIA GeForce RTX ...  On | 00000000:01:00.0 Off |  N/A |\n"
        "|  0%   41C    P8    21W /  150W |  1MiB /  23028MiB |  0%   E. Process |\n"
        "|                               |                 |                Disabled |\n"
        "+-------------------------------+-----------------+----------------------+\n"
    )
    whole = read(table + "\n| Processes:  |\n|  No running processes found  |\n")
    facts = whole.gpus[0].facts

    assert (facts["gpu.name"].outcome, "NVIDIA GeForce RTX ..." in facts["gpu.name"].detail) == (FAILED, True)
    keys = ("power_limit", "memory", "compute_mode", "persistence", "mig")
    assert {key: facts[f"gpu.{key}"].value for key in keys} == {
        "power_limit": 150000, "memory": 23028, "compute_mode": "exclusive process", "persistence": True, "mig": False,
    }  # fmt: skip
    assert whole.host["nvidia.gpu_count"].value == 1
    assert read(table).host["nvidia.gpu_count"].outcome == FAILED
    assert {seen.has_value for seen in read(table[: table.index("|  0%")]).gpus[0].facts.values()} == {False, True}


def test_two_lines_at_one_address_are_two_gpus_without_a_place() -> None:
    """A list that puts two GPUs at one address is not believed about either, and a note says so."""
    found = read("index, pci.bus_id, name\n0, 00000000:01:00.0, NVIDIA A10\n1, 00000000:01:00.0, NVIDIA A10\n")

    assert [gpu.ident for gpu in found.gpus] == ["unknown-0", "unknown-1"]
    assert any("2 GPUs at 0000:01:00.0" in note for note in found.notes)
