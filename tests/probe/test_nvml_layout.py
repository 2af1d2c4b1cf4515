"""What takes NVML many calls: MIG instances, links, and the paths between GPUs."""

from typing import Any

import nvml_fake
import pytest
from nvml_fake import Code, by_number, handle, index_of
from nvml_unit import collect, library, seen

from envlock.facts import FAILED, NO_PERMISSION, NOT_IN_DRIVER, NOT_SUPPORTED
from envlock.probe.nvml import collecting


def mig(**changes: Any) -> dict[int, dict[str, Any]]:
    """Return a GPU cut into a 3g and a 1g instance; its MIG devices are number 0 and 2, with a hole between."""
    parent = nvml_fake.gpu(
        nvmlDeviceGetMigMode=(1, 1),
        nvmlDeviceGetMaxMigDeviceCount=7,
        nvmlDeviceGetMigDeviceHandleByIndex=by_number(handle(100), Code(6), handle(101), *[Code(6)] * 4),
        nvmlDeviceGetGpuInstanceById=lambda arguments: handle({1: 200, 9: 201}[int(arguments[0])]),
        **changes,
    )
    return {
        0: parent,
        100: {"nvmlDeviceGetName": b"NVIDIA H100 80GB HBM3 MIG 3g.40gb", "nvmlDeviceGetGpuInstanceId": 1},
        101: {"nvmlDeviceGetName": b"NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "nvmlDeviceGetGpuInstanceId": 9},
        200: {"nvmlGpuInstanceGetInfo": {"placement": {"start": 4, "size": 4}}},
        201: {"nvmlGpuInstanceGetInfo": {"placement": {"start": 0, "size": 1}}},
    }


def test_mig_layout_is_profile_and_placement() -> None:
    """Each MIG device is its profile and where its instance starts; holes in the numbers are passed over."""
    found = seen(collect(mig()), "gpu.mig_layout")

    assert (found.value, found.detail) == (("1g.10gb+me@0", "3g.40gb@4"), "")


def test_mig_layout_without_the_rights_is_profiles_alone() -> None:
    """A user who may not read placements gets the profiles, and the reason."""
    found = seen(collect(mig(nvmlGpuInstanceGetInfo=Code(4)) | {200: {}, 201: {}}), "gpu.mig_layout")

    assert found.value == ("1g.10gb+me", "3g.40gb")
    assert found.detail.startswith("the placement is not told: ")


def test_profile_without_a_name_comes_from_its_size() -> None:
    """A MIG device whose name does not tell the profile is named by its slices and memory, as its maker does."""
    gpus = mig()
    gpus[100] = {
        "nvmlDeviceGetName": b"NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetGpuInstanceId": 1,
        "nvmlDeviceGetAttributes_v2": {
            "gpuInstanceSliceCount": 3, "computeInstanceSliceCount": 1, "memorySizeMB": 40448,
        },
    }  # fmt: skip

    assert seen(collect(gpus), "gpu.mig_layout").value == ("1c.3g.40gb@4", "1g.10gb+me@0")


def test_mig_on_without_instances_is_an_empty_layout() -> None:
    """After a reboot the mode is on and the instances are gone: an empty layout, not an absent one."""
    gpus = mig()
    gpus[0]["nvmlDeviceGetMigDeviceHandleByIndex"] = Code(6)

    assert seen(collect(gpus), "gpu.mig_layout").value == ()
    assert seen(collect(gpus), "gpu.mig").value is True


@pytest.mark.parametrize(("code", "outcome"), [(4, NO_PERMISSION), (999, FAILED)])
def test_mig_error_is_never_a_whole_gpu(code: int, outcome: str) -> None:
    """An error while MIG devices are opened leaves the layout open; it is not "no instances"."""
    gpus = mig()
    gpus[0]["nvmlDeviceGetMigDeviceHandleByIndex"] = Code(code)

    assert seen(collect(gpus), "gpu.mig_layout").outcome == outcome


def test_gpu_without_mig_has_no_layout() -> None:
    """Where MIG is off, or is not there, the layout is "not supported"."""
    off = seen(collect({0: nvml_fake.gpu()}), "gpu.mig_layout")
    none = seen(collect({0: nvml_fake.gpu(nvmlDeviceGetMigMode=Code(3))}), "gpu.mig_layout")

    assert (off.outcome, off.detail, none.outcome) == (NOT_SUPPORTED, "MIG is off", NOT_SUPPORTED)


def test_links_past_the_last_are_none() -> None:
    """A link number that is an invalid argument ends the links; nothing after it is asked."""
    fake = library({0: nvml_fake.gpu(nvmlDeviceGetNvLinkState=by_number(1, 1))})
    document = collecting.collect(fake.module)

    assert seen(document, "gpu.nvlink").value == ("2 x version 4 to switch",)
    assert [name for name, _ in fake.asked].count("nvmlDeviceGetNvLinkState") == 3


@pytest.mark.parametrize("code", [2, 3])
def test_gpu_without_links_supports_none(code: int) -> None:
    """Where not even the first link is known there is no NVLink."""
    found = seen(collect({0: nvml_fake.gpu(nvmlDeviceGetNvLinkState=Code(code))}), "gpu.nvlink")

    assert found.outcome == NOT_SUPPORTED


def test_link_that_is_not_fitted_is_a_hole() -> None:
    """A link without support between two that are up is passed over."""
    found = seen(collect({0: nvml_fake.gpu(nvmlDeviceGetNvLinkState=by_number(1, Code(3), 1))}), "gpu.nvlink")

    assert found.value == ("2 x version 4 to switch",)


def test_link_that_fails_leaves_nvlink_open() -> None:
    """An error in the middle is no number of links."""
    found = seen(collect({0: nvml_fake.gpu(nvmlDeviceGetNvLinkState=by_number(1, Code(999)))}), "gpu.nvlink")

    assert found.outcome == FAILED


def test_far_end_that_the_driver_cannot_tell_leaves_nvlink_open() -> None:
    """A driver older than the question for the far end gives half an answer, which equals none."""
    table = nvml_fake.gpu()
    del table["nvmlDeviceGetNvLinkRemoteDeviceType"]
    found = seen(collect({0: table}), "gpu.nvlink")

    assert found.outcome == NOT_IN_DRIVER
    assert found.detail == "1 x inactive, 17 x version 4, and the driver does not say what they lead to"


def test_far_end_that_is_hidden_is_unknown() -> None:
    """A switch that is hidden from this machine is what the links lead to, and has no name."""
    table = nvml_fake.gpu(nvmlDeviceGetNvLinkRemoteDeviceType=Code(3))

    assert seen(collect({0: table}), "gpu.nvlink").value == ("1 x inactive", "17 x version 4 to unknown")


def test_paths_are_counted_from_each_gpu() -> None:
    """Each GPU counts its paths to the others; which GPU is where does not matter."""
    # Numbers 0 and 1 share a switch, 2 is on another socket.
    near = {(0, 1): 10, (0, 2): 50, (1, 2): 50}

    def table(own: int) -> dict[str, Any]:
        return nvml_fake.gpu(
            nvmlDeviceGetTopologyCommonAncestor=lambda arguments: near[own, index_of(arguments[0])],
            nvmlDeviceGetP2PStatus=lambda arguments: 0 if near[own, index_of(arguments[0])] == 10 else 1,
        )

    document = collect({index: table(index) for index in range(3)})

    assert [seen(document, "gpu.topology", index).value for index in range(3)] == [
        ("1 x single-switch", "1 x system"), ("1 x single-switch", "1 x system"), ("2 x system",),
    ]  # fmt: skip
    assert seen(document, "gpu.p2p", 2).value == ("2 x chipset not supported",)
    assert seen(document, "gpu.p2p", 0).value == ("1 x chipset not supported", "1 x ok")


def test_path_to_a_gpu_that_cannot_be_opened_is_open() -> None:
    """A path that could not be asked leaves the fact open, with what is known of the others."""
    document = collect({0: nvml_fake.gpu(), 1: nvml_fake.gpu(), 2: {"handle": 4}})
    found = seen(document, "gpu.topology")

    assert found.outcome == NO_PERMISSION
    assert (
        found.detail
        == "to GPU 2: the GPU cannot be opened: insufficient permissions (NVML code 4); to the others: 1 x node"
    )


def test_driver_without_topology_says_so_once() -> None:
    """A driver that has no such function leaves all paths "not in this driver"."""
    table = nvml_fake.gpu()
    del table["nvmlDeviceGetTopologyCommonAncestor"]
    document = collect({0: table, 1: table})

    assert seen(document, "gpu.topology", 1).outcome == NOT_IN_DRIVER
    assert seen(document, "gpu.p2p", 1).value == ("1 x ok",)


def test_unknown_peer_status_is_failed() -> None:
    """A status that NVML itself calls unknown is no answer."""
    document = collect({0: nvml_fake.gpu(nvmlDeviceGetP2PStatus=6), 1: nvml_fake.gpu(nvmlDeviceGetP2PStatus=6)})

    assert seen(document, "gpu.p2p").outcome == FAILED


def test_links_are_counted_past_what_an_old_binding_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many links there can be is not the binding's to say: one of 2021 knows 12, and this GPU has 18."""
    monkeypatch.setattr("pynvml.NVML_NVLINK_MAX_LINKS", 12)

    assert seen(collect({0: nvml_fake.gpu()}), "gpu.nvlink").value == ("1 x inactive", "17 x version 4 to switch")


def test_absurd_number_of_mig_devices_fails_the_layout_alone() -> None:
    """A driver that says there can be four billion MIG devices is not asked for each of them."""
    gpus = mig()
    gpus[0]["nvmlDeviceGetMaxMigDeviceCount"] = 4294967295

    document = collect(gpus)

    assert seen(document, "gpu.mig_layout").outcome == FAILED
    assert "4294967295" in seen(document, "gpu.mig_layout").detail
    assert seen(document, "gpu.mig").value is True
