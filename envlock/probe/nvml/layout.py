"""What NVML tells in many calls: MIG instances, NVLink, and the paths between GPUs.

Places on a node never enter a value: a GPU's paths are counted, not listed.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Sequence, Tuple

from envlock.facts import FAILED, NOT_IN_DRIVER, NOT_SUPPORTED, Observed, Value, absent
from envlock.probe.host import Absent
from envlock.probe.nvml import words
from envlock.probe.nvml.binding import (
    INVALID,
    NOT_FOUND,
    Asker,
    Binding,
    Call,
    Told,
    code,
    described,
    observed,
    outcome,
)

MIG = "nvmlDeviceGetMigDeviceHandleByIndex"
LINK = "nvmlDeviceGetNvLinkState"
ANCESTOR = "nvmlDeviceGetTopologyCommonAncestor"
PEER = "nvmlDeviceGetP2PStatus"
_MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS of nvml.h 13
_UNTOLD = ", and the driver does not say what they lead to"  # before driver 470
_MOST_MIG = 64  # no GPU has more than 8
_READ = 0  # NVML_P2P_CAPS_INDEX_READ

# For each GPU its handle, or why it could not be opened.
Opened = Sequence[Tuple[Any, str, str]]


def own(asker: Asker) -> Dict[str, Observed]:
    """Return the facts of one GPU that take several calls."""
    return {
        "gpu.mig_layout": observed(MIG, lambda: _mig(asker)),
        "gpu.nvlink": observed(LINK, lambda: _links(asker.binding, asker.first[0])),
    }


# ---- MIG --------------------------------------------------------------------------------------


def _mig(asker: Asker) -> Value | Told:
    """Return each MIG device as PROFILE@START; where no placement is told, as its profile.

    Devices are numbered with holes: each number up to the most that there can be is asked.
    """
    binding, parent = asker.binding, asker.first[0]
    if not words.switch(asker.ask(Call("nvmlDeviceGetMigMode"))[0]):
        raise Absent(NOT_SUPPORTED, "MIG is off")
    most = words.number(binding.call("nvmlDeviceGetMaxMigDeviceCount", parent))
    if most > _MOST_MIG:
        raise ValueError("the driver says that there can be {} MIG devices".format(most))
    devices = []
    for index in range(most):
        try:
            devices.append(binding.call(MIG, parent, index))
        except Exception as error:
            if code(error) != NOT_FOUND:
                raise
    profiles = [_profile(asker, device) for device in devices]
    try:
        starts = _starts(binding, parent, devices)
    except Exception as error:
        return Told(tuple(sorted(profiles)), "the placement is not told: {}".format(described(error)))
    return tuple(sorted("{}@{}".format(profile, start) for profile, start in zip(profiles, starts)))


def _profile(asker: Asker, device: Any) -> str:
    """Return the profile of a MIG device, such as `3g.40gb`: the end of its name, or else from its size."""
    match = re.search(r"\bMIG (\S+)$", words.text(asker.binding.call("nvmlDeviceGetName", device)))
    if match is not None:
        return match.group(1)
    found = asker.binding.call("nvmlDeviceGetAttributes_v2", device)
    total = int(asker.ask(Call("nvmlDeviceGetMemoryInfo")).total)
    # Memory is cut into eighths of what the GPU has, as its maker rounds it in profile names.
    eighths = -(-int(found.memorySizeMB) * 8 * (1 << 20) // total)
    size = (eighths * -(-total // (1 << 30)) + 4) // 8
    part = "" if found.computeInstanceSliceCount == found.gpuInstanceSliceCount else "{}c.".format(
        found.computeInstanceSliceCount
    )  # fmt: skip
    return "{}{}g.{}gb".format(part, found.gpuInstanceSliceCount, size)


def _starts(binding: Binding, parent: Any, devices: Sequence[Any]) -> List[int]:
    """Return the first slice of each device's GPU instance; that may need the rights of root."""
    known: Dict[int, int] = {}
    starts = []
    for device in devices:
        instance = int(binding.call("nvmlDeviceGetGpuInstanceId", device))
        if instance not in known:
            handle = binding.call("nvmlDeviceGetGpuInstanceById", parent, instance)
            known[instance] = int(binding.call("nvmlGpuInstanceGetInfo", handle).placement.start)
        starts.append(known[instance])
    return starts


# ---- NVLink -----------------------------------------------------------------------------------


def _links(binding: Binding, handle: Any) -> Value:
    """Return the links, counted. The first number that is no link ends them; one without support is a hole.

    An old binding knows fewer links than a new GPU has, and must not end the count.
    """
    found: List[str] = []
    for link in range(max(_MOST_LINKS, getattr(binding.module, "NVML_NVLINK_MAX_LINKS", 0))):
        try:
            active = words.switch(binding.call(LINK, handle, link))
        except Exception as error:
            if link == 0 and code(error) in (INVALID, 3):
                raise Absent(NOT_SUPPORTED, "no NVLink (NVML code {})".format(code(error))) from None
            if code(error) == INVALID:
                break
            if outcome(error) == NOT_SUPPORTED:
                continue
            raise
        found.append(_active(binding, handle, link) if active else "inactive")
    told = words.counted(found)
    if any(item.endswith(_UNTOLD) for item in told):
        # Half an answer: links of equal version may lead elsewhere.
        raise Absent(NOT_IN_DRIVER, ", ".join(told))
    return told


def _active(binding: Binding, handle: Any, link: int) -> str:
    version = words.name_of(words.LINK_VERSIONS, binding.call("nvmlDeviceGetNvLinkVersion", handle, link))
    try:
        end = words.name_of(words.LINK_ENDS, binding.call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link))
    except Exception as error:
        if outcome(error) == NOT_IN_DRIVER:
            return "version {}{}".format(version, _UNTOLD)
        if outcome(error) != NOT_SUPPORTED:
            raise
        end = "unknown"  # a switch that is hidden
    return "version {} to {}".format(version, end)


# ---- paths between GPUs -----------------------------------------------------------------------


def between(binding: Binding, opened: Opened) -> List[Dict[str, Observed]]:
    """Return for each GPU its paths and its peer access to the others; each pair is asked once."""
    paths = _pairs(opened, ANCESTOR, words.PATHS, lambda one, other: binding.call(ANCESTOR, one, other))
    peers = _pairs(opened, PEER, words.PEERS, lambda one, other: binding.call(PEER, one, other, _READ))
    return [{"gpu.topology": path, "gpu.p2p": peer} for path, peer in zip(paths, peers)]


def _pairs(
    opened: Opened, function: str, names: Dict[int, str], ask: Callable[[Any, Any], Any]
) -> List[Observed]:  # fmt: skip
    """Return for each GPU the counted answers about it and each other one.

    One pair that could not be asked, or was answered with an error, leaves the fact open.
    """
    answers: List[List[str]] = [[] for _ in opened]
    faults: List[List[Tuple[str, str]]] = [[] for _ in opened]
    for low, (one, kind, why) in enumerate(opened):
        for high in range(low + 1, len(opened)):
            other, other_kind, other_why = opened[high]
            fault = (kind, why) if one is None else (other_kind, other_why)
            if one is not None and other is not None:
                try:
                    name = words.name_of(names, ask(one, other))
                except Exception as error:
                    fault = (outcome(error), described(error))
                else:
                    answers[low].append(name)
                    answers[high].append(name)
                    continue
            faults[low].append((fault[0], "to GPU {}: {}".format(high, fault[1])))
            faults[high].append((fault[0], "to GPU {}: {}".format(low, fault[1])))
    return [_counted(function, *found) for found in zip(opened, answers, faults)]


def _counted(
    function: str, gpu: Tuple[Any, str, str], answers: List[str], faults: List[Tuple[str, str]]
) -> Observed:  # fmt: skip
    source = "NVML " + function
    if gpu[0] is None:
        return absent(gpu[1], source, gpu[2])
    if not faults:
        return Observed("value", words.counted(answers), source)
    known = "; to the others: {}".format(", ".join(words.counted(answers))) if answers else ""
    # Equal faults are one outcome; several kinds leave only that it failed.
    kinds = {kind for kind, _ in faults}
    kind = kinds.pop() if len(kinds) == 1 else FAILED
    return absent(kind, source, faults[0][1] + (" and more" if len(faults) > 1 else "") + known)
