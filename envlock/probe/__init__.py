"""Observing a host: every registered fact, each with a value or the reason why not.

`probe` never raises for what a host is or lacks. What a fact means is
`envlock.registry`; whether it is the right one is `envlock.drift`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Callable, Dict, Mapping, Sequence, Tuple, TypeVar

from envlock.errors import UsageError
from envlock.facts import FAILED, Device, Facts, Observed, absent, overlap
from envlock.probe import engine
from envlock.probe.host import Host
from envlock.probe.live import LiveHost
from envlock.registry import GPU, HOST, REGISTRY, in_scope

if TYPE_CHECKING:
    from envlock.probe.nvidia import Found

Reader = Callable[[Host], Dict[str, Observed]]
Result = TypeVar("Result")


def begin() -> Host:
    """Return this machine, to be given to `probe`: its driver is asked from now on, and answers meanwhile."""
    host = LiveHost()
    host.begin_nvml()
    return host


def probe(
    root: str | os.PathLike[str] = "/", host: Host | None = None, only: str = "", cross_check: bool = False
) -> Facts:
    """Return the facts of the host whose file tree is at `root`; `/` is this machine.

    A tree elsewhere is a recorded host: what is not a file was not recorded, and fails.
    `host` replaces both, with its own calls. `only` keeps the facts whose keys start with
    it, and reads nothing else; `UsageError` when no fact does. `cross_check` asks
    nvidia-smi beside NVML, and notes what the two disagree about.
    """
    _refuse_unknown(only)
    source = host or (LiveHost() if os.fspath(root) == "/" else Host(root))
    gathered = _Gathered(only)
    # Programs, sockets and drivers answer while the files are read.
    engines = gathered.attempt("container.", lambda: engine.begin(source))
    gathered.attempt(("nvidia.", "gpu."), lambda: source.begin_nvml(gathered.wants("gpu.")))
    for prefixes, read in _readers():
        found = gathered.attempt(prefixes, lambda read=read: read(source))  # type: ignore[misc]
        gathered.host.update(found or {})
    said = gathered.attempt(("nvidia.", "gpu."), lambda: _nvidia(source, gathered.wants("gpu."), cross_check))
    if said is not None:
        gathered.host.update(said.host)
        gathered.devices, gathered.notes = said.devices, said.notes
    if engines is not None:
        gathered.host.update(gathered.attempt("container.", engines) or {})
    return gathered.complete()


class _Gathered:
    """What the readers found, and the faults of those that broke."""

    def __init__(self, only: str) -> None:
        self.only = only
        self.host: Dict[str, Observed] = {}
        self.devices: Tuple[Device, ...] = ()
        self.notes: Tuple[str, ...] = ()
        self.faults: Dict[str, str] = {}

    def wants(self, prefix: str) -> bool:
        """Return whether facts that start with `prefix` are among those asked for."""
        return overlap(prefix, self.only)

    def attempt(self, prefixes: str | Tuple[str, ...], read: Callable[[], Result]) -> Result | None:
        """Return what `read` returns when it is wanted and works: a fact that could not be read is a fact."""
        names = (prefixes,) if isinstance(prefixes, str) else prefixes
        if not any(self.wants(prefix) for prefix in names):
            return None
        try:
            return read()
        except Exception as error:
            self.faults.update(dict.fromkeys(names, "{}: {}".format(type(error).__name__, error)))
            return None

    def complete(self) -> Facts:
        devices = [Device(item.kind, item.ident, self._all(item.facts, GPU)) for item in self.devices]
        notes = (*self.notes, *_unlisted(self.only, self.host.get("nvidia.gpu_count"), devices, self.faults))
        return Facts(self._all(self.host, HOST), devices, notes, (self.only,) if self.only else ())

    def _all(self, found: Dict[str, Observed], scope: str) -> Dict[str, Observed]:
        """Return one observation for every wanted fact of `scope`, in registry order."""
        complete = {}
        for entry in in_scope(scope):
            if entry.key.startswith(self.only):
                why = self.faults.get(entry.key.partition(".")[0] + ".", "no reader reports this fact")
                complete[entry.key] = found.get(entry.key) or absent(FAILED, "envlock", "a fault of envlock: " + why)
        return complete


def _unlisted(
    only: str, count: Observed | None, devices: Sequence[Device], faults: Mapping[str, str]
) -> Tuple[str, ...]:
    """Return why a document of GPUs alone lists none: the fact that says so is not part of it."""
    if devices or not only.startswith("gpu."):
        return ()
    if count is None:
        return ("no GPU is listed: a fault of envlock: {}".format(faults.get("gpu.", "nothing was read")),)
    why = count.detail or ("this host has none" if count.value == 0 else count.text())
    return ("no GPU is listed: {}".format(why),)


def recorded_smi(data: bytes, where: object, only: str = "") -> Facts:
    """Return the facts in `data`, which any host's nvidia-smi printed (`envlock.probe.smi`); `where` names it.

    Nothing of this machine is read: the document holds the `nvidia.` and `gpu.` facts, and
    says that it is limited to them. `UsageError` for what is no such output, or a part of one.
    """
    _refuse_unknown(only)
    wanted = tuple(prefix for prefix in ("nvidia.", "gpu.") if overlap(prefix, only))
    if not wanted:
        raise UsageError(
            "nvidia-smi tells no facts that start with {!r}".format(only), hint="facts start with nvidia., gpu."
        )
    from envlock.probe import smi

    answer = smi.read(data, where)

    def kept(found: Dict[str, Observed]) -> Dict[str, Observed]:
        return {key: seen for key, seen in found.items() if key.startswith(only)}

    devices = [Device(gpu.kind, gpu.ident, kept(gpu.facts)) for gpu in answer.gpus] if "gpu." in wanted else []
    notes = (*answer.notes, *_unlisted(only, answer.host["nvidia.gpu_count"], devices, {}))
    return Facts(kept(answer.host), devices, notes, (only,) if only else wanted)


def _refuse_unknown(only: str) -> None:
    if not any(key.startswith(only) for key in REGISTRY):
        raise UsageError(
            "no fact starts with {!r}".format(only),
            hint="facts start with {}".format(", ".join(sorted({key.partition(".")[0] + "." for key in REGISTRY}))),
        )


def _nvidia(host: Host, gpus: bool, cross_check: bool) -> Found:
    from envlock.probe import nvidia

    return nvidia.read(host, gpus, cross_check)


def _readers() -> Tuple[Tuple[str | Tuple[str, ...], Reader], ...]:
    """Return each reader of files with the prefixes of its facts.

    Imported here, not above: it takes as long as the engines take to answer.
    """
    from envlock.probe import cpu, frequency, limits, python, system, topology

    return (
        ("cpu.", cpu.read),
        ("cpu.", topology.read),
        ("cpu.", frequency.read),
        (("cpu.", "container."), limits.read),
        ("system.", system.read),
        ("python.", python.read),
    )
