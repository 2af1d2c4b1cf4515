"""Small values that many tests start from: a lockfile, a host with GPUs, its facts.

Every function returns a fresh value; a test changes the one thing that it is about with
`dataclasses.replace` or by naming it.
"""

from envlock import digest
from envlock.facts import Device, Facts, Observed, absent, value
from envlock.lockfile import (
    AptIndex,
    DebianBase,
    DebPackage,
    Determinism,
    Environment,
    Golden,
    Host,
    Image,
    Layer,
    LockedFile,
    Lockfile,
    PythonPackage,
    Rule,
    host_of,
)
from envlock.policy import default_rules

HOST_FACTS: dict[str, Observed] = {
    "cpu.architecture": value("x86_64"),
    "cpu.flags": value(("avx2", "avx512f", "fma")),
    "cpu.microcode": absent("hidden", detail="the hypervisor shows none"),
    "cpu.uniform": value(True),
    "nvidia.driver": value("535.161.08"),
    "system.kernel": value("6.1.0-18-amd64"),
}

GPU_FACTS: dict[str, Observed] = {
    "gpu.ecc": value(True),
    "gpu.inforom": absent("not-supported"),
    "gpu.name": value("NVIDIA H100 80GB HBM3"),
    "gpu.power_limit": value(700000),
    "gpu.vbios": value("96.00.5E.00.01"),
}


def sha(text: str) -> digest.Digest:
    """Return a digest that stands for `text`."""
    return digest.sha256(text.encode())


def gpu_facts(**changed: Observed) -> dict[str, Observed]:
    """Return the facts of one GPU; `vbios=value("…")` changes `gpu.vbios`."""
    return {**GPU_FACTS, **{f"gpu.{name}": seen for name, seen in changed.items()}}


def facts(gpus: list[dict[str, Observed]] | None = None, host: dict[str, Observed] | None = None) -> Facts:
    """Return facts of a host with `gpus`, numbered by PCI bus id; a fact in `host` replaces or adds one."""
    held = gpus or []
    every = {**HOST_FACTS, "nvidia.gpu_count": value(len(held)), **(host or {})}
    return Facts(every, [Device("gpu", f"0000:{index:02x}:00.0", seen) for index, seen in enumerate(held)])


def host(gpus: list[dict[str, Observed]] | None = None, changed: dict[str, Observed] | None = None) -> Host:
    """Return the locked host that `facts(gpus, changed)` came from."""
    observed = facts(gpus, changed)
    return host_of(observed.host, [gpu.facts for gpu in observed.gpus()])


def lock(locked_host: Host | None = None, rules: tuple[Rule, ...] | None = None) -> Lockfile:
    """Return a lockfile with something in every section; its policy is the default unless `rules` are given."""
    held = locked_host if locked_host is not None else host()
    return Lockfile(
        environment=Environment(
            name="sample", platform="linux/amd64", python="3.11", interpreter="/opt/venv/bin/python", epoch=1700000000,
            spec=sha("spec"),
        ),
        base=DebianBase(
            suite="bookworm",
            indexes=(AptIndex(suite="bookworm", components=("main",), sha256=sha("InRelease")),),
        ),
        apt=(
            DebPackage(
                name="libc6", version="2.36-9", architecture="amd64", file="pool/main/g/glibc/libc6_2.36-9_amd64.deb",
                size=2700000, sha256=sha("libc6"),
            ),
        ),
        python=(
            PythonPackage(
                name="numpy", version="2.4.6", index="default", file="numpy-2.4.6-cp311-cp311-linux_x86_64.whl",
                size=17000000, sha256=sha("numpy"),
            ),
            PythonPackage(
                name="torch", version="2.13.0", index="default", file="torch-2.13.0-cp311-cp311-linux_x86_64.whl",
                size=180000000, sha256=sha("torch"),
            ),
        ),
        files=(LockedFile(path="/opt/model.bin", source="model.bin", size=4, sha256=sha("model")),),
        determinism=Determinism(
            profile="strict", threads=2, env=(("OMP_NUM_THREADS", "2"),), torch=(("deterministic", True),)
        ),
        host=held,
        policy_profile="strict",
        policy=default_rules(held) if rules is None else rules,
        image=Image(
            config=sha("config"), manifest=sha("manifest"),
            layers=(Layer(owner="system", diff_id=sha("layer"), size=1024),),
        ),
        goldens=(
            Golden(
                platform=(("arch", "x86_64"), ("isa", "avx512")), suite="standard/1", image=sha("config"),
                settings=(("threads", "2"),), outputs=(("t1.k1", "ok"), ("t3.encoder", str(sha("out")))),
            ),
        ),
    )  # fmt: skip
