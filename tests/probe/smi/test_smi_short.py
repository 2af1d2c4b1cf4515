"""The short outputs, captures of many, and lines in place of an answer."""

import pytest

from envlock.errors import UsageError
from envlock.facts import FAILED, NOT_SUPPORTED, Observed
from envlock.probe import smi
from envlock.probe.smi import lists

UUID = "GPU-0dd00000-0000-4000-8000-000000000001"
LSPCI = (
    "00:00.0 Host bridge [0600]: Some Corporation Bridge [8086:29c0] (rev 01)\n"
    "06:00.0 3D controller [0302]: NVIDIA Corporation GA102GL [A10] [10de:2236] (rev a1)\n"
    "0001:07:00.0 Bridge [0680]: NVIDIA Corporation GA100 [NVSwitch] [10de:1af1] (rev a1)\n"
)
RULE = "#" * 80 + "\n"


def read(text: str) -> smi.Answer:
    return smi.read(text.encode(), "input")


def gpu(text: str, index: int = 0) -> dict[str, Observed]:
    return read(text).gpus[index].facts


def test_bus_without_a_driver_gives_ids_and_a_count_of_its_own() -> None:
    """A display controller is a GPU, a switch is none; how many the driver shows is not said."""
    answer = read(LSPCI)

    assert [(item.ident, item.facts["gpu.pci_id"].value) for item in answer.gpus] == [("0000:06:00.0", "10de:2236")]
    assert answer.host["nvidia.pci_count"].value == 1
    assert answer.host["nvidia.gpu_count"].outcome == FAILED
    assert [function["name"] for function in lists.functions(LSPCI.split("\n"))] == [
        "GA102GL [A10] [10de:2236] (rev a1)", "GA100 [NVSwitch] [10de:1af1] (rev a1)",
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [20, 60, 100, 150])
def test_bus_that_is_cut_off_counts_nothing(cut: int) -> None:
    """A line without its end leaves open how many there are."""
    try:
        counted = read(LSPCI[: len(LSPCI) - cut]).host["nvidia.pci_count"].has_value
    except UsageError:
        return
    assert not counted


def test_version_is_read_by_label_and_a_word_is_no_version() -> None:
    """Where a label only points to another, the other counts; the last line needs its end."""
    text = (
        "NVIDIA-SMI version  : 610.11.02\nNVML version        : 610.11\n"
        'DRIVER version      : Deprecated, see "KMD version" instead\n'
        "KMD version         : 610.11.02\nCUDA UMD version    : 13.3\n"
    )
    host = read(text).host

    assert {key: host[key].value for key in ("nvidia.driver", "nvidia.kernel_driver", "nvidia.cuda")} == {
        "nvidia.driver": "610.11.02", "nvidia.kernel_driver": "610.11.02", "nvidia.cuda": "13.3",
    }  # fmt: skip
    assert not read(text[:-1]).host["nvidia.cuda"].has_value


def test_list_without_a_header_gives_what_shows_by_its_shape() -> None:
    """An address, a UUID, an index and a model are told by their looks; the last cell needs its end."""
    lines = f"0, 00000000:01:00.0, NVIDIA L4, {UUID}, 72.00 W\n1, 00000000:02:00.0, NVIDIA L4, {UUID[:-1]}2, 72.00 W\n"
    answer = read(lines)

    assert [item.ident for item in answer.gpus] == ["0000:01:00.0", "0000:02:00.0"]
    assert {key: answer.gpus[0].facts[f"gpu.{key}"].value for key in ("name", "uuid", "index", "power_limit")} == {
        "name": "NVIDIA L4", "uuid": UUID, "index": 0, "power_limit": None,
    }  # fmt: skip
    assert answer.host["nvidia.gpu_count"].value == 2
    assert read(lines[:-1]).host["nvidia.gpu_count"].detail == (
        "2 listed; the last line has no end, so that more may have followed"
    )


def test_modes_of_gsp_are_columns_of_their_own() -> None:
    """Off is told from "not there" in CSV."""
    head = "pci.bus_id, gsp.mode.current, gsp.mode.default\n"

    assert gpu(head + "00000000:01:00.0, Disabled, Enabled\n")["gpu.gsp"].value is False
    assert gpu(head + "00000000:01:00.0, Disabled, Enabled\n")["gpu.gsp_default"].value is True
    assert gpu(head + "00000000:01:00.0, [N/A], [N/A]\n")["gpu.gsp"].outcome == NOT_SUPPORTED


def test_lines_that_disagree_about_the_host_are_told() -> None:
    """Two driver versions in one list are no version, and a note; a column of counts is the count."""
    text = "name, driver_version, count\nA, 1.2, 8\nB, 1.3, 8\n"
    answer = read(text)

    assert answer.notes == ("nvidia-smi --query-gpu: the lines disagree about driver_version: 1.2, 1.3",)
    assert not answer.host["nvidia.driver"].has_value
    assert (answer.host["nvidia.gpu_count"].value, answer.described) == (8, 2)


def test_list_of_processes_is_no_list_of_gpus() -> None:
    """A list with a line for each process names GPUs, and counts none."""
    with pytest.raises(UsageError, match="is no output of nvidia-smi"):
        read("timestamp, gpu_name, gpu_uuid, pid\n2025, NVIDIA L4, x, 1\n")


def test_capture_of_many_outputs_is_one_answer() -> None:
    """Sections add up; a list of field names and the numbers of a monitor are passed over, without a note."""
    text = (
        RULE + "# capabilities :: list (-L)\n# $ nvidia-smi -L\n" + RULE + f"GPU 0: NVIDIA L4 (UUID: {UUID})\n\n"
        + RULE + "# capabilities :: field list\n" + RULE + "timestamp\nname\nserial\n\n"
        + RULE + "# idle :: query-gpu\n# $ nvidia-smi\n" + RULE
        + f"index, uuid, pci.bus_id, power.limit [W]\n0, {UUID}, 00000000:01:00.0, 72.00 W\n\n"
        + RULE + "# idle :: pmon\n" + RULE + "# gpu  pid\n    0    -\n"
    )  # fmt: skip
    answer = read(text)

    assert [(item.ident, item.facts["gpu.name"].value) for item in answer.gpus] == [("0000:01:00.0", "NVIDIA L4")]
    assert (answer.gpus[0].facts["gpu.power_limit"].value, answer.notes) == (72000, ())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Failed to initialize NVML: Unknown Error\n", "Failed to initialize NVML: Unknown Error"),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 525.85\n",
         "Failed to initialize NVML: Driver/library version mismatch; NVML library version: 525.85"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n",
         "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."),
    ],
)  # fmt: skip
def test_line_in_place_of_an_answer_fails_every_fact(text: str, fault: str) -> None:
    """The words are nvidia-smi's, at every fact of the host."""
    answer = read(text)

    assert answer.fault == fault
    assert {(seen.outcome, seen.detail) for seen in answer.host.values()} == {(FAILED, fault)}


def test_no_devices_is_a_count_of_none() -> None:
    """The driver's own word that there is no GPU is an answer."""
    count = read("No devices were found\n").host["nvidia.gpu_count"]

    assert (count.value, count.detail) == (0, "the driver shows no GPU")


def test_notes_are_kept_in_bounds() -> None:
    """A long text around an answer is cut, and says how much was left out."""
    notes = read(f"GPU 0: NVIDIA L4 (UUID: {UUID})\n" + "".join(f"strange {number}\n" for number in range(50))).notes

    assert (len(notes), notes[0], notes[-1]) == (21, "strange 0", "and 30 lines more")


def test_matrix_that_is_cut_off_fails_what_it_lacks() -> None:
    """A GPU without its line has no path; a cell that is no list of numbers is not understood."""
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\tall\t0\n"
    first, second = gpu(text), gpu(text, 1)

    assert first["gpu.cpu_affinity"].detail == "not understood: `all`"
    assert second["gpu.topology"].detail == "the matrix is cut off before the line of GPU1"
    assert gpu(text.replace("SYS", "??"))["gpu.topology"].detail == "not understood: `??`"


def test_node_of_own_memory_is_the_last_column() -> None:
    """nvidia-smi puts an empty cell before it in each line, and none in the header."""
    text = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-71\t0\t\t10\n"

    assert gpu(text)["gpu.memory_node"].value == 10
    assert gpu(text.replace("\t10", "\tN/A"))["gpu.memory_node"].outcome == NOT_SUPPORTED
    assert gpu(text.replace("\t10", "\t2-9"))["gpu.memory_node"].outcome == FAILED
    assert not gpu(text.replace("\tGPU NUMA ID", ""))["gpu.memory_node"].has_value


def test_links_that_are_all_down_or_not_listed_are_failures() -> None:
    """Without a number of links there is nothing to count."""
    head = f"GPU 0: NVIDIA L4 (UUID: {UUID})\n"

    assert gpu(head + "NVML: Unable to retrieve Nvlink information as all links are inActive\n")[
        "gpu.nvlink"
    ].detail.startswith("all links are inactive")
    assert lists.links((head + "\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n").split("\n")) == (2,)
    assert lists.links([""]) == ()


def test_bytes_of_a_name_that_is_no_text_are_kept() -> None:
    """The cell is a failure that shows its bytes; the cells beside it are values."""
    answer = smi.read(b"index, name, driver_version\n0, \xf8\xb5A, 555.85\n", "input")

    assert answer.gpus[0].facts["gpu.name"].detail == "not text; the bytes are f8b541"
    assert answer.host["nvidia.driver"].value == "555.85"
